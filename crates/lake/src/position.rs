//! Positions as Delta `txn` actions, and back.
//!
//! An application id is `retrytoll/<field>/<partition>/<source>`, the source last because it may
//! hold slashes; the leader of maintenance is `retrytoll/leader`, and `retrytoll/forget/…` and
//! `retrytoll/forgot/…` are tenants that were forgotten ([`crate::forget`]). **These texts are the format on
//! disk**: they may be added to, never changed. Fields:
//!
//! | field | value |
//! |---|---|
//! | `next` | exclusive: every offset below it is dealt with |
//! | `low` | inclusive: the least offset that live state refers to |
//! | `low_clock` | the log clock before `low`, ms; absent before the first record |
//! | `clock` | the waiting clock, ms; absent before the first record |
//! | `digest` | 63 bits over what was read of a file |
//! | `done` | 1: the source counts no more for the completeness mark; 0: it does again |

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

const PREFIX: &str = "retrytoll/";
/// The application id of the leader of maintenance.
pub const LEADER_APP_ID: &str = "retrytoll/leader";

/// What begins the application ids that say who was forgotten ([`crate::forget`]).
pub(crate) const FORGET_PREFIX: &str = "retrytoll/forget/";

/// One partition of one source: the unit of ownership.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourcePartition {
    /// `<cluster id>/<topic>`, or a file's hash, or a given name.
    pub source: Arc<str>,
    /// The partition's number; 0 for a file.
    pub partition: i32,
}

impl SourcePartition {
    /// The partition `partition` of `source`.
    pub fn new(source: impl Into<Arc<str>>, partition: i32) -> Self {
        Self {
            source: source.into(),
            partition,
        }
    }

    /// The application id under which a field of its position stands.
    #[must_use]
    pub fn app_id(&self, field: &str) -> String {
        format!("{PREFIX}{field}/{}/{}", self.partition, self.source)
    }
}

impl fmt::Display for SourcePartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.source, self.partition)
    }
}

/// What a commit can own: naming it in a commit fences every other writer that owns it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A partition of a source.
    Partition(SourcePartition),
    /// The right to maintain the table, and to send its alerts.
    Leader,
    /// The list of what was forgotten: whoever owns a partition keeps to it, and so owns it too.
    Forgotten,
}

impl Owner {
    /// Whose application id this is; `None` for another program's.
    ///
    /// ```
    /// use retrytoll_lake::{Owner, SourcePartition};
    /// let owner = Owner::of_app_id("retrytoll/low_clock/3/c1/calls");
    /// assert_eq!(owner, Some(Owner::Partition(SourcePartition::new("c1/calls", 3))));
    /// assert_eq!(Owner::of_app_id("retrytoll/leader"), Some(Owner::Leader));
    /// assert_eq!(Owner::of_app_id("spark-7"), None);
    /// ```
    #[must_use]
    pub fn of_app_id(app_id: &str) -> Option<Self> {
        if app_id == LEADER_APP_ID {
            return Some(Self::Leader);
        }
        if app_id.starts_with(FORGET_PREFIX) {
            return Some(Self::Forgotten);
        }
        parse(app_id).map(|(_, partition)| Self::Partition(partition))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partition(partition) => partition.fmt(f),
            Self::Leader => f.write_str("the leader's place"),
            Self::Forgotten => f.write_str("the list of what was forgotten"),
        }
    }
}

fn parse(app_id: &str) -> Option<(&str, SourcePartition)> {
    let mut parts = app_id.strip_prefix(PREFIX)?.splitn(3, '/');
    let (field, partition, source) = (parts.next()?, parts.next()?, parts.next()?);
    Some((field, SourcePartition::new(source, partition.parse().ok()?)))
}

/// Where a partition stands in the lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Exclusive: every offset below it is dealt with.
    pub next: i64,
    /// Inclusive: the least offset that live state refers to.
    pub low: i64,
    /// The log clock before `low`, ms; `i64::MIN` before the first record.
    pub low_clock_ms: i64,
    /// The waiting clock, ms; `i64::MIN` before the first record.
    pub clock_ms: i64,
    /// Over what was read of a file, 63 bits; `None` for Kafka.
    pub digest: Option<i64>,
    /// The source was read to its end, or retired.
    pub done: bool,
}

impl Position {
    /// Nothing is known of the partition; reading begins at `start`.
    #[must_use]
    pub fn start(start: i64) -> Self {
        Self {
            next: start,
            low: start,
            low_clock_ms: i64::MIN,
            clock_ms: i64::MIN,
            digest: None,
            done: false,
        }
    }

    /// The `txn` values that state this position in full.
    #[must_use]
    pub fn to_txns(&self, partition: &SourcePartition) -> Vec<(String, i64)> {
        self.txns_since(partition, None)
    }

    /// The `txn` values that lead from `before` to this position: always `next`, and what else
    /// has changed. A commit that names no `next` of a partition would not fence for it.
    #[must_use]
    pub fn txns_since(
        &self,
        partition: &SourcePartition,
        before: Option<&Self>,
    ) -> Vec<(String, i64)> {
        let mut txns = vec![(partition.app_id("next"), self.next)];
        let mut put = |field: &str, value: i64, old: Option<i64>| {
            if old != Some(value) {
                txns.push((partition.app_id(field), value));
            }
        };
        put("low", self.low, before.map(|p| p.low));
        if self.low_clock_ms != i64::MIN {
            put(
                "low_clock",
                self.low_clock_ms,
                before.map(|p| p.low_clock_ms),
            );
        }
        if self.clock_ms != i64::MIN {
            put("clock", self.clock_ms, before.map(|p| p.clock_ms));
        }
        if let Some(digest) = self.digest {
            put("digest", digest, before.and_then(|p| p.digest));
        }
        // Absent means live, so that the usual case costs no action.
        put(
            "done",
            i64::from(self.done),
            Some(before.map_or(0, |p| i64::from(p.done))),
        );
        txns
    }

    /// The position of `partition` among a table's `txn` values; `None` where the lake does not
    /// know the partition.
    #[must_use]
    pub fn of(txns: &BTreeMap<String, i64>, partition: &SourcePartition) -> Option<Self> {
        let get = |field: &str| txns.get(&partition.app_id(field)).copied();
        let next = get("next")?;
        Some(Self {
            next,
            low: get("low").unwrap_or(next),
            low_clock_ms: get("low_clock").unwrap_or(i64::MIN),
            clock_ms: get("clock").unwrap_or(i64::MIN),
            digest: get("digest"),
            done: get("done") == Some(1),
        })
    }
}

/// Every position among a table's `txn` values.
#[must_use]
pub fn positions(txns: &BTreeMap<String, i64>) -> BTreeMap<SourcePartition, Position> {
    let known: BTreeSet<_> = txns
        .keys()
        .filter_map(|app_id| parse(app_id))
        .map(|(_, partition)| partition)
        .collect();
    known
        .into_iter()
        .filter_map(|partition| Position::of(txns, &partition).map(|at| (partition, at)))
        .collect()
}

/// Up to when everything has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A live source has no clock yet.
    Nothing,
    /// All that happened before this time, ms.
    Before(i64),
    /// There is no live source: all is complete.
    Everything,
}

/// The completeness mark: the least waiting clock of live sources.
#[must_use]
pub fn completeness_mark(positions: &BTreeMap<SourcePartition, Position>) -> Mark {
    match positions
        .values()
        .filter(|p| !p.done)
        .map(|p| p.clock_ms)
        .min()
    {
        None => Mark::Everything,
        Some(i64::MIN) => Mark::Nothing,
        Some(clock_ms) => Mark::Before(clock_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(txns: &mut BTreeMap<String, i64>, more: Vec<(String, i64)>) {
        txns.extend(more);
    }

    #[test]
    fn app_ids_are_as_documented() {
        let p = SourcePartition::new("kQ9/llm/calls", 12);
        let at = Position {
            next: 70,
            low: 60,
            low_clock_ms: 5,
            clock_ms: 9,
            digest: Some(77),
            done: true,
        };
        let expected = [
            ("retrytoll/next/12/kQ9/llm/calls", 70),
            ("retrytoll/low/12/kQ9/llm/calls", 60),
            ("retrytoll/low_clock/12/kQ9/llm/calls", 5),
            ("retrytoll/clock/12/kQ9/llm/calls", 9),
            ("retrytoll/digest/12/kQ9/llm/calls", 77),
            ("retrytoll/done/12/kQ9/llm/calls", 1),
        ];
        let expected: Vec<_> = expected.map(|(id, v)| (id.to_owned(), v)).into();
        assert_eq!(at.to_txns(&p), expected);
    }

    #[test]
    fn only_next_is_repeated_when_nothing_moved() {
        let p = SourcePartition::new("s", 0);
        let at = Position {
            low_clock_ms: 3,
            clock_ms: 4,
            ..Position::start(8)
        };
        assert_eq!(
            at.txns_since(&p, Some(&at)),
            [("retrytoll/next/0/s".to_owned(), 8)]
        );
    }

    #[test]
    fn positions_come_back_from_what_was_written() {
        let (a, b) = (
            SourcePartition::new("x/y", 0),
            SourcePartition::new("x/y", 1),
        );
        let first = Position {
            clock_ms: 100,
            ..Position::start(0)
        };
        let then = Position {
            next: 5,
            low: 2,
            low_clock_ms: 90,
            clock_ms: 110,
            ..first
        };
        let file = Position {
            digest: Some(i64::MAX),
            done: true,
            ..Position::start(3)
        };
        let mut txns = BTreeMap::from([("other/app".to_owned(), 1)]);
        apply(&mut txns, first.to_txns(&a));
        apply(&mut txns, then.txns_since(&a, Some(&first)));
        apply(&mut txns, file.to_txns(&b));
        assert_eq!(
            positions(&txns),
            BTreeMap::from([(a, then), (b.clone(), file)])
        );

        // A file that grew is live again.
        let grown = Position {
            next: 9,
            done: false,
            ..file
        };
        apply(&mut txns, grown.txns_since(&b, Some(&file)));
        assert_eq!(Position::of(&txns, &b), Some(grown));
    }

    #[test]
    fn the_mark_is_the_least_live_clock() {
        let clock = |ms| Position {
            clock_ms: ms,
            ..Position::start(0)
        };
        let p = |n| SourcePartition::new("s", n);
        let mut all = BTreeMap::from([(p(0), clock(50)), (p(1), clock(40))]);
        assert_eq!(completeness_mark(&all), Mark::Before(40));
        all.get_mut(&p(1)).unwrap().done = true;
        assert_eq!(completeness_mark(&all), Mark::Before(50));
        all.insert(p(2), Position::start(0));
        assert_eq!(completeness_mark(&all), Mark::Nothing);
        all.values_mut().for_each(|at| at.done = true);
        assert_eq!(completeness_mark(&all), Mark::Everything);
    }
}
