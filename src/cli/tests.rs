use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::*;

/// What a command wrote.
#[derive(Clone, Default)]
pub(crate) struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("not poisoned").clone()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes()).expect("text")
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .expect("not poisoned")
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Ran {
    exit: Exit,
    out: String,
    err: String,
}

fn run_with(folder: &Path, env: &[(&str, &str)], input: &str, args: &[&str]) -> Ran {
    let (out, err) = (Written::default(), Written::default());
    let mut world = World {
        env: env
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
        folder: folder.to_owned(),
        input: Box::new(io::Cursor::new(input.to_owned())),
        out: Box::new(out.clone()),
        err: Box::new(err.clone()),
        out_is_terminal: false,
        err_is_terminal: false,
    };
    let args = std::iter::once("retrytoll")
        .chain(args.iter().copied())
        .map(OsString::from);
    let exit = run_in(args, &mut world);
    Ran {
        exit,
        out: out.text(),
        err: err.text(),
    }
}

fn ran(input: &str, args: &[&str]) -> Ran {
    run_with(Path::new("/nowhere"), &[], input, args)
}

const BODY: &str = r#"{"system":"abc","messages":[{"role":"user","content":"x"}]}"#;

#[test]
fn help_lists_every_command_in_one_group() {
    let Ran { exit, out, err } = ran("", &["--help"]);
    assert_eq!((exit, err.as_str()), (Exit::Fine, ""));
    assert!(
        !out.contains('\x1b'),
        "colour where there is no terminal: {out:?}"
    );
    for each in Cli::command().get_subcommands() {
        let name = each.get_name();
        let groups = GROUPS
            .iter()
            .filter(|(_, names)| names.contains(&name))
            .count();
        assert_eq!(groups, 1, "{name}");
        let about = each
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        assert!(!about.is_empty(), "{name}");
        let lines = out
            .lines()
            .filter(|line| line.trim_start().starts_with(name));
        assert_eq!(
            lines.filter(|line| line.ends_with(&about)).count(),
            1,
            "{name}: {out}"
        );
    }
    assert!(out.contains("\nKeep:\n  init"), "{out}");
    assert!(!out.contains("Bill:"), "an empty group is shown: {out}");
    assert!(out.contains("3 a gate not met"), "{out}");
    assert_eq!(
        ran("", &["--version"]).out,
        format!("retrytoll {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn the_command_line_is_consistent() {
    command().debug_assert();
}

#[test]
fn a_wrong_command_line_is_told_on_stderr() {
    for args in [
        &[][..],
        &["frobnicate"],
        &["hash", "--no-such-flag"],
        &["check", "--set", "flush.interval"],
        &["hash", "--log", "verbose"],
        &["hash", "--key-file", "none"],
        &["init", "-o", "-", "--set", "flush.interval=1"],
        &["alerts", "--format", "parquet"],
        &["alerts", "--follow", "--format", "csv"],
        &["alerts", "--follow", "-o", "alerts.txt"],
        &["alerts", "--url", "http://localhost:9093"],
        &["alerts", "--to", "pager"],
        &["alerts", "--to", "pagerduty"],
        &["alerts", "--to", "pagerduty", "--routing-key-file", "none"],
        &["alerts", "--to", "webhook"],
        &["alerts", "--to", "webhook", "--url", "localhost:9093"],
        &["alerts", "--to", "alertmanager", "--every", "0s"],
    ] {
        let Ran { exit, out, err } = ran(BODY, args);
        assert_eq!((exit, out.as_str()), (Exit::Usage, ""), "{args:?}");
        assert!(!err.is_empty(), "{args:?}");
    }
    assert!(ran("", &["frobnicate"]).err.starts_with("error: "));
}

#[test]
fn hash_reads_stdin_or_a_file_and_a_key() {
    // The digest is the vector's "abc, x" of schemas/prompt-hash.vectors.json.
    let vectors = include_str!("../../schemas/prompt-hash.vectors.json");
    let vectors: Vec<serde_json::Value> = serde_json::from_str(vectors).expect("JSON");
    let vector = |name: &str| {
        let found = vectors
            .iter()
            .find(|vector| vector["name"] == name)
            .expect(name);
        let text = |member: &str| found[member].as_str().expect(member).to_owned();
        (text("body"), format!("{}\n", text("hash")))
    };
    let (body, expected) = vector("abc, x");
    assert_eq!(ran(&body, &["hash"]).out, expected);
    assert_eq!(ran(&body, &["hash", "-"]).out, expected);

    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("body.json"), &body).expect("written");
    std::fs::write(folder.path().join("key"), "a secret key\n").expect("written");
    let Ran { exit, out, .. } = run_with(folder.path(), &[], "", &["hash", "body.json"]);
    assert_eq!((exit, out), (Exit::Fine, expected));

    let (body, expected) = vector("all that counts, keyed");
    let keyed = run_with(folder.path(), &[], &body, &["hash", "--key-file", "key"]);
    assert_eq!(
        (keyed.exit, keyed.out),
        (Exit::Fine, expected),
        "{}",
        keyed.err
    );
    let (body, expected) = vector("all that counts, with parameters");
    assert_eq!(ran(&body, &["hash", "--with-params"]).out, expected);

    let Ran { exit, out, err } = ran("{}", &["hash"]);
    assert_eq!((exit, out.as_str()), (Exit::Failed, ""));
    assert!(
        err.starts_with("error: the request body has no messages; "),
        "{err}"
    );
}

#[test]
fn init_never_overwrites_unless_it_is_told_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let init = |args: &[&str]| run_with(folder.path(), &[], "", args);
    let path = folder.path().join("retrytoll.toml");
    assert_eq!(init(&["init"]).exit, Exit::Fine);
    let text = std::fs::read_to_string(&path).expect("written");
    assert_eq!(init(&["init", "-o", "-"]).out, text);

    std::fs::write(&path, "mine").expect("written");
    let Ran { exit, err, .. } = init(&["init", "--topic", "calls"]);
    assert_eq!(exit, Exit::Failed);
    assert!(
        err.contains("is there already\nhint: overwrite it with --force"),
        "{err}"
    );
    assert_eq!(std::fs::read_to_string(&path).expect("there"), "mine");

    assert_eq!(
        init(&["init", "--force", "--topic", "calls"]).exit,
        Exit::Fine
    );
    let text = std::fs::read_to_string(&path).expect("there");
    assert!(text.contains("\ntopic = \"calls\"\n"), "{text}");
}

#[test]
fn check_tells_mistakes_beside_what_it_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let toml = "[lake]\npath = \"lake\"\n[flush]\ninterval = \"1\"\nsizes = \"1MB\"\n";
    std::fs::write(folder.path().join("retrytoll.toml"), toml).expect("written");
    let Ran { exit, out, err } = run_with(folder.path(), &[], "", &["check"]);
    assert_eq!((exit, err.as_str()), (Exit::Usage, ""));
    let words: Vec<(&str, &str)> = out
        .lines()
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?))
        })
        .collect();
    let expected = [
        ("wrong", "configuration"),
        ("wrong", "configuration"),
        ("skipped", "broker"),
        ("ok", "lake"),
    ];
    assert_eq!(words, expected, "{out}");
    assert!(out.contains("hint: did you mean flush.size?"), "{out}");

    std::fs::write(
        folder.path().join("retrytoll.toml"),
        "[lake]\npath = \"lake\"\n",
    )
    .expect("written");
    let Ran { exit, out, .. } = run_with(folder.path(), &[], "", &["check"]);
    assert_eq!(exit, Exit::Fine, "{out}");
    assert!(out.contains("retrytoll.toml: 1 value set"), "{out}");

    std::fs::write(folder.path().join("file"), "").expect("written");
    let lake = format!("{}/file/x", folder.path().display());
    let Ran { exit, out, .. } = run_with(folder.path(), &[], "", &["check", "--lake", &lake]);
    assert_eq!(exit, Exit::Failed, "{out}");
}

#[test]
fn show_tells_each_value_and_its_origin() {
    let env = [
        ("RETRYTOLL_FLUSH_INTERVAL", "2500ms"),
        ("RETRYTOLL_KAFKA_SASL_PASSWORD", "hunter2"),
    ];
    let args = [
        "check",
        "--show",
        "--topic",
        "calls",
        "--bootstrap",
        "b:1",
        "--set",
        "kafka.security_protocol=sasl_ssl",
        "--set",
        "kafka.sasl_mechanism=PLAIN",
        "--set",
        "kafka.sasl_username=u",
    ];
    let Ran { exit, out, err } = run_with(Path::new("/nowhere"), &env, "", &args);
    assert_eq!(exit, Exit::Fine, "{err}");
    let line = |key: &str| {
        let line = out
            .lines()
            .find(|line| line.split(' ').next() == Some(key))
            .expect(key);
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("kafka.topic"), "kafka.topic = \"calls\" # --topic");
    assert_eq!(
        line("kafka.alert_topic"),
        "kafka.alert_topic = \"calls.alerts\" # default"
    );
    assert_eq!(
        line("flush.interval"),
        "flush.interval = \"2500ms\" # RETRYTOLL_FLUSH_INTERVAL"
    );
    assert_eq!(line("limits.sql"), "limits.sql = \"160MB\" # default");
    assert!(
        !out.contains("hunter2") && !err.contains("hunter2"),
        "{out}{err}"
    );
}

/// Refuses everything, as a closed pipe does.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_broken_pipe_is_success() {
    let err = Written::default();
    let mut world = World {
        env: vec![],
        folder: PathBuf::new(),
        input: Box::new(io::Cursor::new(BODY)),
        out: Box::new(Closed),
        err: Box::new(err.clone()),
        out_is_terminal: false,
        err_is_terminal: false,
    };
    let args = ["retrytoll", "hash"].map(OsString::from);
    assert_eq!(run_in(args, &mut world), Exit::Fine);
    assert_eq!(err.text(), "");
}

/// One event that counts from 1, of a file in a folder.
#[test]
fn lint_tells_what_is_wrong_and_a_gate_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let event = serde_json::json!({
        "request_id": "r\u{1b}[2J", "attempt": 1, "service": "shop", "model": "gpt-4o-mini",
        "provider": "openai", "prompt_hash": format!("hmac-sha256:{:064}", 7), "max_tokens": 9,
        "decision": "success", "input_tokens": 1, "output_tokens": 1, "ts": 1_793_527_200,
        "elapsed_ms": 900, "timeout_ms": 60_000, "server_request_id": "s",
    });
    std::fs::write(folder.path().join("calls.jsonl"), format!("{event}\n")).expect("written");
    let ran = |args: &[&str]| {
        let args: Vec<&str> = ["lint", "calls.jsonl"]
            .iter()
            .chain(args)
            .copied()
            .collect();
        run_with(folder.path(), &[], "", &args)
    };
    let Ran { exit, out, err } = ran(&[]);
    assert_eq!((exit, err.as_str()), (Exit::Fine, ""));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines[..2],
        [
            "looked at 1 event of 1 service in calls.jsonl",
            "0 errors, 1 warning, 0 info"
        ]
    );
    assert!(
        lines[3].starts_with("warning  attempt_base        shop: the smallest attempt number is 1"),
        "{out}"
    );
    assert_eq!(
        lines[4].trim_start(),
        r"1 of 1 attempts, as r\u{1b}[2J (calls.jsonl:1)"
    );
    assert!(
        lines[5]
            .trim_start()
            .starts_with("mend: set attempt_base = 1"),
        "{out}"
    );
    assert_eq!(ran(&["--fail-over", "error"]).exit, Exit::Fine);
    let failed = ran(&["--fail-over", "warning"]);
    assert_eq!(failed.exit, Exit::GateNotMet);
    assert_eq!(failed.err, "gate not met: errors 0, warnings 1\n");
    assert_eq!(failed.out, out);
    let json = ran(&["--format", "json"]).out;
    let answer: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(answer["findings"][0]["examples"][0]["line"], 1);
    assert_eq!(
        ran(&["--set", "source.attempt_base=1"]).out.lines().nth(1),
        Some("nothing is wrong with them")
    );
    assert_eq!(ran(&["--format", "csv"]).exit, Exit::Usage);
    assert_eq!(ran(&["--events", "5"]).exit, Exit::Usage);
}
