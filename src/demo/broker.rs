//! librdkafka's mock cluster, with the demo's topics.

use std::time::Duration;

use anyhow::{Context as _, bail};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::{Message as _, Offset, TopicPartitionList};

use super::traffic::Produced;
use crate::kafka::Producer;

/// The topic of the demo's events.
pub const TOPIC: &str = "llm-retries";
/// Its partitions.
pub const PARTITIONS: i32 = 8;
/// How long the end of a topic may take to come.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// A Kafka broker that lives as long as this value.
pub struct EmbeddedBroker {
    cluster: MockCluster<'static, DefaultProducerContext>,
}

impl EmbeddedBroker {
    pub fn start() -> anyhow::Result<Self> {
        let cluster = MockCluster::new(1).context("cannot start the embedded broker")?;
        for (topic, partitions) in [
            (TOPIC, PARTITIONS),
            ("llm-retries.dead-letters", 1),
            ("llm-retries.alerts", 1),
        ] {
            let made = cluster.create_topic(topic, partitions, 1);
            made.with_context(|| format!("cannot make the topic {topic}"))?;
        }
        Ok(Self { cluster })
    }

    /// `host:port`.
    pub fn bootstrap(&self) -> String {
        self.cluster.bootstrap_servers()
    }

    /// Sends all records, each with its own time; returns when all are acknowledged.
    pub fn produce(&self, records: &[Produced]) -> anyhow::Result<()> {
        let producer = Producer::new(self.client())?;
        for record in records {
            producer.send(TOPIC, &record.key, &record.payload, Some(record.ts_ms))?;
        }
        producer.flush()
    }

    /// Every message of a topic with one partition, as text.
    pub fn read_all(&self, topic: &str) -> anyhow::Result<Vec<String>> {
        let mut client = self.client();
        client.set("group.id", "retrytoll-demo-reader");
        let consumer: BaseConsumer = client.create().context("cannot read back")?;
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(topic, 0, Offset::Beginning)?;
        consumer.assign(&from)?;
        let (first, end) = consumer.fetch_watermarks(topic, 0, READ_TIMEOUT)?;
        let mut messages = Vec::new();
        for _ in first..end {
            let Some(message) = consumer.poll(READ_TIMEOUT).transpose()? else {
                bail!("the topic {topic} could not be read to its end")
            };
            messages.push(String::from_utf8_lossy(message.payload().unwrap_or_default()).into());
        }
        Ok(messages)
    }

    fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", self.bootstrap());
        client
    }
}
