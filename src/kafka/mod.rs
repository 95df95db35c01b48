//! topic → records → [`crate::pipeline`]; dead letters and alerts → topics; alerts → whoever follows
//! them ([`AlertTopic`]). All of librdkafka.
//!
//! One blocking thread polls and answers rebalances at once; it never waits for the lake. Offsets
//! come from the lake when partitions are assigned, and what is committed to the broker is advice
//! for lag monitors.

mod alert_topic;
mod broker;
mod faults;
mod newest;
mod producer;
mod reason;
mod source;
mod statistics;

pub use alert_topic::{AlertTopic, Heard, Reading};
pub use broker::{BrokerError, TopicStarts, connect};
pub use newest::{Newest, read_newest};
pub use producer::{DeadLetterTopic, Producer};
pub use reason::{Reason, Reasons, ask, asker};
pub use source::{SourceSettings, read_topic};
pub use statistics::BrokerFacts;

use rdkafka::config::ClientConfig;

use crate::config::Config;
use crate::config::kafka::Kafka;

/// One fetch asks a broker for this share of `limits.prefetch`, over all its partitions: what comes is
/// compressed, often to a tenth, and whole in memory before it is counted. Small fetches are as fast as
/// large ones.
const FETCHES: usize = 16;
/// The least that librdkafka takes: its greatest record by default.
const FETCH_BYTES_MIN: usize = 1 << 20;
/// The most: its default.
const FETCH_BYTES_MAX: usize = 50 << 20;
/// How often librdkafka tells how its connections and queues stand, ms.
const STATISTICS_MS: &str = "2000";

/// librdkafka refuses a session that is longer than this, its default.
const POLL_INTERVAL_MS: u128 = 300_000;

/// A client of the group, as far as the user's properties must fit together.
pub fn group_config(kafka: &Kafka) -> ClientConfig {
    let mut client = kafka.client();
    let session_ms = kafka.session_timeout.as_millis();
    client
        .set("group.id", &kafka.group)
        .set("session.timeout.ms", session_ms.to_string())
        .set("heartbeat.interval.ms", (session_ms / 3).max(1).to_string());
    if client.get("max.poll.interval.ms").is_none() && session_ms > POLL_INTERVAL_MS {
        client.set("max.poll.interval.ms", session_ms.to_string());
    }
    client
}

/// The consumer's configuration.
pub fn consumer_config(kafka: &Kafka, config: &Config) -> ClientConfig {
    let mut client = group_config(kafka);
    let prefetch_bytes = config.limits.prefetch_bytes;
    let prefetch_kib = (prefetch_bytes / 1024).max(1).to_string();
    let fetch_bytes = (prefetch_bytes / FETCHES).clamp(FETCH_BYTES_MIN, FETCH_BYTES_MAX);
    client
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        .set("isolation.level", "read_committed")
        .set("enable.partition.eof", "true")
        .set("allow.auto.create.topics", "false")
        // Partitions that are added are found soon, and then read from their beginning.
        .set("topic.metadata.refresh.interval.ms", "10000")
        // The default of 1 s makes a bounded queue stall for seconds.
        .set("fetch.queue.backoff.ms", "5")
        .set("fetch.max.bytes", fetch_bytes.to_string())
        .set("fetch.message.max.bytes", FETCH_BYTES_MIN.to_string())
        .set("queued.max.messages.kbytes", prefetch_kib)
        .set("queued.min.messages", "100000")
        .set("statistics.interval.ms", STATISTICS_MS);
    if let Some(instance) = &kafka.instance_id {
        client.set("group.instance.id", instance);
    }
    client
}
