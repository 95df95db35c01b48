//! What a commit met on its way, counted.

use crate::settle::Decision;

/// How often a put did not plainly succeed, by what the log then said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConflictCounts {
    /// Others came first, and do not concern the commit: it was put after them.
    pub moved_base: u64,
    /// Others made it stale: it was planned again.
    pub planned_again: u64,
    /// Something of ours is another's: it was refused.
    pub fenced: u64,
    /// No answer, and nothing there: the same was put again.
    pub put_again: u64,
    /// The commit was there: only its answer was lost.
    pub answer_lost: u64,
    /// Another changed the table's protocol.
    pub protocol_changed: u64,
}

impl ConflictCounts {
    /// Each kind's word and how often it was met.
    #[must_use]
    pub fn by_kind(&self) -> [(&'static str, u64); 6] {
        [
            ("moved_base", self.moved_base),
            ("planned_again", self.planned_again),
            ("fenced", self.fenced),
            ("put_again", self.put_again),
            ("answer_lost", self.answer_lost),
            ("protocol_changed", self.protocol_changed),
        ]
    }

    /// Adds what another counted.
    pub fn add(&mut self, other: &Self) {
        self.moved_base += other.moved_base;
        self.planned_again += other.planned_again;
        self.fenced += other.fenced;
        self.put_again += other.put_again;
        self.answer_lost += other.answer_lost;
        self.protocol_changed += other.protocol_changed;
    }

    pub(super) fn count(&mut self, decision: &Decision) {
        let kind = match decision {
            Decision::Success { .. } => &mut self.answer_lost,
            Decision::Fenced(_) => &mut self.fenced,
            Decision::MoveBase { .. } => &mut self.moved_base,
            Decision::Replan { .. } => &mut self.planned_again,
            Decision::ProtocolChanged { .. } => &mut self.protocol_changed,
            Decision::PutAgain => &mut self.put_again,
        };
        *kind += 1;
    }
}
