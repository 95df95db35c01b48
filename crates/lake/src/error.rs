//! What can go wrong in the lake, by what the caller does next.

use std::error::Error as StdError;
use std::path::PathBuf;

use deltalake::DeltaTableError;

use crate::log::Author;
use crate::position::{Owner, SourcePartition};

/// A cause that is only reported.
pub type Cause = Box<dyn StdError + Send + Sync>;

/// Another writer's commit names something that was ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// What was taken.
    pub owner: Owner,
    /// The version of the commit that took it.
    pub version: u64,
    /// Who wrote that commit.
    pub by: Author,
}

/// Why the lake refused, or could not do, what it was asked.
///
/// After [`LakeError::ends_ownership`] the writer owns nothing any more: the caller drops its
/// state and begins again with a claim. After any other error the writer is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LakeError {
    /// Another writer owns it now.
    #[error("{}", fenced(.0))]
    Fenced(Box<Fence>),

    /// Others changed the same rows again and again.
    #[error(
        "others changed the same files {tries} times meanwhile: try again when less is written, or a smaller range"
    )]
    Overtaken {
        /// How often it was planned.
        tries: usize,
    },

    /// What was to be one commit took so long that vacuum may have removed its first files.
    #[error(
        "what one commit replaces must be written within {} min, and there was more to write: try a smaller range; nothing was changed",
        .limit_ms / 60_000
    )]
    EditTooLong {
        /// The limit.
        limit_ms: i64,
    },

    /// Rows or a position of a partition that this writer did not claim, or that was revoked.
    #[error("{partition} is not claimed by this writer: claim it before writing its rows")]
    NotOurs {
        /// The partition.
        partition: SourcePartition,
    },

    /// A position below what is committed.
    #[error(
        "{field} of {partition} would go back from {committed} to {given}: read the position again with a claim"
    )]
    PositionBack {
        /// The partition.
        partition: SourcePartition,
        /// Which part of the position.
        field: &'static str,
        /// What the lake holds.
        committed: i64,
        /// What was to be written.
        given: i64,
    },

    /// The flush took so long that vacuum may have removed its files.
    #[error(
        "the flush began {age_ms} ms ago, above the limit of {limit_ms} ms, and was thrown away: claim again, its events are read again"
    )]
    FlushTooOld {
        /// Its age.
        age_ms: i64,
        /// The limit.
        limit_ms: i64,
    },

    /// The store did not take the commit within the deadline. Whether it arrives later is
    /// unknown; claiming again finds out.
    #[error(
        "version {version} could not be committed in {tries} tries over {waited_ms} ms: check the store, then claim again; nothing was passed over"
    )]
    Unavailable {
        /// The version that was tried.
        version: u64,
        /// How often.
        tries: u32,
        /// How long.
        waited_ms: i64,
        /// The last answer.
        source: Cause,
    },

    /// Another program changed what a writer must know.
    #[error(
        "version {version} changes the table's protocol: stop, and use a release that knows it, or undo the change"
    )]
    ProtocolChanged {
        /// Where.
        version: u64,
    },

    /// The table asks for features that this release does not have.
    #[error(
        "{location} needs Delta reader version {reader} and writer version {writer}, this release has 1 and 2: use a newer release or another table"
    )]
    ProtocolUnknown {
        /// The table.
        location: String,
        /// Asked of readers.
        reader: i32,
        /// Asked of writers.
        writer: i32,
    },

    /// The table was written by a newer release.
    #[error(
        "{location} has schema major {found}, this release knows {known}: use the newer release"
    )]
    NewerMajor {
        /// The table.
        location: String,
        /// In the table.
        found: u32,
        /// The newest known.
        known: u32,
    },

    /// A Delta table, but none of ours.
    #[error("{location} has no property retrytoll.schema.major: choose a folder of its own")]
    NotOurTable {
        /// The table.
        location: String,
    },

    /// A column is gone or has another type.
    #[error(
        "column {column} is {found} in the table and {expected} here: only added columns are known; restore it or use a new table"
    )]
    ColumnChanged {
        /// The column.
        column: String,
        /// In the table, or `absent`.
        found: String,
        /// In this release.
        expected: String,
    },

    /// The log has no entry where one must be.
    #[error(
        "the log of {location} has no entry {version}, and later ones exist: restore the file from a backup, or use a new table"
    )]
    LogHole {
        /// The table.
        location: String,
        /// The missing version.
        version: u64,
    },

    /// An entry that is not the last one cannot be read.
    #[error("entry {version} of the log cannot be used, {reason}: restore it from a backup")]
    BadEntry {
        /// Its version.
        version: u64,
        /// What is wrong.
        reason: String,
    },

    /// The writer slept so long that the log after its base is gone.
    #[error(
        "the log after version {base} was cleaned up while this writer slept, its head is {head}: claim again"
    )]
    BaseLost {
        /// The writer's base.
        base: u64,
        /// The head.
        head: u64,
    },

    /// A data file is not what the commit would say.
    #[error("{path} has {found} bytes, expected {expected}: write the flush again")]
    FileCut {
        /// The file, relative to the table.
        path: String,
        /// On disk.
        found: u64,
        /// In the commit.
        expected: u64,
    },

    /// Maintenance by a writer that did not take the leader's place, or lost it.
    #[error("this writer is not the leader: claim the leader's place before maintenance")]
    NotLeader,

    /// Vacuum with an age at which a flush may still be under way.
    #[error("vacuum age {given_ms} ms is below the least, {least_ms} ms: choose a longer one")]
    VacuumTooYoung {
        /// What was asked.
        given_ms: i64,
        /// The least allowed.
        least_ms: i64,
    },

    /// A local file operation failed.
    #[error("cannot {what} {}: check the disk and its permissions", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },

    /// The object store failed.
    #[error("cannot {what}: check the store's address and permissions")]
    Store {
        /// What was tried.
        what: String,
        /// Why.
        source: Box<object_store::Error>,
    },

    /// The Delta crate failed.
    #[error("cannot {what}")]
    Delta {
        /// What was tried.
        what: String,
        /// Why.
        source: Box<DeltaTableError>,
    },

    /// A Parquet file could not be read or written.
    #[error("cannot {what}: {}", way_out(.source.as_ref()))]
    Data {
        /// What was tried.
        what: String,
        /// Why.
        source: Cause,
    },
}

/// What the store said, where that is why.
pub(crate) fn store_error<'a>(
    cause: &'a (dyn StdError + 'static),
) -> Option<&'a object_store::Error> {
    let mut causes = std::iter::successors(Some(cause), |it| StdError::source(*it));
    causes.find_map(|it| it.downcast_ref())
}

/// A file is not damaged where its store fails.
fn way_out(cause: &(dyn StdError + Send + Sync + 'static)) -> &'static str {
    match store_error(cause) {
        None | Some(object_store::Error::NotFound { .. }) => {
            "the file may be damaged, restore it from a backup"
        }
        Some(_) => "check the store's address and permissions",
    }
}

fn fenced(fence: &Fence) -> String {
    let Fence { owner, version, by } = fence;
    match owner {
        Owner::Forgotten => format!(
            "a tenant was forgotten meanwhile, in version {version} by {by}, and what was read before may hold its rows: run it again, it goes on where it was"
        ),
        _ => format!(
            "version {version} by {by} names {owner}, which was ours: drop its state and claim it again if it is still assigned; if this repeats, two instances run with one assignment"
        ),
    }
}

impl LakeError {
    /// Whether the writer has lost what it owned: the caller drops its state.
    #[must_use]
    pub fn ends_ownership(&self) -> bool {
        matches!(
            self,
            Self::Fenced(_)
                | Self::FlushTooOld { .. }
                | Self::Unavailable { .. }
                | Self::ProtocolChanged { .. }
                | Self::ProtocolUnknown { .. }
                | Self::NewerMajor { .. }
                | Self::NotOurTable { .. }
                | Self::ColumnChanged { .. }
                | Self::BadEntry { .. }
                | Self::BaseLost { .. }
        )
    }

    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io {
            what,
            path: path.into(),
            source,
        }
    }

    pub(crate) fn store(what: impl Into<String>, source: object_store::Error) -> Self {
        Self::Store {
            what: what.into(),
            source: Box::new(source),
        }
    }

    pub(crate) fn delta(what: impl Into<String>, source: DeltaTableError) -> Self {
        Self::Delta {
            what: what.into(),
            source: Box::new(source),
        }
    }

    pub(crate) fn data(what: impl Into<String>, source: impl Into<Cause>) -> Self {
        Self::Data {
            what: what.into(),
            source: source.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use parquet::errors::ParquetError;

    use super::*;

    #[test]
    fn a_store_that_fails_is_no_damaged_file() {
        let failed = object_store::Error::Generic {
            store: "s",
            source: "no route".into(),
        };
        let by_store = LakeError::data("read a", ParquetError::External(Box::new(failed)));
        assert!(by_store.to_string().contains("permissions"), "{by_store}");
        let missing = object_store::Error::NotFound {
            path: "a".into(),
            source: "no such file".into(),
        };
        let missing = ParquetError::External(Box::new(missing));
        for why in [missing, ParquetError::General("bad magic".into())] {
            let damaged = LakeError::data("read a", why);
            assert!(damaged.to_string().contains("backup"), "{damaged}");
        }
    }
}
