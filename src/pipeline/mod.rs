//! source → [`read`] → [`channel`] → [`write`] → lake: the two stages of retrytoll's I/O shell.
//!
//! The reading stage decodes and steps on its source's thread and never waits for the lake; the
//! writing stage encodes, commits and answers with [`Order`]s. Files and Kafka share both.

mod channel;
mod facts;
mod health;
mod message;
mod pending;
mod read;
mod write;

pub use channel::{Closed, Inlet, Outlet, bounded};
pub use facts::{PartitionFacts, ReadFacts, WriteFacts, WriteSummary};
pub use health::{Health, Reading};
pub use message::{Fact, FileMark, Order, Rows, Term};
pub use read::{ReadCounts, ReadLimits, Reader, SourceRecord};
pub use write::{Stage, Starts, WriteError, WriteSettings};
