//! Parquet files and positions → one put-if-absent in a Delta log → rows that are there once.
//!
//! The words:
//!
//! - A **position** says where a source's partition stands: `next` (exclusive), `low`
//!   (inclusive) and its clocks. It is committed together with the rows below it, as Delta `txn`
//!   actions ([`position`]).
//! - An **entry** is one commit in the log ([`log`]); its version is its place. The **base** of a
//!   [`Writer`] is the version up to which it has read the log.
//! - A **claim** is a commit without files that states positions as they are and so takes
//!   partitions over; it **fences** their older owner, whose next commit finds it and is refused.
//! - **Settling** is deciding what becomes of a commit that did not plainly succeed ([`settle`],
//!   the table of outcomes as one pure function).
//! - **Maintenance** ([`maintain`], [`compact`]) is checkpoints, log clean-up, compaction and
//!   vacuum; the leader runs it, apart from commits.
//!
//! - A **point** is a named place on the way where a crash must do no harm ([`point`]).
//!
//! Reading a table's positions costs the same however many files it has ([`replay`]).

pub mod clock;
pub mod compact;
pub mod edit;
pub mod encode;
pub mod error;
pub mod file;
pub mod forget;
pub mod log;
pub mod maintain;
pub mod point;
pub mod position;
pub mod replay;
pub mod retry;
pub mod settle;
pub mod stats;
pub mod sweep;
pub mod table;
pub mod touched;
pub mod writer;

mod checkpoint;
mod durable;
mod shape;

#[cfg(test)]
mod tests;

pub use clock::Clock;
pub use error::{Fence, LakeError};
pub use file::{DataFile, date_of};
pub use log::Author;
pub use point::Point;
pub use position::{Mark, Owner, Position, SourcePartition, completeness_mark};
pub use retry::RetryLimits;
pub use settle::{Conflict, Range};
pub use table::{Table, TableSpec};
pub use writer::{
    Claimed, Committed, ConflictCounts, Flush, Member, Replaced, Replacement, Writer, WriterLimits,
};
