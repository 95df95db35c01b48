//! Workers that are broken on purpose: each must be found out, or the simulation looks at nothing.

/// What a worker does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Begins to read at `next`, so that it has forgotten what it saw.
    ReadsFromNext,
    /// Rebuilds its state without the log clock before `low`.
    ForgetsLowClock,
    /// Reads where an answer says that came for an earlier term.
    ObeysOldTerms,
    /// Commits, and then sends the dead letters.
    LettersAfterCommit,
    /// Commits, and then writes the file.
    FileAfterCommit,
    /// Commits positions whenever they are due, while rows below them wait.
    PositionsBeforeRows,
    /// Gives a partition up whose rows are in the flush, and flushes without its position.
    ForgetsRevoked,
    /// After a commit without an answer it claims again, and commits the same under another id.
    CommitsAgain,
    /// Keeps rows and positions when it is fenced.
    KeepsAfterFence,
    /// Reads from where it thought a partition stands, not from what its claim found.
    BelievesItsBase,
    /// Plans a compaction by what it saw when it began to lead.
    CompactsOldFiles,
}

impl Mutant {
    pub const ALL: [Self; 11] = [
        Self::ReadsFromNext,
        Self::ForgetsLowClock,
        Self::ObeysOldTerms,
        Self::LettersAfterCommit,
        Self::FileAfterCommit,
        Self::PositionsBeforeRows,
        Self::ForgetsRevoked,
        Self::CommitsAgain,
        Self::KeepsAfterFence,
        Self::BelievesItsBase,
        Self::CompactsOldFiles,
    ];
}
