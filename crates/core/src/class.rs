//! how an attempt ended → its error class (MONEY §3), by a table of words.
//!
//! A *word* is what callers, gateways and providers call an end. Words are compared by their ASCII
//! letters and digits alone, without case. An error's *name* is looked up whole, then as the bare
//! name of its type (`ReadTimeout` of `httpx.ReadTimeout: timed out`), then by what stands within
//! it. A name is *broken* where no answer came: a time-out or a lost connection.

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
    /// Every one, by number.
    pub const ALL: [Self; 15] = [
        Self::Connect,
        Self::Write,
        Self::Read,
        Self::Stream,
        Self::RateLimit,
        Self::Quota,
        Self::Overloaded,
        Self::Server,
        Self::Client,
        Self::Content,
        Self::Truncated,
        Self::InvalidOutput,
        Self::Cancelled,
        Self::None,
        Self::Unknown,
    ];

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
    /// The answer was streamed; `None` where nobody said.
    pub stream: Option<bool>,
    /// The stream's end came; `None` where nobody said.
    pub stream_complete: Option<bool>,
}

/// The table of words, ready for use.
#[derive(Clone, Debug)]
pub struct Classes {
    phase: HashMap<Box<[u8]>, ErrorClass>,
    status: HashMap<i64, ErrorClass>,
    finish: HashMap<Box<[u8]>, ErrorClass>,
    error: HashMap<Box<[u8]>, Option<Name>>,
    within: Vec<(Box<[u8]>, Name)>,
}

/// What the name of an error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    class: ErrorClass,
    /// No answer came; the phase knows better than the name where it broke.
    broken: bool,
    /// The name itself is in the table, not a part of it.
    exact: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    absent: Vec<String>,
    phase: HashMap<String, ErrorClass>,
    status: HashMap<String, ErrorClass>,
    finish: HashMap<String, ErrorClass>,
    broken: HashMap<String, ErrorClass>,
    error: HashMap<String, ErrorClass>,
    within: Vec<Within>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Within {
    class: ErrorClass,
    broken: bool,
    words: Vec<String>,
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
        Self::of(table)
    }

    fn of(table: Table) -> Self {
        let plain = |words: HashMap<String, ErrorClass>| {
            let words = words.into_iter();
            words.map(|(word, class)| (key(&word), class)).collect()
        };
        let mut error = HashMap::new();
        for word in &table.absent {
            error.insert(key(word), None);
        }
        for (words, broken) in [(table.error, false), (table.broken, true)] {
            error.extend(words.into_iter().map(|(word, class)| {
                let exact = true;
                (
                    key(&word),
                    Some(Name {
                        class,
                        broken,
                        exact,
                    }),
                )
            }));
        }
        let mut within = Vec::new();
        for Within {
            class,
            broken,
            words,
        } in table.within
        {
            let exact = false;
            let name = Name {
                class,
                broken,
                exact,
            };
            within.extend(words.iter().map(|word| (key(word), name)));
        }
        let status = table.status.into_iter();
        Self {
            phase: plain(table.phase),
            status: status
                .filter_map(|(status, class)| Some((status.parse().ok()?, class)))
                .collect(),
            finish: plain(table.finish),
            error,
            within,
        }
    }

    /// The class of an attempt's end.
    #[must_use]
    pub fn classify(&self, end: &EndFacts<'_>) -> ErrorClass {
        if end.decision == "cancelled" {
            return ErrorClass::Cancelled;
        }
        // OpenTelemetry writes the status as the error's type.
        let status = end.status.or_else(|| status_of(end.error_type));
        let answered = status.is_none_or(|status| (200..300).contains(&status));
        if answered && end.decision == "success" {
            return self.success(end);
        }
        let named = match self.named(end.error_type) {
            // Part of a name is no match for a status that tells of an answer.
            Some(name) if name.broken && !name.exact && self.is_answer(status) => None,
            name => name,
        };
        let phase = self.phase.get(Plain::of(end.phase).as_bytes()).copied();
        match named {
            // Who tries again was not stopped by the user: a timer of the caller's own aborted.
            Some(name) if name.class == ErrorClass::Cancelled && goes_on(end.decision) => {
                phase.unwrap_or(ErrorClass::Read)
            }
            Some(name) if name.class == ErrorClass::Cancelled => ErrorClass::Cancelled,
            Some(name) if name.broken => phase.unwrap_or(match status {
                Some(200..300) if end.is_streamed() => ErrorClass::Stream,
                _ => name.class,
            }),
            _ => match status {
                Some(status) if !answered => self.by_status(status, named, phase),
                _ => self.without_error_status(end, status, named, phase),
            },
        }
    }

    /// What the name of an error says; `None` for no error, and for a name not known.
    fn named(&self, error_type: &str) -> Option<Name> {
        if error_type.is_empty() {
            return None;
        }
        let whole = Plain::of(error_type);
        if let Some(known) = self.error.get(whole.as_bytes()) {
            return *known;
        }
        if let Some(known) = self.error.get(Plain::of(bare_name(error_type)).as_bytes()) {
            return *known;
        }
        let mut within = self.within.iter();
        let found = within.find(|(word, _)| whole.contains(word));
        found.map(|(_, name)| *name)
    }

    fn of_status(&self, status: i64) -> ErrorClass {
        let class = self.status.get(&status).copied();
        class.unwrap_or(match status {
            400..=499 => ErrorClass::Client,
            500..=599 => ErrorClass::Server,
            _ => ErrorClass::Unknown,
        })
    }

    /// The status of an answer that says why, and so is more than a gateway's word for silence.
    fn is_answer(&self, status: Option<i64>) -> bool {
        matches!(
            status.map(|status| self.of_status(status)),
            Some(ErrorClass::Client | ErrorClass::RateLimit | ErrorClass::Quota)
        )
    }

    /// The caller had use of the answer, whatever an earlier attempt left in `error_type`.
    fn success(&self, end: &EndFacts<'_>) -> ErrorClass {
        let finish = self.finish.get(Plain::of(end.finish_reason).as_bytes());
        match finish {
            Some(class @ (ErrorClass::Truncated | ErrorClass::Content)) => *class,
            _ => ErrorClass::None,
        }
    }

    fn by_status(&self, status: i64, named: Option<Name>, phase: Option<ErrorClass>) -> ErrorClass {
        use ErrorClass::{Client, Content, Overloaded, Quota, RateLimit, Read, Server, Unknown};
        match (self.of_status(status), named.map(|name| name.class)) {
            // Statuses that tell of a time-out: the phase knows where.
            (Read, _) => phase.unwrap_or(Read),
            // A 4xx is also how a policy block or an empty account is told.
            (Client, Some(it @ (Content | Quota | RateLimit))) => it,
            (RateLimit, Some(Quota)) => Quota,
            // A proxy answers 503 for requests that were sent; a provider names its overload.
            (Server, Some(Overloaded)) if status == 503 => Overloaded,
            (Unknown, Some(it)) => it,
            (class, _) => class,
        }
    }

    /// The end of an attempt with a status of 2xx, or without one.
    fn without_error_status(
        &self,
        end: &EndFacts<'_>,
        status: Option<i64>,
        named: Option<Name>,
        phase: Option<ErrorClass>,
    ) -> ErrorClass {
        use ErrorClass::{Content, InvalidOutput, Stream, Truncated, Unknown};
        let failed = !end.error_type.is_empty() && !self.is_absent(end.error_type);
        let finish = self.finish.get(Plain::of(end.finish_reason).as_bytes());
        match named.map(|name| name.class) {
            Some(it @ (Content | InvalidOutput | Truncated)) => return it,
            // An error inside a stream that has begun is a cut stream, whatever its name.
            _ if failed && phase == Some(Stream) => return Stream,
            Some(_) if status.is_some() && end.is_streamed() => return Stream,
            Some(it) => return it,
            None => {}
        }
        if let Some(class) = finish {
            return *class;
        }
        if end.stream_complete == Some(false) {
            return Stream;
        }
        match (phase, failed, status) {
            // No known name, but where it broke.
            (Some(phase), _, _) => phase,
            (None, false, Some(_)) => ErrorClass::None,
            (None, _, _) => Unknown,
        }
    }

    fn is_absent(&self, error_type: &str) -> bool {
        matches!(self.error.get(Plain::of(error_type).as_bytes()), Some(None))
    }
}

impl EndFacts<'_> {
    /// Whether the answer was streamed, as far as it was said.
    fn is_streamed(&self) -> bool {
        self.stream.unwrap_or(self.stream_complete == Some(false))
    }
}

fn goes_on(decision: &str) -> bool {
    matches!(decision, "retry" | "retry_limited" | "fallback")
}

/// `429` as the type of an error.
fn status_of(error_type: &str) -> Option<i64> {
    let status = (error_type.len() == 3).then(|| error_type.parse().ok())??;
    (100..600).contains(&status).then_some(status)
}

/// `ReadTimeout` of `httpx.ReadTimeout: timed out`.
fn bare_name(error_type: &str) -> &str {
    let end = error_type.find([':', '(', ' ', '\n']);
    let path = &error_type[..end.unwrap_or(error_type.len())];
    let start = path.rfind(['.', '/', '$', '\\']);
    &path[start.map_or(0, |at| at + 1)..]
}

/// A word as it is compared: its ASCII letters and digits, in lower case, on the stack. What is
/// beyond the buffer is cut off: no word of the table is half as long.
struct Plain {
    bytes: [u8; Self::BYTES_MAX],
    len: usize,
}

impl Plain {
    const BYTES_MAX: usize = 256;

    fn of(word: &str) -> Self {
        let mut plain = Self {
            bytes: [0; Self::BYTES_MAX],
            len: 0,
        };
        let kept = word.bytes().filter(u8::is_ascii_alphanumeric);
        for (slot, byte) in plain.bytes.iter_mut().zip(kept) {
            *slot = byte.to_ascii_lowercase();
            plain.len += 1;
        }
        plain
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn contains(&self, word: &[u8]) -> bool {
        self.as_bytes().windows(word.len()).any(|part| part == word)
    }
}

/// A word of the table.
fn key(word: &str) -> Box<[u8]> {
    Plain::of(word).as_bytes().into()
}

#[cfg(test)]
#[path = "class_tests.rs"]
mod tests;
