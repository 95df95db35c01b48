use super::*;

fn end(
    status: i64,
    error_type: &'static str,
    phase: &'static str,
    finish_reason: &'static str,
    decision: &'static str,
) -> EndFacts<'static> {
    let status = (status > 0).then_some(status);
    EndFacts {
        status,
        error_type,
        phase,
        finish_reason,
        decision,
        ..EndFacts::default()
    }
}

/// Every row of MONEY §3's table, and the traps beside it: (end, class).
#[test]
fn ends_have_their_class() {
    let classes = Classes::built_in();
    for (facts, expected) in [
        // connect: DNS, refused, TLS, connect timeout, pool timeout.
        (end(0, "ENOTFOUND", "", "", "retry"), "connect"),
        (end(0, "ECONNREFUSED", "", "", "retry"), "connect"),
        (end(0, "SSLError", "", "", "retry"), "connect"),
        (end(0, "ConnectTimeout", "", "", "retry"), "connect"),
        (end(0, "PoolTimeout", "pool", "", "retry"), "connect"),
        (end(0, "Timeout", "connect", "", "retry"), "connect"),
        (end(0, "", "connect", "", "retry"), "connect"),
        (
            end(500, "APIConnectionError", "connect", "", "retry"),
            "connect",
        ),
        // write: broke while the request was being sent.
        (end(0, "WriteTimeout", "", "", "retry"), "write"),
        (end(0, "ECONNRESET", "write", "", "retry"), "write"),
        (end(0, "Timeout", "write", "", "retry"), "write"),
        // read: after sending, whatever status a gateway gave it.
        (end(0, "ReadTimeout", "read", "", "retry"), "read"),
        (end(408, "Timeout", "", "", "retry"), "read"),
        (end(504, "Timeout", "total", "", "retry"), "read"),
        (end(500, "APITimeoutError", "read", "", "retry"), "read"),
        (end(0, "server disconnected", "", "", "retry"), "read"),
        (end(0, "RemoteProtocolError", "read", "", "retry"), "read"),
        (end(408, "", "", "", "retry"), "read"),
        (end(424, "", "", "", "retry"), "read"),
        (end(499, "", "", "", "retry"), "read"),
        (end(504, "", "", "", "retry"), "read"),
        (end(0, "", "total", "", "retry"), "read"),
        // stream: cut, idle timeout, error inside a 200 stream.
        (
            end(200, "RemoteProtocolError", "stream", "", "retry"),
            "stream",
        ),
        (end(0, "Timeout", "stream", "", "retry"), "stream"),
        (end(0, "idle_timeout", "", "", "retry"), "stream"),
        (
            end(200, "overloaded_error", "stream", "", "retry"),
            "stream",
        ),
        // rate_limit, quota.
        (end(429, "", "", "", "retry"), "rate_limit"),
        (end(429, "RateLimitError", "", "", "retry"), "rate_limit"),
        (end(0, "rate_limit_exceeded", "", "", "retry"), "rate_limit"),
        (end(429, "insufficient_quota", "", "", "no_retry"), "quota"),
        (end(402, "", "", "", "no_retry"), "quota"),
        (end(400, "BudgetExceededError", "", "", "no_retry"), "quota"),
        // overloaded: 529, or 503 in the provider's own words.
        (end(529, "", "", "", "retry"), "overloaded"),
        (end(503, "overloaded_error", "", "", "retry"), "overloaded"),
        (end(200, "overloaded_error", "", "", "retry"), "overloaded"),
        // server.
        (end(500, "", "", "", "retry"), "server"),
        (end(502, "BadGatewayError", "", "", "retry"), "server"),
        (end(503, "", "", "", "retry"), "server"),
        (
            end(503, "ServiceUnavailableError", "", "", "retry"),
            "server",
        ),
        (end(520, "", "", "", "retry"), "server"),
        (end(500, "overloaded_error", "", "", "retry"), "server"),
        // client.
        (end(400, "BadRequestError", "", "", "no_retry"), "client"),
        (end(401, "", "", "", "no_retry"), "client"),
        (end(403, "", "", "", "no_retry"), "client"),
        (end(404, "", "", "", "no_retry"), "client"),
        (end(405, "", "", "", "no_retry"), "client"),
        (end(409, "", "", "", "no_retry"), "client"),
        (end(413, "", "", "", "no_retry"), "client"),
        (end(422, "", "", "", "no_retry"), "client"),
        (end(418, "", "", "", "no_retry"), "client"),
        (
            end(0, "context_length_exceeded", "", "", "no_retry"),
            "client",
        ),
        // content.
        (
            end(400, "ContentPolicyViolationError", "", "", "no_retry"),
            "content",
        ),
        (end(200, "", "", "content_filter", "no_retry"), "content"),
        (end(200, "", "", "refusal", "no_retry"), "content"),
        // truncated.
        (end(200, "", "", "length", "success"), "truncated"),
        (end(200, "", "", "max_tokens", "retry"), "truncated"),
        (end(0, "", "", "MAX_TOKENS", "success"), "truncated"),
        // invalid_output: an answer came and could not be used.
        (
            end(200, "JSONDecodeError", "", "stop", "retry"),
            "invalid_output",
        ),
        (
            end(200, "ValidationError", "", "stop", "retry"),
            "invalid_output",
        ),
        (
            end(200, "empty_response", "", "stop", "retry"),
            "invalid_output",
        ),
        // cancelled.
        (end(0, "ReadTimeout", "read", "", "cancelled"), "cancelled"),
        (end(0, "AbortError", "stream", "", "give_up"), "cancelled"),
        // none: a usable answer.
        (end(200, "", "", "stop", "success"), "none"),
        (end(0, "", "", "", "success"), "none"),
        (end(200, "", "", "", "retry"), "none"),
        // unknown: none of these.
        (end(0, "", "", "", "retry"), "unknown"),
        (end(0, "SomethingElse", "", "", "retry"), "unknown"),
        (end(302, "", "", "", "retry"), "unknown"),
        (end(0, "APIConnectionError", "", "", "retry"), "unknown"),
        (end(200, "SomethingElse", "", "stop", "retry"), "unknown"),
        // The bare name of a type, and words within a text.
        (end(0, "httpx.ConnectTimeout", "", "", "retry"), "connect"),
        (
            end(
                0,
                "openai.APITimeoutError: Request timed out.",
                "",
                "",
                "retry",
            ),
            "read",
        ),
        (
            end(
                0,
                "java.net.SocketTimeoutException: Read timed out",
                "",
                "",
                "retry",
            ),
            "read",
        ),
        (
            end(
                0,
                "System.Net.Sockets.SocketException (111): Connection refused",
                "",
                "",
                "retry",
            ),
            "connect",
        ),
        (
            end(0, "dial tcp 10.0.0.1:443: i/o timeout", "", "", "retry"),
            "connect",
        ),
        (
            end(
                0,
                "net/http: request canceled (Client.Timeout exceeded)",
                "",
                "",
                "give_up",
            ),
            "read",
        ),
        (
            end(
                0,
                "HTTPSConnectionPool(host='h', port=443): Read timed out.",
                "",
                "",
                "retry",
            ),
            "read",
        ),
        (
            end(
                429,
                "You exceeded your current quota, please check",
                "",
                "",
                "no_retry",
            ),
            "quota",
        ),
        (
            end(503, "The model is currently overloaded.", "", "", "retry"),
            "overloaded",
        ),
        (end(400, "invalid timeout_ms", "", "", "no_retry"), "client"),
        (
            end(429, "request timed out in queue", "", "", "retry"),
            "rate_limit",
        ),
        // The error's type is a status, or no error at all.
        (end(0, "429", "", "", "retry"), "rate_limit"),
        (end(0, "504", "connect", "", "retry"), "connect"),
        (end(200, "none", "", "stop", "retry"), "none"),
        (end(0, "None", "", "", "retry"), "unknown"),
        // Statuses of time-outs, where the phase knows more.
        (end(408, "", "connect", "", "retry"), "connect"),
        (end(499, "", "stream", "", "give_up"), "stream"),
        (end(429, "", "read", "", "retry"), "rate_limit"),
        (end(500, "", "read", "", "retry"), "server"),
        // Headers came, the rest did not.
        (end(200, "", "read", "", "retry"), "read"),
        (end(200, "Oops", "total", "", "retry"), "read"),
        (end(0, "overloaded_error", "stream", "", "retry"), "stream"),
        (end(200, "", "", "error", "retry"), "stream"),
        // What a used answer carries over from earlier attempts says nothing.
        (end(200, "RateLimitError", "", "stop", "success"), "none"),
        (end(0, "ReadTimeout", "read", "", "success"), "none"),
        (
            end(200, "ReadTimeout", "read", "length", "success"),
            "truncated",
        ),
        (end(429, "", "", "", "success"), "rate_limit"),
        // A caller's own timer aborts, too; then it tries again.
        (end(0, "AbortError", "", "", "retry"), "read"),
        (
            end(0, "TaskCanceledException", "connect", "", "retry"),
            "connect",
        ),
        (
            end(0, "TaskCanceledException", "", "", "give_up"),
            "cancelled",
        ),
        (end(429, "RateLimitError", "", "", "cancelled"), "cancelled"),
    ] {
        assert_eq!(classes.classify(&facts).name(), expected, "{facts:?}");
    }
}

#[test]
fn a_stream_without_its_end_is_cut() {
    let cut = EndFacts {
        stream_complete: Some(false),
        ..end(200, "", "", "", "retry")
    };
    assert_eq!(Classes::built_in().classify(&cut), ErrorClass::Stream);
    let kept = EndFacts {
        decision: "success",
        ..cut
    };
    assert_eq!(Classes::built_in().classify(&kept), ErrorClass::None);
}

/// M13: what fails after a 200 has broken the stream, but a bad answer is an answer.
#[test]
fn an_error_in_a_stream_that_began_is_a_cut() {
    let classes = Classes::built_in();
    for (error_type, streamed, expected) in [
        ("overloaded_error", Some(true), "stream"),
        ("overloaded_error", Some(false), "overloaded"),
        ("overloaded_error", None, "overloaded"),
        ("RemoteProtocolError", Some(true), "stream"),
        ("RemoteProtocolError", None, "read"),
        ("JSONDecodeError", Some(true), "invalid_output"),
        ("content_filter", Some(true), "content"),
        ("", Some(true), "none"),
    ] {
        let facts = EndFacts {
            stream: streamed,
            ..end(200, error_type, "", "", "retry")
        };
        assert_eq!(classes.classify(&facts).name(), expected, "{facts:?}");
    }
}

#[test]
fn a_name_of_any_length_is_taken() {
    let long = "x".repeat(10_000);
    let facts = EndFacts {
        error_type: &long,
        ..EndFacts::default()
    };
    assert_eq!(Classes::built_in().classify(&facts), ErrorClass::Unknown);
}

/// Each row of the data file alone leads to its class, so no two rows contradict each other.
#[test]
fn every_row_of_the_table_is_reached() {
    let table: Table = toml::from_str(BUILT_IN).unwrap();
    let classes = Classes::built_in();
    let of = |facts| classes.classify(&facts);
    let blank = EndFacts {
        decision: "give_up",
        ..EndFacts::default()
    };
    for word in &table.absent {
        let facts = EndFacts {
            error_type: word,
            status: Some(200),
            ..blank
        };
        assert_eq!(of(facts), ErrorClass::None, "absent {word}");
    }
    for (word, class) in &table.phase {
        assert_eq!(
            of(EndFacts {
                phase: word,
                ..blank
            }),
            *class,
            "phase {word}"
        );
        assert_eq!(
            of(EndFacts {
                phase: word,
                error_type: "Timeout",
                ..blank
            }),
            *class,
            "{word}"
        );
    }
    for (status, class) in &table.status {
        assert_eq!(
            of(EndFacts {
                status: status.parse().ok(),
                ..blank
            }),
            *class,
            "{status}"
        );
    }
    for (word, class) in &table.finish {
        let facts = EndFacts {
            finish_reason: word,
            status: Some(200),
            ..blank
        };
        assert_eq!(of(facts), *class, "finish {word}");
    }
    for (word, class) in table.broken.iter().chain(&table.error) {
        assert_eq!(
            of(EndFacts {
                error_type: word,
                ..blank
            }),
            *class,
            "error {word}"
        );
    }
    for within in &table.within {
        for word in &within.words {
            assert!(!key(word).is_empty(), "{word:?}");
            let text = format!("ZQ {} ZQ", word.to_uppercase());
            let facts = EndFacts {
                error_type: &text,
                ..blank
            };
            assert_eq!(classes.classify(&facts), within.class, "within {word}");
        }
    }
    assert_eq!(
        table
            .broken
            .keys()
            .filter(|word| table.error.contains_key(*word))
            .count(),
        0
    );
}

#[test]
fn names_are_those_of_the_enum() {
    for (number, name) in ErrorClass::NAMES.into_iter().enumerate() {
        let class: ErrorClass = serde_json::from_value(name.into()).unwrap();
        assert_eq!(class as usize, number);
        assert_eq!((ErrorClass::ALL[number], class.name()), (class, name));
    }
}
