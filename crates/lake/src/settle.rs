//! Our pending commit and what others committed meanwhile → what to do.
//!
//! The table of outcomes, as one pure function. `base` is the version up to which this writer
//! has read the log; the commit is put at `base + 1`, and when that did not plainly succeed the
//! log from `base + 1` on is read and handed to [`settle`].

use std::collections::BTreeSet;

use crate::error::Fence;
use crate::file::date_of;
use crate::log::Entry;
use crate::position::Owner;

/// The rows that a commit decided on: rows that others add there make its decision stale.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Range {
    /// None: it adds only, or replaces files by the same rows (compaction).
    #[default]
    Nothing,
    /// The rows of these dates, `None` being the rows without a date.
    Dates(BTreeSet<Option<String>>),
    /// Every row.
    Everything,
}

impl Range {
    fn holds(&self, date: Option<&str>) -> bool {
        match self {
            Self::Nothing => false,
            Self::Dates(dates) => dates.iter().any(|d| d.as_deref() == date),
            Self::Everything => true,
        }
    }
}

/// What of a commit decides its fate.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    /// Unique per commit.
    pub commit_id: String,
    /// What must not be named by anyone else.
    pub ours: BTreeSet<Owner>,
    /// What this commit is about to make ours; its values were read at the base.
    pub claims: BTreeSet<Owner>,
    /// The paths that it removes.
    pub removes: BTreeSet<String>,
    /// The rows that it decided on.
    pub range: Range,
    /// It replaces the table's schema and properties.
    pub changes_schema: bool,
}

/// Why a commit must be planned again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Another named what this commit claims: its positions are other ones now.
    ClaimMoved,
    /// Another removed a file that this commit removes.
    FileRemoved,
    /// Another added rows in the range.
    RowsAdded,
    /// Another changed the schema that this commit replaces.
    SchemaChanged,
}

/// What to do. The versions named are the greatest that have been read and may become the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Our commit is in the log: only its answer was lost.
    Success {
        /// Where.
        version: u64,
    },
    /// Something of ours belongs to another.
    Fenced(Fence),
    /// Others' commits do not concern ours.
    MoveBase {
        /// The new base.
        to: u64,
        /// One of them changed the schema or the properties.
        reload_schema: bool,
    },
    /// Others' commits made ours stale.
    Replan {
        /// The new base.
        to: u64,
        /// The first conflict.
        why: Conflict,
    },
    /// Another changed the protocol.
    ProtocolChanged {
        /// Where.
        version: u64,
    },
    /// Nothing is there: the same bytes at the same version.
    PutAgain,
}

/// Decides. `entries` are those from `base + 1` on, without a gap.
///
/// First comes our own commit, since what happened after it is no matter of this commit; then
/// the protocol, since after its change nothing else can be trusted; then the fence, which no
/// other conflict may hide.
#[must_use]
pub fn settle(pending: &Pending, entries: &[Entry]) -> Decision {
    let own = |e: &&Entry| e.by.commit_id.as_deref() == Some(pending.commit_id.as_str());
    if let Some(entry) = entries.iter().find(own) {
        return Decision::Success {
            version: entry.version,
        };
    }
    if let Some(entry) = entries.iter().find(|e| e.protocol.is_some()) {
        return Decision::ProtocolChanged {
            version: entry.version,
        };
    }
    for entry in entries {
        if let Some(owner) = entry.owners().find(|owner| pending.ours.contains(owner)) {
            return Decision::Fenced(Fence {
                owner,
                version: entry.version,
                by: entry.by.clone(),
            });
        }
    }
    let Some(last) = entries.last() else {
        return Decision::PutAgain;
    };
    match entries.iter().find_map(|entry| conflict(pending, entry)) {
        Some(why) => Decision::Replan {
            to: last.version,
            why,
        },
        None => Decision::MoveBase {
            to: last.version,
            reload_schema: entries.iter().any(|e| e.metadata.is_some()),
        },
    }
}

/// What of an entry makes a commit stale, if anything.
pub(crate) fn conflict(pending: &Pending, entry: &Entry) -> Option<Conflict> {
    if entry.owners().any(|owner| pending.claims.contains(&owner)) {
        return Some(Conflict::ClaimMoved);
    }
    if entry
        .removes
        .iter()
        .any(|r| pending.removes.contains(&r.path))
    {
        return Some(Conflict::FileRemoved);
    }
    // Files that only hold rows which were there before (compaction) add none.
    let added = |add: &deltalake::kernel::Add| add.data_change && pending.range.holds(date_of(add));
    if entry.adds.iter().any(added) {
        return Some(Conflict::RowsAdded);
    }
    (pending.changes_schema && entry.metadata.is_some()).then_some(Conflict::SchemaChanged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Author;
    use crate::position::SourcePartition;
    use deltalake::kernel::{Add, Metadata, Protocol, Remove};

    fn p(n: i32) -> Owner {
        Owner::Partition(SourcePartition::new("c/t", n))
    }

    fn entry(version: u64, commit_id: &str) -> Entry {
        let by = Author {
            commit_id: Some(commit_id.into()),
            ..Author::default()
        };
        Entry {
            version,
            by,
            ..Entry::default()
        }
    }

    fn names(mut e: Entry, app_id: &str) -> Entry {
        e.txns.push((app_id.into(), 1));
        e
    }

    fn adds(mut e: Entry, date: Option<&str>, data_change: bool) -> Entry {
        let partition_values = [("date".to_owned(), date.map(str::to_owned))].into();
        e.adds.push(Add {
            path: "f".into(),
            partition_values,
            data_change,
            ..Add::default()
        });
        e
    }

    fn removes(mut e: Entry, path: &str) -> Entry {
        e.removes.push(Remove {
            path: path.into(),
            ..Remove::default()
        });
        e
    }

    fn schema(mut e: Entry) -> Entry {
        e.metadata = Some(Metadata::default());
        e
    }

    fn protocol(mut e: Entry) -> Entry {
        let text = r#"{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[],"writerFeatures":["appendOnly"]}"#;
        e.protocol = Some(serde_json::from_str::<Protocol>(text).unwrap());
        e
    }

    /// A flush of partition 1 by a writer of 0 and 1.
    fn flush() -> Pending {
        Pending {
            commit_id: "me".into(),
            ours: [p(0), p(1)].into(),
            ..Pending::default()
        }
    }

    fn fenced(owner: Owner, version: u64, by: &str) -> Decision {
        let by = Author {
            commit_id: Some(by.into()),
            ..Author::default()
        };
        Decision::Fenced(Fence { owner, version, by })
    }

    #[track_caller]
    fn check(pending: &Pending, entries: Vec<Entry>, expected: Decision) {
        assert_eq!(settle(pending, &entries), expected);
    }

    const ON: &str = "retrytoll/next/1/c/t";
    const OFF: &str = "retrytoll/next/2/c/t";

    #[test]
    fn nothing_there() {
        check(&flush(), vec![], Decision::PutAgain);
    }

    #[test]
    fn our_own_commit_is_there_even_if_another_fenced_us_after_it() {
        let log = vec![entry(8, "me"), names(entry(9, "b"), ON)];
        check(&flush(), log, Decision::Success { version: 8 });
        let log = vec![entry(8, "me"), protocol(entry(9, "b"))];
        check(&flush(), log, Decision::Success { version: 8 });
    }

    #[test]
    fn one_of_ours_is_named() {
        check(
            &flush(),
            vec![names(entry(8, "b"), ON)],
            fenced(p(1), 8, "b"),
        );
        // Behind commits that do not concern us, and by any field.
        let log = vec![entry(8, "b"), names(entry(9, "c"), "retrytoll/done/0/c/t")];
        check(&flush(), log, fenced(p(0), 9, "c"));
        // The leader's place is one of ours only for the leader.
        let leader = Pending {
            ours: [Owner::Leader].into(),
            ..flush()
        };
        let log = || vec![names(entry(8, "b"), "retrytoll/leader")];
        check(&leader, log(), fenced(Owner::Leader, 8, "b"));
        check(
            &flush(),
            log(),
            Decision::MoveBase {
                to: 8,
                reload_schema: false,
            },
        );
    }

    #[test]
    fn a_fence_is_not_hidden_by_another_conflict() {
        let pending = Pending {
            removes: ["f".into()].into(),
            range: Range::Everything,
            ..flush()
        };
        let log = vec![removes(entry(8, "b"), "f"), names(entry(9, "c"), ON)];
        check(&pending, log, fenced(p(1), 9, "c"));
    }

    #[test]
    fn others_commits_move_the_base() {
        let log = vec![
            names(entry(8, "b"), OFF),
            adds(entry(9, "c"), Some("d"), true),
        ];
        check(
            &flush(),
            log,
            Decision::MoveBase {
                to: 9,
                reload_schema: false,
            },
        );
        let log = vec![schema(entry(8, "b")), removes(entry(9, "c"), "f")];
        check(
            &flush(),
            log,
            Decision::MoveBase {
                to: 9,
                reload_schema: true,
            },
        );
        // Another program, without an id.
        let nameless = Entry {
            version: 8,
            txns: vec![("spark".into(), 1)],
            ..Entry::default()
        };
        check(
            &flush(),
            vec![nameless],
            Decision::MoveBase {
                to: 8,
                reload_schema: false,
            },
        );
    }

    #[test]
    fn a_removed_file_throws_a_removal_away() {
        let pending = Pending {
            removes: ["f".into(), "g".into()].into(),
            ..flush()
        };
        let replan = Decision::Replan {
            to: 9,
            why: Conflict::FileRemoved,
        };
        check(
            &pending,
            vec![removes(entry(8, "b"), "g"), entry(9, "c")],
            replan,
        );
        let log = vec![removes(entry(8, "b"), "h")];
        check(
            &pending,
            log,
            Decision::MoveBase {
                to: 8,
                reload_schema: false,
            },
        );
    }

    #[test]
    fn rows_in_the_range_throw_a_removal_away() {
        let dates =
            |d: &[Option<&str>]| Range::Dates(d.iter().map(|d| d.map(str::to_owned)).collect());
        let with = |range| Pending {
            removes: ["f".into()].into(),
            range,
            ..flush()
        };
        let replan = || Decision::Replan {
            to: 8,
            why: Conflict::RowsAdded,
        };
        let pass = || Decision::MoveBase {
            to: 8,
            reload_schema: false,
        };
        let day = || vec![adds(entry(8, "b"), Some("2026-09-01"), true)];
        let undated = || vec![adds(entry(8, "b"), None, true)];
        let compacted = || vec![adds(entry(8, "b"), Some("2026-09-01"), false)];
        check(&with(dates(&[Some("2026-09-01")])), day(), replan());
        check(&with(dates(&[Some("2026-09-02"), None])), day(), pass());
        check(
            &with(dates(&[Some("2026-09-02"), None])),
            undated(),
            replan(),
        );
        check(&with(Range::Everything), day(), replan());
        check(&with(Range::Everything), compacted(), pass());
        check(&with(Range::Nothing), day(), pass());
    }

    #[test]
    fn a_claim_reads_again_what_another_moved() {
        let pending = Pending {
            ours: [p(0)].into(),
            claims: [p(1)].into(),
            ..flush()
        };
        let replan = Decision::Replan {
            to: 8,
            why: Conflict::ClaimMoved,
        };
        check(&pending, vec![names(entry(8, "b"), ON)], replan);
        let log = vec![names(entry(8, "b"), OFF)];
        check(
            &pending,
            log,
            Decision::MoveBase {
                to: 8,
                reload_schema: false,
            },
        );
    }

    #[test]
    fn two_schema_changes_do_not_overwrite_each_other() {
        let pending = Pending {
            changes_schema: true,
            ..flush()
        };
        let replan = Decision::Replan {
            to: 8,
            why: Conflict::SchemaChanged,
        };
        check(&pending, vec![schema(entry(8, "b"))], replan);
    }

    #[test]
    fn a_changed_protocol_stops_before_all_else() {
        let log = vec![names(entry(8, "b"), ON), protocol(entry(9, "c"))];
        check(&flush(), log, Decision::ProtocolChanged { version: 9 });
    }
}
