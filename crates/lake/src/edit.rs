//! Live files, and what is to become of their rows → the files that hold other rows now, in one
//! commit.
//!
//! A file keeps its place: its date, its order, how far compaction has brought it. Files without a
//! row to change are only looked at, by few of their columns. Others may write meanwhile: what they
//! removed or added in the range is planned again, and what was done already is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use arrow::array::RecordBatch;
use deltalake::kernel::Add;
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use serde_json::Value;

use crate::compact::{Layout, Level};
use crate::error::{Cause, LakeError};
use crate::file::{DataFile, date_of};
use crate::maintain::data_files;
use crate::point::Point;
use crate::replay::{self, Files};
use crate::settle::Range;
use crate::shape::{Output, Shape};
use crate::writer::{Committed, Replaced, Replacement, Writer};

/// Tries before the others' commits have won.
const TRIES_MAX: usize = 20;

/// What is to become of rows.
pub trait EditRows: Send + Sync {
    /// Whether a file may have such rows, by what the log says of it; where in doubt, yes.
    fn may_concern(&self, file: &Add) -> bool {
        let _ = file;
        true
    }

    /// The columns by which [`EditRows::concerns`] tells.
    fn looks_at(&self) -> &[&'static str];

    /// Whether one of these rows may be changed.
    ///
    /// # Errors
    /// A column of another type.
    fn concerns(&self, rows: &RecordBatch) -> Result<bool, Cause>;

    /// The rows as they are to be, in their order, and what that changes.
    ///
    /// # Errors
    /// A column of another type.
    fn edit(&self, rows: &RecordBatch) -> Result<(RecordBatch, Change), Cause>;
}

/// What an edit changed. Money is in 10^-12 dollars, of the rows that were changed, where it is
/// known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Rows that are there no more.
    pub removed: u64,
    /// Rows that say something else.
    pub changed: u64,
    /// `cost_confirmed` before, and after.
    pub confirmed: (i128, i128),
    /// `cost_ceiling` before, and after.
    pub ceiling: (i128, i128),
    /// Changed rows without a ceiling before, and after.
    pub unpriced: (u64, u64),
}

impl AddAssign for Change {
    fn add_assign(&mut self, other: Self) {
        self.removed += other.removed;
        self.changed += other.changed;
        self.confirmed.0 += other.confirmed.0;
        self.confirmed.1 += other.confirmed.1;
        self.ceiling.0 += other.ceiling.0;
        self.ceiling.1 += other.ceiling.1;
        self.unpriced.0 += other.unpriced.0;
        self.unpriced.1 += other.unpriced.1;
    }
}

/// Which files are edited, and how that is committed.
#[derive(Clone, Debug)]
pub struct EditPlan {
    /// Delta's name for what is done: `DELETE`, `UPDATE`.
    pub operation: &'static str,
    /// How new files are laid out.
    pub layout: Layout,
    /// Rows that others add meanwhile are edited too, before the commit.
    pub meets_new_rows: bool,
    /// No more files in one commit than these.
    pub files_max: usize,
    /// Nothing is written or committed.
    pub dry_run: bool,
}

/// What an edit did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edited {
    /// The commit; `None` where there was nothing to change.
    pub commit: Option<Committed>,
    /// Files that went.
    pub files_in: usize,
    /// Files that came.
    pub files_out: usize,
    /// What it changed.
    pub change: Change,
    /// There is more to do than one commit may hold.
    pub more: bool,
}

/// A file that was edited, not yet committed.
struct Done {
    add: Add,
    new: Option<DataFile>,
    change: Change,
}

/// What was done so far.
#[derive(Default)]
struct Work {
    edited: BTreeMap<String, Done>,
    /// Files without a row to change.
    clean: BTreeSet<String>,
}

/// Edits the live files in one commit, which keeps what `record` says of it.
///
/// # Errors
/// [`LakeError::Data`] for a file that can't be read; [`LakeError::Overtaken`] where others went on
/// changing the same rows; those of a commit and the store. Nothing was changed then.
pub async fn edit(
    writer: &mut Writer,
    plan: &EditPlan,
    rows: &dyn EditRows,
    record: &(dyn Fn(&Edited) -> Value + Sync),
) -> Result<Edited, LakeError> {
    let began_ms = writer.now_ms();
    let mut work = Work::default();
    for _ in 0..TRIES_MAX {
        let version = writer.catch_up().await?;
        let files = replay::load_files(writer.table(), version).await?;
        let more = work.go_on(writer, plan, rows, &files).await?;
        let mut edited = work.sum();
        edited.more = more;
        if edited.files_in == 0 || plan.dry_run {
            return Ok(edited);
        }
        Point::Edited.pass();
        let range = match plan.meets_new_rows {
            true => Range::Everything,
            false => Range::Nothing,
        };
        let done = work.edited.values();
        let replacement = Replacement {
            operation: plan.operation,
            began_ms,
            planned_at: version,
            removes: done.clone().map(|it| it.add.clone()).collect(),
            adds: done.filter_map(|it| it.new.clone()).collect(),
            data_change: true,
            range,
            record: record(&edited),
            ..Replacement::default()
        };
        if let Replaced::Committed(commit) = writer.replace(&replacement).await? {
            edited.commit = Some(commit);
            return Ok(edited);
        }
    }
    let new = work.edited.into_values().filter_map(|it| it.new);
    drop_files(writer, new).await?;
    Err(LakeError::Overtaken { tries: TRIES_MAX })
}

impl Work {
    /// Forgets what others removed meanwhile, and edits what is not yet; whether there is more.
    async fn go_on(
        &mut self,
        writer: &Writer,
        plan: &EditPlan,
        rows: &dyn EditRows,
        files: &Files,
    ) -> Result<bool, LakeError> {
        let gone = self
            .edited
            .extract_if(.., |path, _| !files.live.contains_key(path));
        let orphans: Vec<_> = gone.filter_map(|(_, done)| done.new).collect();
        drop_files(writer, orphans).await?;
        let shape = Shape::of(writer, &plan.layout)
            .map_err(|e| LakeError::data("read the table's columns", e))?;
        for (path, add) in &files.live {
            let known = self.edited.contains_key(path) || self.clean.contains(path);
            if known || !rows.may_concern(add) {
                continue;
            }
            if self.edited.len() >= plan.files_max {
                return Ok(true);
            }
            let failed = |e| LakeError::data(format!("rewrite {path}"), e);
            match edit_file(&shape, add, rows, plan.dry_run)
                .await
                .map_err(failed)?
            {
                Some(done) if done.change == Change::default() => {
                    drop_files(writer, done.new).await?;
                    self.clean.insert(path.clone());
                }
                Some(done) => drop(self.edited.insert(path.clone(), done)),
                None => drop(self.clean.insert(path.clone())),
            }
        }
        Ok(false)
    }

    fn sum(&self) -> Edited {
        let mut edited = Edited {
            files_in: self.edited.len(),
            files_out: self.edited.values().filter(|it| it.new.is_some()).count(),
            ..Edited::default()
        };
        for done in self.edited.values() {
            edited.change += done.change;
        }
        edited
    }
}

/// Rewrites a file, if one of its rows may be concerned.
async fn edit_file(
    shape: &Shape,
    add: &Add,
    rows: &dyn EditRows,
    dry_run: bool,
) -> Result<Option<Done>, Cause> {
    if !file_concerns(shape, &add.path, rows).await? {
        return Ok(None);
    }
    let mut out = None;
    let (mut rows_in, mut rows_out, mut change) = (0, 0, Change::default());
    let mut batches = shape.open(add).await?;
    while let Some(batch) = batches.try_next().await? {
        let (edited, what) = rows.edit(&shape.fit(&batch)?)?;
        rows_in += batch.num_rows() as u64;
        rows_out += edited.num_rows() as u64;
        change += what;
        if edited.num_rows() > 0 && !dry_run {
            let out = match &mut out {
                Some(out) => out,
                none => none.insert(Output::begin(shape, date_of(add), Level::of(add))?),
            };
            out.write(&edited).await?;
        }
    }
    if rows_out + change.removed != rows_in {
        let removed = change.removed;
        return Err(format!(
            "{rows_in} rows went in, {removed} were taken and {rows_out} came out"
        )
        .into());
    }
    let new = match out {
        Some(out) => Some(out.end().await?),
        None => None,
    };
    Ok(Some(Done {
        add: add.clone(),
        new,
        change,
    }))
}

async fn file_concerns(shape: &Shape, path: &str, rows: &dyn EditRows) -> Result<bool, Cause> {
    let mut batches = shape.open_columns(path, rows.looks_at()).await?;
    while let Some(batch) = batches.next().await {
        if rows.concerns(&batch?)? {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn drop_files(
    writer: &Writer,
    files: impl IntoIterator<Item = DataFile>,
) -> Result<(), LakeError> {
    let store = writer.table().store();
    for file in files {
        let deleted = store.delete(&Path::from(file.path.as_str())).await;
        deleted.map_err(|e| LakeError::store(format!("remove {}", file.path), e))?;
    }
    Ok(())
}

/// What [`sweep`] removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Files.
    pub files: usize,
    /// Their size together.
    pub bytes: u64,
    /// Older files that no reader can read: writers left them unfinished, and
    /// [`vacuum`](crate::maintain::vacuum) will remove them.
    pub unread: usize,
}

/// Removes every file that is not live and has a row which this would change: what an edit
/// replaced, what compaction replaced before it, and what was never committed. No live file may have
/// such rows any more, nor any that a writer could still commit. Older versions of the table can't
/// be read afterwards. What was begun since `since_ms` has no such rows, so that it need not be
/// readable yet.
///
/// # Errors
/// The store's. What was removed is gone; called again it goes on.
pub async fn sweep(
    writer: &mut Writer,
    layout: &Layout,
    rows: &dyn EditRows,
    since_ms: i64,
) -> Result<Swept, LakeError> {
    let listed = data_files(writer.table()).await?;
    // After the list: a file that was committed since is live.
    let version = writer.catch_up().await?;
    let live = replay::load_files(writer.table(), version).await?.live;
    let shape =
        Shape::of(writer, layout).map_err(|e| LakeError::data("read the table's columns", e))?;
    let store = writer.table().store();
    let mut swept = Swept::default();
    for meta in listed {
        let path = meta.location.to_string();
        if live.contains_key(&path) {
            continue;
        }
        match file_concerns(&shape, &path, rows).await {
            Ok(false) => {}
            Ok(true) => {
                let deleted = store.delete(&meta.location).await;
                deleted.map_err(|e| LakeError::store(format!("remove {path}"), e))?;
                Point::VacuumRemoved.pass();
                swept.files += 1;
                swept.bytes += meta.size;
            }
            Err(_) if meta.last_modified.timestamp_millis() >= since_ms => {}
            Err(_) => swept.unread += 1,
        }
    }
    Ok(swept)
}

/// Takes the files of every date before `date` out of the table, and those without a date that
/// were committed before `undated_ms`; returns their paths. They can be read at older versions until
/// [`vacuum`](crate::maintain::vacuum) removes them.
///
/// # Errors
/// As [`edit`].
pub async fn expire(
    writer: &mut Writer,
    date: &str,
    undated_ms: i64,
    dry_run: bool,
) -> Result<Vec<String>, LakeError> {
    for _ in 0..TRIES_MAX {
        let version = writer.catch_up().await?;
        let files = replay::load_files(writer.table(), version).await?;
        let is_old = |add: &Add| match date_of(add) {
            Some(of_file) => of_file < date,
            None => add.modification_time < undated_ms,
        };
        let old: Vec<_> = files.live.into_values().filter(is_old).collect();
        let paths = old.iter().map(|add| add.path.clone()).collect();
        if old.is_empty() || dry_run {
            return Ok(paths);
        }
        let replacement = Replacement {
            operation: "DELETE",
            began_ms: writer.now_ms(),
            planned_at: version,
            removes: old,
            data_change: true,
            ..Replacement::default()
        };
        if let Replaced::Committed(_) = writer.replace(&replacement).await? {
            return Ok(paths);
        }
    }
    Err(LakeError::Overtaken { tries: TRIES_MAX })
}
