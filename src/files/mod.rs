//! file or stdin → lines → [`crate::pipeline`]; gzip and zstd are seen by their first bytes.
//!
//! A file is a source of its own: it is known again by its first record, and by a digest over
//! what was read of it, so that a file that grew, or was compressed since, goes on where it ended.

mod lines;
mod source;

pub use lines::{Line, Lines, open};
pub use source::{FileSource, IdentifyError, identify};
