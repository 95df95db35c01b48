//! Live files and the time → jobs ([`plan`]) → fewer, sorted files with the same rows.
//!
//! Two kinds of jobs, both bounded in memory. **Sort**: files as flushes left them become files
//! sorted by a column, so many rows at a time. **Merge**: sorted files become one. In the open
//! day flushes are sorted as they come, and the files of an hour are merged once it is over; in a
//! closed day everything small is. A job's commit states no change of data, and is thrown away
//! when another removed one of its files meanwhile.

mod rewrite;

use std::collections::BTreeMap;

use deltalake::kernel::Add;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parquet::file::properties::WriterProperties;

use crate::error::LakeError;
use crate::file::date_of;
use crate::point::Point;
use crate::replay::{self, Files};
use crate::writer::{Replaced, Replacement, Writer};

/// The tag of sorted files: how far they have come, see [`Level`].
pub const LEVEL_TAG: &str = "retrytoll.level";

const DAY_MS: i64 = 24 * HOUR_MS;
const HOUR_MS: i64 = 3_600_000;

/// How compaction goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactLimits {
    /// Files from half this size on are not merged again, bytes.
    pub file_bytes: u64,
    /// Flushes of the open day are left alone until there are so many.
    pub open_files_min: usize,
    /// Rows sorted in memory at a time: about 1 KB each, twice.
    pub sort_rows_max: usize,
    /// Files merged at a time: about 3 MB of memory each.
    pub merge_files_max: usize,
    /// Live files of a closed day; above it larger files are merged too.
    pub closed_files_max: u64,
}

impl Default for CompactLimits {
    fn default() -> Self {
        Self {
            file_bytes: 128 << 20,
            open_files_min: 8,
            sort_rows_max: 32_768,
            merge_files_max: 16,
            closed_files_max: 500,
        }
    }
}

/// How far a file has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As a flush left it.
    Flushed,
    /// Sorted, within the open hour.
    Sorted,
    /// Merged with the others of its hour.
    Hour,
    /// Merged with the others of its day.
    Day,
}

impl Level {
    pub(crate) fn of(add: &Add) -> Self {
        let tag = add
            .tags
            .as_ref()
            .and_then(|tags| tags.get(LEVEL_TAG)?.as_deref());
        match tag {
            Some("sorted") => Self::Sorted,
            Some("hour") => Self::Hour,
            Some("day") => Self::Day,
            _ => Self::Flushed,
        }
    }

    pub(crate) fn tag(self) -> Option<&'static str> {
        match self {
            Self::Flushed => None,
            Self::Sorted => Some("sorted"),
            Self::Hour => Some("hour"),
            Self::Day => Some("day"),
        }
    }
}

/// Files of one date to be replaced by files of a level: by sorting for [`Level::Sorted`], else
/// by merging.
#[derive(Clone, Debug)]
pub struct Job {
    /// The partition.
    pub date: Option<String>,
    /// What comes of it.
    pub to: Level,
    /// What goes.
    pub files: Vec<Add>,
}

/// What is to be done at `now_ms`; rows without a date count as a closed day's.
#[must_use]
pub fn plan(files: &Files, now_ms: i64, limits: CompactLimits) -> Vec<Job> {
    let mut by_date: BTreeMap<Option<&str>, Vec<&Add>> = BTreeMap::new();
    for add in files.live.values() {
        by_date.entry(date_of(add)).or_default().push(add);
    }
    let today = chrono::DateTime::from_timestamp_millis(now_ms - now_ms.rem_euclid(DAY_MS))
        .map(|day| day.format("%Y-%m-%d").to_string());
    let mut jobs = Vec::new();
    for (date, mut adds) in by_date {
        adds.sort_by(|a, b| (a.modification_time, &a.path).cmp(&(b.modification_time, &b.path)));
        let open = date.is_some() && date >= today.as_deref();
        let found = if open {
            open_day(&adds, now_ms, limits)
        } else {
            closed_day(&adds, limits)
        };
        jobs.extend(found.into_iter().map(|(to, files)| Job {
            date: date.map(str::to_owned),
            to,
            files: files.into_iter().cloned().collect(),
        }));
    }
    jobs
}

type Found<'a> = Vec<(Level, Vec<&'a Add>)>;

fn open_day<'a>(adds: &[&'a Add], now_ms: i64, limits: CompactLimits) -> Found<'a> {
    let flushed = at_level(adds, Level::Flushed);
    let mut found = Vec::new();
    if flushed.len() >= limits.open_files_min {
        found.push((Level::Sorted, flushed));
    }
    let mut hours: BTreeMap<i64, Vec<&Add>> = BTreeMap::new();
    for add in at_level(adds, Level::Sorted) {
        hours
            .entry(add.modification_time.div_euclid(HOUR_MS))
            .or_default()
            .push(add);
    }
    let this_hour = now_ms.div_euclid(HOUR_MS);
    for (_, files) in hours.into_iter().filter(|(hour, _)| *hour < this_hour) {
        found.extend(merges(&files, Level::Hour, limits.file_bytes, limits));
    }
    found
}

fn closed_day<'a>(adds: &[&'a Add], limits: CompactLimits) -> Found<'a> {
    let flushed = at_level(adds, Level::Flushed);
    if !flushed.is_empty() {
        // The next run merges what comes of it.
        return vec![(Level::Sorted, flushed)];
    }
    let bytes: u64 = adds.iter().map(|a| bytes(a)).sum();
    // So large that, each at least half full, no more than the allowed number remain.
    let file_bytes = limits
        .file_bytes
        .max(2 * bytes / limits.closed_files_max.max(1));
    merges(adds, Level::Day, file_bytes, limits)
}

/// Small files in groups of at most `file_bytes`; a single file needs no merge.
fn merges<'a>(adds: &[&'a Add], to: Level, file_bytes: u64, limits: CompactLimits) -> Found<'a> {
    let mut groups: Vec<(u64, Vec<&Add>)> = Vec::new();
    for &add in adds.iter().filter(|a| bytes(a) < file_bytes / 2) {
        match groups.last_mut() {
            Some((sum, files))
                if *sum + bytes(add) <= file_bytes && files.len() < limits.merge_files_max =>
            {
                *sum += bytes(add);
                files.push(add);
            }
            _ => groups.push((bytes(add), vec![add])),
        }
    }
    groups
        .into_iter()
        .filter(|(_, files)| files.len() > 1)
        .map(|(_, files)| (to, files))
        .collect()
}

fn at_level<'a>(adds: &[&'a Add], level: Level) -> Vec<&'a Add> {
    adds.iter()
        .copied()
        .filter(|add| Level::of(add) == level)
        .collect()
}

/// A file's size.
pub(crate) fn bytes(add: &Add) -> u64 {
    u64::try_from(add.size).unwrap_or(0)
}

/// What [`compact`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Jobs in the log.
    pub jobs: usize,
    /// Jobs thrown away.
    pub stale: usize,
    /// Files that went.
    pub files_in: usize,
    /// Files that came.
    pub files_out: usize,
}

/// How the new files are laid out.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The text column that files are sorted by, if they are; it gets a bloom filter and
    /// statistics.
    pub sort_by: Option<String>,
    /// How the other columns are written.
    pub properties: WriterProperties,
}

/// Plans, and carries out every job, each with a commit of its own. Called again at once it finds
/// what the first call left, if anything.
///
/// # Errors
/// [`LakeError::NotLeader`], [`LakeError::Data`] for a file that cannot be read, those of a
/// commit and the store. Jobs done before stay done.
pub async fn compact(
    writer: &mut Writer,
    layout: &Layout,
    now_ms: i64,
    limits: CompactLimits,
) -> Result<Compacted, LakeError> {
    if !writer.is_leader() {
        return Err(LakeError::NotLeader);
    }
    let version = writer.confirm().await?.version;
    let files = replay::load_files(writer.table(), version).await?;
    let mut done = Compacted::default();
    for job in plan(&files, now_ms, limits) {
        let began_ms = writer.now_ms();
        let adds = rewrite::rewrite(writer, &job, layout, limits).await?;
        let paths: Vec<_> = adds.iter().map(|f| Path::from(f.path.as_str())).collect();
        let (files_in, files_out) = (job.files.len(), adds.len());
        let replacement = Replacement {
            operation: "OPTIMIZE",
            began_ms,
            planned_at: files.version,
            removes: job.files,
            adds,
            ..Replacement::default()
        };
        Point::Compacted.pass();
        match writer.replace(&replacement).await? {
            Replaced::Committed(_) => {
                done.jobs += 1;
                done.files_in += files_in;
                done.files_out += files_out;
            }
            Replaced::PlanAgain(why) => {
                tracing::info!(
                    ?why,
                    date = job.date,
                    "a compaction came too late, thrown away"
                );
                done.stale += 1;
                for path in paths {
                    // No commit names it; what stays is vacuum's.
                    let _ = writer.table().store().delete(&path).await;
                }
            }
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    // 2026-09-02T10:30:00Z
    const NOW_MS: i64 = 1_788_345_000_000;
    const LIMITS: CompactLimits = CompactLimits {
        file_bytes: 100,
        open_files_min: 3,
        sort_rows_max: 1000,
        merge_files_max: 4,
        closed_files_max: 5,
    };

    struct Live(Files);

    impl Live {
        fn with(mut self, date: &str, level: Level, size: i64, at_ms: i64, count: usize) -> Self {
            for _ in 0..count {
                let path = format!("f{:03}", self.0.live.len());
                let date = (!date.is_empty()).then(|| date.to_owned());
                let tag = level
                    .tag()
                    .map(|t| (LEVEL_TAG.to_owned(), Some(t.to_owned())));
                let add = Add {
                    path: path.clone(),
                    partition_values: [("date".to_owned(), date)].into(),
                    size,
                    modification_time: at_ms,
                    tags: Some(tag.into_iter().collect()),
                    ..Add::default()
                };
                self.0.live.insert(path, add);
            }
            self
        }
    }

    fn live() -> Live {
        Live(Files::default())
    }

    /// As `date level: path path`, one a job.
    #[track_caller]
    fn check(live: Live, expected: &[&str]) {
        let jobs = plan(&live.0, NOW_MS, LIMITS);
        let found: Vec<_> = jobs
            .iter()
            .map(|job| {
                let paths: Vec<_> = job.files.iter().map(|f| f.path.as_str()).collect();
                let date = job.date.as_deref().unwrap_or("-");
                format!("{date} {:?}: {}", job.to, paths.join(" "))
            })
            .collect();
        assert_eq!(found, expected);
    }

    const TODAY: &str = "2026-09-02";
    const YESTERDAY: &str = "2026-09-01";

    #[test]
    fn flushes_of_the_open_day_wait_until_there_are_enough() {
        check(live().with(TODAY, Level::Flushed, 9, NOW_MS, 2), &[]);
        let three = live().with(TODAY, Level::Flushed, 9, NOW_MS, 3);
        check(three, &["2026-09-02 Sorted: f000 f001 f002"]);
        // A day ahead of us is open too.
        check(live().with("2026-09-03", Level::Flushed, 9, NOW_MS, 2), &[]);
    }

    #[test]
    fn an_hour_is_merged_once_it_is_over() {
        let hour = NOW_MS - 30 * 60_000;
        check(live().with(TODAY, Level::Sorted, 9, hour, 3), &[]);
        let before = live().with(TODAY, Level::Sorted, 9, hour - 1, 3);
        check(before, &["2026-09-02 Hour: f000 f001 f002"]);
        check(live().with(TODAY, Level::Sorted, 9, hour - 1, 1), &[]);
        // What is merged waits for the day's end.
        check(live().with(TODAY, Level::Hour, 9, hour - 1, 9), &[]);
    }

    #[test]
    fn a_closed_day_is_sorted_and_then_merged() {
        let late =
            live()
                .with(YESTERDAY, Level::Day, 9, 1, 2)
                .with(YESTERDAY, Level::Flushed, 9, 2, 1);
        check(late, &["2026-09-01 Sorted: f002"]);
        let sorted =
            live()
                .with(YESTERDAY, Level::Hour, 9, 1, 2)
                .with(YESTERDAY, Level::Day, 9, 2, 3);
        check(sorted, &["2026-09-01 Day: f000 f001 f002 f003"]);
        check(live().with(YESTERDAY, Level::Day, 9, 1, 1), &[]);
        check(
            live().with("", Level::Flushed, 9, 1, 1),
            &["- Sorted: f000"],
        );
    }

    #[test]
    fn a_group_is_bounded_and_full_files_stay() {
        let mixed =
            live()
                .with(YESTERDAY, Level::Day, 50, 1, 1)
                .with(YESTERDAY, Level::Day, 49, 2, 3);
        check(mixed, &["2026-09-01 Day: f001 f002"]);
    }

    #[test]
    fn too_many_full_files_are_merged_into_larger_ones() {
        // 12 × 60 bytes and 5 allowed: files of 288 bytes, merged below 144, four at a time.
        let many = live().with(YESTERDAY, Level::Day, 60, 1, 12);
        let expected = [
            "2026-09-01 Day: f000 f001 f002 f003",
            "2026-09-01 Day: f004 f005 f006 f007",
            "2026-09-01 Day: f008 f009 f010 f011",
        ];
        check(many, &expected);
    }
}
