//! Notices as they are told, and answers → what is asked next, and where a restart goes on.
//!
//! A *position* of a partition is an offset (exclusive) with [`Known`]: every notice below the
//! offset was accepted, refused or given up, or is older than one that was. Notices above it are
//! told again after a restart, and those that are known already are left out. So a transition is
//! accepted once, unless the process dies between an answer and the commit of the position.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, VecDeque};

use super::answer::{Answer, backoff_ms};
use super::known::{AlertKey, Known};
use super::notice::Notice;
use crate::alert::State;

/// Alerts of one partition that are known; beyond it those are forgotten that were heard of
/// longest ago.
const ALERTS_MAX: usize = 10_000;

/// How a service is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// What fires is sent again after this, ms; `None`: a transition is sent once.
    pub every_ms: Option<i64>,
    /// A notice that was not answered for so long is given up, ms.
    pub give_up_ms: i64,
}

/// Which alert was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    partition: i32,
    key: AlertKey,
}

/// What became of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Accepted {
        /// Whether it is a transition that was not accepted before.
        first: bool,
    },
    /// It is not asked again, unless it is told again.
    Refused,
    /// It is asked again after so many ms.
    Later { wait_ms: i64 },
    /// It was asked for too long; as [`Outcome::Refused`].
    GivenUp,
}

/// Where a restart goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub partition: i32,
    /// Exclusive: every offset below it is dealt with.
    pub next: i64,
    /// The text of [`Known`], to be kept beside it.
    pub known: String,
}

/// What is to be sent to one service.
#[derive(Clone, Debug)]
pub struct Queue {
    limits: QueueLimits,
    partitions: BTreeMap<i32, Partition>,
    /// Nothing is asked before, ms: the service said so.
    hold_until_ms: i64,
}

#[derive(Clone, Debug)]
struct Partition {
    /// Exclusive: every offset below it was told.
    next: i64,
    alerts: BTreeMap<AlertKey, Alert>,
    /// Whether the position moved since it was committed.
    moved: bool,
}

#[derive(Clone, Debug)]
struct Alert {
    /// When the newest accepted transition was decided, ms.
    accepted_ms: i64,
    /// The offset of the last notice.
    heard: i64,
    /// Transitions that are not accepted yet, oldest first.
    waiting: VecDeque<Waiting>,
    /// What fires and is to be sent again.
    standing: Option<Waiting>,
}

#[derive(Clone, Debug)]
struct Waiting {
    offset: i64,
    notice: Notice,
    /// Failures in a row.
    tries: u32,
    due_ms: i64,
    /// Since when it waits, ms.
    since_ms: i64,
}

impl Alert {
    const UNKNOWN: Self = Self {
        accepted_ms: i64::MIN,
        heard: i64::MIN,
        waiting: VecDeque::new(),
        standing: None,
    };

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.standing.is_none()
    }

    /// What is to be sent next. While a transition waits, the state before it is not sent again.
    fn head(&self) -> Option<&Waiting> {
        self.waiting.front().or(self.standing.as_ref())
    }

    fn wants(&self, notice: &Notice, again: bool) -> bool {
        let waiting = self.waiting.back().map(|it| it.notice.at_ms);
        match notice.at_ms.cmp(&waiting.unwrap_or(self.accepted_ms)) {
            Ordering::Greater => true,
            // After a restart this tells what still fires.
            Ordering::Equal => again && self.is_idle() && notice.state == State::Firing,
            Ordering::Less => false,
        }
    }
}

impl Partition {
    fn position(&self, partition: i32) -> Position {
        let waiting = self.alerts.values().flat_map(|it| &it.waiting);
        let first = waiting.map(|it| it.offset).min();
        let known = self
            .alerts
            .iter()
            .filter(|(_, it)| it.accepted_ms != i64::MIN);
        let mut known = known.collect::<Vec<_>>();
        known.sort_by_key(|(_, it)| Reverse(it.heard));
        Position {
            partition,
            next: first.unwrap_or(self.next),
            known: Known::text(known.into_iter().map(|(key, it)| (*key, it.accepted_ms))),
        }
    }

    fn forget(&mut self) {
        if self.alerts.len() <= ALERTS_MAX {
            return;
        }
        let mut heard = self.alerts.values().map(|it| it.heard).collect::<Vec<_>>();
        heard.sort_unstable();
        let kept = heard[heard.len() / 2];
        self.alerts
            .retain(|_, it| it.heard >= kept || !it.is_idle());
    }
}

impl Queue {
    /// An empty one.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            partitions: BTreeMap::new(),
            hold_until_ms: i64::MIN,
        }
    }

    /// A partition is ours, told from offset `next` (inclusive) on. `is_kept`: whether this
    /// position is committed already.
    pub fn begin(&mut self, partition: i32, next: i64, known: &Known, is_kept: bool) {
        let alert = |(key, accepted_ms): (&AlertKey, &i64)| {
            let alert = Alert {
                accepted_ms: *accepted_ms,
                heard: next - 1,
                ..Alert::UNKNOWN
            };
            (*key, alert)
        };
        let begun = Partition {
            next,
            alerts: known.0.iter().map(alert).collect(),
            moved: !is_kept,
        };
        self.partitions.insert(partition, begun);
    }

    /// A partition is no longer ours.
    pub fn end(&mut self, partition: i32) {
        self.partitions.remove(&partition);
    }

    /// A message was told; `None`: it is no alert.
    pub fn take(&mut self, partition: i32, offset: i64, notice: Option<Notice>, now_ms: i64) {
        let Some(of) = self.partitions.get_mut(&partition) else {
            return;
        };
        of.next = of.next.max(offset + 1);
        of.moved = true;
        let Some(notice) = notice else { return };
        let key = AlertKey::of(&notice.dedup_key);
        let alert = of.alerts.entry(key).or_insert(Alert::UNKNOWN);
        alert.heard = offset;
        if alert.wants(&notice, self.limits.every_ms.is_some()) {
            alert.waiting.push_back(Waiting {
                offset,
                notice,
                tries: 0,
                due_ms: now_ms,
                since_ms: now_ms,
            });
        }
        of.forget();
    }

    /// What is to be asked now; then [`Queue::answered`].
    #[must_use]
    pub fn due(&self, now_ms: i64) -> Option<(Place, Notice)> {
        if now_ms < self.hold_until_ms {
            return None;
        }
        let (place, head) = self.heads().min_by_key(|(_, it)| (it.due_ms, it.offset))?;
        (head.due_ms <= now_ms).then(|| (place, head.notice.clone()))
    }

    /// When something is to be asked next, ms; `None` where nothing is left.
    #[must_use]
    pub fn due_ms(&self) -> Option<i64> {
        let first = self.heads().map(|(_, it)| it.due_ms).min()?;
        Some(first.max(self.hold_until_ms))
    }

    fn heads(&self) -> impl Iterator<Item = (Place, &Waiting)> {
        self.partitions.iter().flat_map(|(&partition, of)| {
            let alerts = of.alerts.iter();
            alerts.filter_map(move |(&key, it)| Some((Place { partition, key }, it.head()?)))
        })
    }

    /// Takes in what the service said; `luck` is any number. `None` where the partition is no
    /// longer ours.
    pub fn answered(
        &mut self,
        place: Place,
        answer: Answer,
        now_ms: i64,
        luck: u64,
    ) -> Option<Outcome> {
        let of = self.partitions.get_mut(&place.partition)?;
        let alert = of.alerts.get_mut(&place.key)?;
        if let Answer::Later { hold_ms: Some(ms) } = answer {
            self.hold_until_ms = now_ms.saturating_add(ms);
        }
        let every_ms = self.limits.every_ms;
        let Some(mut asked) = alert.waiting.pop_front() else {
            let standing = alert.standing.take()?;
            return Some(alert.stands(standing, answer, every_ms?, now_ms, luck));
        };
        of.moved = true;
        match answer {
            Answer::Accepted => {
                let first = asked.notice.at_ms > alert.accepted_ms;
                alert.accepted_ms = alert.accepted_ms.max(asked.notice.at_ms);
                let fires = asked.notice.state == State::Firing;
                alert.standing = every_ms.filter(|_| fires).map(|every_ms| Waiting {
                    tries: 0,
                    due_ms: now_ms + every_ms,
                    ..asked
                });
                Some(Outcome::Accepted { first })
            }
            Answer::Refused => Some(Outcome::Refused),
            Answer::Later { .. } if now_ms - asked.since_ms >= self.limits.give_up_ms => {
                Some(Outcome::GivenUp)
            }
            Answer::Later { .. } => {
                let wait_ms = asked.fails(now_ms, luck);
                alert.waiting.push_front(asked);
                Some(Outcome::Later { wait_ms })
            }
        }
    }

    /// The positions that moved and are to be committed.
    #[must_use]
    pub fn moved(&self) -> Vec<Position> {
        let moved = self.partitions.iter().filter(|(_, of)| of.moved);
        moved
            .map(|(&partition, of)| of.position(partition))
            .collect()
    }

    /// All that moved was committed.
    pub fn committed(&mut self) {
        for of in self.partitions.values_mut() {
            of.moved = false;
        }
    }
}

impl Waiting {
    fn fails(&mut self, now_ms: i64, luck: u64) -> i64 {
        self.tries += 1;
        let wait_ms = backoff_ms(self.tries, luck);
        self.due_ms = now_ms + wait_ms;
        wait_ms
    }
}

impl Alert {
    /// What fires was sent once more.
    fn stands(
        &mut self,
        mut standing: Waiting,
        answer: Answer,
        every_ms: i64,
        now_ms: i64,
        luck: u64,
    ) -> Outcome {
        let outcome = match answer {
            Answer::Later { .. } => Outcome::Later {
                wait_ms: standing.fails(now_ms, luck),
            },
            Answer::Accepted | Answer::Refused => {
                standing.tries = 0;
                standing.due_ms = now_ms + every_ms;
                match answer {
                    Answer::Refused => Outcome::Refused,
                    _ => Outcome::Accepted { first: false },
                }
            }
        };
        self.standing = Some(standing);
        outcome
    }
}
