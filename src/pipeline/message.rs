//! What the reading stage tells the writing stage, in the order in which it happened.

use std::sync::Arc;

use retrytoll_core::batch::EventBatch;
use retrytoll_core::derive::Derived;
use retrytoll_core::dictionary::Words;
use retrytoll_core::step::Progress;

use crate::dead_letter::DeadLetter;

/// One fact from the reading stage. A partition's facts are in the order of its offsets.
#[derive(Debug)]
pub enum Fact {
    /// These partitions are ours from now on; where to read them from is for the lake to say.
    Assigned(Term),
    /// These are not ours any more.
    Revoked(Vec<i32>),
    /// Reading began anew after a fence: whatever was said before is void. These are ours.
    Restarted(Term),
    Rows(Box<Rows>),
    /// The partition moved on without rows.
    Moved {
        partition: i32,
        progress: Progress,
        file: Option<FileMark>,
        /// It was read to its end: rows of it that were not caught up are so now.
        at_end: bool,
    },
    Bad(Box<DeadLetter>),
    /// Nothing more comes: finish and commit.
    End,
}

/// Partitions that became ours together. Its number is answered with the positions: partitions may
/// be taken and given again before an answer comes, and must not be read from an old position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub number: u64,
    pub partitions: Vec<i32>,
}

/// A batch on its way to the lake.
#[derive(Debug)]
pub struct Rows {
    pub partition: i32,
    pub batch: EventBatch,
    pub derived: Derived,
    /// The rows to write, ascending: duplicates and replayed events are not among them.
    pub keep: Vec<u32>,
    /// The words that the batch's ids are of.
    pub words: Arc<Words>,
    /// Where the partition stands once these rows are written.
    pub progress: Progress,
    /// How the file stands there; `None` for Kafka.
    pub file: Option<FileMark>,
    /// The partition was read to its end not long before the batch was closed.
    pub caught_up: bool,
    /// What the batch was charged with in the channel's budget.
    pub bytes: usize,
}

/// How a file stands with what was read of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMark {
    /// Over every byte read so far, 63 bits.
    pub digest: i64,
    /// Nothing more comes.
    pub done: bool,
}

/// What the writing stage orders of the reading stage.
#[derive(Debug)]
pub enum Order {
    /// Read these partitions from their `low` on.
    /// An answer to a term that is over is void.
    Read {
        term: u64,
        positions: Vec<(i32, Progress)>,
    },
    /// Another writer holds one of our partitions: drop all state, say [`Fact::Restarted`].
    Restart,
    /// Tell the broker how far the lake has got (for lag monitors; we never read it back).
    Advise(Vec<(i32, i64)>),
    /// The writing stage has ended; its error is told elsewhere.
    Stop,
}
