//! Jobs and alerts → how often, how long, how many failed.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use retrytoll_lake::ConflictCounts;

/// What fires, by rule.
pub type Firing = BTreeMap<String, u64>;

/// Counts of what runs beside the pipeline.
#[derive(Debug, Default)]
pub struct Tasks(Mutex<Counts>);

/// The counts at an instant. Their labels are few: jobs and rules are files of the catalog.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub jobs: BTreeMap<String, Job>,
    /// By rule and state.
    pub decided: BTreeMap<(String, &'static str), u64>,
    pub sent: BTreeMap<(String, &'static str), u64>,
    pub send_failures: u64,
    /// What commits of maintenance met.
    pub conflicts: ConflictCounts,
    /// `None` where this instance does not alert.
    pub firing: Option<Firing>,
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    pub seconds: Histogram,
    pub failures: u64,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            // A tick is due each minute, and its jobs share it.
            seconds: Histogram::new([0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0]),
            failures: 0,
        }
    }
}

impl Tasks {
    fn with(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A job or a piece of maintenance ended.
    pub fn ran(&self, job: &str, took: Duration, failed: bool) {
        self.with(|counts| {
            let job = counts.jobs.entry(job.to_owned()).or_default();
            job.seconds.observe(took.as_secs_f64());
            job.failures += u64::from(failed);
        });
    }

    /// Commits of maintenance met these.
    pub fn met(&self, conflicts: &ConflictCounts) {
        self.with(|counts| counts.conflicts.add(conflicts));
    }

    /// A transition of an alert is committed.
    pub fn decided(&self, rule: &str, state: &'static str) {
        self.with(|counts| {
            *counts.decided.entry((rule.to_owned(), state)).or_default() += 1;
        });
    }

    /// A transition of an alert was sent for the first time.
    pub fn sent(&self, rule: &str, state: &'static str) {
        self.with(|counts| *counts.sent.entry((rule.to_owned(), state)).or_default() += 1);
    }

    /// Alerts or a heartbeat could not be sent.
    pub fn send_failed(&self) {
        self.with(|counts| counts.send_failures += 1);
    }

    /// What fires now; `None` where another instance alerts.
    pub fn fires(&self, firing: Option<Firing>) {
        self.with(|counts| counts.firing = firing);
    }

    pub(super) fn counts(&self) -> Counts {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
