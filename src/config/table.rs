//! Every key, once: name, kind, bounds and their reason, default, meaning.

use super::key::{Key, Kind, Preset};

const MS: u64 = 1;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const MB: u64 = 1_000_000;
const GB: u64 = 1_000 * MB;

/// Variables of the environment that set no key: the flags of the same name.
pub const RESERVED: &[&str] = &["RETRYTOLL_CONFIG", "RETRYTOLL_LOG"];

/// Each section and what it is about, in the order of the file.
pub const SECTIONS: &[(&str, &str)] = &[
    (
        "kafka",
        "The topic with the retry-decision events, and the way to it.",
    ),
    ("lake", "Where the tables are."),
    ("source", "How to read the callers' events."),
    ("prices", "What a token costs."),
    ("policy", "Which failed attempts a provider bills."),
    (
        "flush",
        "When rows are committed. Earlier means more and smaller files.",
    ),
    ("dedupe", "How long an event that comes twice is known."),
    (
        "limits",
        "Memory, by what it is for: 400MB in all unless changed here. Disk and time of SQL.",
    ),
    (
        "dead_letters",
        "What happens to records that are no events.",
    ),
    ("alerts", "What alerts say, and to whom."),
    ("pagerduty", "Whom `retrytoll alerts --to pagerduty` pages."),
    ("jobs", "The SQL jobs."),
    (
        "maintain",
        "How often the leader of `run` looks after the lake's files.",
    ),
    ("http", "What `retrytoll run` tells of itself over HTTP."),
];

/// What an alert can tell.
pub const RULES: &[&str] = &[
    "retry_storm",
    "doomed_outage",
    "pipeline",
    "retry_share",
    "repeated_billing",
    "retry_budget",
    "token_budget",
    "usage_coverage",
    "unpriced",
];
/// Of attempts or tokens; more is a slip of the pen.
const COUNT_MAX: u64 = 1_000_000_000_000_000;

/// What an alert can be about.
pub const DIMENSIONS: &[&str] = &[
    "service",
    "provider",
    "model",
    "tenant",
    "team",
    "project",
    "environment",
    "error_class",
];

/// The decisions that an event can carry; other words are mapped to one of them.
pub const DECISIONS: &[&str] = &[
    "retry",
    "retry_limited",
    "fallback",
    "success",
    "give_up",
    "no_retry",
    "ask_user",
    "budget_exhausted",
    "cancelled",
];

/// A table whose names are the user's own.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    pub prefix: &'static str,
    /// What stands behind the name.
    pub suffix: &'static str,
    pub about: &'static str,
    /// The header and a line, as they would be typed.
    pub example: (&'static str, &'static str),
}

impl Open {
    /// The user's own name in a dotted key of this table.
    #[must_use]
    pub fn name_in<'k>(&self, dotted: &'k str) -> Option<&'k str> {
        let rest = dotted.strip_prefix(self.prefix)?.strip_prefix('.')?;
        rest.strip_suffix(self.suffix)
            .filter(|name| !name.is_empty())
    }
}

pub const OPEN: &[Open] = &[
    Open {
        prefix: "kafka.properties",
        suffix: "",
        about: "More properties of librdkafka, except those that retrytoll owns. A name that \
                ends in _file takes the value from that file (for secrets).",
        example: ("[kafka.properties]", "\"client.id\" = \"retrytoll-eu\""),
    },
    Open {
        prefix: "source.decisions",
        suffix: "",
        about: "Callers' other words for decisions, and the known decision that each means.",
        example: ("[source.decisions]", "retrying = \"retry\""),
    },
    Open {
        prefix: "source.services",
        suffix: ".attempt_base",
        about: "Services that count attempts from another number than attempt_base.",
        example: ("[source.services.NAME]", "attempt_base = 1"),
    },
];

/// The place of a key in [`KEYS`].
#[must_use]
pub fn find(dotted: &str) -> Option<usize> {
    let (section, name) = dotted.split_once('.')?;
    KEYS.iter()
        .position(|key| key.section == section && key.name == name)
}

const fn is(text: &'static str) -> Preset {
    Preset::Is(text)
}

const fn unset(example: &'static str) -> Preset {
    Preset::Unset { example }
}

const fn key(
    section: &'static str,
    name: &'static str,
    kind: Kind,
    preset: Preset,
    about: &'static str,
) -> Key {
    Key {
        section,
        name,
        kind,
        preset,
        about,
        why: "",
    }
}

const fn time(least: u64, most: u64) -> Kind {
    Kind::Duration { least, most }
}

const fn size(least: u64, most: u64) -> Kind {
    Kind::Size { least, most }
}

impl Key {
    const fn why(self, why: &'static str) -> Self {
        Self { why, ..self }
    }
}

const MEMORY: &str = "under the least it stalls, and above 64GB it is a slip of the hand";

#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("kafka", "bootstrap", Kind::Text, unset("localhost:9092"),
        "Brokers to ask first: host:port, several with commas."),
    key("kafka", "topic", Kind::Topic, unset("llm-retries"),
        "The topic with the events."),
    key("kafka", "group", Kind::Text, is("retrytoll"),
        "The consumer group. Instances of one group share the topic's partitions."),
    key("kafka", "instance_id", Kind::Text, unset("retrytoll-1"),
        "A name of this instance alone that stays over restarts, so that it takes its partitions \
         back at once. Best set by RETRYTOLL_KAFKA_INSTANCE_ID."),
    key("kafka", "dead_letter_topic", Kind::Topic,
        Preset::Follows { rule: "<topic>.dead-letters", example: "llm-retries.dead-letters" },
        "Where records go that are no events."),
    key("kafka", "alert_topic", Kind::Topic,
        Preset::Follows { rule: "<topic>.alerts", example: "llm-retries.alerts" },
        "Where alerts go."),
    key("kafka", "breaker_topic", Kind::Topic,
        Preset::Follows { rule: "<topic>.breaker", example: "llm-retries.breaker" },
        "Where an alert over alerts.retries_per_hour goes as well, for gateways: compacted, a \
         record per service."),
    key("kafka", "start", Kind::Word(&["earliest", "latest"]), is("earliest"),
        "Where to begin a topic that the lake does not know yet; one that it knows goes on where \
         it ended, whatever stands here."),
    key("kafka", "generation", Kind::Count { least: 1, most: 1_000_000 }, is("1"),
        "Raise it by one when the topic was deleted and made anew: its offsets begin again then, \
         and it is a source of its own.")
        .why("offsets of two lives of a topic must not be mixed"),
    key("kafka", "on_lost_records", Kind::Word(&["stop", "skip"]), is("stop"),
        "What to do where the topic lost records before they were read: stop, or skip them and go \
         on at the first that is there."),
    key("kafka", "security_protocol",
        Kind::Word(&["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]), is("plaintext"),
        "How to talk to the brokers."),
    key("kafka", "sasl_mechanism", Kind::Word(&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
        unset("SCRAM-SHA-512"),
        "How to log in, with security_protocol sasl_plaintext or sasl_ssl."),
    key("kafka", "sasl_username", Kind::Text, unset("retrytoll"),
        "The user to log in as."),
    key("kafka", "sasl_password", Kind::Secret, unset(""),
        "Only by RETRYTOLL_KAFKA_SASL_PASSWORD, never in this file."),
    key("kafka", "sasl_password_file", Kind::File, unset("/run/secrets/kafka-password"),
        "A file that holds the password and nothing else."),
    key("kafka", "ssl_ca_file", Kind::File, unset("/etc/ssl/kafka-ca.pem"),
        "Certificates to trust (PEM); the system's without it."),
    key("kafka", "ssl_cert_file", Kind::File, unset("/etc/ssl/retrytoll.pem"),
        "This client's certificate (PEM), where the brokers ask for one."),
    key("kafka", "ssl_key_file", Kind::File, unset("/etc/ssl/retrytoll.key"),
        "The certificate's private key (PEM)."),
    key("kafka", "ssl_key_password", Kind::Secret, unset(""),
        "Only by RETRYTOLL_KAFKA_SSL_KEY_PASSWORD, never in this file."),
    key("kafka", "ssl_key_password_file", Kind::File, unset("/run/secrets/key-password"),
        "A file that holds the private key's password and nothing else."),
    key("kafka", "session_timeout", time(SECOND, 30 * MINUTE), is("45s"),
        "How long the group waits for an instance that went silent before others take over.")
        .why("brokers refuse what is outside their group.min and group.max.session.timeout.ms, \
              by default 6s and 30m"),

    key("lake", "path", Kind::Place, is("lake"),
        "The tables' root: a folder or the URL of an object store. A relative path in this file \
         begins at the file's folder."),

    key("source", "name", Kind::Text, unset("gateway-eu"),
        "For files and stdin: the source's name, in place of one made of its first record."),
    key("source", "count_layer", Kind::Word(&["app", "sdk", "gateway"]), unset("gateway"),
        "Where two layers log the same wire request: the one whose money counts."),
    key("source", "attempt_base", Kind::Count { least: 0, most: 1 }, is("0"),
        "The number of an operation's first attempt.")
        .why("callers count from 0 or from 1"),

    key("prices", "file", Kind::File, unset("model_prices_and_context_window.json"),
        "A price table in LiteLLM's form; a small embedded one, with its date, without it."),
    key("policy", "file", Kind::File, unset("billing-policy.toml"),
        "Your own rows of the billing policy; they go before the embedded ones."),

    key("flush", "interval", time(100 * MS, 10 * MINUTE), is("5s"),
        "The age of the oldest row at which a flush is due, when caught up.")
        .why("each flush is a commit, and rows older than this are not yet visible"),
    key("flush", "interval_behind", time(100 * MS, 30 * MINUTE), is("60s"),
        "The same while there is more to read.")
        .why("a flush older than an hour is thrown away"),
    key("flush", "size", size(MB, 4 * GB), is("128MB"),
        "The bytes of Parquet written at which a flush is due, whatever its age.")
        .why("smaller makes many small files, larger takes long to read back"),
    key("flush", "position_interval", time(SECOND, 10 * MINUTE), is("10s"),
        "How often positions are committed where records bring no rows.")
        .why("each is a commit, and without one the completeness mark stands still"),

    key("dedupe", "horizon", time(0, DAY), is("10m"),
        "How long an event is known, so that a second one like it is no row. 0s: not at all.")
        .why("every event within it takes memory of limits.seen"),
    key("dedupe", "replay_max", Kind::Count { least: 1_000, most: 1_000_000_000 }, is("2_000_000"),
        "How many events behind the newest a restart reads again at most, per partition.")
        .why("fewer forgets too soon, more makes restarts slow"),

    key("limits", "prefetch", size(MB, 64 * GB), is("48MB"),
        "Records fetched from the brokers and not yet read.").why(MEMORY),
    key("limits", "batches", size(8 * MB, 64 * GB), is("24MB"),
        "Batches of events on their way to the lake.").why(MEMORY),
    key("limits", "encode", size(16 * MB, 64 * GB), is("80MB"),
        "Rows on their way into Parquet files.").why(MEMORY),
    key("limits", "seen", size(MB, 64 * GB), is("64MB"),
        "Events known within dedupe.horizon; the oldest are forgotten first.").why(MEMORY),
    key("limits", "sql", size(16 * MB, 64 * GB), is("160MB"),
        "SQL jobs of `run`; beyond it they spill to disk. Commands that only ask take all of limits.")
        .why(MEMORY),
    key("limits", "rest", size(8 * MB, 64 * GB), is("24MB"),
        "Everything else.").why(MEMORY),
    key("limits", "spill_max", size(0, 1_000 * GB), is("1GB"),
        "Disk that SQL may spill to. 0B: none.")
        .why("a full disk stops everything on the machine"),
    key("limits", "sql_time", time(SECOND, DAY), is("5m"),
        "How long a question of `sql` or `report` may take.")
        .why("a join of everything with everything takes days"),

    key("dead_letters", "content", Kind::Word(&["redacted", "full"]), is("redacted"),
        "redacted: known fields and lengths, no long text. full: the record as it came, prompts \
         and all."),
    key("dead_letters", "file", Kind::Path, unset("dead-letters.jsonl"),
        "Where dead letters go when there is no topic (JSON lines)."),

    key("alerts", "off", Kind::Words(RULES), is(""),
        "Alert rules that are off."),
    key("alerts", "retries_per_hour", Kind::Count { least: 0, most: COUNT_MAX }, is("0"),
        "Rule retry_budget: retries that a service may make in a clock hour. 0: the rule is off.")
        .why("a budget is a whole number of attempts"),
    key("alerts", "retries_per_minute", Kind::Count { least: 0, most: COUNT_MAX }, is("0"),
        "Rule retry_storm: retries of a provider in a minute that are a storm, until 3 days are \
         known to compare with. 0: 100 a minute are.")
        .why("a budget is a whole number of attempts"),
    key("alerts", "tokens_per_day", Kind::Count { least: 0, most: COUNT_MAX }, is("0"),
        "Rule token_budget: tokens that a tenant may use in a UTC day. 0: the rule is off.")
        .why("a budget is a whole number of tokens"),
    key("alerts", "heartbeat", Kind::Switch, is("true"),
        "Tell each minute on the alert topic how this instance does."),
    key("alerts", "silent_after", time(0, 30 * DAY), is("12h"),
        "Rule pipeline: how long no record may come. 0s: for ever.")
        .why("a topic may well be quiet at night"),
    key("alerts", "owner", Kind::Text, unset("team-platform"),
        "Who looks after this; stands in each alert."),
    key("alerts", "runbook_url", Kind::Url, unset("https://example.com/runbooks/retries"),
        "What to do about it; stands in each alert."),
    key("alerts", "hide", Kind::Words(DIMENSIONS), is(""),
        "Dimensions that alerts must not name."),
    key("alerts", "reproduce_days", Kind::Count { least: 1, most: 7 }, is("7"),
        "How many days the version of the lake that an alert cites can be read.")
        .why("until then no file of that version is removed, and the log tells for 7 days which"),

    key("pagerduty", "routing_key", Kind::Secret, unset(""),
        "Only by RETRYTOLL_PAGERDUTY_ROUTING_KEY, never in this file."),
    key("pagerduty", "routing_key_file", Kind::File, unset("/run/secrets/pagerduty-key"),
        "A file that holds the integration's routing key and nothing else."),

    key("jobs", "sql_dir", Kind::Folder, unset("sql/jobs"),
        "A folder with SQL jobs of your own, beside the built-in ones."),
    key("jobs", "tick", time(SECOND, HOUR), is("1m"),
        "How often alert rules are looked at, by event time; a schedule in jobs.toml counts ticks \
         as minutes.")
        .why("each tick runs SQL over the lake, and alerts come no sooner"),
    key("jobs", "time_max", time(SECOND, HOUR), is("2m"),
        "How long a job may take in `run`; one that takes longer has failed.")
        .why("no other rule is looked at meanwhile"),
    key("jobs", "rollup_rows", Kind::Count { least: 1_000, most: 1_000_000 }, is("20000"),
        "Rows that an hour of the table `rollup` has at most; of more, those with the fewest \
         attempts are put together under `other`.")
        .why("a report over a month reads them all"),

    key("maintain", "log_every", time(SECOND, DAY), is("30s"),
        "A checkpoint, and removal of old entries, of a log that has grown by 100 commits.")
        .why("without checkpoints every start reads the whole log"),
    key("maintain", "compact_every", time(SECOND, DAY), is("10m"),
        "Small files of the open day, of closed hours and of closed days become fewer and sorted.")
        .why("queries open every file, and each round writes files anew"),
    key("maintain", "vacuum_every", time(SECOND, 30 * DAY), is("1d"),
        "Files that no readable version of the lake needs are removed.")
        .why("each round lists every file"),

    key("maintain", "keep", time(DAY, 36_500 * DAY), is("396d"),
        "How long attempts are kept, by their date; what is older goes with the next vacuum. It \
         counts from the newest date in the lake, but not from one after today.")
        .why("a shorter one takes rows away that reports of its time would need"),

    key("http", "listen", Kind::Listen, unset("127.0.0.1:9464"),
        "Where to answer /metrics (for Prometheus), /healthz and /readyz; nowhere without it. Who \
         can reach it can read it: 127.0.0.1 keeps it to this machine."),
];

#[cfg(test)]
mod tests {
    use super::super::raw::Typed;
    use super::*;

    #[test]
    fn every_key_is_whole() {
        for key in KEYS {
            let dotted = key.dotted();
            assert!(
                SECTIONS.iter().any(|(name, _)| *name == key.section),
                "{dotted}"
            );
            assert!(
                key.about.ends_with('.') || key.about.ends_with(".)"),
                "{dotted}"
            );
            let bounded = matches!(
                key.kind,
                Kind::Count { .. } | Kind::Duration { .. } | Kind::Size { .. }
            );
            assert_eq!(
                bounded,
                !key.why.is_empty(),
                "{dotted}: a bound needs its reason"
            );
            if let Preset::Is(text) = key.preset {
                let read = key.read(&Typed::One(text.into()));
                assert!(
                    read.is_ok(),
                    "{dotted}: its own default is refused: {read:?}"
                );
            }
            if key.kind == Kind::Secret {
                assert!(
                    find(&format!("{dotted}_file")).is_some(),
                    "{dotted} has no _file"
                );
            }
        }
    }

    #[test]
    fn no_name_stands_twice() {
        let mut names: Vec<String> = KEYS.iter().map(Key::env).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), KEYS.len());
    }

    #[test]
    fn an_open_table_finds_the_users_name() {
        let [properties, decisions, services] = OPEN else {
            panic!("three open tables")
        };
        assert_eq!(
            properties.name_in("kafka.properties.linger.ms"),
            Some("linger.ms")
        );
        assert_eq!(properties.name_in("kafka.properties"), None);
        assert_eq!(
            decisions.name_in("source.decisions.try again"),
            Some("try again")
        );
        assert_eq!(
            services.name_in("source.services.my.svc.attempt_base"),
            Some("my.svc")
        );
        assert_eq!(services.name_in("source.services.my.svc.base"), None);
    }
}
