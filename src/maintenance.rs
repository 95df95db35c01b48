//! The lake's log and files → fewer of both, on a schedule, apart from commits.
//!
//! The leader runs it: the owner of the least (source, partition) that the lake knows; without a
//! topic, `ingest` at its end. What fails is a warning, and due again next time.

pub mod forget;
mod receipt;
pub mod reprice;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::{DateTime, Days, NaiveDate, NaiveTime};
use retrytoll_lake::compact::{CompactLimits, Compacted, Layout, compact, plan};
use retrytoll_lake::edit::expire;
use retrytoll_lake::encode::writer_properties;
use retrytoll_lake::maintain::{self, VacuumLimits, Vacuumed, keep_log, vacuum};
use retrytoll_lake::{Clock, LakeError, Writer, date_of, replay};

use crate::clock::Stopwatch;
use crate::config::Config;
use crate::config::usable::Maintain;
use crate::lake;
use crate::metrics::{FileFacts, Metrics};
use crate::told::Told;

/// In place of a consumer group, in commits of a command.
pub const BY_HAND: &str = "maintain";
/// How often live files are counted where somebody watches, ms.
const COUNT_EVERY_MS: i64 = 60_000;
const DAY_MS: i64 = 86_400_000;
/// How often to look whether something is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Attempts from before a date, which are kept no longer.
#[derive(Debug)]
pub struct Expired {
    /// The first date that is kept.
    pub before: NaiveDate,
    /// Their files.
    pub files: Vec<String>,
}

/// How files of attempts are laid out once they are sorted.
fn layout() -> Layout {
    Layout {
        sort_by: Some("request_id".to_owned()),
        properties: writer_properties(),
    }
}

/// The first date that is kept. The lake's newest date counts where it is before today's: a clock
/// that runs ahead takes nothing away.
fn expires_before(newest: Option<&str>, now_ms: i64, keep: Duration) -> NaiveDate {
    let today = DateTime::from_timestamp_millis(now_ms).unwrap_or_default();
    let newest = newest.and_then(|it| it.parse::<NaiveDate>().ok());
    let last = newest.map_or(today.date_naive(), |it| it.min(today.date_naive()));
    let days = keep.as_secs() / 86_400;
    last.checked_sub_days(Days::new(days))
        .unwrap_or(NaiveDate::MIN)
}

/// When what was done last.
pub struct Maintenance {
    root: PathBuf,
    group: String,
    clock: Clock,
    /// How long a version of the lake can be read, ms.
    kept_ms: i64,
    schedule: Maintain,
    /// How long a query may take.
    grace: Duration,
    writer: Option<Writer>,
    log_ms: i64,
    compacted_ms: i64,
    vacuumed_ms: i64,
    counted_ms: Option<i64>,
    /// What was told of each piece of work.
    told: BTreeMap<&'static str, Told>,
    /// Where it is told what was done, if somebody watches.
    pub metrics: Option<Arc<Metrics>>,
}

impl Maintenance {
    /// Nothing is due at once but what `ingest` asks for.
    pub fn new(root: PathBuf, group: &str, clock: Clock, config: &Config) -> Self {
        let now_ms = clock.now_ms();
        Self {
            root,
            group: group.to_owned(),
            clock,
            kept_ms: i64::from(config.alerts.reproduce_days) * DAY_MS,
            schedule: config.maintain,
            grace: lake::query_time(config),
            writer: None,
            log_ms: now_ms,
            compacted_ms: now_ms,
            vacuumed_ms: now_ms,
            counted_ms: None,
            told: BTreeMap::new(),
            metrics: None,
        }
    }

    /// Runs while `leading` is set, until the runtime ends.
    pub async fn run(mut self, leading: Arc<AtomicBool>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if !leading.load(Ordering::Acquire) {
                self.stand_by();
                continue;
            }
            self.run_due().await;
        }
    }

    fn stand_by(&mut self) {
        self.writer = None;
        self.counted_ms = None;
        if let Some(metrics) = &self.metrics {
            metrics.files.forget();
        }
    }

    async fn run_due(&mut self) {
        let now_ms = self.clock.now_ms();
        if self.clock.since_ms(self.log_ms) >= lake::ms(self.schedule.log_every) {
            self.log_ms = now_ms;
            let watch = Stopwatch::start();
            let done = self.keep_log().await;
            self.ran("log", watch, done);
        }
        if self.clock.since_ms(self.compacted_ms) >= lake::ms(self.schedule.compact_every) {
            self.compacted_ms = now_ms;
            let watch = Stopwatch::start();
            let done = self.compact().await.map(drop);
            self.ran("compact", watch, done);
        }
        if self.clock.since_ms(self.vacuumed_ms) >= lake::ms(self.schedule.vacuum_every) {
            self.vacuumed_ms = now_ms;
            let watch = Stopwatch::start();
            let done = self.vacuum(false).await.map(|removed| {
                let (files, bytes) = (removed.files.len(), removed.bytes);
                tracing::info!(files, bytes, "vacuumed");
            });
            self.ran("vacuum", watch, done);
            let watch = Stopwatch::start();
            let done = self.expire(false).await.map(|expired| {
                let (files, before) = (expired.files.len(), expired.before.to_string());
                if files > 0 {
                    tracing::info!(files, before, "attempts expired");
                }
            });
            self.ran("expire", watch, done);
            let watch = Stopwatch::start();
            let done = forget::finish(&self.root, &self.group, self.grace, &self.clock).await;
            self.ran("forget", watch, done);
        }
        let is_counted = self
            .counted_ms
            .is_some_and(|it| self.clock.since_ms(it) < COUNT_EVERY_MS);
        if self.metrics.is_some() && !is_counted {
            self.counted_ms = Some(now_ms);
            let watch = Stopwatch::start();
            let done = self.count_files().await;
            self.ran("count", watch, done);
        }
    }

    /// Tells how a piece of work went.
    fn ran(&mut self, job: &'static str, watch: Stopwatch, done: anyhow::Result<()>) {
        if let Some(metrics) = &self.metrics {
            metrics.tasks.ran(job, watch.elapsed(), done.is_err());
            if let Some(writer) = &mut self.writer {
                metrics.tasks.met(&writer.take_conflicts());
            }
        }
        let now_ms = self.clock.now_ms();
        let told = self.told.entry(job).or_default();
        let message = format!("maintenance ({job}); it is tried again");
        told.tell(job, &message, done.as_ref().copied(), now_ms);
        if done.is_err() {
            self.writer = None;
        }
    }

    async fn count_files(&self) -> anyhow::Result<()> {
        let table = lake::open_attempts(&self.root, &self.clock).await?;
        let files = replay::load_files(&table, table.check().await?.version).await?;
        if let Some(metrics) = &self.metrics {
            metrics.files.set(FileFacts {
                files: files.live.len() as u64,
                bytes: files.live.values().map(|it| it.size.unsigned_abs()).sum(),
            });
        }
        Ok(())
    }

    /// Checkpoint and log clean-up, where due.
    pub async fn keep_log(&mut self) -> anyhow::Result<()> {
        let table = lake::open_attempts(&self.root, &self.clock).await?;
        let head = table.check().await?.version;
        let kept = keep_log(&table, head, self.clock.now_ms(), self.kept_ms).await?;
        if let Some(version) = kept.checkpoint {
            tracing::info!(version, removed = kept.removed, "checkpoint");
        }
        Ok(())
    }

    /// Checkpoint and log clean-up, at once; returns the version and how many entries went.
    pub async fn checkpoint(&mut self) -> anyhow::Result<(u64, usize)> {
        let table = lake::open_attempts(&self.root, &self.clock).await?;
        let head = table.check().await?.version;
        maintain::checkpoint(&table, head).await?;
        let until_ms = self.clock.now_ms() - self.kept_ms;
        Ok((head, maintain::clean_log(&table, head, until_ms).await?))
    }

    /// Takes what is older than `maintain.keep` out of the table; with `dry_run` it only says which
    /// files. Vacuum removes them, once no readable version needs them.
    pub async fn expire(&mut self, dry_run: bool) -> anyhow::Result<Expired> {
        let table = lake::open_attempts(&self.root, &self.clock).await?;
        let files = replay::load_files(&table, table.check().await?.version).await?;
        let newest = files.live.values().filter_map(date_of).max();
        let before = expires_before(newest, self.clock.now_ms(), self.schedule.keep);
        let mut writer = lake::open_writer(table, &self.group, &self.clock).await?;
        let undated_ms = before.and_time(NaiveTime::MIN).and_utc().timestamp_millis();
        let files = expire(&mut writer, &before.to_string(), undated_ms, dry_run).await?;
        Ok(Expired { before, files })
    }

    /// Removes files that no readable version needs; with `dry_run` it only says which.
    pub async fn vacuum(&mut self, dry_run: bool) -> anyhow::Result<Vacuumed> {
        let now_ms = self.clock.now_ms();
        let limits = VacuumLimits {
            removed_age_ms: self.kept_ms,
            ..VacuumLimits::default()
        };
        Ok(vacuum(self.writer().await?, limits, now_ms, dry_run).await?)
    }

    /// Merges small files, where there are enough of them; otherwise makes no commit.
    pub async fn compact(&mut self) -> anyhow::Result<Compacted> {
        let now_ms = self.clock.now_ms();
        let limits = CompactLimits::default();
        let table = lake::open_attempts(&self.root, &self.clock).await?;
        let files = replay::load_files(&table, table.check().await?.version).await?;
        if plan(&files, now_ms, limits).is_empty() {
            return Ok(Compacted::default());
        }
        let writer = self.writer().await?;
        let done = compact(writer, &layout(), now_ms, limits).await?;
        tracing::info!(
            files_in = done.files_in,
            files_out = done.files_out,
            "compacted"
        );
        Ok(done)
    }

    /// A writer of our own, in the leader's place.
    async fn writer(&mut self) -> anyhow::Result<&mut Writer> {
        if self
            .writer
            .as_ref()
            .is_none_or(|writer| !writer.is_leader())
        {
            let table = lake::open_attempts(&self.root, &self.clock).await?;
            let mut writer = lake::open_writer(table, &self.group, &self.clock).await?;
            writer.claim_leader().await?;
            self.writer = Some(writer);
        }
        self.writer
            .as_mut()
            .ok_or_else(|| LakeError::NotLeader.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_runs_ahead_takes_nothing_away() {
        // 2026-11-30T12:00:00Z.
        let now_ms = 1_796_040_000_000;
        let keep = Duration::from_secs(10 * 86_400 + 3_600);
        let before =
            |newest: Option<&str>, now_ms| expires_before(newest, now_ms, keep).to_string();
        assert_eq!(before(Some("2026-11-30"), now_ms), "2026-11-20");
        assert_eq!(before(None, now_ms), "2026-11-20");
        let year_ms = 365 * 86_400_000;
        assert_eq!(before(Some("2026-11-30"), now_ms + year_ms), "2026-11-20");
        // An event that says it is from next year.
        assert_eq!(before(Some("2027-11-30"), now_ms), "2026-11-20");
    }
}
