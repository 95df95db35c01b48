use super::*;

fn form(body: &str) -> Vec<u8> {
    canonical_form(body, Params::Excluded).unwrap_or_else(|error| panic!("{body}: {error}"))
}

fn part(tag: u8, content: &str) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend_from_slice(&(content.len() as u64).to_be_bytes());
    bytes.extend_from_slice(content.as_bytes());
    bytes
}

fn parts(parts: &[(u8, &str)]) -> Vec<u8> {
    let version = (b'V', "retrytoll.prompt.v1");
    std::iter::once(&version)
        .chain(parts)
        .flat_map(|&(tag, text)| part(tag, text))
        .collect()
}

#[test]
fn each_part_stands_where_the_table_says() {
    let body = r#"{"model": "gpt-x", "temperature": 0.70, "max_completion_tokens": 50, "stream": true,
        "response_format": {"type": "json_object"},
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "messages": [{"role": "developer", "content": "be brief"},
                     {"role": "user", "name": null, "content": "hi"},
                     {"role": "system", "content": "late"}]}"#;
    let same = [
        (b's', r#""be brief""#),
        (b'm', r#"{"content":"hi","role":"user"}"#),
        (b'm', r#"{"content":"late","role":"system"}"#),
        (b't', r#"{"function":{"name":"f"},"type":"function"}"#),
        (b'f', r#"{"type":"json_object"}"#),
    ];
    assert_eq!(form(body), parts(&same));
    let with = [
        &same[..],
        &[(b'o', r#""gpt-x""#), (b'e', "0.7"), (b'x', "50")],
    ]
    .concat();
    let included = canonical_form(body, Params::Included).expect("valid");
    assert_eq!(included, parts(&with));
}

#[test]
fn one_request_has_one_form_however_it_is_written() {
    for group in [
        &[
            r#"{"system":"a","messages":[{"role":"user","content":"x"}]}"#,
            r#"{"messages":[{"role":"system","content":"a"},{"role":"user","content":"x"}]}"#,
            r#"{"messages":[{"content":[{"text":"a","type":"text"}],"role":"developer"},
                {"role":"user","content":[{"type":"text","text":"x"}]}],"tools":null,"seed":7}"#,
            r#"{"instructions":"a","input":"x","max_output_tokens":9}"#,
            r#"{"instructions":"a","input":[{"role":"user","content":[{"type":"input_text","text":"x"}]}]}"#,
        ][..],
        &[
            r#"{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}],"tools":[]}"#,
            r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"1"}]}]}"#,
        ],
        &[
            r#"{"input":"x","text":{"format":{"type":"text","n":1e0}}}"#,
            r#"{"input":"x","output_config":{"format":{"n":1,"type":"text"},"effort":"low"}}"#,
            r#"{"input":"x","response_format":{"n":1.0,"type":"text"}}"#,
        ],
    ] {
        for body in group {
            assert_eq!(form(body), form(group[0]), "{body}");
        }
    }
}

#[test]
fn different_requests_have_different_forms() {
    let bodies = [
        r#"{"system":"abc","messages":[{"role":"user","content":"x"}]}"#,
        r#"{"system":"ab","messages":[{"role":"user","content":"cx"}]}"#,
        r#"{"messages":[{"role":"user","content":"abc"},{"role":"user","content":"x"}]}"#,
        r#"{"messages":[{"role":"user","content":"ab"},{"role":"user","content":"cx"}]}"#,
        r#"{"messages":[{"role":"user","content":"x"},{"role":"system","content":"abc"}]}"#,
        r#"{"messages":[{"role":"user","content":"abc"}],"tools":[{"a":1}]}"#,
        r#"{"messages":[{"role":"user","content":"abc"}],"tools":[{"a":"1"}]}"#,
        r#"{"messages":[{"role":"user","content":"abc"}],"response_format":{"a":1}}"#,
        r#"{"messages":[{"role":"user","content":"abc"}],"functions":[{"a":1},{"a":1}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"abc","cache_control":{}}]}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"ab"},{"type":"text","text":"c"}]}]}"#,
    ];
    for (at, body) in bodies.iter().enumerate() {
        for other in &bodies[at + 1..] {
            assert_ne!(form(body), form(other), "{body} and {other}");
        }
    }
}

#[test]
fn a_body_without_a_prompt_is_refused() {
    let refused = |body| canonical_form(body, Params::Excluded).expect_err(body);
    for body in [
        "{}",
        r#"{"messages":[]}"#,
        r#"{"messages":null}"#,
        r#"{"prompt":"x"}"#,
    ] {
        assert!(matches!(refused(body), PromptError::NoMessages), "{body}");
    }
    for body in ["[]", "1", "\"x\"", "null"] {
        assert!(matches!(refused(body), PromptError::NotAnObject), "{body}");
    }
    for body in [
        "",
        "{",
        "{} {}",
        r#"{"messages":[{"role":"user","content":"\ud800"}]}"#,
    ] {
        assert!(matches!(refused(body), PromptError::Json(_)), "{body}");
    }
    for body in [
        r#"{"messages":"x"}"#,
        r#"{"messages":["x"]}"#,
        r#"{"input":"x","tools":{}}"#,
        r#"{"input":"x","text":"json"}"#,
    ] {
        assert!(matches!(refused(body), PromptError::Shape { .. }), "{body}");
    }
}

/// The HMAC-SHA-256 of RFC 4231, test case 2.
#[test]
fn a_key_makes_an_hmac() {
    let hash = PromptHash::of(b"what do ya want for nothing?", Some(b"Jefe"));
    let expected = "hmac-sha256:5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    assert_eq!(hash.to_string(), expected);
}

/// The vectors come from `tests/oracle/prompt_hash.py`, which shares no code with this.
#[test]
fn the_vectors_agree() {
    #[derive(serde::Deserialize)]
    struct Vector {
        name: String,
        body: String,
        with_params: bool,
        key: Option<String>,
        form_hex: String,
        hash: String,
    }
    let file = include_str!("../../../../schemas/prompt-hash.vectors.json");
    let vectors: Vec<Vector> = serde_json::from_str(file).expect("the vectors are JSON");
    assert!(vectors.len() >= 20, "only {} vectors", vectors.len());
    for vector in vectors {
        let params = if vector.with_params {
            Params::Included
        } else {
            Params::Excluded
        };
        let form = canonical_form(&vector.body, params)
            .unwrap_or_else(|error| panic!("{}: {error}", vector.name));
        let hex: String = form.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, vector.form_hex, "{}", vector.name);
        let hash = PromptHash::of(&form, vector.key.as_deref().map(str::as_bytes));
        assert_eq!(hash.to_string(), vector.hash, "{}", vector.name);
    }
}
