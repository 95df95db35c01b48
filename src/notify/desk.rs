//! Notices that are due → stdout, or a service; its answers → the queue.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use retrytoll_core::notify::{Answer, Known, Notice, Outcome, Queue};
use tokio::runtime::Handle;

use super::feed::{self, Feed};
use super::line::Form;
use super::post::{Posted, Target};
use crate::clock::Stopwatch;
use crate::kafka::Heard;

/// The longest wait for something to be due.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// When a commit that failed is tried again.
const COMMIT_AGAIN: Duration = Duration::from_secs(5);

/// Where notices go. A line stands on `out` for each transition that was accepted; without a
/// service a line is all there is.
pub struct Desk<'w> {
    pub target: Option<Target>,
    pub form: Form,
    pub out: &'w mut dyn Write,
    pub runtime: Handle,
}

impl Desk<'_> {
    /// Sends all that is due, until `stop` is set; `sent` is called after each answer.
    fn send_due(
        &mut self,
        queue: &mut Queue,
        now: &Stopwatch,
        stop: &AtomicBool,
        mut sent: impl FnMut(&mut Queue, Outcome),
    ) -> anyhow::Result<()> {
        while !stop.load(Ordering::Acquire)
            && let Some((place, notice)) = queue.due(elapsed_ms(now))
        {
            let Posted { answer, why } = self.send(&notice);
            let luck = fastrand::u64(..);
            if let Some(outcome) = queue.answered(place, answer, elapsed_ms(now), luck) {
                self.tell(&notice, outcome, &why)?;
                sent(queue, outcome);
            }
        }
        Ok(())
    }

    fn send(&self, notice: &Notice) -> Posted {
        match &self.target {
            Some(target) => self.runtime.block_on(target.post(notice)),
            None => Posted {
                answer: Answer::Accepted,
                why: String::new(),
            },
        }
    }

    fn tell(&mut self, notice: &Notice, outcome: Outcome, why: &str) -> anyhow::Result<()> {
        let (dedup_key, id, state) = (&notice.dedup_key, &notice.id, notice.state.word());
        match outcome {
            Outcome::Accepted { first: true } => {
                tracing::info!(dedup_key, id, state, "alert sent");
                writeln!(self.out, "{}", self.form.line(notice))?;
                self.out.flush()?;
            }
            Outcome::Accepted { first: false } => {
                tracing::debug!(dedup_key, id, state, "alert sent again");
            }
            Outcome::Later { wait_ms } => {
                tracing::warn!(dedup_key, id, state, why, wait_ms, "alert not sent yet");
            }
            Outcome::Refused => {
                tracing::error!(dedup_key, id, state, why, "alert refused");
            }
            Outcome::GivenUp => {
                tracing::error!(dedup_key, id, state, why, "alert given up");
            }
        }
        Ok(())
    }
}

fn elapsed_ms(now: &Stopwatch) -> i64 {
    i64::try_from(now.elapsed().as_millis()).unwrap_or(i64::MAX)
}

/// Sends what is heard, until `stop` is set. After each answer it is committed how far it got.
///
/// # Errors
/// The feed's, and those of writing a line.
pub fn follow(
    feed: &mut Feed,
    queue: &mut Queue,
    desk: &mut Desk<'_>,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let now = Stopwatch::start();
    let mut failed = None;
    while !stop.load(Ordering::Acquire) {
        let heard = feed.poll(&desk.runtime)?;
        for heard in heard {
            match heard {
                Heard::Begin {
                    partition,
                    next,
                    known,
                    is_kept,
                } => queue.begin(partition, next, &Known::read(&known), is_kept),
                Heard::End { partition } => queue.end(partition),
                Heard::Message {
                    partition,
                    offset,
                    body,
                } => {
                    let notice = feed::notice(&body, partition, offset);
                    queue.take(partition, offset, notice, elapsed_ms(&now));
                }
            }
        }
        desk.send_due(queue, &now, stop, |queue, _| {
            commit(feed, queue, &mut failed)
        })?;
        commit(feed, queue, &mut failed);
    }
    Ok(())
}

/// `failed` is since when the last commit has failed.
fn commit(feed: &Feed, queue: &mut Queue, failed: &mut Option<Stopwatch>) {
    if failed.is_some_and(|it| it.elapsed() < COMMIT_AGAIN) {
        return;
    }
    let moved = queue.moved();
    if moved.is_empty() {
        return;
    }
    if feed.commit(&moved) {
        queue.committed();
        *failed = None;
    } else {
        *failed = Some(Stopwatch::start());
    }
}

/// Sends these notices, and returns when each was accepted, refused or given up, or `stop` is set:
/// how many were accepted.
///
/// # Errors
/// Those of writing a line.
pub fn send_all(
    notices: Vec<Notice>,
    mut queue: Queue,
    desk: &mut Desk<'_>,
    stop: &AtomicBool,
) -> anyhow::Result<usize> {
    let now = Stopwatch::start();
    queue.begin(0, 0, &Known::default(), true);
    for (offset, notice) in (0..).zip(notices) {
        queue.take(0, offset, Some(notice), elapsed_ms(&now));
    }
    let mut accepted = 0;
    while let Some(due_ms) = queue.due_ms()
        && !stop.load(Ordering::Acquire)
    {
        let wait_ms = u64::try_from(due_ms - elapsed_ms(&now)).unwrap_or(0);
        if wait_ms > 0 {
            std::thread::park_timeout(Duration::from_millis(wait_ms).min(WAIT_MAX));
        }
        desk.send_due(&mut queue, &now, stop, |_, outcome| {
            accepted += usize::from(matches!(outcome, Outcome::Accepted { .. }));
        })?;
    }
    Ok(accepted)
}
