//! The places of the protocol that a process passes, by name: each is a trace event.
//!
//! What must hold after a crash must hold after a crash at any of them. `tests/faults` ends or delays
//! a process there; `--log retrytoll::point=trace` shows them.

/// The target of the trace events.
pub const TARGET: &str = "retrytoll::point";

/// A place that a process passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// Records came from the source; not all of them were decoded.
    Polled,
    /// A batch was decoded, and is handed on next.
    Decoded,
    /// Rows went into a file that is not finished.
    FileBegun,
    /// A file is finished; others of its flush may not be.
    FileFinished,
    /// Dead letters below the positions of a flush are acknowledged.
    DeadLetters,
    /// The files of a flush are finished, and not synced.
    Files,
    /// What a commit names is synced; the entry is put next.
    Put,
    /// The entry is in the log, and nobody was told.
    Landed,
    /// Rows and positions are committed; the broker was not told.
    Committed,
    /// Partitions were claimed; they are read next.
    Claimed,
    /// Transitions of alerts are decided, none of them is sent.
    AlertDecided,
    /// Alerts are sent and acknowledged, and not marked.
    AlertSent,
    /// Alerts are marked, as sent or as kept back.
    AlertMarked,
    /// The files of a day of the rollup are finished; its commit is next.
    RollupFiles,
    /// A checkpoint is written next.
    CheckpointBegun,
    /// A checkpoint is written; entries below it are removed next.
    CheckpointWritten,
    /// Files are rewritten; the commit that replaces the old ones is next.
    Compacted,
    /// Rows are edited in new files; the commit that replaces the old ones is next.
    Edited,
    /// Files to be removed are known, and none is.
    VacuumListed,
    /// A file was removed; others may not be.
    VacuumRemoved,
}

impl Point {
    /// Every point, in the order of the way.
    pub const ALL: [Self; 20] = [
        Self::Polled,
        Self::Decoded,
        Self::FileBegun,
        Self::FileFinished,
        Self::DeadLetters,
        Self::Files,
        Self::Put,
        Self::Landed,
        Self::Committed,
        Self::Claimed,
        Self::AlertDecided,
        Self::AlertSent,
        Self::AlertMarked,
        Self::RollupFiles,
        Self::CheckpointBegun,
        Self::CheckpointWritten,
        Self::Compacted,
        Self::Edited,
        Self::VacuumListed,
        Self::VacuumRemoved,
    ];

    /// Its name, in words with hyphens.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Polled => "polled",
            Self::Decoded => "decoded",
            Self::FileBegun => "file-begun",
            Self::FileFinished => "file-finished",
            Self::DeadLetters => "dead-letters",
            Self::Files => "files",
            Self::Put => "put",
            Self::Landed => "landed",
            Self::Committed => "committed",
            Self::Claimed => "claimed",
            Self::AlertDecided => "alert-decided",
            Self::AlertSent => "alert-sent",
            Self::AlertMarked => "alert-marked",
            Self::RollupFiles => "rollup-files",
            Self::CheckpointBegun => "checkpoint-begun",
            Self::CheckpointWritten => "checkpoint-written",
            Self::Compacted => "compacted",
            Self::Edited => "edited",
            Self::VacuumListed => "vacuum-listed",
            Self::VacuumRemoved => "vacuum-removed",
        }
    }

    /// The process passes it now.
    pub fn pass(self) {
        tracing::trace!(target: TARGET, point = self.name());
    }
}
