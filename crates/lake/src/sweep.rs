//! Every file with rows that are to be gone, live ones aside → no such file.

use object_store::{Error as StoreError, ObjectStoreExt};

use crate::compact::Layout;
use crate::durable::remove_unfinished;
#[cfg(doc)]
use crate::edit::edit;
use crate::edit::{EditRows, file_concerns, files_at_head, is_gone};
use crate::error::{LakeError, store_error};
use crate::maintain::data_files;
use crate::point::Point;
use crate::shape::Shape;
use crate::writer::Writer;

/// What [`sweep`] removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Files.
    pub files: usize,
    /// Their size together.
    pub bytes: u64,
    /// Files with such rows that were replaced too lately: they are to be swept later.
    pub later: usize,
    /// Files that are not finished: under way, or left so until
    /// [`vacuum`](crate::maintain::vacuum) removes them.
    pub unread: usize,
}

/// Removes every file that is not live and has a row which this would change: what an edit
/// replaced, what compaction replaced before it, and what was never committed; but those that were
/// replaced since `until_ms`, as queries may read them. No live file may have such rows any more, nor
/// any that a writer could still commit. Older versions of the table can't be read afterwards.
///
/// # Errors
/// The store's. What was removed is gone; called again it goes on.
pub async fn sweep(
    writer: &mut Writer,
    layout: &Layout,
    rows: &dyn EditRows,
    until_ms: i64,
) -> Result<Swept, LakeError> {
    let listed = data_files(writer.table()).await?;
    // After the list: a file that was committed since is live.
    let files = files_at_head(writer).await?;
    let shape =
        Shape::of(writer, layout).map_err(|e| LakeError::data("read the table's columns", e))?;
    let store = writer.table().store();
    let mut swept = Swept::default();
    for meta in listed {
        let path = meta.location.to_string();
        if files.live.contains_key(&path) {
            continue;
        }
        match file_concerns(&shape, &path, rows).await {
            Ok(false) => {}
            Ok(true) if files.removed.get(&path).is_some_and(|at| *at >= until_ms) => {
                swept.later += 1;
            }
            Ok(true) => match store.delete(&meta.location).await {
                Ok(()) => {
                    Point::VacuumRemoved.pass();
                    swept.files += 1;
                    swept.bytes += meta.size;
                }
                // Another sweeps, too.
                Err(StoreError::NotFound { .. }) => {}
                Err(e) => return Err(LakeError::store(format!("remove {path}"), e)),
            },
            Err(_) if is_gone(&store.head(&meta.location).await) => {}
            Err(e) if store_error(e.as_ref()).is_some() => {
                return Err(LakeError::data(format!("read {path}"), e));
            }
            Err(_) => swept.unread += 1,
        }
    }
    if let Some(local) = writer.table().local() {
        let unfinished = remove_unfinished(local.to_path_buf(), i64::MAX, true).await?;
        swept.unread += unfinished.len();
    }
    Ok(swept)
}
