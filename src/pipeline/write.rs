//! [`Fact`] → Parquet → dead letters acknowledged → commit → [`Order`]: the writing stage.
//!
//! One flush is under way at a time. It ends by size, by age, before a claim, and at the end;
//! whatever the way, rows and positions go into one commit, and a position never passes a dead
//! letter that was not acknowledged. A commit that is refused drops everything since the last,
//! and reading starts again at a claim.

mod error;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use retrytoll_core::batch::SourceId;
use retrytoll_core::forgotten::Forgotten;
use retrytoll_core::said::Said;
use retrytoll_core::step::Progress;
use retrytoll_lake::encode::{FileLimits, Versions, encode};
use retrytoll_lake::forget::forgotten;
use retrytoll_lake::{
    Clock, ConflictCounts, LakeError, Owner, Point, Position, SourcePartition, Writer,
    completeness_mark,
};
use tokio::runtime::Handle;

pub use self::error::WriteError;
use super::channel::{Closed, Inlet};
use super::facts::{WriteFacts, WriteSummary};
use super::health::Health;
use super::message::{Fact, Order, Rows, Term};
use super::pending::Pending;
use crate::dead_letter::DeadLetter;
use crate::metrics::{Metrics, seconds};
use crate::outlet::DeadLetterOutlet;

/// How long to wait for a fact before looking at the clock again.
const TICK: Duration = Duration::from_millis(50);
/// A commit refused so often within [`FENCE_WINDOW_MS`] means that two members share partitions.
const FENCES_MAX: usize = 3;
const FENCE_WINDOW_MS: i64 = 60_000;

/// When a flush ends, and what goes with it.
#[derive(Clone, Debug)]
pub struct WriteSettings {
    pub source: SourceId,
    pub versions: Versions,
    pub flush_bytes: u64,
    pub interval_ms: i64,
    pub interval_behind_ms: i64,
    pub position_interval_ms: i64,
    pub files: FileLimits,
    /// A refused commit begins anew; a file's reader ends instead.
    pub restarts: bool,
}

/// Where a partition starts that is about to be claimed, and whether the log still holds what
/// the lake asks for. Kafka asks its broker; a file begins at 0.
pub trait Starts {
    /// The start of a partition that the lake does not know.
    fn first(&self, partition: i32, source_is_known: bool) -> anyhow::Result<i64>;
    /// The position to read from, `low` raised to the log's start where older records are gone.
    fn checked(&self, partition: i32, position: Progress) -> anyhow::Result<Progress>;
}

/// The writing stage of one source.
pub struct Stage<S> {
    settings: WriteSettings,
    writer: Writer,
    starts: S,
    outlet: DeadLetterOutlet,
    clock: Clock,
    runtime: Handle,
    orders: SyncSender<Order>,
    /// Whether this instance owns the least (source, partition) that the lake knows.
    pub leading: Arc<AtomicBool>,
    /// How this stage does.
    pub health: Arc<Health>,
    /// Where it leaves its counts.
    pub metrics: Arc<Metrics>,
    /// Whose rows are not written any more.
    forgotten: Forgotten,
    pending: Pending,
    table: PathBuf,
    committed_ms: i64,
    /// Facts are void until the reader says that it began anew.
    void: bool,
    fences_ms: Vec<i64>,
    summary: WriteSummary,
    conflicts: ConflictCounts,
    /// Dead letters since they were last told of, and what was told.
    letters_untold: usize,
    letters_said: Said,
}

impl<S: Starts> Stage<S> {
    #[expect(
        clippy::too_many_arguments,
        reason = "the stage is put together in one place"
    )]
    pub fn new(
        settings: WriteSettings,
        writer: Writer,
        table: PathBuf,
        starts: S,
        outlet: DeadLetterOutlet,
        clock: Clock,
        runtime: Handle,
        orders: SyncSender<Order>,
    ) -> Self {
        let pending = Pending::new(&table, settings.files);
        let committed_ms = clock.now_ms();
        Self {
            settings,
            writer,
            starts,
            outlet,
            clock,
            runtime,
            orders,
            leading: Arc::new(AtomicBool::new(false)),
            health: Arc::default(),
            metrics: Arc::default(),
            forgotten: Forgotten::default(),
            pending,
            table,
            committed_ms,
            void: false,
            fences_ms: Vec::new(),
            summary: WriteSummary::default(),
            conflicts: ConflictCounts::default(),
            letters_untold: 0,
            letters_said: Said::default(),
        }
    }

    /// Works until the reader ends. Everything that was told is committed then.
    pub fn run(mut self, inlet: &Inlet) -> Result<WriteSummary, WriteError> {
        let result = self.work(inlet);
        if result.is_err() {
            self.health.broke();
        }
        // Whatever came, the reader must not wait for orders any more.
        let _ = self.orders.try_send(Order::Stop);
        result.map(|()| self.summary)
    }

    fn work(&mut self, inlet: &Inlet) -> Result<(), WriteError> {
        loop {
            let fact = match inlet.receive(TICK) {
                Ok(fact) => fact,
                // The reader is gone without an end: it failed, and says so itself.
                Err(Closed) => return Ok(()),
            };
            let ended = matches!(fact, Some(Fact::End));
            let result = match fact {
                Some(fact) => self.take(fact, inlet),
                None => Ok(()),
            };
            self.health.waits(self.pending.began_ms());
            let result = result.and_then(|()| match ended || self.is_due() {
                true => self.flush(),
                false => Ok(()),
            });
            match result {
                Err(WriteError::Lake(error)) if self.may_restart(&error) => self.fenced(&error)?,
                other => other?,
            }
            if ended {
                return Ok(());
            }
        }
    }

    fn partition(&self, number: i32) -> SourcePartition {
        SourcePartition::new(self.settings.source.0.clone(), number)
    }

    fn take(&mut self, fact: Fact, inlet: &Inlet) -> Result<(), WriteError> {
        match fact {
            Fact::Restarted(term) => {
                self.void = false;
                self.claim(&term)
            }
            Fact::Rows(rows) if self.void => {
                inlet.release(rows.bytes);
                Ok(())
            }
            _ if self.void => Ok(()),
            Fact::Assigned(term) => {
                // Rows of an earlier ownership must be in the log before it is read.
                self.flush()?;
                self.claim(&term)
            }
            Fact::Revoked(partitions) => self.revoke(&partitions),
            Fact::Rows(rows) => {
                let bytes = rows.bytes;
                let result = self.rows(*rows);
                inlet.release(bytes);
                result
            }
            Fact::Moved {
                partition,
                progress,
                file,
                at_end,
            } => {
                let partition = self.partition(partition);
                if at_end {
                    self.pending.stands_at_end(&partition, true);
                    self.health.is_behind(0);
                }
                self.pending.moved(partition, (progress, file));
                Ok(())
            }
            Fact::Bad(letter) => {
                let now_ms = self.clock.now_ms();
                self.health.took(0, 1, now_ms);
                self.pending.add_dead_letter(*letter, now_ms);
                Ok(())
            }
            Fact::End => Ok(()),
        }
    }

    fn rows(&mut self, mut rows: Rows) -> Result<(), WriteError> {
        let partition = self.partition(rows.partition);
        let (keep, words) = (&mut rows.keep, &rows.words);
        self.summary.forgotten += self
            .forgotten
            .take_from(keep, &rows.batch, words, &rows.derived);
        let encoded = encode(
            rows.batch,
            rows.derived,
            &rows.words,
            &self.settings.versions,
        )?;
        self.pending.stands_at_end(&partition, rows.caught_up);
        let now_ms = self.clock.now_ms();
        self.health.took(rows.keep.len() as u64, 0, now_ms);
        let clock_ms = rows.progress.clock_ms;
        self.health.is_behind(match rows.caught_up {
            // Without a time yet, nobody knows how far.
            false if clock_ms == i64::MIN => 0,
            true => 0,
            false => now_ms.saturating_sub(clock_ms),
        });
        let stands = (rows.progress, rows.file);
        self.pending
            .add_rows(&partition, &encoded, &rows.keep, stands, now_ms)?;
        let held = self.pending.memory_bytes();
        self.metrics.encode_bytes.store(held, Ordering::Relaxed);
        Ok(())
    }

    fn claim(&mut self, term: &Term) -> Result<(), WriteError> {
        let known = self.writer.state().positions();
        let source_is_known = known.keys().any(|it| it.source == self.settings.source.0);
        let mut starts = BTreeMap::new();
        for &number in &term.partitions {
            let partition = self.partition(number);
            let start = match known.get(&partition) {
                Some(position) => *position,
                None => {
                    let first = self.starts.first(number, source_is_known);
                    Position::start(first.map_err(WriteError::Start)?)
                }
            };
            starts.insert(partition, start);
        }
        self.health.commits(Some(self.clock.now_ms()));
        let claimed = self.runtime.block_on(self.writer.claim(&starts));
        self.health.commits(None);
        let claimed = claimed?;
        // A commit that changes this list fences us, so that it holds until the next claim.
        self.forgotten = forgotten(&self.writer.state().txns);
        let mut read = Vec::new();
        for (partition, claim) in claimed {
            let Position {
                next,
                low,
                low_clock_ms,
                clock_ms,
                ..
            } = claim.position;
            let progress = Progress {
                next,
                low,
                low_clock_ms,
                clock_ms,
            };
            let number = partition.partition;
            let checked = self
                .starts
                .checked(number, progress)
                .map_err(WriteError::Start)?;
            tracing::info!(
                partition = number,
                next,
                low = checked.low,
                "partition claimed"
            );
            read.push((number, checked));
        }
        self.committed_ms = self.clock.now_ms();
        self.summary.commits += 1;
        self.summary.claims += 1;
        self.look_around();
        Point::Claimed.pass();
        self.order(Order::Read {
            term: term.number,
            positions: read,
        });
        Ok(())
    }

    fn revoke(&mut self, numbers: &[i32]) -> Result<(), WriteError> {
        let partitions: Vec<_> = numbers
            .iter()
            .map(|number| self.partition(*number))
            .collect();
        let in_flush = self.pending.with_rows();
        let has_rows = partitions.iter().any(|it| in_flush.contains(it));
        if has_rows {
            self.writer.begin_flush(in_flush)?;
        }
        self.writer.revoke(&partitions);
        self.look_around();
        for partition in &partitions {
            self.pending.forget(partition);
        }
        if has_rows { self.flush() } else { Ok(()) }
    }

    /// Looks who leads, and leaves what was done for whoever watches.
    fn look_around(&mut self) {
        self.conflicts.add(&self.writer.take_conflicts());
        let known = self.writer.state().positions();
        let owned = self.writer.owned();
        let owns_least = known.keys().next().is_some_and(|it| owned.contains(it));
        self.leading.store(owns_least, Ordering::Release);
        let source = &self.settings.source.0;
        let ours = owned.iter().filter(|it| it.source == *source);
        let next = ours.filter_map(|it| Some((it.partition, known.get(it)?.next)));
        self.metrics.writing.set(WriteFacts {
            summary: self.summary,
            conflicts: self.conflicts,
            next: next.collect(),
            mark: completeness_mark(&known),
        });
    }

    fn is_due(&self) -> bool {
        if self.void {
            return false;
        }
        let settings = &self.settings;
        match self.pending.began_ms() {
            Some(began_ms) => {
                let interval = match self.pending.is_caught_up() {
                    true => settings.interval_ms,
                    false => settings.interval_behind_ms,
                };
                self.clock.since_ms(began_ms) >= interval
                    || self.pending.bytes() >= settings.flush_bytes
            }
            None => {
                self.pending.has_positions()
                    && self.clock.since_ms(self.committed_ms) >= settings.position_interval_ms
            }
        }
    }

    /// Dead letters, then rows and positions in one commit. Without rows, positions alone.
    fn flush(&mut self) -> Result<(), WriteError> {
        if self.void || self.pending.is_bare() && !self.pending.has_positions() {
            return Ok(());
        }
        let fresh = Pending::new(&self.table, self.settings.files);
        let pending = std::mem::replace(&mut self.pending, fresh);
        self.health.commits(Some(self.clock.now_ms()));
        let result = self.commit(pending);
        self.health.commits(None);
        self.metrics.encode_bytes.store(0, Ordering::Relaxed);
        result
    }

    fn commit(&mut self, mut pending: Pending) -> Result<(), WriteError> {
        let letters = std::mem::take(&mut pending.dead_letters);
        self.deliver(&letters)?;
        Point::DeadLetters.pass();
        let now_ms = self.clock.now_ms();
        let (rows, began_ms) = (pending.rows, pending.began_ms());
        let flush = pending.finish(now_ms)?;
        Point::Files.pass();
        let put_ms = self.clock.now_ms();
        let committed = self.runtime.block_on(self.writer.flush(&flush))?;
        self.committed_ms = self.clock.now_ms();
        self.health.committed(self.committed_ms);
        let since = |ms: i64| seconds(self.committed_ms - ms);
        self.metrics.commit_seconds.observe(since(put_ms));
        if let Some(began_ms) = began_ms {
            self.metrics.flush_seconds.observe(since(began_ms));
        }
        let bytes: u64 = flush.files.iter().map(|file| file.size).sum();
        self.summary.rows += rows;
        self.summary.files += flush.files.len() as u64;
        self.summary.bytes += bytes;
        self.summary.commits += 1;
        self.summary.position_commits += u64::from(flush.files.is_empty());
        self.summary.dead_letters += letters.len() as u64;
        self.summary.version = Some(committed.version);
        // At our claim others may not have made theirs yet: their partitions show now.
        self.look_around();
        tracing::info!(
            version = committed.version,
            rows,
            files = flush.files.len(),
            bytes,
            took_ms = self.committed_ms - now_ms,
            "committed"
        );
        Point::Committed.pass();
        let advice = flush
            .positions
            .iter()
            .map(|(it, position)| (it.partition, position.next));
        self.order(Order::Advise(advice.collect()));
        Ok(())
    }

    fn deliver(&mut self, letters: &[DeadLetter]) -> Result<(), WriteError> {
        if letters.is_empty() {
            return Ok(());
        }
        self.letters_untold += letters.len();
        let kind = "records that are no events";
        if self.letters_said.again(kind, self.clock.now_ms()).is_some() {
            tracing::warn!(dead_letters = self.letters_untold, "{kind}");
            self.letters_untold = 0;
        }
        self.outlet
            .deliver(letters)
            .map_err(WriteError::DeadLetters)
    }

    /// Reading again from the lake's positions mends these; all else stops the process.
    fn may_restart(&self, error: &LakeError) -> bool {
        self.settings.restarts
            && matches!(
                error,
                LakeError::Fenced(_) | LakeError::FlushTooOld { .. } | LakeError::BaseLost { .. }
            )
    }

    /// Another writer holds what we thought ours: drop everything, begin again at a claim.
    fn fenced(&mut self, error: &LakeError) -> Result<(), WriteError> {
        let now_ms = self.clock.now_ms();
        self.fences_ms
            .retain(|at| self.clock.since_ms(*at) < FENCE_WINDOW_MS);
        // Who forgets a tenant has none of our partitions.
        if !matches!(error, LakeError::Fenced(it) if it.owner == Owner::Forgotten) {
            self.fences_ms.push(now_ms);
        }
        let by = error.to_string();
        if self.fences_ms.len() >= FENCES_MAX {
            return Err(WriteError::Fenced { by });
        }
        tracing::warn!(
            by,
            "a commit was refused; reading again from the lake's positions"
        );
        self.summary.restarts += 1;
        self.writer.abandon_flush();
        // Nothing is owned after a refusal, so that it leads no more.
        self.look_around();
        self.pending = Pending::new(&self.table, self.settings.files);
        self.void = true;
        self.order(Order::Restart);
        Ok(())
    }

    /// A reader that is gone needs no orders, and advice may be lost.
    fn order(&self, order: Order) {
        match order {
            Order::Advise(_) => drop(self.orders.try_send(order)),
            _ => drop(self.orders.send(order)),
        }
    }
}
