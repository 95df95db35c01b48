//! The `[kafka]` keys → a connection, and the properties that librdkafka wants for it.

use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;

use super::raw::Entry;
use super::secret::{self, Secret};
use super::usable::{Need, Values};

/// Where to begin a topic that the lake does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Earliest,
    Latest,
}

/// The topic, and the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kafka {
    /// Brokers to ask first: `host:port`, several with commas.
    pub bootstrap: String,
    pub topic: String,
    pub group: String,
    pub instance_id: Option<String>,
    pub dead_letter_topic: String,
    pub alert_topic: String,
    /// Compacted; gateways read it.
    pub breaker_topic: String,
    pub start: Start,
    /// Go on at the log's start where records were removed before they were read; stop without it.
    pub skip_lost_records: bool,
    /// How often the topic was made anew, and once more.
    pub generation: u64,
    pub session_timeout: Duration,
    /// Properties of the connection: security, and the user's own.
    connection: Vec<(String, Secret)>,
}

impl Kafka {
    /// A client's configuration with brokers and security, for consumers and producers alike.
    #[must_use]
    pub fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap);
        for (name, Secret(value)) in &self.connection {
            config.set(name, value);
        }
        config
    }
}

/// Properties of librdkafka that are not the user's to set, and what to do instead.
const OWNED: &[(&str, &str)] = &[
    ("bootstrap.servers", "set kafka.bootstrap"),
    ("metadata.broker.list", "set kafka.bootstrap"),
    ("group.id", "set kafka.group"),
    ("group.instance.id", "set kafka.instance_id"),
    ("session.timeout.ms", "set kafka.session_timeout"),
    ("auto.offset.reset", "set kafka.start"),
    ("topic.auto.offset.reset", "set kafka.start"),
    ("security.protocol", "set kafka.security_protocol"),
    ("sasl.mechanism", "set kafka.sasl_mechanism"),
    ("sasl.mechanisms", "set kafka.sasl_mechanism"),
    ("sasl.username", "set kafka.sasl_username"),
    ("sasl.password", "set kafka.sasl_password_file"),
    (
        "sasl.jaas.config",
        "set kafka.sasl_username and kafka.sasl_password_file",
    ),
    ("ssl.ca.location", "set kafka.ssl_ca_file"),
    ("ssl.certificate.location", "set kafka.ssl_cert_file"),
    ("ssl.key.location", "set kafka.ssl_key_file"),
    ("ssl.key.password", "set kafka.ssl_key_password_file"),
    ("queued.max.messages.kbytes", "set limits.prefetch"),
    ("queued.min.messages", "set limits.prefetch"),
    ("fetch.max.bytes", "set limits.prefetch"),
    ("fetch.message.max.bytes", "set limits.prefetch"),
    ("max.partition.fetch.bytes", "set limits.prefetch"),
    (
        "enable.auto.commit",
        "remove it: the lake holds the positions",
    ),
    (
        "auto.commit.interval.ms",
        "remove it: the lake holds the positions",
    ),
    (
        "enable.auto.offset.store",
        "remove it: the lake holds the positions",
    ),
    (
        "offset.store.method",
        "remove it: the lake holds the positions",
    ),
    (
        "isolation.level",
        "remove it: only committed records are read",
    ),
    (
        "enable.partition.eof",
        "remove it: retrytoll needs it to know when it is caught up",
    ),
    (
        "fetch.queue.backoff.ms",
        "remove it: more than a few ms stalls a bounded queue",
    ),
    (
        "allow.auto.create.topics",
        "remove it: reading must not make topics",
    ),
    ("enable.idempotence", "remove it: what is sent is sent once"),
    (
        "acks",
        "remove it: what is sent is acknowledged by all replicas",
    ),
    (
        "request.required.acks",
        "remove it: what is sent is acknowledged by all replicas",
    ),
    (
        "transactional.id",
        "remove it: retrytoll uses no Kafka transactions",
    ),
    (
        "group.protocol",
        "remove it: only the classic protocol is tested",
    ),
    (
        "partition.assignment.strategy",
        "remove it: members of a group must agree on it",
    ),
    (
        "plugin.library.paths",
        "remove it: no code is loaded from elsewhere",
    ),
    (
        "statistics.interval.ms",
        "remove it: set http.listen, and ask it for /metrics",
    ),
    ("debug", "use --log librdkafka=debug"),
    ("log_level", "use --log librdkafka=debug"),
];

/// Both of brokers and topic, or neither where neither is needed.
pub(super) fn of(values: &mut Values<'_>, need: Need) -> Option<Kafka> {
    let connection = connection(values);
    let (bootstrap, topic) = (values.text("kafka.bootstrap"), values.text("kafka.topic"));
    let typed = |key| values.raw.get(key).is_some();
    let needed = need == Need::Kafka || typed("kafka.bootstrap") || typed("kafka.topic");
    for (key, there) in [("kafka.bootstrap", &bootstrap), ("kafka.topic", &topic)] {
        // Where one was typed and is wrong, that has been said.
        if needed && there.is_none() && values.raw.get(key).is_none() {
            values.missing(key, "is not set, and there is nothing to read without it");
        }
    }
    let (bootstrap, topic) = (bootstrap?, topic?);
    let beside = |key, ending| {
        values
            .text(key)
            .unwrap_or_else(|| format!("{topic}.{ending}"))
    };
    let dead_letter_topic = beside("kafka.dead_letter_topic", "dead-letters");
    let alert_topic = beside("kafka.alert_topic", "alerts");
    let breaker_topic = beside("kafka.breaker_topic", "breaker");
    for (key, name) in [
        ("kafka.dead_letter_topic", &dead_letter_topic),
        ("kafka.alert_topic", &alert_topic),
        ("kafka.breaker_topic", &breaker_topic),
    ] {
        if *name == topic {
            let problem = "is the topic that is read: what is written would be read again";
            values.wrong_of(&[key], problem, "name another topic");
        }
    }
    Some(Kafka {
        group: values.text("kafka.group").unwrap_or_default(),
        instance_id: values.text("kafka.instance_id"),
        start: match values.is("kafka.start", "latest") {
            true => Start::Latest,
            false => Start::Earliest,
        },
        skip_lost_records: values.is("kafka.on_lost_records", "skip"),
        generation: values.number("kafka.generation"),
        session_timeout: values.duration("kafka.session_timeout"),
        bootstrap,
        topic,
        dead_letter_topic,
        alert_topic,
        breaker_topic,
        connection,
    })
}

/// Security and the user's own properties.
fn connection(values: &mut Values<'_>) -> Vec<(String, Secret)> {
    let protocol = values.text("kafka.security_protocol").unwrap_or_default();
    let mut set = vec![("security.protocol".to_owned(), Secret(protocol.clone()))];
    let mut put = |name: &str, value: Option<String>| {
        set.extend(value.map(|value| (name.to_owned(), Secret(value))));
    };
    let password = secret::of(values, "kafka.sasl_password");
    let key_password = secret::of(values, "kafka.ssl_key_password");
    sasl_mistakes(values, &protocol, password.is_some());
    ssl_mistakes(values, &protocol);
    if protocol.starts_with("sasl_") {
        put("sasl.mechanism", values.text("kafka.sasl_mechanism"));
        put("sasl.username", values.text("kafka.sasl_username"));
        put("sasl.password", password);
    }
    if protocol.ends_with("ssl") {
        put("ssl.ca.location", values.text("kafka.ssl_ca_file"));
        put(
            "ssl.certificate.location",
            values.text("kafka.ssl_cert_file"),
        );
        put("ssl.key.location", values.text("kafka.ssl_key_file"));
        put("ssl.key.password", key_password);
    }
    for (name, entry) in values.raw.open("kafka.properties") {
        match property(name, entry) {
            Ok(pair) => set.push(pair),
            Err((problem, hint, shown)) => {
                values.wrong(format!("kafka.properties.{name}"), entry, problem, hint);
                if let Some(mistake) = values.mistakes.last_mut().filter(|_| !shown) {
                    mistake.value = None;
                }
            }
        }
    }
    set
}

fn sasl_mistakes(values: &mut Values<'_>, protocol: &str, password: bool) {
    let keys = ["kafka.sasl_mechanism", "kafka.sasl_username"];
    if protocol.starts_with("sasl_") {
        for key in keys {
            if values.raw.get(key).is_none() {
                values.missing(
                    key,
                    &format!("is not set, and security_protocol is {protocol}"),
                );
            }
        }
        let typed = ["kafka.sasl_password", "kafka.sasl_password_file"];
        if !password && typed.iter().all(|key| values.raw.get(key).is_none()) {
            let hint = "set RETRYTOLL_KAFKA_SASL_PASSWORD, or kafka.sasl_password_file";
            let problem = format!("is not set, and security_protocol is {protocol}");
            values.wrong_of(&typed[..1], &problem, hint);
        }
        return;
    }
    for key in [
        &keys[..],
        &["kafka.sasl_password_file", "kafka.sasl_password"],
    ]
    .concat()
    {
        if values.raw.get(key).is_some() {
            let problem = format!("has no effect, since security_protocol is {protocol}");
            values.wrong_of(
                &[key],
                &problem,
                "set kafka.security_protocol to sasl_ssl or sasl_plaintext, or remove it",
            );
        }
    }
}

fn ssl_mistakes(values: &mut Values<'_>, protocol: &str) {
    let keys = [
        "ca_file",
        "cert_file",
        "key_file",
        "key_password",
        "key_password_file",
    ];
    for key in keys.map(|name| format!("kafka.ssl_{name}")) {
        if !protocol.ends_with("ssl") && values.raw.get(&key).is_some() {
            let problem = format!("has no effect, since security_protocol is {protocol}");
            let hint = "set kafka.security_protocol to ssl or sasl_ssl, or remove it";
            values.wrong_of(&[key.as_str()], &problem, hint);
        }
    }
    for (one, other) in [
        ("kafka.ssl_cert_file", "kafka.ssl_key_file"),
        ("kafka.ssl_key_file", "kafka.ssl_cert_file"),
    ] {
        if values.raw.get(one).is_some() && values.raw.get(other).is_none() {
            let problem = format!("is of no use without {other}");
            values.wrong_of(&[one], &problem, &format!("set {other} too, or remove it"));
        }
    }
}

/// A property of the user's own; else the problem, what to do, and whether the value may be shown.
fn property(name: &str, entry: &Entry) -> Result<(String, Secret), (String, String, bool)> {
    let typed = entry.typed.to_string();
    let (name, file) = match name.strip_suffix("_file") {
        Some(name) => (name, true),
        None => (name, false),
    };
    if let Some((_, instead)) = OWNED.iter().find(|(owned, _)| *owned == name) {
        let shown = file || !is_secret(name);
        return Err(("is retrytoll's own to set".into(), (*instead).into(), shown));
    }
    if is_secret(name) && !file {
        let hint = format!("put it into a file, and set \"{name}_file\" to the file's path");
        return Err((
            "is a secret, and others can read it here".into(),
            hint,
            false,
        ));
    }
    let value = match file {
        false => typed,
        true => {
            let read = secret::read(entry.origin.resolve(&typed));
            let hint = "put the value into it, and nothing else".to_owned();
            read.map_err(|problem| (problem, hint, true))?.0
        }
    };
    let mut alone = ClientConfig::new();
    let (refused, shown) = match alone.set(name, &value).create_native_config() {
        Ok(_) => return Ok((name.to_owned(), Secret(value))),
        // The value may be a secret under a misspelt name.
        Err(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, why, ..)) => {
            (format!(": {}", why.trim()), file)
        }
        // The reason may quote the value.
        Err(KafkaError::ClientConfig(_, why, ..)) if !file => (format!(": {}", why.trim()), true),
        Err(_) => (String::new(), true),
    };
    let hint = "see librdkafka's CONFIGURATION.md for names and values".into();
    Err((format!("is refused by librdkafka{refused}"), hint, shown))
}

/// Whether the value of a property of the user's own may be shown.
pub(super) fn is_shown(name: &str, entry: &Entry) -> bool {
    let shown = |wrong: (_, _, bool)| wrong.2;
    !is_secret(name) && property(name, entry).map_or_else(shown, |_| true)
}

/// Whether a property of librdkafka holds a secret.
fn is_secret(name: &str) -> bool {
    let name = name.strip_suffix("_file").map_or(name, |_| "");
    let marks = [
        "password",
        "passphrase",
        "secret",
        ".pem",
        "jaas",
        "sasl.oauthbearer.config",
    ];
    marks.iter().any(|mark| name.contains(mark))
}
