//! class, provider, status → billing state and the chance of it, by rows of data.

use std::collections::HashMap;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::class::ErrorClass;
use crate::money::parse_scaled;

/// Whether an attempt was billed. The order is that of the column's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    pub stream: Option<bool>,
}

/// The rows that apply, ready for use.
#[derive(Clone, Debug)]
pub struct Policy {
    by_provider: HashMap<String, Vec<Row>>,
    any_provider: Vec<Row>,
    /// By the class's number.
    default: [Option<Verdict>; ErrorClass::NAMES.len()],
    version: String,
}

#[derive(Clone, Debug)]
struct Row {
    upstream: Vec<String>,
    status: Vec<i64>,
    class: Vec<ErrorClass>,
    stream: Option<bool>,
    verdict: Verdict,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    #[serde(default)]
    provider: Vec<String>,
    #[serde(default)]
    upstream: Vec<String>,
    #[serde(default)]
    status: Vec<i64>,
    #[serde(default)]
    class: Vec<ErrorClass>,
    stream: Option<bool>,
    state: BillingState,
    p_billed: String,
    #[serde(default)]
    stops_on_disconnect: bool,
    source: String,
    date: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDefault {
    state: BillingState,
    p_billed: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicy {
    #[serde(default)]
    default: HashMap<String, RawDefault>,
    #[serde(default)]
    row: Vec<RawRow>,
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
        let mut policy = Self {
            by_provider: HashMap::new(),
            any_provider: Vec::new(),
            default: [None; ErrorClass::NAMES.len()],
            version: String::new(),
        };
        let mut hash = Sha256::new();
        for (text, name) in [(user, "policy file"), (Some(BUILT_IN), "built-in policy")] {
            let Some(text) = text else { continue };
            hash.update(text.as_bytes());
            match toml::from_str::<RawPolicy>(text) {
                Ok(raw) => policy.add(raw, name, &mut mistakes),
                Err(error) => mistakes.push(format!("{name}: {error}")),
            }
        }
        policy.version = hash.finalize()[..4]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        if mistakes.is_empty() {
            Ok(policy)
        } else {
            Err(PolicyError(mistakes))
        }
    }

    /// Eight hex digits of the hash of all rows.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Adds rows behind those there are; defaults that are set already stay.
    fn add(&mut self, raw: RawPolicy, name: &str, mistakes: &mut Vec<String>) {
        for (class, default) in raw.default {
            let known = ErrorClass::NAMES.iter().position(|name| **name == class);
            let chance = chance(&default.p_billed);
            match (known, chance) {
                (Some(number), Some(p_billed)) => {
                    let verdict = Verdict {
                        state: default.state,
                        p_billed,
                        stops_on_disconnect: false,
                    };
                    self.default[number].get_or_insert(verdict);
                }
                (None, _) => mistakes.push(format!(
                    "{name}: `default.{class}` is no error class; one of {}",
                    ErrorClass::NAMES.join(", ")
                )),
                (_, None) => mistakes.push(mistake(
                    name,
                    &format!("default.{class}"),
                    &default.p_billed,
                )),
            }
        }
        for (number, row) in raw.row.into_iter().enumerate() {
            let place = format!("row {}", number + 1);
            let Some(p_billed) = chance(&row.p_billed) else {
                mistakes.push(mistake(name, &place, &row.p_billed));
                continue;
            };
            if row.source.is_empty() || row.date.is_empty() {
                mistakes.push(format!("{name}: {place} needs a `source` and a `date`"));
            }
            let verdict = Verdict {
                state: row.state,
                p_billed,
                stops_on_disconnect: row.stops_on_disconnect,
            };
            let rule = Row {
                upstream: row.upstream,
                status: row.status,
                class: row.class,
                stream: row.stream,
                verdict,
            };
            if row.provider.is_empty() {
                self.any_provider.push(rule.clone());
            }
            for provider in row.provider {
                self.by_provider
                    .entry(provider)
                    .or_default()
                    .push(rule.clone());
            }
        }
    }

    /// What the policy says; the rows of the provider go before those of any.
    #[must_use]
    pub fn decide(&self, facts: &PolicyFacts<'_>) -> Verdict {
        let of_provider = self.by_provider.get(facts.provider).into_iter().flatten();
        let fits = |row: &&Row| row.fits(facts);
        if let Some(row) = of_provider.chain(&self.any_provider).find(fits) {
            return row.verdict;
        }
        let class = match (facts.class, facts.stream) {
            (ErrorClass::Cancelled, Some(true)) => ErrorClass::Stream,
            (ErrorClass::Cancelled, _) => ErrorClass::Read,
            (class, _) => class,
        };
        const ASSUMED: Verdict = Verdict {
            state: BillingState::Unknown,
            p_billed: Chance(5_000),
            stops_on_disconnect: false,
        };
        self.default[class as usize].unwrap_or(ASSUMED)
    }
}

impl Row {
    fn fits(&self, facts: &PolicyFacts<'_>) -> bool {
        let upstream = facts
            .model
            .split_once('/')
            .map_or("", |(upstream, _)| upstream);
        (self.upstream.is_empty() || self.upstream.iter().any(|it| it == upstream))
            && (self.status.is_empty() || facts.status.is_some_and(|it| self.status.contains(&it)))
            && (self.class.is_empty() || self.class.contains(&facts.class))
            && self
                .stream
                .is_none_or(|it| it == facts.stream.unwrap_or(false))
    }
}

fn chance(text: &str) -> Option<Chance> {
    let scaled = parse_scaled(text, 4).ok()?;
    (0..=10_000)
        .contains(&scaled)
        .then_some(Chance(scaled as u16))
}

fn mistake(name: &str, place: &str, value: &str) -> String {
    format!(
        "{name}: {place}: `p_billed` is {value:?}; a number from \"0\" to \"1\", at most 4 digits after the point"
    )
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
            stream: None,
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
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let user = r#"
            [default]
            reed = { state = "billed", p_billed = "1" }
            read = { state = "billed", p_billed = "1.5" }
            [[row]]
            state = "unknown"
            p_billed = "often"
            source = "x"
            date = "2026"
        "#;
        let PolicyError(mistakes) = Policy::new(Some(user)).unwrap_err();
        assert_eq!(mistakes.len(), 3, "{mistakes:#?}");
        for part in ["default.reed", "\"1.5\"", "row 1"] {
            assert!(
                mistakes.iter().any(|it| it.contains(part)),
                "{part} in {mistakes:#?}"
            );
        }
    }
}
