//! The leader's place: one writer maintains a table, or sends its alerts.

use deltalake::kernel::{Action, Transaction};

use super::commit::{Commit, Settled};
use super::{Committed, Writer};
use crate::error::LakeError;
use crate::position::{LEADER_APP_ID, Owner};

impl Writer {
    /// Takes the leader's place. Its former holder is fenced at its next commit.
    ///
    /// # Errors
    /// As [`Writer::claim`].
    pub async fn claim_leader(&mut self) -> Result<(), LakeError> {
        self.read_from_head_if_free().await?;
        loop {
            let number = self.state.txns.get(LEADER_APP_ID).copied().unwrap_or(0) + 1;
            let mut commit = self.commit("CLAIM LEADER");
            commit.pending.ours.remove(&Owner::Leader);
            commit.pending.claims = [Owner::Leader].into();
            self.restate_next(&mut commit, |_| true);
            commit
                .actions
                .push(Action::Txn(Transaction::new(LEADER_APP_ID, number)));
            if let Settled::Committed(_) = self.settled(commit).await? {
                self.leader = Some(number);
                return Ok(());
            }
        }
    }

    /// Gives the leader's place up, at once and without a commit.
    pub fn leave_leader(&mut self) {
        self.leader = None;
    }

    /// Whether this writer took the leader's place and was not fenced yet.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leader.is_some()
    }

    /// A commit of what is owned and nothing else: afterwards the log is known to agree.
    ///
    /// # Errors
    /// As [`Writer::flush`].
    pub async fn confirm(&mut self) -> Result<Committed, LakeError> {
        self.restated("CONFIRM").await
    }

    pub(crate) async fn restated(&mut self, operation: &str) -> Result<Committed, LakeError> {
        loop {
            let mut commit = self.commit(operation);
            self.restate_next(&mut commit, |_| true);
            if let Settled::Committed(done) = self.settled(commit).await? {
                return Ok(done);
            }
        }
    }

    pub(super) fn restate_leader(&self, commit: &mut Commit) {
        let number = self
            .leader
            .map(|number| Transaction::new(LEADER_APP_ID, number));
        commit.actions.extend(number.map(Action::Txn));
    }
}
