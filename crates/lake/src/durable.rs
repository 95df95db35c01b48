//! Files on local disk → files that survive a power loss.
//!
//! Object stores answer a put when it is durable; a local file system does not, so data files
//! and folders are synced before the commit, the entry and `_delta_log` after it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use chrono::{DateTime, Utc};

use crate::error::LakeError;
use crate::log::Entry;

/// The folder of a table's log.
pub(crate) const LOG_FOLDER: &str = "_delta_log";

/// Syncs data files and their folders, and checks their sizes. Paths are relative to `table`.
///
/// # Errors
/// [`LakeError::FileCut`] where a size is not as stated, [`LakeError::Io`] where a file is
/// missing or cannot be synced. Nothing has been committed then.
pub(crate) async fn sync_files(table: PathBuf, files: Vec<(String, u64)>) -> Result<(), LakeError> {
    blocking(move || {
        let mut folders = BTreeSet::new();
        for (path, expected) in files {
            let full = table.join(&path);
            let file = File::open(&full).map_err(|e| LakeError::io("open", &full, e))?;
            let found = file
                .metadata()
                .map_err(|e| LakeError::io("look at", &full, e))?
                .len();
            if found != expected {
                return Err(LakeError::FileCut {
                    path,
                    found,
                    expected,
                });
            }
            file.sync_all()
                .map_err(|e| LakeError::io("sync", &full, e))?;
            folders.extend(full.parent().map(Path::to_path_buf));
        }
        // A partition's folder may be new, so its name in the table's folder counts too.
        if !folders.is_empty() {
            folders.insert(table);
        }
        folders.iter().try_for_each(|folder| sync_folder(folder))
    })
    .await
}

/// Syncs the entry of `version` and its folder.
///
/// # Errors
/// [`LakeError::Io`]. The entry is visible to everyone all the same.
pub(crate) async fn sync_entry(table: PathBuf, version: u64) -> Result<(), LakeError> {
    blocking(move || {
        let folder = table.join(LOG_FOLDER);
        let entry = folder.join(format!("{version:020}.json"));
        File::open(&entry)
            .and_then(|file| file.sync_all())
            .map_err(|e| LakeError::io("sync", &entry, e))?;
        sync_folder(&folder)?;
        if version == 0 {
            sync_folder(&table)
        } else {
            Ok(())
        }
    })
    .await
}

fn sync_folder(folder: &Path) -> Result<(), LakeError> {
    File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(|e| LakeError::io("sync", folder, e))
}

/// Renames the log's last entry, and its last checkpoint, if they are empty or cut, as after a
/// power loss, and returns their new paths. Only the last: what came after a damaged entry must
/// not be lost silently.
///
/// A lock on the folder keeps two starting processes from setting aside each other's new entry.
///
/// # Errors
/// [`LakeError::Io`].
pub(crate) async fn set_aside_cut(table: PathBuf, now_ms: i64) -> Result<Vec<PathBuf>, LakeError> {
    blocking(move || {
        let folder = table.join(LOG_FOLDER);
        let lock = match File::open(&folder) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened.map_err(|e| LakeError::io("open", &folder, e))?,
        };
        lock.lock().map_err(|e| LakeError::io("lock", &folder, e))?;
        let mut aside = Vec::new();
        if let Some((version, path)) = last(&folder, ".json")? {
            let bytes = fs::read(&path).map_err(|e| LakeError::io("read", &path, e))?;
            if let Err(reason) = Entry::parse(version, &Bytes::from(bytes)) {
                tracing::warn!(version, %reason, "what the entry held is read again from the source");
                aside.push(rename_cut(&path, now_ms)?);
            }
        }
        if let Some((version, path)) = last(&folder, ".checkpoint.parquet")?
            && !is_whole_parquet(&path)?
        {
            // Entries are removed only after their checkpoint was synced: they are all there.
            tracing::warn!(version, "the checkpoint is cut, the entries are read instead");
            aside.push(rename_cut(&path, now_ms)?);
            let hint = folder.join("_last_checkpoint");
            remove_if_there(&hint)?;
        }
        if !aside.is_empty() {
            sync_folder(&folder)?;
        }
        Ok(aside)
    })
    .await
}

/// No reader takes a name with this ending for a part of the log.
fn rename_cut(path: &Path, now_ms: i64) -> Result<PathBuf, LakeError> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".cut.{now_ms}"));
    let aside = PathBuf::from(name);
    fs::rename(path, &aside).map_err(|e| LakeError::io("rename", path, e))?;
    tracing::warn!(
        kept_as = %aside.display(),
        "the last file of the log was cut, as after a power loss, and is set aside"
    );
    Ok(aside)
}

/// Whether the file begins and ends as a Parquet file does.
fn is_whole_parquet(path: &Path) -> Result<bool, LakeError> {
    let bytes = fs::read(path).map_err(|e| LakeError::io("read", path, e))?;
    Ok(bytes.len() > 12 && bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"))
}

/// The file with the greatest version among those named `<20 digits><ending>`.
fn last(folder: &Path, ending: &str) -> Result<Option<(u64, PathBuf)>, LakeError> {
    let list = fs::read_dir(folder).map_err(|e| LakeError::io("list", folder, e))?;
    let mut last = None;
    for item in list {
        let path = item.map_err(|e| LakeError::io("list", folder, e))?.path();
        let version = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_suffix(ending))
            .filter(|digits| digits.len() == 20)
            .and_then(|digits| digits.parse::<u64>().ok());
        if let Some(version) = version {
            last = last.max(Some((version, path)));
        }
    }
    Ok(last)
}

/// Uploads into a table's folders that their process did not live to finish: the local store names
/// them `<file>#<number>` until they are whole, and hides them from its lists. Those written before
/// `before_ms` are removed, unless `dry_run`; returns their names and sizes.
///
/// # Errors
/// [`LakeError::Io`].
pub(crate) async fn remove_unfinished(
    table: PathBuf,
    before_ms: i64,
    dry_run: bool,
) -> Result<Vec<(String, u64)>, LakeError> {
    blocking(move || {
        let (mut found, mut folders) = (Vec::new(), vec![table.clone()]);
        while let Some(folder) = folders.pop() {
            let list = fs::read_dir(&folder).map_err(|e| LakeError::io("list", &folder, e))?;
            for item in list {
                let item = item.map_err(|e| LakeError::io("list", &folder, e))?;
                // What is gone by now was finished just now.
                let Ok(meta) = item.metadata() else { continue };
                let path = item.path();
                if meta.is_dir() {
                    folders.push(path);
                } else if is_unfinished(&path) && written_ms(&meta) < before_ms {
                    if !dry_run {
                        remove_if_there(&path)?;
                    }
                    let name = path.strip_prefix(&table).unwrap_or(&path);
                    found.push((name.display().to_string(), meta.len()));
                }
            }
        }
        Ok(found)
    })
    .await
}

/// Whatever else lies here is not ours to remove.
fn is_unfinished(path: &Path) -> bool {
    let name = path.file_name().and_then(|it| it.to_str());
    name.and_then(|it| it.rsplit_once('#'))
        .is_some_and(|(whole, number)| {
            let is_ours = whole.ends_with(".parquet") || whole.ends_with(".json");
            is_ours && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
        })
}

/// What has no time is not old.
fn written_ms(meta: &fs::Metadata) -> i64 {
    meta.modified()
        .map_or(i64::MAX, |at| DateTime::<Utc>::from(at).timestamp_millis())
}

fn remove_if_there(path: &Path) -> Result<(), LakeError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(LakeError::io("remove", path, e)),
        _ => Ok(()),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LakeError> + Send + 'static,
) -> Result<T, LakeError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| {
        Err(LakeError::io(
            "finish work on",
            PathBuf::new(),
            std::io::Error::other(e),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_short_or_missing_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("date=2026-09-01")).unwrap();
        fs::write(dir.path().join("date=2026-09-01/a"), "12345").unwrap();
        let sync = |name: &str, size| {
            sync_files(
                dir.path().into(),
                vec![(format!("date=2026-09-01/{name}"), size)],
            )
        };
        sync("a", 5).await.unwrap();
        let cut = sync("a", 6).await.unwrap_err();
        assert!(
            matches!(
                cut,
                LakeError::FileCut {
                    found: 5,
                    expected: 6,
                    ..
                }
            ),
            "{cut}"
        );
        let missing = sync("b", 5).await.unwrap_err();
        assert!(
            matches!(missing, LakeError::Io { what: "open", .. }),
            "{missing}"
        );
    }

    #[tokio::test]
    async fn a_table_without_a_log_has_nothing_to_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            set_aside_cut(dir.path().into(), 1)
                .await
                .unwrap()
                .is_empty()
        );
    }
}
