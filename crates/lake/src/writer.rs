//! Claims, flushes, positions → commits at `base + 1`, each at most once.
//!
//! A [`Writer`] owns what it claimed, and every commit of it restates `next` of all that, so that
//! it fences every older owner and is fenced by every newer one. Its **base** is the version up
//! to which it has read the log. *Ours* is what it owns, and what the flush under way
//! ([`Writer::begin_flush`]) has rows of: a partition that is revoked meanwhile stays ours until
//! that flush is settled, since moving the base over its new owner's claim would let the flush
//! pass.

mod commit;
mod conflicts;
mod leader;
mod replace;

pub use self::conflicts::ConflictCounts;
pub use self::replace::{Replaced, Replacement};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use deltalake::kernel::{Action, Transaction};
use serde_json::Value;
use uuid::Uuid;

use self::commit::{Commit, Settled};
use crate::clock::Clock;
use crate::durable;
use crate::error::LakeError;
use crate::file::DataFile;
use crate::log::Author;
use crate::position::{Owner, Position, SourcePartition};
use crate::replay::LogState;
use crate::retry::RetryLimits;
use crate::settle::Pending;
use crate::table::Table;

/// Who writes, as named in every commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The consumer group.
    pub group: String,
    /// The member within it: host and process, enough to find it.
    pub name: String,
}

/// Limits of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterLimits {
    /// Tries of a commit that gets no answer.
    pub retry: RetryLimits,
    /// A base not read for this long is first brought to the head: log clean-up may have removed
    /// what follows it, and a put there would succeed below the head.
    pub base_age_ms_max: i64,
}

/// How old a look at the log may be when it is acted on, ms.
pub(crate) const BASE_AGE_MS_MAX: i64 = 600_000;

impl Default for WriterLimits {
    fn default() -> Self {
        Self {
            retry: RetryLimits::default(),
            base_age_ms_max: BASE_AGE_MS_MAX,
        }
    }
}

/// A flush older than this, ms, is thrown away. The same everywhere, since vacuum relies on it.
pub const FLUSH_AGE_MS_MAX: i64 = 3_600_000;

/// Files and positions that belong together.
#[derive(Clone, Debug, Default)]
pub struct Flush {
    /// When its first file was begun, ms: its age counts from there.
    pub began_ms: i64,
    /// Its files; none for a commit of positions alone.
    pub files: Vec<DataFile>,
    /// Where the partitions stand with these files. Those owned but not named keep theirs.
    pub positions: BTreeMap<SourcePartition, Position>,
}

/// A commit that is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its version, which is the writer's base now.
    pub version: u64,
    /// Its id in `commitInfo`.
    pub commit_id: String,
}

/// Where a claimed partition goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Its position.
    pub position: Position,
    /// Whether the lake knew it; if not, this is the start that was given.
    pub known: bool,
}

/// The one way into a table's log.
#[derive(Debug)]
pub struct Writer {
    table: Table,
    member: Member,
    clock: Clock,
    limits: WriterLimits,
    state: LogState,
    /// When the log was last read up to the base, ms.
    base_read_ms: i64,
    owned: BTreeSet<SourcePartition>,
    in_flush: BTreeSet<SourcePartition>,
    /// The number of our leadership.
    leader: Option<i64>,
    /// Set when the process is to end.
    stop: Arc<AtomicBool>,
    conflicts: ConflictCounts,
}

impl Writer {
    /// A writer that owns nothing yet, its base at the head. Columns that the table lacks are
    /// added, by a commit like any other.
    ///
    /// # Errors
    /// As [`Table::check`], and those of a commit.
    pub async fn open(
        table: Table,
        member: Member,
        clock: Clock,
        limits: WriterLimits,
    ) -> Result<Self, LakeError> {
        let base_read_ms = clock.now_ms();
        let state = table.check().await?;
        let mut writer = Self {
            table,
            member,
            clock,
            limits,
            state,
            base_read_ms,
            owned: BTreeSet::new(),
            in_flush: BTreeSet::new(),
            leader: None,
            stop: Arc::default(),
            conflicts: ConflictCounts::default(),
        };
        writer.add_missing_columns().await?;
        Ok(writer)
    }

    /// Once `stop` is set, a put that fails is not tried again: what it would have committed is read
    /// again by the next process.
    pub fn give_up_when(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// What the log says at the base.
    #[must_use]
    pub fn state(&self) -> &LogState {
        &self.state
    }

    /// The time, by the writer's clock.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// What this writer owns.
    #[must_use]
    pub fn owned(&self) -> &BTreeSet<SourcePartition> {
        &self.owned
    }

    /// What commits met since this was last asked.
    pub fn take_conflicts(&mut self) -> ConflictCounts {
        std::mem::take(&mut self.conflicts)
    }

    /// Takes partitions over: a commit without files that states their positions as they are at
    /// its base. For a partition that the lake does not know, the position given is stated.
    ///
    /// # Errors
    /// [`LakeError::Fenced`] where something owned before is another's now (nothing is owned
    /// then), and those of a commit.
    pub async fn claim(
        &mut self,
        starts: &BTreeMap<SourcePartition, Position>,
    ) -> Result<BTreeMap<SourcePartition, Claimed>, LakeError> {
        if starts.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.read_from_head_if_free().await?;
        loop {
            let claimed: BTreeMap<_, _> = starts
                .iter()
                .map(|(partition, start)| {
                    let found = self.state.position(partition);
                    let claimed = Claimed {
                        position: found.unwrap_or(*start),
                        known: found.is_some(),
                    };
                    (partition.clone(), claimed)
                })
                .collect();
            let mut commit = self.commit("CLAIM");
            commit.pending.claims = claimed.keys().cloned().map(Owner::Partition).collect();
            for (partition, at) in &claimed {
                commit.txns(at.position.to_txns(partition));
            }
            self.restate_next(&mut commit, |partition| !claimed.contains_key(partition));
            if let Settled::Committed(_) = self.settled(commit).await? {
                self.owned.extend(claimed.keys().cloned());
                return Ok(claimed);
            }
        }
    }

    /// Gives partitions up, at once and without a commit. Rows of them that are not in the flush
    /// under way are refused from now on.
    pub fn revoke<'a>(&mut self, partitions: impl IntoIterator<Item = &'a SourcePartition>) {
        for partition in partitions {
            self.owned.remove(partition);
        }
    }

    /// Begins a flush with rows of these partitions: they stay ours until it is settled, even if
    /// they are revoked. Without it the partitions of [`Flush::positions`] must be owned still.
    ///
    /// # Errors
    /// [`LakeError::NotOurs`]; nothing has begun then.
    pub fn begin_flush<'a>(
        &mut self,
        partitions: impl IntoIterator<Item = &'a SourcePartition>,
    ) -> Result<(), LakeError> {
        let begun: BTreeSet<_> = partitions.into_iter().cloned().collect();
        if let Some(partition) = begun.difference(&self.owned).next() {
            return Err(LakeError::NotOurs {
                partition: partition.clone(),
            });
        }
        self.in_flush.extend(begun);
        Ok(())
    }

    /// Forgets the flush that was begun, without a commit.
    pub fn abandon_flush(&mut self) {
        self.in_flush.clear();
    }

    /// Commits files and positions together, once. Local files are synced before.
    ///
    /// # Errors
    /// [`LakeError::NotOurs`], [`LakeError::PositionBack`], [`LakeError::FileCut`] and
    /// [`LakeError::Io`] leave everything as it was; for all others see
    /// [`LakeError::ends_ownership`].
    pub async fn flush(&mut self, flush: &Flush) -> Result<Committed, LakeError> {
        for (partition, to) in &flush.positions {
            self.check_move(partition, to)?;
        }
        self.sync_or_fenced(&flush.files).await?;
        let operation = if flush.files.is_empty() {
            "POSITIONS"
        } else {
            "WRITE"
        };
        let mut commit = self.commit(operation);
        commit.began_ms = (!flush.files.is_empty()).then_some(flush.began_ms);
        for (partition, to) in &flush.positions {
            commit.txns(to.txns_since(partition, self.state.position(partition).as_ref()));
        }
        self.restate_next(&mut commit, |partition| {
            !flush.positions.contains_key(partition)
        });
        let now_ms = self.clock.now_ms();
        let by_date = self.table.spec().by_date;
        let adds = flush.files.iter().map(|f| f.to_add(by_date, now_ms, true));
        commit.actions.extend(adds.map(Action::Add));
        loop {
            // A commit that removes and claims nothing is never stale.
            if let Settled::Committed(done) = self.settled(commit.clone()).await? {
                self.in_flush.clear();
                return Ok(done);
            }
        }
    }

    /// Commits files of a table whose rows have keys and revisions: a repetition does no harm,
    /// so only the leader's place is guarded, if it was claimed.
    ///
    /// # Errors
    /// As [`Writer::flush`].
    pub async fn append(
        &mut self,
        began_ms: i64,
        files: Vec<DataFile>,
    ) -> Result<Committed, LakeError> {
        self.flush(&Flush {
            began_ms,
            files,
            positions: BTreeMap::new(),
        })
        .await
    }

    /// Brings the base to the head, by a commit where something is owned; returns that version.
    ///
    /// # Errors
    /// As [`Writer::flush`].
    pub(crate) async fn catch_up(&mut self) -> Result<u64, LakeError> {
        match self.read_from_head_if_free().await? {
            true => Ok(self.state.version),
            false => Ok(self.confirm().await?.version),
        }
    }

    /// A commit that states values and nothing else.
    pub(crate) async fn state_txns(
        &mut self,
        operation: &str,
        txns: Vec<(String, i64)>,
    ) -> Result<Committed, LakeError> {
        loop {
            let mut commit = self.commit(operation);
            commit.txns(txns.iter().cloned());
            self.restate_next(&mut commit, |_| true);
            if let Settled::Committed(done) = self.settled(commit).await? {
                return Ok(done);
            }
        }
    }

    async fn add_missing_columns(&mut self) -> Result<(), LakeError> {
        while let Some(metadata) = self.table.spec().extended(&self.state.metadata)? {
            let mut commit = self.commit("ADD COLUMNS");
            commit.pending.changes_schema = true;
            commit.actions.push(Action::Metadata(metadata));
            self.settled(commit).await?;
        }
        Ok(())
    }

    /// Refuses to write a partition that is not ours, or to go back.
    fn check_move(&self, partition: &SourcePartition, to: &Position) -> Result<(), LakeError> {
        if !self.owned.contains(partition) && !self.in_flush.contains(partition) {
            return Err(LakeError::NotOurs {
                partition: partition.clone(),
            });
        }
        let from = self
            .state
            .position(partition)
            .unwrap_or_else(|| Position::start(to.next));
        let back = |field, committed, given| {
            let partition = partition.clone();
            Err(LakeError::PositionBack {
                partition,
                field,
                committed,
                given,
            })
        };
        if to.next < from.next {
            return back("next", from.next, to.next);
        }
        if to.clock_ms < from.clock_ms {
            return back("clock", from.clock_ms, to.clock_ms);
        }
        Ok(())
    }

    /// Syncs files that a commit is to name.
    async fn sync_or_fenced(&mut self, files: &[DataFile]) -> Result<(), LakeError> {
        let Some(local) = self.table.local() else {
            return Ok(());
        };
        let named = files.iter().map(|f| (f.path.clone(), f.size)).collect();
        match durable::sync_files(local.to_path_buf(), named).await {
            Ok(()) => Ok(()),
            // Files of rows that are forgotten are removed before their writer knows.
            Err(error) => Err(self.fenced_since_base().await.unwrap_or(error)),
        }
    }

    /// A commit of ours, without actions yet.
    fn commit(&self, operation: &str) -> Commit {
        let id = Uuid::new_v4();
        let partitions = self
            .owned
            .union(&self.in_flush)
            .cloned()
            .map(Owner::Partition);
        let reads = !self.owned.is_empty() || !self.in_flush.is_empty();
        Commit {
            id,
            by: Author {
                commit_id: Some(id.to_string()),
                group: Some(self.member.group.clone()),
                member: Some(self.member.name.clone()),
                operation: Some(operation.to_owned()),
            },
            pending: Pending {
                commit_id: id.to_string(),
                ours: partitions
                    .chain(self.leader.map(|_| Owner::Leader))
                    .chain(reads.then_some(Owner::Forgotten))
                    .collect(),
                ..Pending::default()
            },
            actions: Vec::new(),
            record: Value::Null,
            began_ms: None,
        }
    }

    /// States again what is ours and does not move in this commit.
    fn restate_next(&self, commit: &mut Commit, which: impl Fn(&SourcePartition) -> bool) {
        for partition in self.owned.union(&self.in_flush).filter(|p| which(p)) {
            if let Some(at) = self.state.position(partition) {
                commit.txns(at.txns_since(partition, Some(&at)));
            }
        }
        self.restate_leader(commit);
    }

    fn drop_ownership(&mut self) {
        self.owned.clear();
        self.in_flush.clear();
        self.leader = None;
    }
}

impl Commit {
    fn txns(&mut self, txns: impl IntoIterator<Item = (String, i64)>) {
        // Without `lastUpdated`: nothing may expire a position.
        let actions = txns
            .into_iter()
            .map(|(app_id, value)| Action::Txn(Transaction::new(app_id, value)));
        self.actions.extend(actions);
    }
}
