//! The alert topic → messages, for a reader on its own or for a group that shares its partitions.
//!
//! A group keeps, with the offset of each partition, a text of its own ([`Position::known`]).

use std::time::Duration;

use anyhow::{Context as _, bail};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};
use retrytoll_core::notify::Position;

use super::broker::{ANSWER_TIMEOUT, reach};
use super::reason::not_made;
use super::source::{Rebalances, Told};
use crate::exit::Stop;

/// Messages that are taken at once.
const MESSAGES_MAX: usize = 500;
/// Bytes of messages that are fetched ahead, KiB: alerts are few.
const PREFETCH_KIB: &str = "4096";

/// What is heard of the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A partition is ours, from offset `next` (inclusive) on.
    Begin {
        partition: i32,
        next: i64,
        /// What the group kept with it; empty where it kept nothing.
        known: String,
        /// Whether the group has kept this place.
        is_kept: bool,
    },
    /// A partition is no longer ours.
    End { partition: i32 },
    Message {
        partition: i32,
        offset: i64,
        body: String,
    },
}

/// Who reads, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// On its own, from this time on, ms.
    Alone { since_ms: i64 },
    /// As a member of a group, where the group ended; one that is new begins at this time, ms.
    Group { name: String, since_ms: i64 },
}

/// A reader of the alert topic.
pub struct AlertTopic {
    consumer: BaseConsumer<Rebalances>,
    topic: String,
    reading: Reading,
    /// Partitions that the group gave us, and whose place has yet to be asked for.
    asked_for: Vec<i32>,
    /// Partitions that are read.
    ours: Vec<i32>,
    heard: Vec<Heard>,
}

impl AlertTopic {
    /// Begins to read. `client` is a consumer's configuration.
    ///
    /// # Errors
    /// The broker does not answer, or there is no such topic.
    pub fn open(mut client: ClientConfig, topic: &str, reading: Reading) -> anyhow::Result<Self> {
        client
            .set("enable.partition.eof", "false")
            .set("queued.max.messages.kbytes", PREFETCH_KIB)
            // Where records are gone that were not read, what is there is read.
            .set("auto.offset.reset", "earliest");
        match &reading {
            // A group must be named, and is not joined.
            Reading::Alone { .. } => client.remove("group.instance.id"),
            Reading::Group { name, .. } => client.set("group.id", name),
        };
        // Where there is no connection, the reader does not know why.
        reach(client.clone(), topic)?;
        let consumer = client
            .create_with_context(Rebalances::default())
            .map_err(|error| not_made(&error))?;
        let mut it = Self {
            consumer,
            topic: topic.to_owned(),
            reading,
            asked_for: Vec::new(),
            ours: Vec::new(),
            heard: Vec::new(),
        };
        let partitions = it.partitions()?;
        match it.reading {
            Reading::Alone { .. } => it.read_alone(&partitions)?,
            Reading::Group { .. } => it
                .consumer
                .subscribe(&[topic])
                .context("cannot subscribe")?,
        }
        Ok(it)
    }

    /// What is heard, within a while.
    ///
    /// # Errors
    /// The group cannot be joined.
    pub fn poll(&mut self, wait: Duration) -> anyhow::Result<Vec<Heard>> {
        let mut wait = wait;
        for _ in 0..MESSAGES_MAX {
            match self.consumer.poll(wait) {
                None => break,
                Some(Ok(message)) => {
                    let body = message.payload().unwrap_or_default();
                    self.heard.push(Heard::Message {
                        partition: message.partition(),
                        offset: message.offset(),
                        body: String::from_utf8_lossy(body).into_owned(),
                    });
                }
                Some(Err(error)) => tracing::warn!(%error, topic = self.topic, "alert topic"),
            }
            wait = Duration::ZERO;
        }
        self.take_rebalances()?;
        // Messages of a partition come after its begin, which is told first.
        self.begin_asked();
        Ok(std::mem::take(&mut self.heard))
    }

    fn take_rebalances(&mut self) -> anyhow::Result<()> {
        for told in self.consumer.context().take() {
            match told {
                Told::Assigned(partitions) => {
                    tracing::info!(?partitions, "assigned");
                    self.asked_for.extend(partitions);
                }
                Told::Revoked(partitions) => {
                    tracing::info!(?partitions, "revoked");
                    self.asked_for.retain(|it| !partitions.contains(it));
                    self.ours.retain(|it| !partitions.contains(it));
                    let ended = partitions.into_iter();
                    self.heard
                        .extend(ended.map(|partition| Heard::End { partition }));
                }
                Told::Failed(error) => return Err(error).context("the group could not be joined"),
            }
        }
        Ok(())
    }

    /// An answer that does not come is asked for again at the next poll.
    fn begin_asked(&mut self) {
        if self.asked_for.is_empty() {
            return;
        }
        match self.begin_group() {
            Ok(()) => self.asked_for.clear(),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(error, "where the group ended is not known yet");
            }
        }
    }

    /// Asks where the group ended. A partition that it does not know begins at its beginning where
    /// it knows another one, else at the time given.
    fn begin_group(&mut self) -> anyhow::Result<()> {
        let Reading::Group { since_ms, .. } = self.reading else {
            return Ok(());
        };
        let mut question = TopicPartitionList::new();
        for partition in self.partitions()? {
            question.add_partition(&self.topic, partition);
        }
        let kept = self
            .consumer
            .committed_offsets(question, ANSWER_TIMEOUT)
            .context("the broker did not tell the group's offsets")?;
        let of = |offset| match offset {
            Offset::Offset(next) => Some(next),
            _ => None,
        };
        let is_new = !kept.elements().iter().any(|it| of(it.offset()).is_some());
        let mut begun = TopicPartitionList::new();
        let mut heard = Vec::new();
        for &partition in &self.asked_for {
            let found = kept.find_partition(&self.topic, partition);
            let place = found
                .as_ref()
                .and_then(|it| Some((of(it.offset())?, it.metadata().to_owned())));
            let next = match &place {
                Some((next, _)) => *next,
                None if is_new => self.offset_at(partition, since_ms)?,
                None => self.ends(partition)?.0,
            };
            begun.add_partition_offset(&self.topic, partition, Offset::Offset(next))?;
            heard.push(Heard::Begin {
                partition,
                next,
                is_kept: place.is_some(),
                known: place.map(|(_, known)| known).unwrap_or_default(),
            });
        }
        self.consumer
            .incremental_assign(&begun)
            .context("cannot begin to read")?;
        self.ours.extend(self.asked_for.iter().copied());
        self.heard.extend(heard);
        Ok(())
    }

    fn read_alone(&mut self, partitions: &[i32]) -> anyhow::Result<()> {
        let Reading::Alone { since_ms } = self.reading else {
            return Ok(());
        };
        let mut list = TopicPartitionList::new();
        for &partition in partitions {
            let next = self.offset_at(partition, since_ms)?;
            list.add_partition_offset(&self.topic, partition, Offset::Offset(next))?;
            self.heard.push(Heard::Begin {
                partition,
                next,
                known: String::new(),
                is_kept: true,
            });
        }
        self.consumer.assign(&list).context("cannot begin to read")
    }

    /// Commits where the group goes on, and says whether that is done. What is not committed may be
    /// sent again after a restart, under the same ids. Alone there is nothing to commit.
    pub fn commit(&self, positions: &[Position]) -> bool {
        if matches!(self.reading, Reading::Alone { .. }) {
            return true;
        }
        let ours = positions
            .iter()
            .filter(|it| self.ours.contains(&it.partition));
        let ours = ours.collect::<Vec<_>>();
        let mut done = self.try_commit(&ours, true);
        if done
            == Err(KafkaError::ConsumerCommit(
                RDKafkaErrorCode::OffsetMetadataTooLarge,
            ))
        {
            tracing::warn!("the broker keeps no text of this size with an offset");
            done = self.try_commit(&ours, false);
        }
        if let Err(error) = &done {
            tracing::warn!(%error, "the broker did not take how far the alerts were sent");
        }
        done.is_ok()
    }

    fn try_commit(&self, positions: &[&Position], with_known: bool) -> Result<(), KafkaError> {
        if positions.is_empty() {
            return Ok(());
        }
        let mut list = TopicPartitionList::new();
        for position in positions {
            let mut place = list.add_partition(&self.topic, position.partition);
            place.set_offset(Offset::Offset(position.next))?;
            if with_known {
                place.set_metadata(&position.known);
            }
        }
        self.consumer.commit(&list, CommitMode::Sync)
    }

    fn partitions(&self) -> anyhow::Result<Vec<i32>> {
        let metadata = self
            .consumer
            .fetch_metadata(Some(&self.topic), ANSWER_TIMEOUT)
            .context("the broker does not answer; is kafka.bootstrap right, and the broker up?")?;
        let topic = metadata.topics().iter().find(|it| it.name() == self.topic);
        let found = topic.filter(|it| it.error().is_none());
        let partitions = found.map_or(&[][..], |it| it.partitions());
        if partitions.is_empty() {
            bail!(Stop::failed(
                format!("the alert topic `{}` is not there", self.topic),
                "create it, or correct kafka.alert_topic; `retrytoll run` sends alerts to it",
            ));
        }
        Ok(partitions.iter().map(|it| it.id()).collect())
    }

    /// The least offset (inclusive) and the end (exclusive).
    fn ends(&self, partition: i32) -> anyhow::Result<(i64, i64)> {
        let ends = self
            .consumer
            .fetch_watermarks(&self.topic, partition, ANSWER_TIMEOUT);
        ends.with_context(|| {
            format!(
                "the broker did not tell the ends of {}[{partition}]",
                self.topic
            )
        })
    }

    /// The first offset of that time or later; the end where there is none.
    fn offset_at(&self, partition: i32, ms: i64) -> anyhow::Result<i64> {
        let mut question = TopicPartitionList::new();
        question.add_partition_offset(&self.topic, partition, Offset::Offset(ms.max(0)))?;
        let answer = self
            .consumer
            .offsets_for_times(question, ANSWER_TIMEOUT)
            .with_context(|| format!("the broker did not tell offsets of {}", self.topic))?;
        let found = answer
            .find_partition(&self.topic, partition)
            .map(|it| it.offset());
        match found {
            Some(Offset::Offset(offset)) => Ok(offset),
            _ => Ok(self.ends(partition)?.1),
        }
    }
}
