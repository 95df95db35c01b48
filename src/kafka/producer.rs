//! Messages that must be acknowledged: dead letters, alerts, the demo's events.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};

use crate::dead_letter::DeadLetter;

/// How long all acknowledgements may take.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait before asking a full queue again.
const QUEUE_WAIT: Duration = Duration::from_millis(5);

/// Reads every delivery report: a refused message is an error, never a silence.
#[derive(Clone, Debug, Default)]
struct Reports {
    failed: Arc<AtomicUsize>,
    last: Arc<std::sync::Mutex<Option<KafkaError>>>,
}

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        if let Err((error, _)) = result {
            self.failed.fetch_add(1, Ordering::AcqRel);
            if let Ok(mut last) = self.last.lock() {
                *last = Some(error.clone());
            }
        }
    }
}

/// A producer that knows whether everything it sent arrived.
pub struct Producer {
    inner: ThreadedProducer<Reports>,
    reports: Reports,
}

impl Producer {
    /// Connects lazily: a broker that is down shows at the first flush.
    pub fn new(mut client: ClientConfig) -> anyhow::Result<Self> {
        let reports = Reports::default();
        client.set("enable.idempotence", "true").set("linger.ms", "5");
        let inner = client.create_with_context(reports.clone()).context("cannot make a producer")?;
        Ok(Self { inner, reports })
    }

    /// Queues a message; waits while the queue is full.
    pub fn send(
        &self,
        topic: &str,
        key: &str,
        payload: &str,
        timestamp_ms: Option<i64>,
    ) -> Result<(), KafkaError> {
        loop {
            let mut record = BaseRecord::to(topic).key(key).payload(payload);
            if let Some(ms) = timestamp_ms {
                record = record.timestamp(ms);
            }
            match self.inner.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    self.inner.poll(QUEUE_WAIT);
                }
                Err((error, _)) => return Err(error),
            }
        }
    }

    /// Returns when every message is acknowledged.
    pub fn flush(&self) -> anyhow::Result<()> {
        self.inner.flush(FLUSH_TIMEOUT).context("the broker did not acknowledge in time")?;
        let failed = self.reports.failed.swap(0, Ordering::AcqRel);
        if failed > 0 {
            let last = self.reports.last.lock().ok().and_then(|mut last| last.take());
            let why = last.map_or_else(String::new, |error| format!(": {error}"));
            bail!("the broker refused {failed} messages{why}");
        }
        Ok(())
    }
}

/// The topic for dead letters.
pub struct DeadLetterTopic {
    producer: Producer,
    topic: String,
}

impl DeadLetterTopic {
    pub fn new(client: ClientConfig, topic: String) -> anyhow::Result<Self> {
        Ok(Self { producer: Producer::new(client)?, topic })
    }

    /// Returns when all are acknowledged. A letter refused for its size goes without its content.
    pub fn deliver(&self, letters: &[DeadLetter]) -> anyhow::Result<()> {
        for letter in letters {
            let send = |body: &str| self.producer.send(&self.topic, &letter.key, body, None);
            match send(&letter.json()) {
                Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge)) => {
                    tracing::warn!(key = letter.key, "dead letter too large: sent without content");
                    send(&letter.without_content())?;
                }
                other => other?,
            }
        }
        self.producer.flush().with_context(|| format!("dead letters for `{}`", self.topic))
    }
}
