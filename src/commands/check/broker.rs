//! A connection → whether the broker answers, and which of our topics are there.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::types::RDKafkaErrorCode;

use super::Finding;
use crate::config::Kafka;
use crate::kafka::{Reason, Reasons, ask, asker, group_config};

/// How long the broker may take for each answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The broker, and each topic that `run` uses; that of the breaker only where a budget is set.
pub(super) fn look(kafka: &Kafka, has_budget: bool, timeout: Duration) -> Vec<Finding> {
    let bootstrap = &kafka.bootstrap;
    let mut client = group_config(kafka);
    client.set("allow.auto.create.topics", "false");
    let consumer = match asker(client) {
        Ok(consumer) => consumer,
        Err(error) => {
            let Reason { text, hint, .. } = Reason::of(&error.to_string());
            return vec![Finding::wrong("broker", text, hint)];
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
        let metadata = match ask(&consumer, timeout, |wait| {
            consumer.fetch_metadata(Some(topic), wait)
        }) {
            Ok(metadata) => metadata,
            Err(Reason { text, hint, .. }) => {
                let text = format!("{bootstrap}: no connection: {text}");
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

fn cluster(
    consumer: &BaseConsumer<Reasons>,
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
            found[0].text.starts_with("127.0.0.1:9: no connection: "),
            "{found:?}"
        );
        assert!(found[0].text.contains("refused"), "{found:?}");
    }
}
