//! A table's log and folder → checkpoints, fewer entries, no orphans.
//!
//! The leader calls these on its schedule, never inside a commit: a failure is a warning there,
//! and the next run does what this one did not.

use deltalake::DeltaTable;
use deltalake::checkpoints::{cleanup_expired_logs_for, create_checkpoint};
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use object_store::path::Path;

use crate::durable::{self, remove_unfinished};
use crate::error::LakeError;
use crate::point::Point;
use crate::replay::{self, Files};
use crate::table::{CHECKPOINT_COMMITS, LOG_KEPT_MS, Table};
use crate::writer::{FLUSH_AGE_MS_MAX, Writer};

/// What [`keep_log`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogKept {
    /// The version of the checkpoint that was written.
    pub checkpoint: Option<u64>,
    /// Entries and old checkpoints that were removed.
    pub removed: usize,
}

/// Writes a checkpoint if the last one is [`CHECKPOINT_COMMITS`] behind `head`, and then removes
/// entries older than `kept_ms` that no reader needs; usually [`LOG_KEPT_MS`].
///
/// # Errors
/// The store's. The log is whole all the same.
pub async fn keep_log(
    table: &Table,
    head: u64,
    now_ms: i64,
    kept_ms: i64,
) -> Result<LogKept, LakeError> {
    let last = replay::survey(table)
        .await?
        .and_then(|s| s.checkpoint)
        .map_or(0, |(v, _)| v);
    if head < last + CHECKPOINT_COMMITS {
        return Ok(LogKept::default());
    }
    checkpoint(table, head).await?;
    let removed = clean_log(table, head, now_ms - kept_ms).await?;
    Ok(LogKept {
        checkpoint: Some(head),
        removed,
    })
}

/// Writes the checkpoint of `version`.
///
/// # Errors
/// The store's. No commit is touched by it.
pub async fn checkpoint(table: &Table, version: u64) -> Result<(), LakeError> {
    let failed = |e| LakeError::delta(format!("write the checkpoint of version {version}"), e);
    Point::CheckpointBegun.pass();
    let mut delta = DeltaTable::new(table.log_store());
    delta.load_version(version).await.map_err(failed)?;
    create_checkpoint(&delta, None).await.map_err(failed)?;
    // Clean-up relies on it, so it must outlast a power loss before an entry goes.
    if let Some(local) = table.local()
        && let Some((version, size)) = replay::survey(table).await?.and_then(|s| s.checkpoint)
    {
        let path = format!("{}/{version:020}.checkpoint.parquet", durable::LOG_FOLDER);
        durable::sync_files(local.to_path_buf(), vec![(path, size)]).await?;
    }
    Point::CheckpointWritten.pass();
    Ok(())
}

/// Removes entries and checkpoints from before `until_ms` that lie below a checkpoint that is not
/// above `head`; returns how many.
///
/// # Errors
/// The store's.
pub async fn clean_log(table: &Table, head: u64, until_ms: i64) -> Result<usize, LakeError> {
    cleanup_expired_logs_for(head, table.log(), until_ms, None)
        .await
        .map_err(|e| LakeError::delta("remove old entries of the log", e))
}

/// When a data file may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VacuumLimits {
    /// A file that no commit names may go at this age, ms: it belongs to a flush that was thrown
    /// away. At least twice a flush's greatest age.
    pub orphan_age_ms: i64,
    /// A file that a commit removed may go this long after it, ms.
    pub removed_age_ms: i64,
}

impl Default for VacuumLimits {
    fn default() -> Self {
        Self {
            orphan_age_ms: 24 * 3_600_000,
            removed_age_ms: LOG_KEPT_MS,
        }
    }
}

/// What vacuum removed, or would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vacuumed {
    /// The files, relative to the table, sorted.
    pub files: Vec<String>,
    /// Their size together.
    pub bytes: u64,
}

/// Removes Parquet files that nothing needs, and uploads that were never finished; with `dry_run` it
/// only says which.
///
/// Between the list and the removal stands a commit: a flush that slept longer than its age
/// allows finds its version taken, looks at its age again, and is thrown away. Without that
/// commit its put could succeed after its files are gone.
///
/// # Errors
/// [`LakeError::NotLeader`], [`LakeError::VacuumTooYoung`], and those of a commit and the store.
pub async fn vacuum(
    writer: &mut Writer,
    limits: VacuumLimits,
    now_ms: i64,
    dry_run: bool,
) -> Result<Vacuumed, LakeError> {
    let least_ms = 2 * FLUSH_AGE_MS_MAX;
    if limits.orphan_age_ms < least_ms {
        return Err(LakeError::VacuumTooYoung {
            given_ms: limits.orphan_age_ms,
            least_ms,
        });
    }
    if !writer.is_leader() {
        return Err(LakeError::NotLeader);
    }
    let store = writer.table().store();
    let listed = data_files(writer.table()).await?;
    Point::VacuumListed.pass();
    let version = writer.restated("VACUUM").await?.version;
    let files = replay::load_files(writer.table(), version).await?;
    let mut gone = Vacuumed::default();
    for meta in listed {
        let written_ms = meta.last_modified.timestamp_millis();
        if may_go(&files, meta.location.as_ref(), written_ms, limits, now_ms) {
            gone.bytes += meta.size;
            gone.files.push(meta.location.to_string());
        }
    }
    if !dry_run {
        let paths: Vec<_> = gone
            .files
            .iter()
            .map(|f| Ok(Path::from(f.as_str())))
            .collect();
        store
            .delete_stream(futures::stream::iter(paths).boxed())
            .try_for_each(|_| {
                Point::VacuumRemoved.pass();
                futures::future::ready(Ok(()))
            })
            .await
            .map_err(|e| LakeError::store("remove files", e))?;
    }
    if let Some(local) = writer.table().local() {
        let before_ms = now_ms - limits.orphan_age_ms;
        let unfinished = remove_unfinished(local.to_path_buf(), before_ms, dry_run).await?;
        gone.bytes += unfinished.iter().map(|(_, bytes)| bytes).sum::<u64>();
        gone.files
            .extend(unfinished.into_iter().map(|(name, _)| name));
    }
    gone.files.sort();
    Ok(gone)
}

/// Every data file in the table's folder, live or not.
pub(crate) async fn data_files(table: &Table) -> Result<Vec<ObjectMeta>, LakeError> {
    let listed = table.store().list(None);
    listed
        .try_filter(|meta| futures::future::ready(is_data_file(&meta.location)))
        .try_collect()
        .await
        .map_err(|e| LakeError::store("list the table's files", e))
}

/// Only Parquet outside `_…` folders: whatever else lies here is not ours to remove.
fn is_data_file(path: &Path) -> bool {
    path.as_ref().ends_with(".parquet") && !path.parts().any(|p| p.as_ref().starts_with('_'))
}

fn may_go(files: &Files, path: &str, written_ms: i64, limits: VacuumLimits, now_ms: i64) -> bool {
    if files.live.contains_key(path) || now_ms - written_ms < limits.orphan_age_ms {
        return false;
    }
    files
        .removed
        .get(path)
        .is_none_or(|removed_ms| now_ms - removed_ms >= limits.removed_age_ms)
}
