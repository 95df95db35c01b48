//! Each key → its value and where it came from.

use retrytoll_core::secret;

use super::kafka;
use super::key::{Key, Kind, Preset, Value};
use super::raw::{Entry, RawConfig, Typed};
use super::table::{KEYS, OPEN};
use super::units::{show_duration, show_size};

/// One line of `check --show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// `section.name`.
    pub key: String,
    pub value: String,
    /// A file and line, a variable, a flag, or `default`.
    pub origin: String,
}

/// Every key in the table's order, then the user's own names. Secrets are not shown.
#[must_use]
pub fn show(raw: &RawConfig) -> Vec<Shown> {
    let mut all = Vec::new();
    for (place, key) in KEYS.iter().enumerate() {
        all.push(shown(key, raw.at(place), raw));
    }
    for open in OPEN {
        for (name, entry) in raw.open(open.prefix) {
            // A name that librdkafka does not know may be that of a secret, misspelt.
            let is_property = open.prefix == "kafka.properties";
            let hidden = is_property && !kafka::is_shown(name, entry) || is_secret(entry);
            let value = if hidden {
                HIDDEN.into()
            } else {
                format!("{:?}", entry.typed.to_string())
            };
            let key = format!("{}.{name}{}", open.prefix, open.suffix);
            all.push(Shown {
                key,
                value,
                origin: entry.origin.to_string(),
            });
        }
    }
    all
}

const HIDDEN: &str = "(set, not shown)";

fn shown(key: &Key, entry: Option<&Entry>, raw: &RawConfig) -> Shown {
    let origin = entry.map_or_else(|| "default".into(), |entry| entry.origin.to_string());
    let value = match (entry, key.preset) {
        (Some(_), _) if key.kind == Kind::Secret => HIDDEN.into(),
        (Some(entry), _) if is_secret(entry) => HIDDEN.into(),
        (Some(entry), _) => match key.read(&entry.typed) {
            Ok(value) => canonical(key, &value),
            Err((problem, _)) => format!("{:?} {problem}", entry.typed.to_string()),
        },
        (None, Preset::Is(text)) => match key.read(&Typed::One(text.into())) {
            Ok(value) => canonical(key, &value),
            Err((problem, _)) => problem,
        },
        (None, Preset::Follows { rule, .. }) => match raw.get("kafka.topic") {
            Some(topic) if is_secret(topic) => HIDDEN.into(),
            Some(topic) => format!("{:?}", rule.replace("<topic>", &topic.typed.to_string())),
            None => rule.into(),
        },
        (None, Preset::Unset { .. }) => "(not set)".into(),
    };
    Shown {
        key: key.dotted(),
        value,
        origin,
    }
}

/// A secret may stand where none is expected.
fn is_secret(entry: &Entry) -> bool {
    secret::replaced(&entry.typed.to_string()).is_some()
}

/// A value as TOML, in its simplest spelling.
fn canonical(key: &Key, value: &Value) -> String {
    match value {
        Value::Text(text) => format!("{text:?}"),
        Value::Switch(yes) => yes.to_string(),
        Value::Words(words) => format!("{words:?}"),
        Value::Number(number) => match key.kind {
            Kind::Duration { .. } => format!("{:?}", show_duration(*number)),
            Kind::Size { .. } => format!("{:?}", show_size(*number)),
            _ => number.to_string(),
        },
    }
}
