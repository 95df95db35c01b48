//! The bounded channel between the two stages, counted in bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use super::message::Fact;

/// Facts that carry no rows are small; this many may wait.
const FACTS_MAX: usize = 4_096;

/// The reading stage's end. It never blocks: what does not fit is kept in one overflow slot,
/// and then the reader pauses its source.
#[derive(Debug)]
pub struct Outlet {
    sender: SyncSender<Fact>,
    used: Arc<AtomicUsize>,
    bytes_max: usize,
    overflow: Option<Fact>,
}

/// The writing stage's end.
#[derive(Debug)]
pub struct Inlet {
    receiver: Receiver<Fact>,
    used: Arc<AtomicUsize>,
}

/// The other stage has ended.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other stage has ended")]
pub struct Closed;

/// A channel that holds batches of at most `bytes_max` bytes together (one may overshoot).
pub fn bounded(bytes_max: usize) -> (Outlet, Inlet) {
    let (sender, receiver) = sync_channel(FACTS_MAX);
    let used = Arc::new(AtomicUsize::new(0));
    let outlet = Outlet {
        sender,
        used: Arc::clone(&used),
        bytes_max,
        overflow: None,
    };
    (outlet, Inlet { receiver, used })
}

fn bytes_of(fact: &Fact) -> usize {
    match fact {
        Fact::Rows(rows) => rows.bytes,
        _ => 0,
    }
}

impl Outlet {
    /// Sends, or keeps the fact in the overflow slot: look at [`Outlet::is_full`] afterwards.
    /// Call it only when the slot is free.
    pub fn send(&mut self, fact: Fact) -> Result<(), Closed> {
        debug_assert!(self.overflow.is_none(), "the overflow slot holds one fact");
        let bytes = bytes_of(&fact);
        if bytes > 0 && self.used.load(Ordering::Acquire) >= self.bytes_max {
            self.overflow = Some(fact);
            return Ok(());
        }
        self.used.fetch_add(bytes, Ordering::AcqRel);
        match self.sender.try_send(fact) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(fact)) => {
                self.used.fetch_sub(bytes, Ordering::AcqRel);
                self.overflow = Some(fact);
                Ok(())
            }
            Err(TrySendError::Disconnected(_)) => Err(Closed),
        }
    }

    /// Bytes of the batches that wait for the writing stage.
    pub fn bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Tries the overflow slot again; true where nothing is left in it.
    pub fn retry(&mut self) -> Result<bool, Closed> {
        if let Some(fact) = self.overflow.take() {
            self.send(fact)?;
        }
        Ok(self.overflow.is_none())
    }

    /// The overflow slot is taken: send nothing more.
    pub fn is_full(&self) -> bool {
        self.overflow.is_some()
    }

    /// Waits until the overflow slot is free, and does `meanwhile` again and again.
    pub fn wait(&mut self, meanwhile: impl Fn()) -> Result<(), Closed> {
        while !self.retry()? {
            meanwhile();
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Waits until the fact is sent, as [`Outlet::wait`] does.
    pub fn send_blocking(&mut self, fact: Fact, meanwhile: impl Fn()) -> Result<(), Closed> {
        self.wait(&meanwhile)?;
        self.send(fact)?;
        self.wait(&meanwhile)
    }
}

impl Inlet {
    /// The next fact; `None` when none came in time. When its rows are dealt with, say so with
    /// [`Inlet::release`].
    pub fn receive(&self, timeout: Duration) -> Result<Option<Fact>, Closed> {
        match self.receiver.recv_timeout(timeout) {
            Ok(fact) => Ok(Some(fact)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Closed),
        }
    }

    /// Gives a batch's bytes back to the budget.
    pub fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(partition: i32) -> Fact {
        Fact::Moved {
            at_end: false,
            partition,
            progress: retrytoll_core::step::Progress::begin(0),
            file: None,
        }
    }

    #[test]
    fn a_full_channel_keeps_one_fact_and_its_order() {
        let (mut outlet, inlet) = bounded(10);
        for partition in 0..FACTS_MAX as i32 {
            outlet.send(moved(partition)).unwrap();
        }
        assert!(!outlet.is_full());
        outlet.send(moved(-1)).unwrap();
        assert!(outlet.is_full());
        assert_eq!(outlet.retry(), Ok(false));
        let first = inlet.receive(Duration::ZERO).unwrap();
        assert!(matches!(first, Some(Fact::Moved { partition: 0, .. })));
        assert_eq!(outlet.retry(), Ok(true));
        let mut last = None;
        while let Ok(Some(Fact::Moved { partition, .. })) = inlet.receive(Duration::ZERO) {
            last = Some(partition);
        }
        assert_eq!(last, Some(-1));
    }

    #[test]
    fn the_end_of_a_stage_is_told() {
        let (mut outlet, inlet) = bounded(10);
        drop(inlet);
        assert_eq!(outlet.send(moved(0)), Err(Closed));
    }
}
