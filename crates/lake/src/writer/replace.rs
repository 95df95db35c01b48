//! Live files and those that come in their place → one commit, unless others came first.

use std::collections::BTreeMap;

use deltalake::kernel::{Action, Add, Remove};
use serde_json::Value;

use super::commit::Settled;
use super::{Committed, Writer};
use crate::error::LakeError;
use crate::file::DataFile;
use crate::position::{Position, SourcePartition};
use crate::settle::{Conflict, Range};

/// Files to be replaced.
#[derive(Clone, Debug, Default)]
pub struct Replacement {
    /// Delta's name for what is done, such as `OPTIMIZE` or `DELETE`.
    pub operation: &'static str,
    /// When planning began, ms.
    pub began_ms: i64,
    /// The version at which `removes` were live. What others committed since is looked at before the
    /// put, since the base may have moved past it with an earlier commit.
    pub planned_at: u64,
    /// The live files that go.
    pub removes: Vec<Add>,
    /// The files that come.
    pub adds: Vec<DataFile>,
    /// Whether the rows are other ones; `false` for compaction.
    pub data_change: bool,
    /// The rows that were decided on.
    pub range: Range,
    /// Where partitions that are ours stand with the new files. Those owned but not named keep theirs.
    pub positions: BTreeMap<SourcePartition, Position>,
    /// What the log is to keep of it, if anything.
    pub record: Value,
}

/// What became of a [`Replacement`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// It is in the log.
    Committed(Committed),
    /// Others' commits made it stale: its new files are orphans, and it is to be planned again.
    PlanAgain(Conflict),
}

impl Writer {
    /// Replaces files. It loses to every commit that removed one of them, or added rows in its
    /// range; the base is after that commit then.
    ///
    /// # Errors
    /// As [`Writer::flush`].
    pub async fn replace(&mut self, replacement: &Replacement) -> Result<Replaced, LakeError> {
        for (partition, to) in &replacement.positions {
            self.check_move(partition, to)?;
        }
        self.sync_or_fenced(&replacement.adds).await?;
        let now_ms = self.clock.now_ms();
        let mut commit = self.commit(replacement.operation);
        commit.began_ms = Some(replacement.began_ms);
        commit.pending.removes = replacement.removes.iter().map(|r| r.path.clone()).collect();
        commit.pending.range = replacement.range.clone();
        if let Some(why) = self.stale_since(replacement.planned_at, &commit).await? {
            return Ok(Replaced::PlanAgain(why));
        }
        for (partition, to) in &replacement.positions {
            commit.txns(to.txns_since(partition, self.state.position(partition).as_ref()));
        }
        self.restate_next(&mut commit, |partition| {
            !replacement.positions.contains_key(partition)
        });
        commit.record = replacement.record.clone();
        let removes = replacement
            .removes
            .iter()
            .map(|add| removal(add, now_ms, replacement));
        commit.actions.extend(removes);
        let (by_date, data_change) = (self.table.spec().by_date, replacement.data_change);
        let adds = replacement
            .adds
            .iter()
            .map(|f| f.to_add(by_date, now_ms, data_change));
        commit.actions.extend(adds.map(Action::Add));
        Ok(match self.settled(commit).await? {
            Settled::Committed(done) => Replaced::Committed(done),
            Settled::Replan(why) => Replaced::PlanAgain(why),
        })
    }
}

fn removal(add: &Add, now_ms: i64, replacement: &Replacement) -> Action {
    Action::Remove(Remove {
        path: add.path.clone(),
        data_change: replacement.data_change,
        deletion_timestamp: Some(now_ms),
        extended_file_metadata: Some(true),
        partition_values: Some(add.partition_values.clone()),
        size: Some(add.size),
        ..Remove::default()
    })
}
