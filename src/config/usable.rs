//! What was typed → what is usable, or every mistake.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use retrytoll_core::derive::SourceSettings;

use super::kafka::{self, Kafka};
use super::key::{Key, Kind, Preset, Value, read_word};
use super::mistake::Mistake;
use super::raw::{Entry, Origin, RawConfig, Typed};
use super::secret::{self, Secret};
use super::table::{DECISIONS, KEYS, find};
use super::template::COMMAND;

/// What a command can't do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Lake,
    /// The lake, and a topic to read.
    Kafka,
}

/// The configuration, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// `None` where neither brokers nor a topic are set.
    pub kafka: Option<Kafka>,
    /// The tables' root: a local path or an object store's URL.
    pub lake: String,
    /// The name of a file source, in place of its own.
    pub source_name: Option<String>,
    pub source: SourceSettings,
    pub prices_file: Option<PathBuf>,
    pub policy_file: Option<PathBuf>,
    pub flush: Flush,
    pub dedupe: Dedupe,
    pub limits: Limits,
    pub dead_letters: DeadLetters,
    pub alerts: Alerts,
    /// The key of PagerDuty's integration.
    pub pagerduty_routing_key: Option<Secret>,
    pub jobs: Jobs,
    pub maintain: Maintain,
    /// Where to answer over HTTP; `None`: nowhere.
    pub http_listen: Option<SocketAddr>,
}

/// When rows are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    pub interval: Duration,
    pub interval_behind: Duration,
    pub size_bytes: u64,
    pub position_interval: Duration,
}

/// How long and how far back an event is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dedupe {
    pub horizon: Duration,
    /// Events of one partition.
    pub replay_max: u64,
}

/// Memory and disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub prefetch_bytes: usize,
    pub batches_bytes: usize,
    pub encode_bytes: usize,
    pub seen_bytes: usize,
    pub sql_bytes: usize,
    pub rest_bytes: usize,
    pub spill_bytes_max: u64,
    pub sql_time: Duration,
}

impl Limits {
    /// The whole budget of memory.
    #[must_use]
    pub fn all_bytes(&self) -> usize {
        let reading = self.prefetch_bytes + self.batches_bytes + self.seen_bytes;
        reading + self.encode_bytes + self.sql_bytes + self.rest_bytes
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetters {
    /// The record as it came, instead of known fields and lengths.
    pub full: bool,
    /// Where they go without a topic.
    pub file: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alerts {
    /// Rules that are off, sorted.
    pub off: Vec<String>,
    /// Retries of a service in a clock hour that are too many above this; 0: not set.
    pub retries_per_hour: i64,
    /// Retries of a provider in a minute that are a storm where nothing is known of the days
    /// before; 0: not set.
    pub retries_per_minute: i64,
    /// Tokens of a tenant in a UTC day that are too many above this; 0: not set.
    pub tokens_per_day: i64,
    /// Whether each instance tells each minute how it does.
    pub heartbeat: bool,
    /// How long no record may come, ms; 0: for ever.
    pub silent_after_ms: i64,
    pub owner: Option<String>,
    pub runbook_url: Option<String>,
    /// Dimensions that alerts must not name, sorted.
    pub hide: Vec<String>,
    pub reproduce_days: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jobs {
    pub sql_dir: Option<PathBuf>,
    pub tick: Duration,
    pub time_max: Duration,
    /// Rows that an hour of the rollup has at most before the rest is put together.
    pub rollup_rows: i64,
}

/// How often the leader looks after the lake's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maintain {
    pub log_every: Duration,
    pub compact_every: Duration,
    pub vacuum_every: Duration,
    /// How long attempts are kept, by their date.
    pub keep: Duration,
}

impl Alerts {
    /// The values that jobs are given for rules, by the parameter's name.
    #[must_use]
    pub fn parameters(&self) -> [(&'static str, i64); 3] {
        [
            ("retries_per_hour", self.retries_per_hour),
            ("budget_per_minute", self.retries_per_minute),
            ("tokens_per_day", self.tokens_per_day),
        ]
    }
}

impl Config {
    /// What is usable of `raw`, and what is not; a mistaken value stands at its default.
    #[must_use]
    pub fn of(raw: &RawConfig, need: Need) -> (Self, Vec<Mistake>) {
        let mut values = Values::read(raw);
        let kafka = kafka::of(&mut values, need);
        let source = source(&mut values);
        let routing_key = secret::of(&mut values, "pagerduty.routing_key");
        let flush = Flush {
            interval: values.duration("flush.interval"),
            interval_behind: values.duration("flush.interval_behind"),
            size_bytes: values.number("flush.size"),
            position_interval: values.duration("flush.position_interval"),
        };
        if flush.interval > flush.interval_behind {
            let problem = "is shorter than flush.interval (rows must not wait longer when caught \
                           up than while there is more to read)";
            let hint = "raise it, or lower flush.interval";
            values.wrong_of(&["flush.interval_behind", "flush.interval"], problem, hint);
        }
        let config = Self {
            kafka,
            lake: values.text("lake.path").unwrap_or_default(),
            source_name: values.text("source.name"),
            source,
            prices_file: values.path("prices.file"),
            policy_file: values.path("policy.file"),
            flush,
            dedupe: Dedupe {
                horizon: values.duration("dedupe.horizon"),
                replay_max: values.number("dedupe.replay_max"),
            },
            limits: limits(&values),
            dead_letters: DeadLetters {
                full: values.is("dead_letters.content", "full"),
                file: values.path("dead_letters.file"),
            },
            alerts: Alerts {
                off: values.words("alerts.off"),
                retries_per_hour: count(&values, "alerts.retries_per_hour"),
                retries_per_minute: count(&values, "alerts.retries_per_minute"),
                tokens_per_day: count(&values, "alerts.tokens_per_day"),
                heartbeat: values.switch("alerts.heartbeat"),
                silent_after_ms: count(&values, "alerts.silent_after"),
                owner: values.text("alerts.owner"),
                runbook_url: values.text("alerts.runbook_url"),
                hide: values.words("alerts.hide"),
                reproduce_days: u32::try_from(values.number("alerts.reproduce_days"))
                    .unwrap_or(u32::MAX),
            },
            pagerduty_routing_key: routing_key.map(Secret),
            jobs: Jobs {
                sql_dir: values.path("jobs.sql_dir"),
                tick: values.duration("jobs.tick"),
                time_max: values.duration("jobs.time_max"),
                rollup_rows: count(&values, "jobs.rollup_rows"),
            },
            maintain: Maintain {
                log_every: values.duration("maintain.log_every"),
                compact_every: values.duration("maintain.compact_every"),
                vacuum_every: values.duration("maintain.vacuum_every"),
                keep: values.duration("maintain.keep"),
            },
            http_listen: values.text("http.listen").and_then(|it| it.parse().ok()),
        };
        (config, values.mistakes)
    }
}

fn count(values: &Values<'_>, key: &str) -> i64 {
    i64::try_from(values.number(key)).unwrap_or(i64::MAX)
}

fn limits(values: &Values<'_>) -> Limits {
    let bytes = |key| usize::try_from(values.number(key)).unwrap_or(usize::MAX);
    Limits {
        prefetch_bytes: bytes("limits.prefetch"),
        batches_bytes: bytes("limits.batches"),
        encode_bytes: bytes("limits.encode"),
        seen_bytes: bytes("limits.seen"),
        sql_bytes: bytes("limits.sql"),
        rest_bytes: bytes("limits.rest"),
        spill_bytes_max: values.number("limits.spill_max"),
        sql_time: values.duration("limits.sql_time"),
    }
}

fn source(values: &mut Values<'_>) -> SourceSettings {
    let mut attempt_base_by_service = HashMap::new();
    let base = find("source.attempt_base").map(|place| &KEYS[place]);
    for (service, entry) in values.raw.open("source.services") {
        let key = format!("source.services.{service}.attempt_base");
        match base.map(|base| base.read(&entry.typed)) {
            Some(Ok(Value::Number(number))) => {
                let number = i64::try_from(number).unwrap_or(i64::MAX);
                attempt_base_by_service.insert(service.clone(), number);
            }
            Some(Err((problem, hint))) => values.wrong(key, entry, problem, hint),
            Some(Ok(_)) | None => {}
        }
    }
    let mut decisions = HashMap::new();
    for (word, entry) in values.raw.open("source.decisions") {
        let key = format!("source.decisions.{word}");
        match read_word(&entry.typed.to_string(), DECISIONS) {
            _ if DECISIONS.contains(&word.as_str()) => {
                let hint = "remove it; only other words are mapped".to_owned();
                values.wrong(
                    key,
                    entry,
                    "maps a word that is a decision already".into(),
                    hint,
                );
            }
            Ok(decision) => {
                decisions.insert(word.clone(), decision);
            }
            Err((problem, hint)) => values.wrong(key, entry, problem, hint),
        }
    }
    SourceSettings {
        attempt_base: i64::try_from(values.number("source.attempt_base")).unwrap_or(i64::MAX),
        attempt_base_by_service,
        count_layer: values.text("source.count_layer"),
        decisions,
    }
}

/// Every key's value, and the mistakes so far. A name that is not in the table is a slip in this
/// crate, and panics; a test reads every one.
pub(super) struct Values<'r> {
    pub raw: &'r RawConfig,
    pub mistakes: Vec<Mistake>,
    values: Vec<Option<Value>>,
}

impl<'r> Values<'r> {
    fn read(raw: &'r RawConfig) -> Self {
        let mut mistakes = Vec::new();
        let values = KEYS.iter().enumerate().map(|(place, key)| {
            let Some(entry) = raw.at(place) else {
                return preset(key);
            };
            let read = key
                .read(&entry.typed)
                .and_then(|value| there(key, value, &entry.origin));
            read.map(Some).unwrap_or_else(|(problem, hint)| {
                mistakes.push(mistake(key.dotted(), key.kind, entry, problem, hint));
                preset(key)
            })
        });
        let values = values.collect();
        Self {
            raw,
            mistakes,
            values,
        }
    }

    fn get(&self, dotted: &str) -> Option<&Value> {
        let place = find(dotted).unwrap_or_else(|| panic!("no key {dotted} in the table"));
        self.values[place].as_ref()
    }

    pub fn text(&self, dotted: &str) -> Option<String> {
        match self.get(dotted) {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    pub fn is(&self, dotted: &str, word: &str) -> bool {
        self.get(dotted) == Some(&Value::Text(word.to_owned()))
    }

    pub fn path(&self, dotted: &str) -> Option<PathBuf> {
        self.text(dotted).map(PathBuf::from)
    }

    fn words(&self, dotted: &str) -> Vec<String> {
        match self.get(dotted) {
            Some(Value::Words(words)) => words.clone(),
            _ => Vec::new(),
        }
    }

    fn switch(&self, dotted: &str) -> bool {
        self.get(dotted) == Some(&Value::Switch(true))
    }

    pub fn number(&self, dotted: &str) -> u64 {
        match self.get(dotted) {
            Some(Value::Number(number)) => *number,
            other => panic!("{dotted} is no number with a default: {other:?}"),
        }
    }

    pub fn duration(&self, dotted: &str) -> Duration {
        Duration::from_millis(self.number(dotted))
    }

    /// A mistake of a typed value.
    pub fn wrong(&mut self, key: String, entry: &Entry, problem: String, hint: String) {
        self.mistakes
            .push(mistake(key, Kind::Text, entry, problem, hint));
    }

    /// A mistake about the first of these keys, told at the first that was typed.
    pub fn wrong_of(&mut self, keys: &[&str], problem: &str, hint: &str) {
        let typed = keys
            .iter()
            .find_map(|key| self.raw.get(key).map(|entry| (*key, entry)));
        let about = keys.first().copied().unwrap_or_default();
        self.mistakes.push(Mistake {
            origin: typed.map(|(_, entry)| entry.origin.clone()),
            key: about.to_owned(),
            value: typed
                .filter(|(key, _)| *key == about && !is_secret(about))
                .map(|(_, entry)| entry.typed.to_string()),
            problem: problem.to_owned(),
            hint: hint.to_owned(),
        });
    }

    /// A mistake about a key that nobody typed.
    pub fn missing(&mut self, key: &str, problem: &str) {
        let env = find(key).map(|place| KEYS[place].env()).unwrap_or_default();
        let hint = format!(
            "set it in {} (`{COMMAND}` makes one), by {env}, or with --set {key}=…",
            super::FILE
        );
        self.wrong_of(&[key], problem, &hint);
    }
}

fn is_secret(dotted: &str) -> bool {
    find(dotted).is_some_and(|place| KEYS[place].kind == Kind::Secret)
}

fn mistake(key: String, kind: Kind, entry: &Entry, problem: String, hint: String) -> Mistake {
    let value = (kind != Kind::Secret).then(|| entry.typed.to_string());
    Mistake {
        origin: Some(entry.origin.clone()),
        key,
        value,
        problem,
        hint,
    }
}

fn preset(key: &Key) -> Option<Value> {
    match key.preset {
        Preset::Is(text) => key.read(&Typed::One(text.to_owned())).ok(),
        Preset::Follows { .. } | Preset::Unset { .. } => None,
    }
}

/// Paths from a file begin at the file's folder; some must be there.
fn there(key: &Key, value: Value, origin: &Origin) -> Result<Value, (String, String)> {
    let (Kind::Path | Kind::File | Kind::Folder | Kind::Place, Value::Text(text)) =
        (key.kind, &value)
    else {
        return Ok(value);
    };
    if key.kind == Kind::Place && text.contains("://") {
        return match url::Url::parse(text) {
            Ok(_) => Ok(value),
            Err(error) => Err((format!("is no address: {error}"), "correct it".into())),
        };
    }
    let path = origin.resolve(text);
    let shown = path.display();
    let right = match std::fs::metadata(&path) {
        _ if matches!(key.kind, Kind::Path | Kind::Place) => Ok(()),
        Ok(meta) if key.kind == Kind::File && meta.is_dir() => Err("is a folder".to_owned()),
        Ok(meta) if key.kind == Kind::Folder && !meta.is_dir() => Err("is no folder".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(format!("can't be read at {shown}: {error}")),
    };
    match right {
        Ok(()) => Ok(Value::Text(path.to_string_lossy().into_owned())),
        Err(problem) => Err((problem, "correct the path, or remove the key".into())),
    }
}

#[cfg(test)]
mod tests;
