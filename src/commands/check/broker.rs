//! A connection → whether the broker answers, and which of our topics are there.

use std::sync::Mutex;
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::types::RDKafkaErrorCode;

use super::Finding;
use crate::config::Kafka;
use crate::kafka::group_config;

/// How long the broker may take for each answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Keeps the last reason that librdkafka logged: its errors only say that time ran out.
#[derive(Default)]
struct LastReason(Mutex<Option<String>>);

impl LastReason {
    fn keep(&self, reason: &str) {
        // The last word is always that all brokers are down, which is no reason.
        if reason.ends_with("brokers are down") {
            return;
        }
        if let Ok(mut last) = self.0.lock() {
            *last = Some(reason.to_owned());
        }
    }

    fn take(&self) -> Option<String> {
        self.0.lock().ok()?.take()
    }
}

impl ClientContext for LastReason {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, message, "librdkafka");
        if level as i32 <= RDKafkaLogLevel::Error as i32 {
            self.keep(message);
        }
    }

    fn error(&self, error: rdkafka::error::KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "librdkafka");
        self.keep(reason);
    }
}

impl ConsumerContext for LastReason {}

/// The broker, and each topic that `run` uses; that of the breaker only where a budget is set.
pub(super) fn look(kafka: &Kafka, has_budget: bool, timeout: Duration) -> Vec<Finding> {
    let bootstrap = &kafka.bootstrap;
    let mut client = group_config(kafka);
    client
        .set("allow.auto.create.topics", "false")
        .set_log_level(RDKafkaLogLevel::Error);
    let consumer: BaseConsumer<LastReason> = match client.create_with_context(LastReason::default())
    {
        Ok(consumer) => consumer,
        Err(error) => {
            let hint = "correct the [kafka] keys";
            return vec![Finding::wrong(
                "broker",
                format!("{bootstrap}: {error}"),
                hint,
            )];
        }
    };
    let mut findings = Vec::new();
    let mut topics = vec![
        ("kafka.topic", &kafka.topic),
        ("kafka.dead_letter_topic", &kafka.dead_letter_topic),
        ("kafka.alert_topic", &kafka.alert_topic),
    ];
    if has_budget {
        topics.push(("kafka.breaker_topic", &kafka.breaker_topic));
    }
    for (key, topic) in topics {
        let metadata = match consumer.fetch_metadata(Some(topic), timeout) {
            Ok(metadata) => metadata,
            Err(error) => {
                let reason = reason(&consumer).unwrap_or_else(|| error.to_string());
                let text = format!("{bootstrap}: no answer within {timeout:?}: {reason}");
                let hint = "is kafka.bootstrap right, is the broker up, and does \
                            kafka.security_protocol fit its listener?";
                findings.push(Finding::wrong("broker", text, hint));
                return findings;
            }
        };
        if findings.is_empty() {
            findings.push(cluster(
                &consumer,
                bootstrap,
                metadata.brokers().len(),
                timeout,
            ));
        }
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        let error = found
            .and_then(|found| found.error())
            .map(RDKafkaErrorCode::from);
        let partitions = found.map_or(0, |found| found.partitions().len());
        findings.push(of_topic(key, topic, error, partitions));
    }
    findings
}

/// Why librdkafka got no answer: it tells by events, which wait to be polled.
fn reason(consumer: &BaseConsumer<LastReason>) -> Option<String> {
    const EVENTS_MAX: usize = 100;
    for _ in 0..EVENTS_MAX {
        if consumer.poll(Duration::ZERO).is_none() {
            break;
        }
    }
    consumer.context().take()
}

fn cluster(
    consumer: &BaseConsumer<LastReason>,
    bootstrap: &str,
    brokers: usize,
    timeout: Duration,
) -> Finding {
    let plural = if brokers == 1 { "" } else { "s" };
    match consumer.client().fetch_cluster_id(timeout) {
        Some(id) => Finding::fine(
            "broker",
            format!("{bootstrap}: cluster {id}, {brokers} broker{plural}"),
        ),
        None => {
            let text = format!("{bootstrap}: the cluster has no id, and a source is named by it");
            Finding::wrong("broker", text, "use brokers of version 0.10.1 or newer")
        }
    }
}

fn of_topic(key: &str, topic: &str, error: Option<RDKafkaErrorCode>, partitions: usize) -> Finding {
    match error {
        None if partitions > 0 => {
            let plural = if partitions == 1 { "" } else { "s" };
            Finding::fine(
                "topic",
                format!("{topic}: {partitions} partition{plural} ({key})"),
            )
        }
        None | Some(RDKafkaErrorCode::UnknownTopicOrPartition) => Finding::wrong(
            "topic",
            format!("{topic}: missing ({key})"),
            format!("create it: kafka-topics.sh --create --topic {topic} …, or correct {key}"),
        ),
        Some(RDKafkaErrorCode::TopicAuthorizationFailed) => Finding::wrong(
            "topic",
            format!("{topic}: not allowed to describe it ({key})"),
            "give this user the rights to describe it, and to read or write it",
        ),
        Some(error) => Finding::wrong(
            "topic",
            format!("{topic}: {error} ({key})"),
            "see the broker's log",
        ),
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::mocking::MockCluster;

    use super::*;
    use crate::commands::check::State;
    use crate::config::raw::{Flag, RawConfig};
    use crate::config::{Config, Need};

    fn kafka(bootstrap: &str) -> Kafka {
        let flag = |key: &str, value: &str| Flag {
            typed: "--set".into(),
            key: key.into(),
            value: value.into(),
        };
        let mut raw = RawConfig::default();
        let flags = [
            flag("kafka.bootstrap", bootstrap),
            flag("kafka.topic", "calls"),
        ];
        assert_eq!(raw.set_flags(&flags), []);
        Config::of(&raw, Need::Kafka)
            .0
            .kafka
            .expect("a topic is set")
    }

    #[test]
    fn topics_are_counted_and_missed() {
        let cluster = MockCluster::new(1).expect("a mock cluster");
        cluster.create_topic("calls", 8, 1).expect("created");
        cluster.create_topic("calls.alerts", 1, 1).expect("created");
        let found = look(&kafka(&cluster.bootstrap_servers()), false, ANSWER_TIMEOUT);
        let told: Vec<_> = found
            .iter()
            .map(|each| (each.state, each.text.as_str()))
            .collect();
        assert_eq!(told.len(), 4, "{told:?}");
        assert_eq!(told[0].0, State::Fine);
        assert!(told[0].1.ends_with("1 broker"), "{told:?}");
        assert_eq!(told[1], (State::Fine, "calls: 8 partitions (kafka.topic)"));
        let missing = "calls.dead-letters: missing (kafka.dead_letter_topic)";
        assert_eq!(told[2], (State::Wrong, missing));
        assert_eq!(
            told[3],
            (State::Fine, "calls.alerts: 1 partition (kafka.alert_topic)")
        );
        assert!(
            found[2].hint.contains("--topic calls.dead-letters"),
            "{}",
            found[2].hint
        );
    }

    #[test]
    fn a_silent_broker_is_told_once_with_the_reason() {
        // Nobody listens on the discard port here.
        let found = look(&kafka("127.0.0.1:9"), false, Duration::from_millis(1_500));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].state, State::Wrong);
        assert!(
            found[0]
                .text
                .starts_with("127.0.0.1:9: no answer within 1.5s: "),
            "{found:?}"
        );
        assert!(found[0].text.contains("refused"), "{found:?}");
    }
}
