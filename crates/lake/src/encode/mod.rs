//! [`EventBatch`] and [`Derived`] → Arrow, without a copy → one Parquet file per date and flush.
//!
//! The *schema* is the table's: what readers see. The *layout* is how a file holds it: dictionary
//! arrays for words, encodings per column.
//!
//! Back again goes what the tables decide: [`Restate`] says it anew of rows that are in the lake.
//!
//! [`EventBatch`]: retrytoll_core::batch::EventBatch
//! [`Derived`]: retrytoll_core::derive::Derived

mod columns;
mod files;
mod restate;
mod schema;

pub use columns::{Encoded, Versions, encode};
pub use files::{FileLimits, FlushFiles, WrittenFile, date_text};
pub use restate::Restate;
pub use schema::{PROBABILITY, SCHEMA_MAJOR, attempts_schema, writer_properties};
