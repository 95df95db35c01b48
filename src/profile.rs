//! The completeness mark → the days that have no profile yet → their rows, a commit for each.
//!
//! A *profile* is what attempts of a kind usually use, for a day, made of the seven closed UTC days
//! before it ([`retrytoll_core::profile`]); the views look it up where nothing nearer tells what an
//! attempt of unknown billing used. A day is made once, in one file: what comes later changes it no
//! more. One instance makes them, the leader, or `ingest` at its end; the demo makes none, so that
//! its figures depend on its seed alone, and not on the hour.

mod rows;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use retrytoll_core::profile::{DAYS, missing, newest_due};
use retrytoll_jobs::{Limits, Session, Window, Zone};
use retrytoll_lake::encode::date_text;
use retrytoll_lake::maintain::keep_log;
use retrytoll_lake::table::LOG_KEPT_MS;
use retrytoll_lake::{Clock, Mark, Table, Writer, completeness_mark, date_of, replay};

use crate::alerts::extent;
use crate::lake;

/// The folder of the table, below the lake's root.
pub const PROFILE: &str = "profile";
const DAY_MS: i64 = 86_400_000;
/// What is told of a failure.
pub const NOT_MADE: &str = "no profile was made; it is tried again";

/// The profiles of one lake, to be made.
pub struct Profiles {
    root: PathBuf,
    group: String,
    clock: Clock,
    limits: Limits,
    /// The newest day that was due when the lake was asked, and the day of its first event.
    first_event: Option<(i32, i32)>,
    /// Up to this day nothing is missing, or will not be made any more.
    made_through: Option<i32>,
}

impl Profiles {
    /// Of the lake with this root on local disk; `group` stands in commits.
    pub fn new(root: PathBuf, group: &str, clock: Clock, limits: Limits) -> Self {
        Self {
            root,
            group: group.to_owned(),
            clock,
            limits,
            first_event: None,
            made_through: None,
        }
    }

    /// Up to this day, counted from 1970, none is missing or will be made any more; `None` where that is
    /// not known. What attempts of these days are estimated by does not change.
    #[must_use]
    pub fn made_through(&self) -> Option<i32> {
        self.made_through
    }

    /// Makes the oldest day that is due at the mark and missing. What fails is due again: estimates
    /// go on with the profile there is. False where nothing was due.
    ///
    /// # Errors
    /// The lake's and the queries'.
    pub async fn make_next(&mut self, mark_ms: Option<i64>) -> anyhow::Result<bool> {
        self.try_make(mark_ms, 1).await
    }

    /// After sources were read to their end: makes all days that are due and missing. What fails is
    /// a warning.
    pub async fn make_to_end(&mut self) {
        let done = match self.end_ms().await {
            Ok(end_ms) => self.try_make(end_ms, usize::MAX).await,
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            let error = format!("{error:#}");
            tracing::warn!(error, "{NOT_MADE}");
        }
    }

    /// Up to when the lake is complete, ms; where every source was read to its end, its last event.
    async fn end_ms(&self) -> anyhow::Result<Option<i64>> {
        let table = lake::open_attempts(&self.root, &self.clock).await?;
        let positions = table.check().await?.positions();
        match completeness_mark(&positions) {
            Mark::Before(ms) => Ok(Some(ms)),
            Mark::Nothing => Ok(None),
            Mark::Everything => extent::last_ms(&self.root, &self.limits, &positions).await,
        }
    }

    async fn try_make(&mut self, mark_ms: Option<i64>, days_max: usize) -> anyhow::Result<bool> {
        let Some(newest) = mark_ms.map(newest_due) else {
            return Ok(false);
        };
        if self.made_through.is_some_and(|made| made >= newest) {
            return Ok(false);
        }
        self.make(newest, days_max).await
    }

    /// Makes so many of the days up to `newest`, the oldest first; false where the lake is empty.
    async fn make(&mut self, newest: i32, days_max: usize) -> anyhow::Result<bool> {
        let Some(first_event) = self.first_event(newest).await? else {
            return Ok(false);
        };
        // A lake of a day has no such table.
        if missing(newest, first_event, &BTreeSet::new()).is_empty() {
            self.made_through = Some(newest);
            return Ok(true);
        }
        let folder = self.root.join(PROFILE);
        let table = lake::open_table(&folder, rows::spec(), &self.clock).await?;
        let version = table.check().await?.version;
        if missing(newest, first_event, &made(&table, version).await?).is_empty() {
            self.made_through = Some(newest);
            return Ok(true);
        }
        let mut writer = lake::open_writer(table, &self.group, &self.clock).await?;
        writer.claim_leader().await?;
        // Whoever led before has made what it has made: its next commit is refused.
        let made = made(writer.table(), writer.state().version).await?;
        let days = missing(newest, first_event, &made);
        let session = Session::open(&lake::url_of(&self.root)?, None, self.limits.clone()).await?;
        for day in days.iter().take(days_max) {
            self.make_day(&folder, &mut writer, &session, *day)
                .await
                .with_context(|| format!("the profile for {}", date_text(*day)))?;
        }
        if days.len() <= days_max {
            self.made_through = Some(newest);
        }
        let head = writer.state().version;
        keep_log(writer.table(), head, self.clock.now_ms(), LOG_KEPT_MS).await?;
        Ok(true)
    }

    /// The day of the first event of the lake, asked once for each newest day.
    async fn first_event(&mut self, newest: i32) -> anyhow::Result<Option<i32>> {
        if let Some((_, day)) = self.first_event.filter(|(asked, _)| *asked == newest) {
            return Ok(Some(day));
        }
        let Some((first_ms, _)) = extent::of(&self.root, &self.limits).await? else {
            return Ok(None);
        };
        let day = i32::try_from(first_ms.div_euclid(DAY_MS)).context("the first event's day")?;
        self.first_event = Some((newest, day));
        Ok(Some(day))
    }

    async fn make_day(
        &self,
        folder: &Path,
        writer: &mut Writer,
        session: &Session,
        day: i32,
    ) -> anyhow::Result<()> {
        let began_ms = self.clock.now_ms();
        let window = Window {
            since: start(day - DAYS)?,
            until: start(day)?,
            zone: Zone::utc(),
        };
        let rows = rows::of(session, &window).await?;
        let file = rows::write_file(folder, day, &rows).context("cannot write its file")?;
        let committed = writer.append(began_ms, vec![file]).await?;
        tracing::info!(
            date = date_text(day),
            rows = rows.len(),
            version = committed.version,
            "profile"
        );
        Ok(())
    }
}

/// The days that have a profile: each has its file, also an empty one.
async fn made(table: &Table, version: u64) -> anyhow::Result<BTreeSet<i32>> {
    let files = replay::load_files(table, version).await?;
    let dates = files.live.values().map(|it| {
        let date = date_of(it).with_context(|| format!("{} has no date", it.path))?;
        let date = date
            .parse::<chrono::NaiveDate>()
            .with_context(|| format!("{date} is no date"))?;
        Ok((date - chrono::NaiveDate::default()).num_days() as i32)
    });
    dates.collect()
}

fn start(day: i32) -> anyhow::Result<DateTime<Utc>> {
    DateTime::from_timestamp_millis(i64::from(day) * DAY_MS).context("the day is out of range")
}

#[cfg(test)]
mod tests;
