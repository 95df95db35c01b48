//! librdkafka's statistics of a consumer → what is asked of them.

use std::collections::BTreeMap;

use rdkafka::Statistics;

/// How the brokers stand with us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerFacts {
    /// Brokers that we are connected to.
    pub connected: u64,
    /// Brokers that we want to be connected to, and are not.
    pub missing: u64,
    /// The end of each partition's log, exclusive, as last told; those not yet told are absent.
    pub ends: BTreeMap<i32, i64>,
    /// Bytes of records that were fetched, and not yet read.
    pub prefetch_bytes: u64,
}

impl BrokerFacts {
    /// Of the topic that is read.
    #[must_use]
    pub fn of(statistics: &Statistics, topic: &str) -> Self {
        let mut facts = Self::default();
        for broker in statistics.brokers.values() {
            // The addresses that were typed, and the coordinator, are connections beside those to
            // brokers by their number.
            if broker.nodeid < 0 {
                continue;
            }
            match broker.state.as_str() {
                "UP" => facts.connected += 1,
                // Nothing was wanted of it.
                "INIT" => {}
                _ => facts.missing += 1,
            }
        }
        let Some(topic) = statistics.topics.get(topic) else {
            return facts;
        };
        for (number, partition) in &topic.partitions {
            // All partitions lead into one queue, and each tells of that.
            facts.prefetch_bytes = facts.prefetch_bytes.max(partition.fetchq_size);
            // Readers of committed records get no further than the last stable offset.
            let end = match partition.ls_offset {
                unknown if unknown < 0 => partition.hi_offset,
                stable => stable,
            };
            if end >= 0 {
                facts.ends.insert(*number, end);
            }
        }
        facts
    }

    /// Every broker that is wanted is there.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.connected > 0 && self.missing == 0
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::statistics::{Broker, Partition, Topic};

    use super::*;

    fn broker(nodeid: i32, state: &str) -> (String, Broker) {
        let broker = Broker {
            nodeid,
            state: state.into(),
            ..Broker::default()
        };
        (format!("{nodeid}"), broker)
    }

    fn partition(number: i32, stable: i64, high: i64) -> (i32, Partition) {
        let partition = Partition {
            partition: number,
            fetchq_size: 10,
            ls_offset: stable,
            hi_offset: high,
            ..Partition::default()
        };
        (number, partition)
    }

    #[test]
    fn it_tells_connections_ends_and_bytes() {
        let partitions = [
            partition(0, 7, 9),
            partition(1, -1001, 5),
            partition(-1, -1001, -1001),
        ];
        let topic = Topic {
            partitions: partitions.into(),
            ..Topic::default()
        };
        let statistics = Statistics {
            brokers: [broker(-1, "UP"), broker(1, "UP"), broker(2, "INIT")].into(),
            topics: [("t".to_owned(), topic)].into(),
            ..Statistics::default()
        };
        let facts = BrokerFacts::of(&statistics, "t");
        assert_eq!((facts.connected, facts.missing), (1, 0));
        assert_eq!(facts.ends, BTreeMap::from([(0, 7), (1, 5)]));
        assert_eq!(facts.prefetch_bytes, 10);
        assert!(facts.is_whole());
        assert_eq!(BrokerFacts::of(&statistics, "u").ends, BTreeMap::new());
    }

    #[test]
    fn a_broker_that_is_tried_again_is_missing() {
        let statistics = Statistics {
            brokers: [broker(1, "UP"), broker(2, "TRY_CONNECT"), broker(-1, "UP")].into(),
            ..Statistics::default()
        };
        let facts = BrokerFacts::of(&statistics, "t");
        assert_eq!((facts.connected, facts.missing), (1, 1));
        assert!(!facts.is_whole());
    }
}
