//! The log → what it says now: schema and positions ([`LogState`]), or the files ([`Files`]).
//!
//! Both begin at the newest checkpoint and read the entries after it. For [`LogState`] only the
//! checkpoint's `txn`, `metaData` and `protocol` columns are read, so that opening a table and
//! reading positions does not grow with its files.

use std::collections::BTreeMap;

use deltalake::kernel::{Add, Metadata, Protocol};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use crate::checkpoint;
use crate::error::LakeError;
use crate::log::{Entry, read_entry};
use crate::position::{self, Position, SourcePartition};
use crate::table::Table;

/// What a writer knows of a table at a version.
#[derive(Clone, Debug)]
pub struct LogState {
    /// The version; a writer's base.
    pub version: u64,
    /// Schema and properties.
    pub metadata: Metadata,
    /// What readers and writers must know.
    pub protocol: Protocol,
    /// Every application id and its value.
    pub txns: BTreeMap<String, i64>,
}

impl LogState {
    /// The position of `partition`, if the lake knows it.
    #[must_use]
    pub fn position(&self, partition: &SourcePartition) -> Option<Position> {
        Position::of(&self.txns, partition)
    }

    /// Every position.
    #[must_use]
    pub fn positions(&self) -> BTreeMap<SourcePartition, Position> {
        position::positions(&self.txns)
    }

    /// Takes in the entry that follows.
    pub(crate) fn apply(&mut self, entry: &Entry) {
        debug_assert_eq!(entry.version, self.version + 1);
        self.version = entry.version;
        self.txns.extend(entry.txns.iter().cloned());
        if let Some(metadata) = &entry.metadata {
            self.metadata = metadata.clone();
        }
        if let Some(protocol) = &entry.protocol {
            self.protocol = protocol.clone();
        }
    }
}

/// The files of a table at a version.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The version.
    pub version: u64,
    /// What a reader reads, by path.
    pub live: BTreeMap<String, Add>,
    /// What was removed, and when, ms; 0 where the log does not say.
    pub removed: BTreeMap<String, i64>,
}

/// What stands in the log's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Survey {
    /// The newest checkpoint not above the head: version, size.
    pub checkpoint: Option<(u64, u64)>,
    /// The newest version.
    pub head: u64,
}

/// How often a read that met log clean-up begins again.
const READS_MAX: u32 = 3;

/// The state at the head, or `None` where there is no table.
///
/// # Errors
/// The store's; [`LakeError::LogHole`], [`LakeError::BadEntry`], [`LakeError::NotOurTable`].
pub async fn load(table: &Table) -> Result<Option<LogState>, LakeError> {
    let mut read = 1;
    loop {
        let Some(survey) = survey(table).await? else {
            return Ok(None);
        };
        match load_surveyed(table, &survey).await {
            // Clean-up may have removed an entry between the list and the read.
            Err(LakeError::LogHole { .. }) if read < READS_MAX => read += 1,
            other => return other.map(Some),
        }
    }
}

async fn load_surveyed(table: &Table, survey: &Survey) -> Result<LogState, LakeError> {
    let mut txns = BTreeMap::new();
    let (mut metadata, mut protocol) = (None, None);
    replay(table, survey, &["txn", "metaData", "protocol"], |entry| {
        txns.extend(entry.txns);
        metadata = entry.metadata.or(metadata.take());
        protocol = entry.protocol.or(protocol.take());
    })
    .await?;
    match (metadata, protocol) {
        (Some(metadata), Some(protocol)) => Ok(LogState {
            version: survey.head,
            metadata,
            protocol,
            txns,
        }),
        _ => Err(LakeError::NotOurTable {
            location: table.location(),
        }),
    }
}

/// The files at version `at`, which must not be older than log clean-up allows.
///
/// # Errors
/// The store's; [`LakeError::LogHole`], [`LakeError::BadEntry`].
pub async fn load_files(table: &Table, at: u64) -> Result<Files, LakeError> {
    let mut read = 1;
    loop {
        match load_files_once(table, at).await {
            Err(LakeError::LogHole { .. }) if read < READS_MAX => read += 1,
            other => return other,
        }
    }
}

async fn load_files_once(table: &Table, at: u64) -> Result<Files, LakeError> {
    let survey =
        survey_list(&list_log(table, None).await?, Some(at)).ok_or_else(|| LakeError::LogHole {
            location: table.location(),
            version: at,
        })?;
    if survey.head < at {
        return Err(LakeError::LogHole {
            location: table.location(),
            version: at,
        });
    }
    let mut files = Files {
        version: at,
        ..Files::default()
    };
    replay(table, &survey, &["add", "remove"], |entry| {
        // Removals first: an entry may replace a file by one of the same path.
        for remove in entry.removes {
            files.live.remove(&remove.path);
            files
                .removed
                .insert(remove.path, remove.deletion_timestamp.unwrap_or(0));
        }
        for add in entry.adds {
            files.removed.remove(&add.path);
            files.live.insert(add.path.clone(), add);
        }
    })
    .await?;
    Ok(files)
}

/// Hands over what the checkpoint holds, in parts, and then every entry after it.
async fn replay(
    table: &Table,
    survey: &Survey,
    columns: &[&str],
    mut take: impl FnMut(Entry),
) -> Result<(), LakeError> {
    let mut next = 0;
    if let Some((version, size)) = survey.checkpoint {
        checkpoint::read(table, version, size, columns, &mut take).await?;
        next = version + 1;
    }
    for version in next..=survey.head {
        match read_entry(table.log(), version).await? {
            Some(entry) => take(entry),
            None => {
                return Err(LakeError::LogHole {
                    location: table.location(),
                    version,
                });
            }
        }
    }
    Ok(())
}

/// Looks at the log's folder from the last checkpoint on; `None` where there is no table.
pub(crate) async fn survey(table: &Table) -> Result<Option<Survey>, LakeError> {
    if let Some(hint) = last_checkpoint(table).await? {
        let found = survey_list(&list_log(table, Some(hint)).await?, None);
        // The hint may be old, and its checkpoint cleaned up: then the whole folder is listed.
        if let Some(
            survey @ Survey {
                checkpoint: Some(_),
                ..
            },
        ) = found
        {
            return Ok(Some(survey));
        }
    }
    Ok(survey_list(&list_log(table, None).await?, None))
}

/// The version that `_last_checkpoint` names. It is a hint: damaged or missing, it is no error.
async fn last_checkpoint(table: &Table) -> Result<Option<u64>, LakeError> {
    let path = Path::from("_delta_log/_last_checkpoint");
    let answer = match table.store().get(&path).await {
        Ok(found) => found.bytes().await,
        Err(e) => Err(e),
    };
    match answer {
        Ok(bytes) => Ok(serde_json::from_slice::<serde_json::Value>(&bytes)
            .ok()
            .and_then(|hint| hint.get("version")?.as_u64())),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(e) => Err(LakeError::store(format!("read {path}"), e)),
    }
}

/// The versions in the log's folder, from `from` on.
async fn list_log(table: &Table, from: Option<u64>) -> Result<Vec<ObjectMeta>, LakeError> {
    let folder = Path::from("_delta_log");
    let store = table.store();
    let list = match from {
        // Shorter than any name of that version, so before all of them.
        Some(version) => store.list_with_offset(
            Some(&folder),
            &folder.clone().join(format!("{version:020}")),
        ),
        None => store.list(Some(&folder)),
    };
    list.try_collect()
        .await
        .map_err(|e| LakeError::store(format!("list {folder}"), e))
}

fn survey_list(list: &[ObjectMeta], at_most: Option<u64>) -> Option<Survey> {
    let at_most = at_most.unwrap_or(u64::MAX);
    let versions = |suffix: &'static str| {
        list.iter().filter_map(move |meta| {
            let digits = meta.location.filename()?.strip_suffix(suffix)?;
            let version = digits.parse::<u64>().ok().filter(|_| digits.len() == 20)?;
            (version <= at_most).then_some((version, meta.size))
        })
    };
    let checkpoint = versions(".checkpoint.parquet").max();
    let entry = versions(".json").map(|(version, _)| version).max();
    let head = entry.max(checkpoint.map(|(version, _)| version))?;
    Some(Survey { checkpoint, head })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(name: &str) -> ObjectMeta {
        ObjectMeta {
            location: Path::from(format!("_delta_log/{name}")),
            last_modified: chrono::DateTime::UNIX_EPOCH,
            size: 7,
            e_tag: None,
            version: None,
        }
    }

    #[test]
    fn the_survey_knows_entries_and_checkpoints_only() {
        let names = [
            "00000000000000000003.json",
            "00000000000000000004.json",
            "00000000000000000005.json.cut.170",
            "00000000000000000006.crc",
            "00000000000000000003.checkpoint.parquet",
            "00000000000000000004.checkpoint.0000000001.0000000002.parquet",
            "_last_checkpoint",
        ];
        let list: Vec<_> = names.iter().map(|name| meta(name)).collect();
        let found = Survey {
            checkpoint: Some((3, 7)),
            head: 4,
        };
        assert_eq!(survey_list(&list, None), Some(found));
        assert_eq!(survey_list(&list, Some(2)), None);
        assert_eq!(survey_list(&[], None), None);
    }
}
