//! how an attempt ended → its error class (MONEY §3), by a table of words.

use std::collections::HashMap;

use serde::Deserialize;

/// How an attempt ended. The order is that of the column's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum ErrorClass {
    Connect,
    Write,
    Read,
    Stream,
    RateLimit,
    Quota,
    Overloaded,
    Server,
    Client,
    Content,
    Truncated,
    InvalidOutput,
    Cancelled,
    None,
    Unknown,
}

impl ErrorClass {
    /// The words, by number.
    pub const NAMES: [&'static str; 15] = [
        "connect",
        "write",
        "read",
        "stream",
        "rate_limit",
        "quota",
        "overloaded",
        "server",
        "client",
        "content",
        "truncated",
        "invalid_output",
        "cancelled",
        "none",
        "unknown",
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// An answer came that could be told from a failure: only these can be uncovered.
    #[must_use]
    pub const fn is_answer(self) -> bool {
        matches!(self, Self::None | Self::Truncated | Self::InvalidOutput)
    }
}

/// What the caller saw of an attempt's end; "" is absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndFacts<'a> {
    pub status: Option<i64>,
    pub error_type: &'a str,
    pub phase: &'a str,
    pub finish_reason: &'a str,
    pub decision: &'a str,
    /// The stream's end came; `None` where nobody said.
    pub stream_complete: Option<bool>,
}

/// The table of words, ready for use.
#[derive(Clone, Debug)]
pub struct Classes {
    phase: HashMap<String, ErrorClass>,
    status: HashMap<i64, ErrorClass>,
    finish: HashMap<String, ErrorClass>,
    broken: HashMap<String, ErrorClass>,
    error: HashMap<String, ErrorClass>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    phase: HashMap<String, ErrorClass>,
    status: HashMap<String, ErrorClass>,
    finish: HashMap<String, ErrorClass>,
    broken: HashMap<String, ErrorClass>,
    error: HashMap<String, ErrorClass>,
}

/// The table that is built in.
const BUILT_IN: &str = include_str!("../data/classes.toml");

impl Classes {
    /// The built-in table.
    ///
    /// # Panics
    /// Never: a test reads the same file.
    #[must_use]
    pub fn built_in() -> Self {
        #[expect(
            clippy::expect_used,
            reason = "the file is part of the program, and tested"
        )]
        let table: Table = toml::from_str(BUILT_IN).expect("the built-in class table is valid");
        let plain = |words: HashMap<String, ErrorClass>| {
            words
                .into_iter()
                .map(|(word, class)| (plain(&word), class))
                .collect()
        };
        Self {
            phase: plain(table.phase),
            status: table
                .status
                .into_iter()
                .filter_map(|(status, class)| Some((status.parse().ok()?, class)))
                .collect(),
            finish: plain(table.finish),
            broken: plain(table.broken),
            error: plain(table.error),
        }
    }

    /// The class of an attempt's end.
    #[must_use]
    pub fn classify(&self, end: &EndFacts<'_>) -> ErrorClass {
        let error = plain(end.error_type);
        let named = self.error.get(&error).copied();
        if end.decision == "cancelled" || named == Some(ErrorClass::Cancelled) {
            return ErrorClass::Cancelled;
        }
        let phase = self.phase.get(&plain(end.phase)).copied();
        if let Some(class) = self.broken.get(&error) {
            return phase.unwrap_or(*class);
        }
        match end.status {
            Some(200..=299) | None => self.without_error_status(end, named, phase),
            Some(status) => self.by_status(status, named),
        }
    }

    fn by_status(&self, status: i64, named: Option<ErrorClass>) -> ErrorClass {
        use ErrorClass::{Client, Content, Overloaded, Quota, RateLimit, Server, Unknown};
        let class = self.status.get(&status).copied().unwrap_or(match status {
            400..=499 => Client,
            500..=599 => Server,
            _ => Unknown,
        });
        match (class, named) {
            // A 4xx is also how a policy block or an empty account is told.
            (Client, Some(it @ (Content | Quota | RateLimit))) => it,
            (RateLimit, Some(Quota)) => Quota,
            // A proxy answers 503 for requests that were sent; a provider names its overload.
            (Server, Some(Overloaded)) if status == 503 => Overloaded,
            (Unknown, Some(it)) => it,
            (class, _) => class,
        }
    }

    fn without_error_status(
        &self,
        end: &EndFacts<'_>,
        named: Option<ErrorClass>,
        phase: Option<ErrorClass>,
    ) -> ErrorClass {
        let failed = !end.error_type.is_empty();
        // An error inside a stream that began with 200 is a cut stream, whatever its name.
        let after_200 = end.status.is_some();
        if failed && after_200 && phase == Some(ErrorClass::Stream) {
            return ErrorClass::Stream;
        }
        if let Some(class) = named {
            return class;
        }
        if let Some(class) = self.finish.get(&plain(end.finish_reason)) {
            return *class;
        }
        let succeeded = end.decision == "success";
        if !failed && (succeeded || after_200 && end.stream_complete != Some(false)) {
            return ErrorClass::None;
        }
        if !failed && end.stream_complete == Some(false) && !succeeded {
            return ErrorClass::Stream;
        }
        // No name and no status, but the phase in which it ended.
        phase.filter(|_| !after_200).unwrap_or(ErrorClass::Unknown)
    }
}

/// Letters and digits in lower case.
fn plain(word: &str) -> String {
    word.chars()
        .filter(|it| it.is_alphanumeric())
        .map(|it| it.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
#[path = "class_tests.rs"]
mod tests;
