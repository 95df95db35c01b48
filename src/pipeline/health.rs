//! What the stages do → numbers that whoever watches them reads, at any time.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// How an instance is doing. Each number is written by one thread.
#[derive(Debug, Default)]
pub struct Health {
    /// Rows, and records that are no events, taken since the start.
    rows: AtomicU64,
    dead_letters: AtomicU64,
    /// When a record was last taken, when the last commit ended, and since when rows wait for one,
    /// ms of wall time; 0: never, or not now.
    taken_ms: AtomicI64,
    committed_ms: AtomicI64,
    waiting_since_ms: AtomicI64,
    /// How far the records that were last taken lie behind, ms; 0 when caught up.
    behind_ms: AtomicI64,
    /// How often the job of an alert rule failed.
    failed_rules: AtomicU64,
    /// When the poll loop last went round, and since when a commit is under way, ms of wall time;
    /// 0: never, or not now.
    polled_ms: AtomicI64,
    committing_since_ms: AtomicI64,
    /// The group has answered, and all that it gave us is being read.
    is_reading: AtomicBool,
    /// The writing stage ended with an error.
    is_broken: AtomicBool,
}

/// [`Health`] at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub at_ms: i64,
    pub rows: u64,
    pub dead_letters: u64,
    pub taken_ms: Option<i64>,
    pub committed_ms: Option<i64>,
    pub waiting_since_ms: Option<i64>,
    pub behind_ms: i64,
    pub failed_rules: u64,
    pub polled_ms: Option<i64>,
    pub committing_since_ms: Option<i64>,
    pub is_reading: bool,
    pub is_broken: bool,
}

impl Health {
    pub fn took(&self, rows: u64, dead_letters: u64, now_ms: i64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.dead_letters.fetch_add(dead_letters, Ordering::Relaxed);
        self.taken_ms.store(now_ms, Ordering::Relaxed);
    }

    pub fn is_behind(&self, ms: i64) {
        self.behind_ms.store(ms.max(0), Ordering::Relaxed);
    }

    pub fn waits(&self, since_ms: Option<i64>) {
        self.waiting_since_ms
            .store(since_ms.unwrap_or(0), Ordering::Relaxed);
    }

    pub fn committed(&self, now_ms: i64) {
        self.committed_ms.store(now_ms, Ordering::Relaxed);
        self.waits(None);
    }

    pub fn rule_failed(&self) {
        self.failed_rules.fetch_add(1, Ordering::Relaxed);
    }

    /// How often the job of an alert rule failed.
    pub fn failed_rules(&self) -> u64 {
        self.failed_rules.load(Ordering::Relaxed)
    }

    pub fn polled(&self, now_ms: i64) {
        self.polled_ms.store(now_ms, Ordering::Relaxed);
    }

    pub fn reads(&self, all_that_is_ours: bool) {
        self.is_reading.store(all_that_is_ours, Ordering::Relaxed);
    }

    /// Dead letters, files and positions are on their way, or nothing is any more.
    pub fn commits(&self, since_ms: Option<i64>) {
        self.committing_since_ms
            .store(since_ms.unwrap_or(0), Ordering::Relaxed);
    }

    pub fn broke(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    pub fn read(&self, now_ms: i64) -> Reading {
        let time = |of: &AtomicI64| Some(of.load(Ordering::Relaxed)).filter(|ms| *ms != 0);
        Reading {
            at_ms: now_ms,
            rows: self.rows.load(Ordering::Relaxed),
            dead_letters: self.dead_letters.load(Ordering::Relaxed),
            taken_ms: time(&self.taken_ms),
            committed_ms: time(&self.committed_ms),
            waiting_since_ms: time(&self.waiting_since_ms),
            behind_ms: self.behind_ms.load(Ordering::Relaxed),
            failed_rules: self.failed_rules(),
            polled_ms: time(&self.polled_ms),
            committing_since_ms: time(&self.committing_since_ms),
            is_reading: self.is_reading.load(Ordering::Relaxed),
            is_broken: self.is_broken.load(Ordering::Relaxed),
        }
    }
}
