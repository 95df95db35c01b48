//! Messages that must be acknowledged: dead letters, alerts, the demo's events.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};

use super::faults;
use super::reason::not_made;
use crate::dead_letter::DeadLetter;

/// How long all acknowledgements may take: as long as a commit is tried.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(120);
/// The same once the process is to end.
const LAST_FLUSH_TIMEOUT: Duration = Duration::from_secs(4);
/// A wait looks so often whether it is time to stop.
const STOP_SEEN: Duration = Duration::from_millis(200);
/// How long to wait before asking a full queue again.
const QUEUE_WAIT: Duration = Duration::from_millis(5);

/// A message that was not delivered: the number it was sent with, and why.
type Refused = (usize, KafkaError);

/// Reads every delivery report: a refused message is an error, never a silence.
#[derive(Clone, Debug, Default)]
struct Reports {
    refused: Arc<Mutex<Vec<Refused>>>,
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        faults::tell_line(level, facility, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        faults::tell(&error, reason);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        if let Err((error, _)) = result
            && let Ok(mut refused) = self.refused.lock()
        {
            refused.push((number, error.clone()));
        }
    }
}

/// A producer that knows whether everything it sent arrived.
pub struct Producer {
    inner: ThreadedProducer<Reports>,
    reports: Reports,
    /// Set when the process is to end.
    stop: Arc<AtomicBool>,
}

impl Producer {
    /// Connects lazily: a broker that is down shows at the first flush.
    pub fn new(mut client: ClientConfig) -> anyhow::Result<Self> {
        let reports = Reports::default();
        client
            .set("enable.idempotence", "true")
            .set("linger.ms", "5");
        let inner = client
            .create_with_context(reports.clone())
            .map_err(|error| not_made(&error))?;
        Ok(Self {
            inner,
            reports,
            stop: Arc::default(),
        })
    }

    /// Once `stop` is set, acknowledgements are not waited for much longer.
    pub fn give_up_when(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// Queues a message; waits while the queue is full.
    pub fn send(
        &self,
        topic: &str,
        key: &str,
        payload: &str,
        timestamp_ms: Option<i64>,
    ) -> Result<(), KafkaError> {
        self.send_numbered(0, topic, key, payload, timestamp_ms)
    }

    fn send_numbered(
        &self,
        number: usize,
        topic: &str,
        key: &str,
        payload: &str,
        timestamp_ms: Option<i64>,
    ) -> Result<(), KafkaError> {
        loop {
            let mut record = BaseRecord::with_opaque_to(topic, number)
                .key(key)
                .payload(payload);
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
        let refused = self.settle()?;
        if let Some((_, error)) = refused.first() {
            bail!("the broker refused {} messages: {error}", refused.len());
        }
        Ok(())
    }

    /// Waits for all answers; gives the messages that were refused.
    fn settle(&self) -> anyhow::Result<Vec<Refused>> {
        let (mut waited, mut stopped) = (Duration::ZERO, Duration::ZERO);
        while let Err(error) = self.inner.flush(STOP_SEEN) {
            waited += STOP_SEEN;
            if self.stop.load(Ordering::Acquire) {
                stopped += STOP_SEEN;
            }
            let is_late = error.rdkafka_error_code() == Some(RDKafkaErrorCode::OperationTimedOut);
            if !is_late || waited >= FLUSH_TIMEOUT || stopped >= LAST_FLUSH_TIMEOUT {
                return Err(error).context("the broker did not acknowledge in time");
            }
        }
        let refused = self.reports.refused.lock();
        Ok(refused
            .map(|mut refused| std::mem::take(&mut *refused))
            .unwrap_or_default())
    }
}

/// The topic for dead letters.
pub struct DeadLetterTopic {
    producer: Producer,
    topic: String,
}

impl DeadLetterTopic {
    pub fn new(client: ClientConfig, topic: String) -> anyhow::Result<Self> {
        Ok(Self {
            producer: Producer::new(client)?,
            topic,
        })
    }

    /// As [`Producer::give_up_when`].
    pub fn give_up_when(&mut self, stop: Arc<AtomicBool>) {
        self.producer.give_up_when(stop);
    }

    /// Returns when all are acknowledged. A letter refused for its size, by us or by the broker,
    /// goes without its content.
    pub fn deliver(&self, letters: &[DeadLetter]) -> anyhow::Result<()> {
        let mut too_large = Vec::new();
        for (number, letter) in letters.iter().enumerate() {
            match self.send(number, letter, &letter.json()) {
                Err(error) if is_too_large(&error) => too_large.push(number),
                other => other?,
            }
        }
        let context = || format!("dead letters for `{}`", self.topic);
        for (number, error) in self.producer.settle().with_context(context)? {
            if !is_too_large(&error) {
                return Err(error).with_context(context);
            }
            too_large.push(number);
        }
        if too_large.is_empty() {
            return Ok(());
        }
        tracing::warn!(
            dead_letters = too_large.len(),
            "too large: sent without content"
        );
        for number in too_large {
            self.send(number, &letters[number], &letters[number].without_content())?;
        }
        self.producer.flush().with_context(context)
    }

    fn send(&self, number: usize, letter: &DeadLetter, body: &str) -> Result<(), KafkaError> {
        self.producer
            .send_numbered(number, &self.topic, &letter.key, body, None)
    }
}

fn is_too_large(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge)
}
