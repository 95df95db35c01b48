//! What the stages and tasks of an instance have counted → [`Metrics`] → the text of a scrape.
//!
//! Whoever works keeps plain counts of its own and leaves a copy here now and then, a batch or a
//! commit at a time, so that counting costs the work nothing. What is not known is absent, never 0.
//! The *parts* of memory are those of `[limits]`.

mod page;
mod process;
mod tasks;
mod text;

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use prometheus_client::metrics::histogram::Histogram;
use retrytoll_jobs::Usage;

use crate::kafka::BrokerFacts;
use crate::pipeline::{ReadFacts, WriteFacts};
pub use tasks::{Firing, Tasks};
pub use text::{CONTENT_TYPE, text};

/// The newest of something: left by one thread, looked at by another.
#[derive(Debug)]
pub struct Latest<T>(Mutex<Option<T>>);

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Latest<T> {
    pub fn set(&self, newest: T) {
        if let Ok(mut kept) = self.0.lock() {
            *kept = Some(newest);
        }
    }

    /// It is known no more.
    pub fn forget(&self) {
        if let Ok(mut kept) = self.0.lock() {
            *kept = None;
        }
    }

    /// `None` where it is not known.
    pub fn get(&self) -> Option<T> {
        self.0.lock().ok()?.clone()
    }
}

/// The live files of the table `attempts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileFacts {
    pub files: u64,
    pub bytes: u64,
}

/// What an instance tells of itself in numbers.
#[derive(Debug)]
pub struct Metrics {
    pub reading: Latest<ReadFacts>,
    pub writing: Latest<WriteFacts>,
    pub brokers: Latest<BrokerFacts>,
    pub files: Latest<FileFacts>,
    pub tasks: Tasks,
    /// From the first row or dead letter of a flush to its commit, seconds.
    pub flush_seconds: Histogram,
    /// From the first put of a commit until it was in the log, seconds.
    pub commit_seconds: Histogram,
    /// Bytes that files being written hold in memory.
    pub encode_bytes: AtomicUsize,
    /// What SQL takes.
    pub sql: Usage,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            reading: Latest::default(),
            writing: Latest::default(),
            brokers: Latest::default(),
            files: Latest::default(),
            tasks: Tasks::default(),
            // Flushes are due after 5 s, or 60 s behind, and thrown away after an hour.
            flush_seconds: Histogram::new([
                0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0, 90.0, 300.0, 3_600.0,
            ]),
            // A commit is tried for two minutes.
            commit_seconds: Histogram::new([
                0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0,
            ]),
            encode_bytes: AtomicUsize::new(0),
            sql: Usage::default(),
        }
    }
}

/// Milliseconds as Prometheus wants them.
#[must_use]
pub fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}
