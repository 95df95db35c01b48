//! The poll loop: rebalances, records, ends of partitions, orders of the writing stage.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, Statistics, TopicPartitionList};
use retrytoll_core::silence::Silence;
use retrytoll_core::step::Progress;
use retrytoll_lake::{Clock, Point};

use super::faults;
use super::reason::not_made;
use super::statistics::BrokerFacts;
use crate::metrics::Metrics;
use crate::pipeline::{Closed, Fact, Health, Order, Reader, SourceRecord, Term};

/// How long one poll may wait for a record.
const POLL: Duration = Duration::from_millis(20);
/// Batches that are not full are handed on so often, ms.
const HAND_ON_MS: i64 = 100;
/// How long the last commit may take, once all was handed on.
const LINGER: Duration = Duration::from_secs(8);
/// Records between two looks at the clock and at orders.
const RECORDS_PER_LOOK: u32 = 512;

/// What to read, and until when.
pub struct SourceSettings {
    pub client: ClientConfig,
    pub topic: String,
    /// End when every partition was read to its end: the demo, and bounded reads.
    pub until_end: bool,
    /// Where it is told how reading goes.
    pub health: Arc<Health>,
    pub metrics: Arc<Metrics>,
}

/// What a rebalance said, kept until the poll loop takes it: the callback may do nothing else.
#[derive(Default)]
pub(super) struct Rebalances {
    told: Mutex<Vec<Told>>,
    /// The group has given us what it has for us, if only nothing, since it last took something.
    has_answered: AtomicBool,
    /// Where statistics of which topic are left.
    watched: Option<(Arc<Metrics>, String)>,
}

impl Rebalances {
    pub(super) fn take(&self) -> Vec<Told> {
        match self.told.lock() {
            Ok(mut queue) => std::mem::take(&mut *queue),
            Err(_) => Vec::new(),
        }
    }
}

pub(super) enum Told {
    Assigned(Vec<i32>),
    Revoked(Vec<i32>),
    Failed(KafkaError),
}

impl ClientContext for Rebalances {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        faults::tell_line(level, facility, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        faults::tell(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        let topic = self.watched.as_ref().map_or("", |(_, topic)| topic);
        let facts = BrokerFacts::of(&statistics, topic);
        if facts.is_whole() {
            faults::over();
        }
        if let Some((metrics, _)) = &self.watched {
            metrics.brokers.set(facts);
        }
    }
}

impl ConsumerContext for Rebalances {
    /// A revoke is answered at once. An assignment is answered when the lake has told the
    /// offsets: until then nothing is fetched.
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        error: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        let partitions = list.elements().iter().map(|it| it.partition()).collect();
        let told = match error {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS if list.count() > 0 => {
                Told::Assigned(partitions)
            }
            // Nothing to ask the lake for; unanswered, the group would wait for us.
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                match consumer.incremental_assign(list) {
                    Ok(()) => {
                        self.has_answered.store(true, Ordering::Relaxed);
                        return;
                    }
                    Err(error) => Told::Failed(error),
                }
            }
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => {
                match consumer.incremental_unassign(list) {
                    Ok(()) => Told::Revoked(partitions),
                    Err(error) => Told::Failed(error),
                }
            }
            _ => Told::Failed(KafkaError::Rebalance(error.into())),
        };
        let is_given = matches!(told, Told::Assigned(_));
        self.has_answered.store(is_given, Ordering::Relaxed);
        if let Ok(mut queue) = self.told.lock() {
            queue.push(told);
        }
    }
}

/// Reads the topic until `stop` is set, the writing stage ends, or (where asked) its end.
/// The reader's last fact is [`Fact::End`] unless something failed.
pub fn read_topic(
    settings: &SourceSettings,
    reader: Reader,
    orders: &Receiver<Order>,
    clock: &Clock,
    stop: &AtomicBool,
) -> anyhow::Result<Reader> {
    let rebalances = Rebalances {
        watched: Some((Arc::clone(&settings.metrics), settings.topic.clone())),
        ..Rebalances::default()
    };
    let consumer: BaseConsumer<Rebalances> = settings
        .client
        .create_with_context(rebalances)
        .map_err(|error| not_made(&error))?;
    consumer
        .subscribe(&[&settings.topic])
        .context("cannot subscribe")?;
    let mut source = Source {
        consumer,
        topic: settings.topic.clone(),
        clock: clock.clone(),
        health: Arc::clone(&settings.health),
        metrics: Arc::clone(&settings.metrics),
        reader,
        assigned: BTreeMap::new(),
        term: 0,
        fetching: Vec::new(),
        silence: Silence::begin(clock.now_ms()),
        is_unanswered: false,
        is_paused: false,
        is_stopped: false,
    };
    match source.run(settings, orders, clock, stop) {
        Ok(()) => {}
        // The writing stage is gone; its error is told by it.
        Err(error) if error.is::<Closed>() => {}
        Err(error) => return Err(error),
    }
    source.linger(orders);
    let Source {
        consumer, reader, ..
    } = source;
    drop(consumer);
    Ok(reader)
}

struct Source {
    consumer: BaseConsumer<Rebalances>,
    topic: String,
    clock: Clock,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    reader: Reader,
    /// Partitions that the group gave us, with the number of their term.
    assigned: BTreeMap<i32, u64>,
    /// The number of the last term.
    term: u64,
    /// Partitions that are being fetched: their offsets are known.
    fetching: Vec<i32>,
    silence: Silence,
    /// An assignment that the group waits to hear of: every one must be answered.
    is_unanswered: bool,
    is_paused: bool,
    is_stopped: bool,
}

impl Source {
    fn run(
        &mut self,
        settings: &SourceSettings,
        orders: &Receiver<Order>,
        clock: &Clock,
        stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        let mut handed_on_ms = clock.now_ms();
        let mut seen_any = false;
        loop {
            let now_ms = clock.now_ms();
            self.health.polled(now_ms);
            self.obey(orders, now_ms)?;
            if self.is_stopped {
                return Ok(());
            }
            self.take_rebalances()?;
            self.silence.look(now_ms, self.is_paused);
            if clock.since_ms(handed_on_ms) >= HAND_ON_MS {
                self.hand_on(now_ms)?;
                handed_on_ms = now_ms;
            }
            let is_done = settings.until_end
                && seen_any
                && self.fetching.len() == self.assigned.len()
                && self.reader.is_at_end();
            if stop.load(Ordering::Acquire) || is_done {
                return self.end(now_ms);
            }
            self.poll(now_ms)?;
            seen_any |= !self.fetching.is_empty();
        }
    }

    /// Polls until nothing comes, the outlet is full, or it is time to look around.
    fn poll(&mut self, now_ms: i64) -> anyhow::Result<()> {
        self.pause_or_resume()?;
        for _ in 0..RECORDS_PER_LOOK {
            let Some(polled) = self.consumer.poll(POLL) else {
                self.drained(now_ms);
                return Ok(());
            };
            match polled {
                Ok(message) => {
                    Point::Polled.pass();
                    let record = record_of(&message);
                    self.reader.record(&record, now_ms)?;
                }
                Err(KafkaError::PartitionEOF(partition)) => {
                    self.at_end(partition, now_ms);
                    return Ok(());
                }
                Err(KafkaError::MessageConsumption(code)) if is_fatal(code) => {
                    anyhow::bail!(
                        "the broker no longer has the offset that was to be read ({code}); run \
                         `retrytoll check`, then start again"
                    );
                }
                Err(KafkaError::MessageConsumptionFatal(code)) => anyhow::bail!(
                    "the brokers refuse this consumer for good ({code}); give each instance a \
                     kafka.instance_id of its own, or none, then start again"
                ),
                Err(error) => {
                    faults::tell(&error, "while reading");
                    return Ok(());
                }
            }
            if self.reader.outlet.is_full() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The end of a partition lies behind control records, which the position counts.
    fn at_end(&mut self, partition: i32, now_ms: i64) {
        let position = self.consumer.position().ok();
        let offset = position.as_ref().and_then(|list| {
            list.find_partition(&self.topic, partition)
                .map(|it| it.offset())
        });
        let next = match offset {
            Some(Offset::Offset(next)) => next,
            _ => 0,
        };
        self.reader.reached_end(partition, next, now_ms);
        self.drained(now_ms);
    }

    /// What came before was taken in: nothing is left, or the end of a partition lay behind it.
    fn drained(&mut self, now_ms: i64) {
        self.silence.drained(now_ms);
        self.reader.silent_ms = self.silence.known_ms();
    }

    fn pause_or_resume(&mut self) -> anyhow::Result<()> {
        let is_free = self.reader.outlet.retry()?;
        if is_free == self.is_paused {
            let list = self.consumer.assignment()?;
            if is_free {
                self.consumer.resume(&list)?;
            } else {
                self.consumer.pause(&list)?;
            }
            self.is_paused = !is_free;
        }
        Ok(())
    }

    fn hand_on(&mut self, now_ms: i64) -> anyhow::Result<()> {
        if self.reader.outlet.retry()? {
            self.reader.close_all(now_ms)?;
        }
        self.health.reads(self.reads_all_that_is_ours());
        self.metrics.reading.set(self.reader.facts());
        Ok(())
    }

    /// The group has answered, and what it gave us was claimed and is being read.
    fn reads_all_that_is_ours(&self) -> bool {
        let context = self.consumer.context();
        context.has_answered.load(Ordering::Relaxed)
            && self.assigned.keys().all(|it| self.reader.owns(*it))
    }

    fn take_rebalances(&mut self) -> anyhow::Result<()> {
        for told in self.consumer.context().take() {
            match told {
                Told::Assigned(partitions) => {
                    tracing::info!(?partitions, "assigned");
                    self.is_unanswered = true;
                    let term = self.begin_term(partitions);
                    self.tell(Fact::Assigned(term))?;
                }
                Told::Revoked(partitions) => {
                    tracing::info!(?partitions, "revoked");
                    for partition in &partitions {
                        self.reader.end(*partition);
                    }
                    self.assigned.retain(|it, _| !partitions.contains(it));
                    self.fetching.retain(|it| !partitions.contains(it));
                    self.tell(Fact::Revoked(partitions))?;
                }
                Told::Failed(error) => return Err(error).context("the group could not be joined"),
            }
        }
        Ok(())
    }

    /// Facts about ownership are few; they wait for a place, and the heartbeat goes on meanwhile.
    fn tell(&mut self, fact: Fact) -> anyhow::Result<()> {
        let goes_round = || self.health.polled(self.clock.now_ms());
        Ok(self.reader.outlet.send_blocking(fact, goes_round)?)
    }

    /// Waits for the overflow slot. The lake may take minutes to answer, and that is no fault here.
    fn wait(&mut self) -> anyhow::Result<()> {
        let goes_round = || self.health.polled(self.clock.now_ms());
        Ok(self.reader.outlet.wait(goes_round)?)
    }

    fn obey(&mut self, orders: &Receiver<Order>, now_ms: i64) -> anyhow::Result<()> {
        while let Ok(order) = orders.try_recv() {
            match order {
                Order::Read { term, positions } => self.begin(term, &positions)?,
                Order::Restart => self.restart(now_ms)?,
                Order::Advise(positions) => self.advise(&positions, CommitMode::Async),
                Order::Stop => self.is_stopped = true,
            }
        }
        Ok(())
    }

    /// Begins to fetch partitions that are still ours.
    fn begin(&mut self, term: u64, positions: &[(i32, Progress)]) -> anyhow::Result<()> {
        let mut fresh = TopicPartitionList::new();
        for &(partition, progress) in positions {
            if self.assigned.get(&partition) != Some(&term) {
                continue;
            }
            self.reader.begin(partition, progress);
            let offset = Offset::Offset(progress.low);
            if self.fetching.contains(&partition) {
                self.consumer
                    .seek(&self.topic, partition, offset, Duration::from_secs(10))?;
            } else {
                fresh.add_partition_offset(&self.topic, partition, offset)?;
                self.fetching.push(partition);
            }
        }
        if fresh.count() > 0 || self.is_unanswered && term == self.term {
            self.is_unanswered = false;
            self.consumer
                .incremental_assign(&fresh)
                .context("cannot begin to read")?;
            if self.is_paused {
                self.consumer.pause(&fresh)?;
            }
        }
        Ok(())
    }

    fn begin_term(&mut self, partitions: Vec<i32>) -> Term {
        self.term += 1;
        self.assigned
            .extend(partitions.iter().map(|partition| (*partition, self.term)));
        Term {
            number: self.term,
            partitions,
        }
    }

    /// Drops all state; the writing stage claims again and tells where to read.
    fn restart(&mut self, now_ms: i64) -> anyhow::Result<()> {
        tracing::debug!(now_ms, "reading begins anew");
        for partition in self.reader.partitions() {
            self.reader.end(partition);
        }
        let partitions = self.assigned.keys().copied().collect();
        let term = self.begin_term(partitions);
        self.tell(Fact::Restarted(term))
    }

    /// The last commit comes after the last fact, and the broker is to hear of it, too.
    fn linger(&self, orders: &Receiver<Order>) {
        loop {
            match orders.recv_timeout(LINGER) {
                Ok(Order::Advise(positions)) => self.advise(&positions, CommitMode::Sync),
                Ok(Order::Stop) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    fn advise(&self, positions: &[(i32, i64)], mode: CommitMode) {
        let mut list = TopicPartitionList::new();
        for &(partition, next) in positions {
            if self.assigned.contains_key(&partition) {
                let _ = list.add_partition_offset(&self.topic, partition, Offset::Offset(next));
            }
        }
        if list.count() > 0
            && let Err(error) = self.consumer.commit(&list, mode)
        {
            tracing::debug!(%error, "advice to the broker");
        }
    }

    fn end(&mut self, now_ms: i64) -> anyhow::Result<()> {
        self.wait()?;
        self.reader.close_all(now_ms)?;
        while self.reader.outlet.is_full() {
            // What did not fit is still there; partitions handed on already have nothing more.
            self.wait()?;
            self.reader.close_all(now_ms)?;
        }
        self.reader.tell_first_look();
        self.tell(Fact::End)
    }
}

pub(super) fn record_of<'a>(message: &'a BorrowedMessage<'_>) -> SourceRecord<'a> {
    SourceRecord {
        partition: message.partition(),
        offset: message.offset(),
        timestamp_ms: message.timestamp().to_millis(),
        payload: message.payload(),
    }
}

/// The offset asked for is not there: the log was cut or made anew behind our back.
pub(super) fn is_fatal(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::AutoOffsetReset
    )
}
