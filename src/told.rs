//! A task that fails again and again → log lines: the first, then ever fewer, and its end.

use anyhow::Error;
use retrytoll_core::said::Said;

/// What was told of a task.
#[derive(Debug, Default)]
pub struct Told {
    said: Said,
}

impl Told {
    /// The task failed: a warning, unless the same was told not long ago. `message` says what
    /// failed, and that it is tried again.
    pub fn failed(&mut self, message: &str, error: &Error, now_ms: i64) {
        let error = format!("{error:#}");
        if let Some(untold) = self.said.again(&error, now_ms) {
            tracing::warn!(error, untold, "{message}");
        }
    }

    /// How the task went: as [`Told::failed`] or [`Told::went_well`].
    pub fn tell(&mut self, task: &str, message: &str, done: Result<(), &Error>, now_ms: i64) {
        match done {
            Ok(()) => self.went_well(task, now_ms),
            Err(error) => self.failed(message, error, now_ms),
        }
    }

    /// The task went well; told where it was told to have failed.
    pub fn went_well(&mut self, task: &str, now_ms: i64) {
        if let Some(after_ms) = self.said.over(now_ms) {
            tracing::info!(task, after_ms, "it works again");
        }
    }
}
