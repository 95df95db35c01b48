//! class, provider, status → billing state and the chance of it, by rows of data.

#[cfg(any(test, feature = "contract"))]
pub(crate) mod contract;
mod file;

use sha2::{Digest as _, Sha256};

use crate::class::ErrorClass;

/// Whether an attempt was billed. The order is that of the column's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BillingState {
    Billed,
    Unbilled,
    Unknown,
}

impl BillingState {
    /// The words, by number.
    pub const NAMES: [&'static str; 3] = ["billed", "unbilled", "unknown"];
}

/// A chance, in 1/10000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chance(pub u16);

impl Chance {
    pub const NEVER: Self = Self(0);
    pub const SURE: Self = Self(10_000);
}

/// What the policy says of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub state: BillingState,
    pub p_billed: Chance,
    /// The provider stops when the client goes: what was received is what is billed.
    pub stops_on_disconnect: bool,
}

/// What the policy looks at; "" is absent.
#[derive(Clone, Copy, Debug)]
pub struct PolicyFacts<'a> {
    pub provider: &'a str,
    /// As it was called: a router's model begins with the upstream's name and a slash.
    pub model: &'a str,
    pub class: ErrorClass,
    pub status: Option<i64>,
    pub finish_reason: &'a str,
    pub stream: Option<bool>,
    /// The provider counted no output token.
    pub empty: bool,
}

/// The rows that apply, ready for use.
#[derive(Clone, Debug)]
pub struct Policy {
    /// A user's before the built-in ones; the first that fits counts.
    rows: Vec<Row>,
    /// By the class's number.
    default: [Option<Verdict>; ErrorClass::NAMES.len()],
    version: String,
}

/// What is empty or `None` fits everything.
#[derive(Clone, Debug)]
struct Row {
    provider: Vec<String>,
    upstream: Vec<String>,
    finish: Vec<String>,
    status: Vec<i64>,
    class: Vec<ErrorClass>,
    stream: Option<bool>,
    empty: Option<bool>,
    verdict: Verdict,
}

/// A policy file that can't be used: every mistake in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct PolicyError(pub Vec<String>);

const BUILT_IN: &str = include_str!("../../data/billing-policy.toml");

impl Policy {
    /// The built-in policy, with the rows of a user's file (of the same form) before its own.
    ///
    /// # Errors
    /// The user's file has mistakes; all of them are named.
    pub fn new(user: Option<&str>) -> Result<Self, PolicyError> {
        let mut mistakes = Vec::new();
        let mut rows = Vec::new();
        let mut default = [None; ErrorClass::NAMES.len()];
        let mut hash = Sha256::new();
        for (text, name) in [(user, "policy file"), (Some(BUILT_IN), "built-in policy")] {
            let Some(text) = text else { continue };
            hash.update(text.as_bytes());
            let file = file::read(text, name, &mut mistakes);
            rows.extend(file.rows);
            for (class, verdict) in file.defaults {
                default[class as usize].get_or_insert(verdict);
            }
        }
        if !mistakes.is_empty() {
            return Err(PolicyError(mistakes));
        }
        let version = hash.finalize()[..4]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(Self {
            rows,
            default,
            version,
        })
    }

    /// Eight hex digits of the hash of all rows.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What the policy says of an attempt.
    #[must_use]
    pub fn decide(&self, facts: &PolicyFacts<'_>) -> Verdict {
        let streamed = facts.stream.unwrap_or(facts.class == ErrorClass::Stream);
        // MONEY: cancelled is billed as `read` or `stream` is.
        let like = match (facts.class, streamed) {
            (ErrorClass::Cancelled, true) => ErrorClass::Stream,
            (ErrorClass::Cancelled, false) => ErrorClass::Read,
            (class, _) => class,
        };
        let fits = |row: &&Row| row.fits(facts, like, streamed);
        if let Some(row) = self.rows.iter().find(fits) {
            return row.verdict;
        }
        const ASSUMED: Verdict = Verdict {
            state: BillingState::Unknown,
            p_billed: Chance(5_000),
            stops_on_disconnect: false,
        };
        self.default[facts.class as usize]
            .or(self.default[like as usize])
            .unwrap_or(ASSUMED)
    }
}

impl Row {
    /// Integers first: they rule out nearly every row, for nearly every event.
    fn fits(&self, facts: &PolicyFacts<'_>, like: ErrorClass, streamed: bool) -> bool {
        (self.class.is_empty() || self.class.contains(&facts.class) || self.class.contains(&like))
            && (self.status.is_empty() || facts.status.is_some_and(|it| self.status.contains(&it)))
            && self.stream.is_none_or(|it| it == streamed)
            && self.empty.is_none_or(|it| it == facts.empty)
            && is_among(&self.finish, facts.finish_reason)
            && is_among(&self.provider, facts.provider())
            && is_among(&self.upstream, facts.upstream())
    }
}

impl<'a> PolicyFacts<'a> {
    /// Whom the call went to; where nobody said, what the model's name begins with.
    fn provider(&self) -> &'a str {
        match self.model.split_once('/') {
            Some((first, _)) if self.provider.is_empty() => first,
            _ => self.provider,
        }
    }

    /// `openai` of a router's `openai/gpt-x`, which some write `openrouter/openai/gpt-x`.
    fn upstream(&self) -> &'a str {
        let mut parts = self.model.split('/');
        let first = parts.next().unwrap_or("");
        let upstream = if first.eq_ignore_ascii_case(self.provider()) {
            parts.next().unwrap_or("")
        } else {
            first
        };
        // What nothing follows is the model itself.
        parts.next().map_or("", |_| upstream)
    }
}

/// Whether a list names the word, in any case; an empty list fits everything.
fn is_among(list: &[String], word: &str) -> bool {
    list.is_empty() || list.iter().any(|it| it.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use BillingState::{Billed, Unbilled, Unknown};

    fn facts<'a>(provider: &'a str, class: ErrorClass, status: i64) -> PolicyFacts<'a> {
        let status = (status > 0).then_some(status);
        PolicyFacts {
            provider,
            model: "m",
            class,
            status,
            finish_reason: "",
            stream: None,
            empty: false,
        }
    }

    /// MONEY §3's table, row by row: (class, state, chance in 1/10000).
    #[test]
    fn each_class_has_its_default() {
        use ErrorClass as C;
        let policy = Policy::new(None).unwrap();
        for (class, state, chance) in [
            (C::Connect, Unbilled, 0),
            (C::Write, Unknown, 1_000),
            (C::Read, Unknown, 9_000),
            (C::Stream, Unknown, 9_000),
            (C::RateLimit, Unbilled, 0),
            (C::Quota, Unbilled, 0),
            (C::Overloaded, Unbilled, 0),
            (C::Server, Unknown, 2_000),
            (C::Client, Unbilled, 0),
            (C::Content, Unknown, 5_000),
            (C::Truncated, Billed, 10_000),
            (C::InvalidOutput, Billed, 10_000),
            (C::Cancelled, Unknown, 9_000),
            (C::None, Billed, 10_000),
            (C::Unknown, Unknown, 5_000),
        ] {
            let verdict = policy.decide(&facts("openai", class, 0));
            assert_eq!(
                (verdict.state, verdict.p_billed),
                (state, Chance(chance)),
                "{class:?}"
            );
        }
    }

    /// A test per shipped row: (provider, model, class, status, stream, state, chance, stops).
    #[test]
    fn each_shipped_row_applies() {
        use ErrorClass as C;
        let policy = Policy::new(None).unwrap();
        for (provider, model, class, status, stream, state, chance, stops) in [
            ("gemini", "m", C::Client, 400, None, Unbilled, 0, false),
            ("gemini", "m", C::Server, 500, None, Unbilled, 0, false),
            ("gemini", "m", C::Server, 502, None, Unknown, 2_000, false),
            ("novita", "m", C::Read, 499, None, Billed, 10_000, false),
            ("novita", "m", C::Server, 500, None, Unbilled, 0, false),
            ("novita", "m", C::Server, 503, None, Unbilled, 0, false),
            ("novita", "m", C::Read, 504, None, Unbilled, 0, false),
            ("azure", "m", C::Client, 400, None, Unknown, 5_000, false),
            ("azure", "m", C::RateLimit, 429, None, Unbilled, 0, false),
            (
                "anthropic",
                "m",
                C::Content,
                200,
                None,
                Billed,
                10_000,
                false,
            ),
            (
                "openrouter",
                "openai/m",
                C::Stream,
                200,
                Some(true),
                Unknown,
                10_000,
                true,
            ),
            (
                "openrouter",
                "deepseek/m",
                C::Cancelled,
                0,
                Some(true),
                Unknown,
                10_000,
                true,
            ),
            (
                "openrouter",
                "google/m",
                C::Stream,
                200,
                Some(true),
                Unknown,
                10_000,
                false,
            ),
            (
                "openrouter",
                "openai/m",
                C::Read,
                0,
                Some(false),
                Unknown,
                10_000,
                false,
            ),
            (
                "openrouter",
                "openai/m",
                C::Server,
                502,
                None,
                Unbilled,
                0,
                false,
            ),
            (
                "openrouter",
                "unheard/m",
                C::Stream,
                200,
                Some(true),
                Unknown,
                9_000,
                false,
            ),
            // Direct calls take no row from a router's list.
            (
                "openai",
                "gpt-4o",
                C::Stream,
                200,
                Some(true),
                Unknown,
                9_000,
                false,
            ),
        ] {
            let facts = PolicyFacts {
                model,
                stream,
                ..facts(provider, class, status)
            };
            let verdict = policy.decide(&facts);
            let expected = Verdict {
                state,
                p_billed: Chance(chance),
                stops_on_disconnect: stops,
            };
            assert_eq!(verdict, expected, "{facts:?}");
        }
    }

    /// What a row names is met in any case, and where the event says it otherwise.
    #[test]
    fn rows_are_found_by_what_the_event_says() {
        use ErrorClass as C;
        let policy = Policy::new(None).unwrap();
        let decide = |provider, model, class, status, stream| {
            let facts = facts(provider, class, status);
            let facts = PolicyFacts {
                model,
                stream,
                ..facts
            };
            let verdict = policy.decide(&facts);
            (
                verdict.state,
                verdict.p_billed.0,
                verdict.stops_on_disconnect,
            )
        };
        let stops = (Unknown, 10_000, true);
        let cut = |provider, model| decide(provider, model, C::Stream, 200, None);
        assert_eq!(cut("OpenRouter", "openai/m"), stops);
        assert_eq!(cut("openrouter", "openrouter/openai/m"), stops);
        assert_eq!(cut("", "openrouter/openai/m"), stops);
        assert_eq!(cut("", "openai/m"), (Unknown, 9_000, false));
        assert_eq!(cut("openrouter", "openai"), (Unknown, 9_000, false));
        assert_eq!(
            cut("openrouter", "openrouter/auto"),
            (Unknown, 9_000, false)
        );
        assert_eq!(
            decide("", "gemini/m", C::Server, 500, None),
            (Unbilled, 0, false)
        );
        // Nobody said whether a cancelled call was streamed: as `read`.
        let cancelled = |stream| decide("openrouter", "openai/m", C::Cancelled, 0, stream);
        assert_eq!(cancelled(None), (Unknown, 10_000, false));
        assert_eq!(cancelled(Some(true)), stops);
        // A lost connection is no answer of the router's.
        assert_eq!(
            decide("openrouter", "m", C::Unknown, 0, None),
            (Unknown, 5_000, false)
        );
        assert_eq!(
            decide("openrouter", "m", C::Content, 200, None),
            (Unknown, 5_000, false)
        );
        assert_eq!(
            decide("openrouter", "m", C::Content, 403, None),
            (Unbilled, 0, false)
        );
    }

    #[test]
    fn a_router_does_not_bill_what_is_empty_or_an_error() {
        let policy = Policy::new(None).unwrap();
        let of = |provider, finish_reason, empty, class| {
            let facts = PolicyFacts {
                finish_reason,
                empty,
                ..facts(provider, class, 200)
            };
            policy.decide(&facts).state
        };
        use ErrorClass::{InvalidOutput, Stream};
        assert_eq!(of("openrouter", "error", false, Stream), Unbilled);
        assert_eq!(of("openrouter", "", true, InvalidOutput), Unbilled);
        assert_eq!(of("openrouter", "", true, ErrorClass::None), Unbilled);
        assert_eq!(of("openrouter", "stop", false, InvalidOutput), Billed);
        assert_eq!(of("openai", "", true, InvalidOutput), Billed);
        assert_eq!(of("mistral", "error", false, Stream), Unknown);
    }

    #[test]
    fn a_users_rows_and_defaults_go_first() {
        let user = r#"
            [default]
            server = { state = "billed", p_billed = "1" }
            unknown = { state = "unknown", p_billed = "0.25" }
            [[row]]
            class = ["read"]
            state = "unknown"
            p_billed = "0.625"
            source = "our bill of October"
            date = "2026-11"
        "#;
        let policy = Policy::new(Some(user)).unwrap();
        let chance = |class| policy.decide(&facts("openai", class, 0)).p_billed;
        assert_eq!(chance(ErrorClass::Server), Chance(10_000));
        assert_eq!(chance(ErrorClass::Unknown), Chance(2_500));
        assert_eq!(chance(ErrorClass::Read), Chance(6_250));
        assert_eq!(chance(ErrorClass::Stream), Chance(9_000));
        assert_ne!(policy.version(), Policy::new(None).unwrap().version());
        // A row of the user's for anyone goes before a built-in one for one provider.
        let user = r#"
            default.cancelled = { state = "unknown", p_billed = 0.125 }
            [[row]]
            status = 500
            state = "billed"
            p_billed = 1
            source = "our own bill"
            date = "2026-11-30"
        "#;
        let policy = Policy::new(Some(user)).unwrap();
        let gemini = |class, status| policy.decide(&facts("gemini", class, status));
        assert_eq!(gemini(ErrorClass::Server, 500).state, Billed);
        assert_eq!(gemini(ErrorClass::Client, 400).state, Unbilled);
        assert_eq!(gemini(ErrorClass::Cancelled, 0).p_billed, Chance(1_250));
        assert_eq!(gemini(ErrorClass::Read, 0).p_billed, Chance(9_000));
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let user = r#"
            policies = 1
            [default]
            reed = { state = "billed", p_billed = "1" }
            read = { state = "unknown", p_billed = "1.5" }
            write = "0.1"
            [[row]]
            provider = ["acme", 3]
            state = "billed"
            p_billed = 0.5
            source = "x"
            date = "2026"
            [[row]]
            status = [500, 999]
            class = "sever"
            stream = "yes"
            state = "maybe"
            p_billed = "often"
            stops = true
            [[row]]
            p_billed = "0.12345"
            source = "x"
            date = "2026"
        "#;
        let PolicyError(mistakes) = Policy::new(Some(user)).unwrap_err();
        let parts = [
            ("policy file: `policies`", ""),
            ("`default.reed` is no error class", "connect, write"),
            ("`default.read`: `p_billed` is \"1.5\"", "at most 4 digits"),
            ("`default.write` is \"0.1\"", "a table is wanted"),
            ("row 1: `provider` is 3", "words"),
            ("row 1: `p_billed` is 0.5", "\"1\", as it is billed"),
            ("row 2: `status` is 999", "100 to 599"),
            ("row 2: `class` is \"sever\"", "server"),
            ("row 2: `stream` is \"yes\"", "true or false"),
            ("row 2: `state` is \"maybe\"", "billed, unbilled, unknown"),
            ("row 2: `p_billed` is \"often\"", "from \"0\" to \"1\""),
            ("row 2 has no `source`", ""),
            ("row 2 has no `date`", ""),
            ("row 2 has an unknown key `stops`", "stops_on_disconnect"),
            ("row 3 has no `state`", "unknown"),
            ("row 3: `p_billed` is \"0.12345\"", "at most 4 digits"),
            ("row 3 names no condition", "provider"),
        ];
        for (start, end) in parts {
            let told = |it: &&String| it.contains(start) && it.contains(end);
            let count = mistakes.iter().filter(told).count();
            assert_eq!(count, 1, "{start} in {mistakes:#?}");
        }
        assert_eq!(mistakes.len(), parts.len(), "{mistakes:#?}");
    }

    #[test]
    fn text_that_is_no_toml_is_one_mistake() {
        let text = "[[row]]\nprovider = \"a word of no concern\n";
        let PolicyError(mistakes) = Policy::new(Some(text)).unwrap_err();
        assert_eq!(mistakes.len(), 1, "{mistakes:#?}");
        assert!(mistakes[0].starts_with("policy file:2: "), "{mistakes:#?}");
        assert!(!mistakes[0].contains("concern"), "{mistakes:#?}");
    }
}
