//! The loop around one commit: put, read what is there, decide, act.

use std::sync::Arc;

use bytes::Bytes;
use deltalake::kernel::Action;
use deltalake::logstore::CommitOrBytes;
use serde_json::Value;
use uuid::Uuid;

use super::{Committed, FLUSH_AGE_MS_MAX, Writer};
use crate::error::{Cause, LakeError};
use crate::log::{Author, Entry, entries_after, entry_bytes, read_entry};
use crate::point::Point;
use crate::replay;
use crate::retry::Retry;
use crate::settle::{Conflict, Decision, Pending, conflict, settle};

/// A commit on its way.
#[derive(Clone, Debug)]
pub(super) struct Commit {
    pub id: Uuid,
    pub by: Author,
    pub pending: Pending,
    pub actions: Vec<Action>,
    /// What the entry keeps beside them.
    pub record: Value,
    /// When its first file was begun, ms; `None` without files.
    pub began_ms: Option<i64>,
}

/// How a commit ended, other than by an error.
pub(super) enum Settled {
    Committed(Committed),
    /// Stale; the base is the head.
    Replan(Conflict),
}

impl Writer {
    /// Carries a commit out. After an error that ends ownership, nothing is owned.
    pub(super) async fn settled(&mut self, commit: Commit) -> Result<Settled, LakeError> {
        let result = self.put_until_settled(&commit).await;
        if result.as_ref().is_err_and(LakeError::ends_ownership) {
            self.drop_ownership();
        }
        result
    }

    async fn put_until_settled(&mut self, commit: &Commit) -> Result<Settled, LakeError> {
        let bytes = entry_bytes(
            &commit.by,
            self.clock.now_ms(),
            &commit.actions,
            &commit.record,
        )?;
        let stop = Arc::clone(&self.stop);
        let mut retry = Retry::begin(self.limits.retry, self.clock.clone(), stop);
        loop {
            self.check_age(commit)?;
            let version = self.state.version + 1;
            let stale = self.base_age_ms() > self.limits.base_age_ms_max;
            let read_ms = self.clock.now_ms();
            let mut answer: Option<Cause> = None;
            // A put that got no answer may still arrive: whatever happens, that version is
            // settled first, and by the same bytes.
            if !stale {
                match self.put(version, bytes.clone(), commit.id).await {
                    Ok(()) => {
                        retry.over(version);
                        return self.landed(commit, version, read_ms).await;
                    }
                    Err(e) => answer = Some(e),
                }
            }
            let entries = match self.read_after_base(stale).await {
                Ok(entries) => entries,
                Err(e) if e.ends_ownership() => return Err(e),
                Err(e) => {
                    retry
                        .wait(version, answer.unwrap_or_else(|| e.into()))
                        .await?;
                    continue;
                }
            };
            let decision = settle(&commit.pending, &entries);
            // A base that was only too old met nothing.
            if answer.is_some() {
                self.conflicts.count(&decision);
            }
            match decision {
                Decision::Success { version } => {
                    retry.over(version);
                    return self.landed(commit, version, read_ms).await;
                }
                Decision::Fenced(fence) => return Err(LakeError::Fenced(Box::new(fence))),
                Decision::ProtocolChanged { version } => {
                    return Err(LakeError::ProtocolChanged { version });
                }
                Decision::MoveBase { reload_schema, .. } => {
                    self.move_base(&entries, read_ms, reload_schema)?;
                }
                Decision::Replan { why, .. } => {
                    self.move_base(&entries, read_ms, true)?;
                    return Ok(Settled::Replan(why));
                }
                Decision::PutAgain => {
                    self.base_read_ms = read_ms;
                    if let Some(answer) = answer {
                        retry.wait(version, answer).await?;
                    }
                }
            }
        }
    }

    /// Why a commit that was planned at a version is stale at the base, if it is.
    pub(super) async fn stale_since(
        &self,
        planned_at: u64,
        commit: &Commit,
    ) -> Result<Option<Conflict>, LakeError> {
        for version in planned_at + 1..=self.state.version {
            let Some(entry) = read_entry(self.table.log(), version).await? else {
                // Cleaned up: what it removed can't be told any more.
                return Ok(Some(Conflict::FileRemoved));
            };
            if let Some(why) = conflict(&commit.pending, &entry) {
                return Ok(Some(why));
            }
        }
        Ok(None)
    }

    /// The fence that a commit since the base is to us, if there is one; nothing is owned then.
    pub(super) async fn fenced_since_base(&mut self) -> Option<LakeError> {
        let pending = self.commit("CONFIRM").pending;
        let entries = self.read_after_base(self.base_age_ms() > self.limits.base_age_ms_max);
        match settle(&pending, &entries.await.ok()?) {
            Decision::Fenced(fence) => {
                self.drop_ownership();
                Some(LakeError::Fenced(Box::new(fence)))
            }
            _ => None,
        }
    }

    /// Puts an entry where there must be none.
    async fn put(&self, version: u64, bytes: Bytes, id: Uuid) -> Result<(), Cause> {
        Point::Put.pass();
        let entry = CommitOrBytes::LogBytes(bytes);
        let put = self.table.log().write_commit_entry(version, entry, id);
        put.await.map_err(Into::into)
    }

    /// Our entry is at `version`, which follows the base.
    async fn landed(
        &mut self,
        commit: &Commit,
        version: u64,
        read_ms: i64,
    ) -> Result<Settled, LakeError> {
        Point::Landed.pass();
        let entry = Entry::from_actions(version, commit.actions.clone())
            .map_err(|reason| LakeError::BadEntry { version, reason })?;
        self.state.apply(&entry);
        self.base_read_ms = read_ms;
        self.table.sync_entry(version).await;
        Ok(Settled::Committed(Committed {
            version,
            commit_id: commit.pending.commit_id.clone(),
        }))
    }

    fn move_base(
        &mut self,
        entries: &[Entry],
        read_ms: i64,
        reload_schema: bool,
    ) -> Result<(), LakeError> {
        for entry in entries {
            self.state.apply(entry);
        }
        self.base_read_ms = read_ms;
        if reload_schema {
            self.table
                .spec()
                .check(&self.table.location(), &self.state)?;
        }
        Ok(())
    }

    /// The entries after the base. After an old base a missing entry need not be the head: it
    /// may have been cleaned up, so the folder is listed.
    async fn read_after_base(&self, stale: bool) -> Result<Vec<Entry>, LakeError> {
        let base = self.state.version;
        let head = match stale {
            true => replay::survey(&self.table)
                .await?
                .map_or(0, |survey| survey.head),
            false => base,
        };
        let entries = entries_after(self.table.log(), base).await?;
        if base + (entries.len() as u64) < head {
            return Err(LakeError::BaseLost { base, head });
        }
        Ok(entries)
    }

    fn base_age_ms(&self) -> i64 {
        self.clock.since_ms(self.base_read_ms)
    }

    fn check_age(&self, commit: &Commit) -> Result<(), LakeError> {
        let limit_ms = FLUSH_AGE_MS_MAX;
        match commit
            .began_ms
            .map(|began_ms| self.clock.now_ms() - began_ms)
        {
            Some(age_ms) if age_ms > limit_ms => Err(LakeError::FlushTooOld { age_ms, limit_ms }),
            _ => Ok(()),
        }
    }

    /// A writer that owns nothing has nothing to be fenced from: it may begin at the head
    /// without looking at what lies between. Whether it did.
    pub(super) async fn read_from_head_if_free(&mut self) -> Result<bool, LakeError> {
        let is_free = self.owned.is_empty() && self.in_flush.is_empty() && self.leader.is_none();
        if is_free {
            let read_ms = self.clock.now_ms();
            self.state = self.table.check().await?;
            self.base_read_ms = read_ms;
        }
        Ok(is_free)
    }
}
