//! A key, its kind and bounds; typed text → a value of that kind.

use retrytoll_core::secret;

use super::nearest::nearest;
use super::raw::Typed;
use super::units::{self, Wrong, show_duration, show_size};

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub section: &'static str,
    pub name: &'static str,
    pub kind: Kind,
    pub preset: Preset,
    /// What it means, in one or two sentences.
    pub about: &'static str,
    /// Why its bounds are where they are; empty where there are none.
    pub why: &'static str,
}

/// The value where nobody set one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// This text, as it would be typed.
    Is(&'static str),
    /// It follows from another key, as `rule` says; and an example.
    Follows {
        rule: &'static str,
        example: &'static str,
    },
    /// None; this is an example of one.
    Unset { example: &'static str },
}

/// What a value may be. Durations are in ms, sizes in bytes, both bounds inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// A Kafka topic's name.
    Topic,
    /// A local path; from a file, relative to the file's folder.
    Path,
    /// The path of a file that is there.
    File,
    /// The path of a folder that is there.
    Folder,
    /// A local path or an object store's URL.
    Place,
    /// An `http` or `https` address.
    Url,
    /// An IP address and a port to listen on.
    Listen,
    /// Text that only the environment may carry, and that is never shown.
    Secret,
    Switch,
    Word(&'static [&'static str]),
    /// Any of these words.
    Words(&'static [&'static str]),
    Count {
        least: u64,
        most: u64,
    },
    Duration {
        least: u64,
        most: u64,
    },
    Size {
        least: u64,
        most: u64,
    },
}

/// A value that its kind allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Switch(bool),
    /// A count, ms or bytes.
    Number(u64),
    Words(Vec<String>),
}

/// Why a typed value is not one of the kind, and what to do.
pub type Problem = (String, String);

impl Key {
    /// `section.name`.
    #[must_use]
    pub fn dotted(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// The environment's name for it.
    #[must_use]
    pub fn env(&self) -> String {
        format!("RETRYTOLL_{}_{}", self.section, self.name).to_ascii_uppercase()
    }

    /// The value that was typed.
    ///
    /// # Errors
    /// What is wrong with it, with the bound, and what to do.
    pub fn read(&self, typed: &Typed) -> Result<Value, Problem> {
        let text = match (typed, self.kind) {
            (Typed::Many(words), Kind::Words(known)) => return read_words(words, known),
            (Typed::Many(_), _) => {
                let hint = format!("write one value, as {}", self.sample());
                return Err(("is a list, and this is one value".into(), hint));
            }
            (Typed::One(text), _) => text.trim(),
        };
        if matches!(self.kind, Kind::Url | Kind::Place) && secret::has_login(text) {
            let problem = "holds a password, and others can read it here";
            return Err((problem.into(), "write it without user and password".into()));
        }
        match self.kind {
            Kind::Words(known) => {
                let words: Vec<String> = text.split(',').map(|word| word.trim().into()).collect();
                read_words(&words, known)
            }
            Kind::Word(known) => read_word(text, known).map(Value::Text),
            Kind::Switch => match text {
                "on" | "true" => Ok(Value::Switch(true)),
                "off" | "false" => Ok(Value::Switch(false)),
                _ => Err(("is neither on nor off".into(), "write true or false".into())),
            },
            Kind::Count { least, most } => {
                let number = text.replace('_', "").parse::<u64>();
                let number = number.map_err(|_| {
                    (
                        "is not a whole number".into(),
                        format!("write one, as {}", self.sample()),
                    )
                });
                self.within(number?, least, most, |n| n.to_string())
            }
            Kind::Duration { least, most } => {
                let ms = units::duration_ms(text)
                    .map_err(|wrong| self.wrong(wrong, "a duration: ms, s, m, h or d"))?;
                self.within(ms, least, most, show_duration)
            }
            Kind::Size { least, most } => {
                let bytes = units::size_bytes(text)
                    .map_err(|wrong| self.wrong(wrong, "a size: B, KB, MB, GB, KiB, MiB or GiB"))?;
                self.within(bytes, least, most, show_size)
            }
            Kind::Topic => read_topic(text),
            Kind::Url => read_url(text),
            Kind::Listen => read_listen(text),
            Kind::Secret => Ok(Value::Text(text.into())),
            Kind::Text | Kind::Path | Kind::File | Kind::Folder | Kind::Place => {
                if text.is_empty() {
                    let hint = format!("write one, as {}, or remove the key", self.sample());
                    return Err(("is empty".into(), hint));
                }
                Ok(Value::Text(text.into()))
            }
        }
    }

    /// A value as it would be typed into the file: the preset, or the example.
    #[must_use]
    pub fn sample(&self) -> String {
        let text = match self.preset {
            Preset::Is(text) => text,
            Preset::Follows { example, .. } | Preset::Unset { example } => example,
        };
        match self.kind {
            Kind::Words(_) => format!("[{}]", quoted_words(text)),
            Kind::Count { .. } | Kind::Switch => text.into(),
            _ => format!("{text:?}"),
        }
    }

    /// What is allowed, in words; empty where all is.
    #[must_use]
    pub fn allowed(&self) -> String {
        match self.kind {
            Kind::Word(known) => format!("One of: {}.", known.join(", ")),
            Kind::Words(known) => format!("Any of: {}.", known.join(", ")),
            Kind::Count { least, most } => format!("{least} to {most}: {}.", self.why),
            Kind::Duration { least, most } => {
                format!(
                    "{} to {}: {}.",
                    show_duration(least),
                    show_duration(most),
                    self.why
                )
            }
            Kind::Size { least, most } => {
                format!("{} to {}: {}.", show_size(least), show_size(most), self.why)
            }
            _ => String::new(),
        }
    }

    fn within(
        &self,
        value: u64,
        least: u64,
        most: u64,
        show: impl Fn(u64) -> String,
    ) -> Result<Value, Problem> {
        let (side, bound) = match value {
            _ if value < least => ("below", least),
            _ if value > most => ("above", most),
            _ => return Ok(Value::Number(value)),
        };
        let problem = format!("is {side} {} ({})", show(bound), self.why);
        Err((problem, format!("write {} to {}", show(least), show(most))))
    }

    fn wrong(&self, wrong: Wrong, what: &str) -> Problem {
        let hint = format!("write a whole number with a unit, as {}", self.sample());
        match wrong {
            Wrong::NoUnit => ("has no unit".into(), hint),
            Wrong::Form => (format!("is not {what}"), hint),
            Wrong::TooLarge => ("is too large to count".into(), hint),
        }
    }
}

fn quoted_words(text: &str) -> String {
    let words = text
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty());
    words
        .map(|word| format!("{word:?}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// One of the known words.
///
/// # Errors
/// Which words there are, and the nearest.
pub fn read_word(text: &str, known: &[&str]) -> Result<String, Problem> {
    if known.contains(&text) {
        return Ok(text.into());
    }
    let hint = match nearest(text, known.iter().copied()) {
        Some(word) => format!("did you mean {word:?}?"),
        None => "use one of these".into(),
    };
    Err((format!("is none of {}", known.join(", ")), hint))
}

fn read_words(words: &[String], known: &[&str]) -> Result<Value, Problem> {
    let typed = words.iter().filter(|word| !word.is_empty());
    let read: Result<Vec<String>, Problem> = typed.map(|word| read_word(word, known)).collect();
    let mut read = read.map_err(|(problem, hint)| (format!("has a word that {problem}"), hint))?;
    read.sort_unstable();
    read.dedup();
    Ok(Value::Words(read))
}

/// The most bytes of a topic's name.
const TOPIC_BYTES_MAX: usize = 249;

fn read_topic(text: &str) -> Result<Value, Problem> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if text.is_empty() || text == "." || text == ".." || !text.chars().all(legal) {
        let hint = "use only letters, digits, '.', '_' and '-'".into();
        return Err(("is not a name that Kafka allows for a topic".into(), hint));
    }
    if text.len() > TOPIC_BYTES_MAX {
        let problem = format!(
            "has {} bytes, and a topic's name at most {TOPIC_BYTES_MAX}",
            text.len()
        );
        return Err((problem, "use a shorter name".into()));
    }
    Ok(Value::Text(text.into()))
}

fn read_url(text: &str) -> Result<Value, Problem> {
    match url::Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(Value::Text(text.into())),
        _ => Err((
            "is not an http or https address".into(),
            "write the whole address".into(),
        )),
    }
}

fn read_listen(text: &str) -> Result<Value, Problem> {
    match text.parse::<std::net::SocketAddr>() {
        Ok(address) => Ok(Value::Text(address.to_string())),
        Err(_) => Err((
            "is not an IP address and a port from 0 to 65535".into(),
            "write both, as 127.0.0.1:9464, 0.0.0.0:9464 or [::1]:9464".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: Kind = Kind::Count {
        least: 1,
        most: 2_000,
    };

    fn read(kind: Kind, text: &str) -> Result<Value, Problem> {
        let preset = Preset::Unset { example: "7" };
        let key = Key {
            section: "a",
            name: "b",
            kind,
            preset,
            about: "",
            why: "it is so",
        };
        key.read(&Typed::One(text.into()))
    }

    #[test]
    fn each_kind_takes_its_values() {
        let text = |text: &str| Value::Text(text.into());
        for (kind, typed, value) in [
            (Kind::Text, " a b ", text("a b")),
            (Kind::Topic, "llm.retries_v1-x", text("llm.retries_v1-x")),
            (
                Kind::Url,
                "https://example.com/x",
                text("https://example.com/x"),
            ),
            (Kind::Listen, "127.0.0.1:9464", text("127.0.0.1:9464")),
            (Kind::Listen, "[::1]:0", text("[::1]:0")),
            (Kind::Secret, "s3", text("s3")),
            (Kind::Switch, "off", Value::Switch(false)),
            (Kind::Switch, "true", Value::Switch(true)),
            (Kind::Word(&["a", "b"]), "b", text("b")),
            (COUNT, "2_000", Value::Number(2_000)),
            (
                Kind::Duration {
                    least: 1,
                    most: 5_000,
                },
                "5s",
                Value::Number(5_000),
            ),
            (
                Kind::Size {
                    least: 0,
                    most: 2_000,
                },
                "2KB",
                Value::Number(2_000),
            ),
            (
                Kind::Words(&["a", "b"]),
                "b, a,b",
                Value::Words(vec!["a".into(), "b".into()]),
            ),
            (Kind::Words(&["a", "b"]), "", Value::Words(vec![])),
        ] {
            assert_eq!(read(kind, typed), Ok(value), "{kind:?} {typed}");
        }
    }

    #[test]
    fn a_mistake_says_the_bound_its_reason_and_what_to_do() {
        for (kind, typed, problem, hint) in [
            (COUNT, "0", "is below 1 (it is so)", "write 1 to 2000"),
            (COUNT, "2001", "is above 2000 (it is so)", "write 1 to 2000"),
            (COUNT, "-1", "is not a whole number", "write one, as 7"),
            (
                Kind::Duration {
                    least: 100,
                    most: 60_000,
                },
                "2m",
                "is above 1m (it is so)",
                "write 100ms to 1m",
            ),
            (
                Kind::Duration {
                    least: 100,
                    most: 60_000,
                },
                "2",
                "has no unit",
                "write a whole number with a unit, as \"7\"",
            ),
            (
                Kind::Word(&["redacted", "full"]),
                "ful",
                "is none of redacted, full",
                "did you mean \"full\"?",
            ),
            (
                Kind::Topic,
                "a b",
                "is not a name that Kafka allows for a topic",
                "use only letters, digits, '.', '_' and '-'",
            ),
            (
                Kind::Url,
                "example.com",
                "is not an http or https address",
                "write the whole address",
            ),
            (
                Kind::Listen,
                "localhost:9464",
                "is not an IP address and a port from 0 to 65535",
                "write both, as 127.0.0.1:9464, 0.0.0.0:9464 or [::1]:9464",
            ),
            (
                Kind::Text,
                " ",
                "is empty",
                "write one, as \"7\", or remove the key",
            ),
            (
                Kind::Switch,
                "yes",
                "is neither on nor off",
                "write true or false",
            ),
        ] {
            assert_eq!(
                read(kind, typed),
                Err((problem.into(), hint.into())),
                "{kind:?} {typed}"
            );
        }
    }
}
