//! Live files, and what is to become of their rows → the files that hold other rows now, in one
//! commit or several.
//!
//! A file keeps its place: its date, its order, how far compaction has brought it. Files without a
//! row to change are only looked at, once, by few of their columns. Others may write meanwhile: what
//! they removed or added in the range is planned again, and what was done already is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use arrow::array::RecordBatch;
use deltalake::kernel::Add;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt};
use serde_json::Value;

use crate::compact::{Layout, Level};
use crate::error::{Cause, LakeError};
use crate::file::{DataFile, date_of};
use crate::point::Point;
use crate::replay::{self, Files};
use crate::settle::Range;
use crate::shape::{Output, Shape};
use crate::writer::{Committed, FLUSH_AGE_MS_MAX, Replaced, Replacement, Writer};

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
    /// No more files in one commit than these; `usize::MAX` where all has to be one commit.
    pub files_max: usize,
    /// Nothing is written or committed.
    pub dry_run: bool,
}

/// What an edit did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edited {
    /// The last commit; `None` where there was nothing to change.
    pub commit: Option<Committed>,
    /// Files that went.
    pub files_in: usize,
    /// Files that came.
    pub files_out: usize,
    /// What it changed.
    pub change: Change,
}

impl AddAssign for Edited {
    fn add_assign(&mut self, other: Self) {
        self.commit = other.commit.or(self.commit.take());
        self.files_in += other.files_in;
        self.files_out += other.files_out;
        self.change += other.change;
    }
}

/// A file that was edited, not yet committed.
struct Done {
    /// When that was begun, ms.
    began_ms: i64,
    add: Add,
    new: Option<DataFile>,
    change: Change,
}

/// What was done since the last commit.
#[derive(Default)]
struct Work {
    edited: BTreeMap<String, Done>,
    /// Files without a row to change, since the first commit.
    clean: BTreeSet<String>,
}

/// How far a look at the live files came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    /// To the end.
    Through,
    /// As far as one commit goes.
    Full,
    /// To a file that others replaced, and removed.
    Overtaken,
}

/// Edits the live files. Each commit keeps what `record` says of it.
///
/// # Errors
/// [`LakeError::Data`] for a file that can't be read; [`LakeError::Overtaken`] where others went on
/// changing the same rows; [`LakeError::EditTooLong`] where all has to be one commit; those of a commit
/// and the store. What was committed before stays.
pub async fn edit(
    writer: &mut Writer,
    plan: &EditPlan,
    rows: &dyn EditRows,
    record: &(dyn Fn(&Edited) -> Value + Sync),
) -> Result<Edited, LakeError> {
    let (mut work, mut all, mut tries) = (Work::default(), Edited::default(), 0);
    while tries < TRIES_MAX {
        let (version, came) = match work.plan(writer, plan, rows).await {
            Ok(planned) => planned,
            Err(error) => {
                work.throw_away(writer).await;
                return Err(error);
            }
        };
        if came == Came::Overtaken {
            tries += 1;
            continue;
        }
        let mut edited = work.sum();
        if plan.dry_run || (edited.files_in == 0 && came == Came::Through) {
            all += edited;
            return Ok(all);
        }
        Point::Edited.pass();
        let replacement = work.replacement(writer, plan, version, record(&edited));
        match writer.replace(&replacement).await {
            Ok(Replaced::Committed(commit)) => {
                edited.commit = Some(commit);
                all += edited;
                if came == Came::Through {
                    return Ok(all);
                }
                work.edited.clear();
                tries = 0;
            }
            Ok(Replaced::PlanAgain(_)) => tries += 1,
            // It had rows that another takes out, and the file that it came of is gone, too.
            Err(LakeError::Io { .. }) if work.forget_swept(writer).await => tries += 1,
            Err(error) => return Err(error),
        }
    }
    work.throw_away(writer).await;
    Err(LakeError::Overtaken { tries })
}

impl Work {
    /// Edits what is to be edited at the head; that version, and how far it came.
    async fn plan(
        &mut self,
        writer: &mut Writer,
        plan: &EditPlan,
        rows: &dyn EditRows,
    ) -> Result<(u64, Came), LakeError> {
        let files = files_at_head(writer).await?;
        let came = self.go_on(writer, plan, rows, &files).await?;
        Ok((files.version, came))
    }

    /// Forgets what others removed meanwhile, and edits what is not yet.
    async fn go_on(
        &mut self,
        writer: &mut Writer,
        plan: &EditPlan,
        rows: &dyn EditRows,
        files: &Files,
    ) -> Result<Came, LakeError> {
        let gone = self
            .edited
            .extract_if(.., |path, _| !files.live.contains_key(path));
        let orphans: Vec<_> = gone.filter_map(|(_, done)| done.new).collect();
        drop_files(writer, orphans).await;
        let shape = Shape::of(writer, &plan.layout)
            .map_err(|e| LakeError::data("read the table's columns", e))?;
        for (path, add) in &files.live {
            let known = self.edited.contains_key(path) || self.clean.contains(path);
            if known || !rows.may_concern(add) {
                continue;
            }
            if self.is_full(writer.now_ms(), plan)? {
                return Ok(Came::Full);
            }
            match edit_file(&shape, add, rows, writer.now_ms(), plan.dry_run).await {
                Ok(Some(done)) if done.change == Change::default() => {
                    drop_files(writer, done.new).await;
                    self.clean.insert(path.clone());
                }
                Ok(Some(done)) => drop(self.edited.insert(path.clone(), done)),
                Ok(None) => drop(self.clean.insert(path.clone())),
                Err(_) if !is_live(writer, path).await? => return Ok(Came::Overtaken),
                Err(e) => return Err(LakeError::data(format!("rewrite {path}"), e)),
            }
        }
        Ok(Came::Through)
    }

    /// Whether what was done is to be committed before more is: half of a flush's greatest age is left
    /// for that.
    fn is_full(&self, now_ms: i64, plan: &EditPlan) -> Result<bool, LakeError> {
        let age_ms = self.began_ms().map_or(0, |began_ms| now_ms - began_ms);
        if plan.files_max < usize::MAX {
            return Ok(self.edited.len() >= plan.files_max || age_ms > FLUSH_AGE_MS_MAX / 2);
        }
        match age_ms > FLUSH_AGE_MS_MAX && !plan.dry_run {
            true => Err(LakeError::EditTooLong {
                limit_ms: FLUSH_AGE_MS_MAX,
            }),
            false => Ok(false),
        }
    }

    /// When the first file of the next commit was begun, ms.
    fn began_ms(&self) -> Option<i64> {
        self.edited.values().map(|it| it.began_ms).min()
    }

    fn replacement(
        &self,
        writer: &Writer,
        plan: &EditPlan,
        version: u64,
        record: Value,
    ) -> Replacement {
        let done = self.edited.values();
        Replacement {
            operation: plan.operation,
            began_ms: self.began_ms().unwrap_or_else(|| writer.now_ms()),
            planned_at: version,
            removes: done.clone().map(|it| it.add.clone()).collect(),
            adds: done.filter_map(|it| it.new.clone()).collect(),
            data_change: true,
            range: match plan.meets_new_rows {
                true => Range::Everything,
                false => Range::Nothing,
            },
            record,
            ..Replacement::default()
        }
    }

    /// Drops what was done to files whose new ones are not there any more; whether there is one.
    async fn forget_swept(&mut self, writer: &Writer) -> bool {
        let store = writer.table().store();
        let before = self.edited.len();
        for (path, done) in std::mem::take(&mut self.edited) {
            let new = done.new.as_ref().map(|it| Path::from(it.path.as_str()));
            let is_swept = match new {
                Some(new) => is_gone(&store.head(&new).await),
                None => false,
            };
            if !is_swept {
                self.edited.insert(path, done);
            }
        }
        self.edited.len() < before
    }

    /// Removes new files of which none is in a commit, nor in one that may still arrive.
    async fn throw_away(self, writer: &Writer) {
        drop_files(writer, self.edited.into_values().filter_map(|it| it.new)).await;
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
    began_ms: i64,
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
        began_ms,
        add: add.clone(),
        new,
        change,
    }))
}

pub(crate) async fn file_concerns(
    shape: &Shape,
    path: &str,
    rows: &dyn EditRows,
) -> Result<bool, Cause> {
    let mut batches = shape.open_columns(path, rows.looks_at()).await?;
    while let Some(batch) = batches.next().await {
        if rows.concerns(&batch?)? {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn is_live(writer: &mut Writer, path: &str) -> Result<bool, LakeError> {
    Ok(files_at_head(writer).await?.live.contains_key(path))
}

/// The table's files at the head, which is the base now.
pub(crate) async fn files_at_head(writer: &mut Writer) -> Result<Files, LakeError> {
    let version = writer.catch_up().await?;
    replay::load_files(writer.table(), version).await
}

/// Removes files that are in no commit. What can't be removed now, vacuum will.
async fn drop_files(writer: &Writer, files: impl IntoIterator<Item = DataFile>) {
    let store = writer.table().store();
    for file in files {
        if let Err(error) = store.delete(&Path::from(file.path.as_str())).await {
            tracing::debug!(file = file.path, %error, "left to vacuum");
        }
    }
}

/// Whether a look at a file says that it is not there.
pub(crate) fn is_gone<T>(found: &Result<T, StoreError>) -> bool {
    matches!(found, Err(StoreError::NotFound { .. }))
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
        let files = files_at_head(writer).await?;
        let version = files.version;
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
