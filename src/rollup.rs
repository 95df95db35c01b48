//! Hours that closed or were touched → their rows in the table `rollup`.
//!
//! The leader makes them. A day is a file, replaced whole: the hours that stay, and those made anew.
//! One commit holds all days that were made, and the position that says which hours of which version of
//! `attempts` are in the table. A reader goes by the position: hours that the table is not true of are
//! read from the attempts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use arrow::array::{AsArray as _, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{FieldRef, Int64Type, SchemaRef};
use chrono::{DateTime, NaiveDate, NaiveTime};
use futures::StreamExt as _;
use retrytoll_jobs::rollup::{ROLLUP, closed_through, due, reads, schema};
use retrytoll_jobs::{Limits, Place, Session, Span, Window, Zone};
use retrytoll_lake::encode::SCHEMA_MAJOR;
use retrytoll_lake::maintain::{VacuumLimits, keep_log, vacuum};
use retrytoll_lake::replay::Files;
use retrytoll_lake::settle::Range;
use retrytoll_lake::table::LOG_KEPT_MS;
use retrytoll_lake::{
    Clock, DataFile, Flush, LakeError, Owner, Point, Position, Replaced, Replacement, TableSpec,
    Writer, completeness_mark, date_of, replay,
};

use crate::lake;
use crate::part::Part;
#[cfg(doc)]
use crate::profile::Profiles;

/// Hours that closed are made no sooner after the last time, ms of wall time: behind, they close one
/// after the other.
const CLOSED_EVERY_MS: i64 = 60_000;
/// What was touched is looked for after this, ms of wall time; until then it is read from the attempts.
const TOUCHED_EVERY_MS: i64 = 600_000;
/// After more failures the wait is doubled no more: an hour.
const FAILURES_MAX: u32 = 6;
/// One call makes days for so long and a little more, ms: alerts wait meanwhile.
const MAKING_MS_MAX: i64 = 5_000;
/// Files that nothing needs are removed after this, ms of wall time.
const VACUUM_EVERY_MS: i64 = 86_400_000;
const HOUR_US: i64 = 3_600_000_000;
const DAY_US: i64 = 24 * HOUR_US;

/// What rollups are made of, and within what.
#[derive(Clone, Debug)]
pub struct RollupSettings {
    /// The lake's root on local disk.
    pub root: PathBuf,
    /// The consumer group, or another name of this deployment.
    pub group: String,
    pub limits: Limits,
    /// Rows that an hour has at most before the rest is put together.
    pub rows_max: i64,
}

/// The rollup of one lake.
pub struct Rollup {
    settings: RollupSettings,
    clock: Clock,
    /// `None` until it is needed, and after a failure.
    writer: Option<Writer>,
    /// When it was last made, or tried, ms of wall time.
    made_ms: Option<i64>,
    /// How often it failed since it was made.
    failures: u32,
    vacuumed_ms: i64,
    /// Of days that were made before and touched since: those made again already, and the version of
    /// `attempts` up to which that is true. The position moves when the last of them is.
    again: Option<Again>,
}

/// Days that are made again, as many a call as time allows.
struct Again {
    version: u64,
    made: BTreeSet<NaiveDate>,
}

impl Again {
    fn of(version: u64) -> Self {
        Self {
            version,
            made: BTreeSet::new(),
        }
    }
}

impl Rollup {
    /// Nothing is done yet.
    #[must_use]
    pub fn new(settings: RollupSettings, clock: Clock) -> Self {
        let vacuumed_ms = clock.now_ms();
        Self {
            settings,
            clock,
            writer: None,
            made_ms: None,
            failures: 0,
            vacuumed_ms,
            again: None,
        }
    }

    /// Another instance makes it now.
    pub fn stand_by(&mut self) {
        self.writer = None;
    }

    /// Makes what is due, if it was not made just now. Days have their profile up to `profiled`, as
    /// [`Profiles::made_through`] tells it: without it, their expected cost would still change.
    ///
    /// # Errors
    /// The lake's and the queries'. What was not made is read from the attempts, and made by the next
    /// call. False where nothing was due.
    pub async fn run_due(&mut self, profiled: Option<i32>) -> anyhow::Result<bool> {
        let since_ms = self.made_ms.map(|it| self.clock.since_ms(it));
        // After failures it waits longer: each try reads and writes, and alerts wait for it.
        let wait_ms = match &self.again {
            Some(_) => MAKING_MS_MAX,
            None => CLOSED_EVERY_MS << self.failures.min(FAILURES_MAX),
        };
        if since_ms.is_some_and(|it| it < wait_ms) {
            return Ok(false);
        }
        let Some(through_us) = self.closed_through(profiled).await? else {
            return Ok(false);
        };
        let known_us = self
            .writer
            .as_ref()
            .map(|it| through(it).unwrap_or(i64::MIN));
        let is_known = known_us.is_some_and(|it| it >= through_us);
        let is_young = since_ms.is_some_and(|it| it < TOUCHED_EVERY_MS);
        if is_known && is_young && self.again.is_none() {
            return Ok(false);
        }
        self.make(through_us, MAKING_MS_MAX).await?;
        Ok(true)
    }

    /// Makes all that is due, however long it takes: a source was read to its end.
    ///
    /// # Errors
    /// As [`Rollup::run_due`].
    pub async fn run_to_end(&mut self, profiled: Option<i32>) -> anyhow::Result<()> {
        match self.closed_through(profiled).await? {
            Some(through_us) => {
                self.again = None;
                self.make(through_us, i64::MAX).await
            }
            None => Ok(()),
        }
    }

    /// Up to when hours can be made, µs; `None` where none can.
    async fn closed_through(&self, profiled: Option<i32>) -> anyhow::Result<Option<i64>> {
        let Some(day) = profiled else {
            return Ok(None);
        };
        let table = lake::open_attempts(&self.settings.root, &self.clock).await?;
        let mark = completeness_mark(&table.check().await?.positions());
        let closed_us = closed_through(mark, self.clock.now_ms());
        let profiled_us = (i64::from(day) + 1).saturating_mul(DAY_US);
        Ok(closed_us.map(|it| it.min(profiled_us)))
    }

    /// Makes what is due up to `through_us`; after `ms_max`, up to the end of a day, and the next call goes
    /// on.
    async fn make(&mut self, through_us: i64, ms_max: i64) -> anyhow::Result<()> {
        self.made_ms = Some(self.clock.now_ms());
        self.failures += 1;
        match self.try_make(through_us, ms_max).await {
            // What was made of attempts before that may hold rows of who was forgotten.
            Err(error) if is_by_a_forget(&error) => self.try_make(through_us, ms_max).await?,
            made => made?,
        }
        self.made_ms = Some(self.clock.now_ms());
        self.failures = 0;
        Ok(())
    }

    async fn try_make(&mut self, through_us: i64, ms_max: i64) -> anyhow::Result<()> {
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                self.again = None;
                self.open().await?
            }
        };
        let known_us = through(&writer).unwrap_or(i64::MIN);
        let mut through_us = through_us.max(known_us);
        // After the writer: of no older version than its position names.
        let url = lake::url_of(&self.settings.root)?;
        let session = Session::open(&url, None, self.settings.limits.clone()).await?;
        let began_ms = self.clock.now_ms();
        let files = replay::load_files(writer.table(), writer.state().version).await?;
        let mut made = Made::default();
        let mut again = self
            .again
            .take()
            .unwrap_or_else(|| Again::of(session.version()));
        let mut is_left = false;
        for date in self.dates(&files, session.version()).await? {
            let day_us = date.and_time(NaiveTime::MIN).and_utc().timestamp_micros();
            let is_late = !made.days.is_empty() && self.clock.since_ms(began_ms) > ms_max;
            if day_us >= known_us && is_late {
                through_us = through_us.min(day_us);
                break;
            }
            let spans = due(session.rollup(), date, through_us);
            if spans.is_empty() || again.made.contains(&date) {
                continue;
            }
            if is_late {
                is_left = true;
                break;
            }
            self.make_day(&session, date, &spans, &mut made).await?;
            // In the day that it ends with, more hours close meanwhile.
            if day_us + DAY_US <= known_us {
                again.made.insert(date);
            }
        }
        let position = match (is_left, writer.state().position(&reads())) {
            (true, Some(as_it_is)) => as_it_is,
            _ => Position {
                clock_ms: through_us / 1_000,
                ..Position::start(i64::try_from(again.version)? + 1)
            },
        };
        commit(&mut writer, &files, &made, position, began_ms).await?;
        self.again = is_left.then_some(again);
        let Made { hours, folded, .. } = made;
        if folded > 0 {
            let rows_max = self.settings.rows_max;
            tracing::warn!(
                folded,
                rows_max,
                "rows of hours were put together under `other`: raise jobs.rollup_rows to keep them apart"
            );
        }
        if hours > 0 {
            let took_ms = self.clock.now_ms() - began_ms;
            tracing::info!(hours, took_ms, version = session.version(), "rolled up");
        }
        self.tidy(&mut writer).await?;
        self.writer = Some(writer);
        Ok(())
    }

    /// Days of UTC that have a row, or had one.
    async fn dates(&self, rolled: &Files, version: u64) -> anyhow::Result<Vec<NaiveDate>> {
        let attempts = lake::open_attempts(&self.settings.root, &self.clock).await?;
        let attempts = replay::load_files(&attempts, version).await?;
        let files = attempts.live.values().chain(rolled.live.values());
        let dates = files.filter_map(|it| date_of(it)?.parse().ok());
        let mut dates = dates.collect::<Vec<_>>();
        dates.sort_unstable();
        dates.dedup();
        Ok(dates)
    }

    /// Writes a day's file with the hours of these spans made anew.
    async fn make_day(
        &self,
        session: &Session,
        date: NaiveDate,
        spans: &[Span],
        made: &mut Made,
    ) -> anyhow::Result<()> {
        let name = date.to_string();
        let (folder, columns) = (self.settings.root.join(ROLLUP), spec().file_columns());
        let mut file = Part::create(&folder, Some(&name), columns.clone())?;
        if let Some(mut kept) = session.rolled(date, spans).await? {
            while let Some(rows) = kept.next().await {
                write(&mut file, &columns, &rows?)?;
            }
        }
        let place = Place::file("sql/rollup.sql");
        for span in spans {
            let window = window(*span)?;
            let mut rolled = session.roll(&window, self.settings.rows_max).await?;
            while let Some(rows) = rolled.next().await {
                let rows = rows.map_err(|error| session.failed(&place, error))?;
                made.folded += write(&mut file, &columns, &rows)?;
            }
            made.hours += (span.until - span.from) / HOUR_US;
        }
        made.files.extend(file.close()?);
        made.days.insert(name);
        Ok(())
    }

    /// The table, in the leader's place.
    async fn open(&self) -> anyhow::Result<Writer> {
        let folder = self.settings.root.join(ROLLUP);
        let table = lake::open_table(&folder, spec(), &self.clock).await?;
        let mut writer = lake::open_writer(table, &self.settings.group, &self.clock).await?;
        writer.claim_leader().await?;
        let start = BTreeMap::from([(reads(), Position::start(0))]);
        writer.claim(&start).await?;
        Ok(writer)
    }

    async fn tidy(&mut self, writer: &mut Writer) -> anyhow::Result<()> {
        let now_ms = self.clock.now_ms();
        let head = writer.state().version;
        keep_log(writer.table(), head, now_ms, LOG_KEPT_MS).await?;
        if self.clock.since_ms(self.vacuumed_ms) >= VACUUM_EVERY_MS {
            self.vacuumed_ms = now_ms;
            vacuum(writer, VacuumLimits::default(), now_ms, false).await?;
        }
        Ok(())
    }
}

/// Days that were made, and not yet committed.
#[derive(Default)]
struct Made {
    days: BTreeSet<String>,
    files: Vec<DataFile>,
    hours: i64,
    /// How many rows were put together.
    folded: i64,
}

/// Commits days in place of `files`, what the table has of them, and where it stands with them.
async fn commit(
    writer: &mut Writer,
    files: &Files,
    made: &Made,
    position: Position,
    began_ms: i64,
) -> anyhow::Result<()> {
    let is_made = |date: &str| made.days.contains(date);
    let removes = files.live.values();
    let removes = removes.filter(|add| date_of(add).is_some_and(is_made));
    let removes = removes.cloned().collect::<Vec<_>>();
    let positions = BTreeMap::from([(reads(), position)]);
    if removes.is_empty() && made.files.is_empty() {
        if writer.state().position(&reads()) != Some(position) {
            let flush = Flush {
                positions,
                ..Flush::default()
            };
            writer.flush(&flush).await?;
        }
        return Ok(());
    }
    let dates = made.days.iter().cloned().map(Some);
    let replacement = Replacement {
        operation: "WRITE",
        began_ms,
        planned_at: files.version,
        removes,
        adds: made.files.clone(),
        data_change: true,
        range: Range::Dates(dates.collect()),
        positions,
        ..Replacement::default()
    };
    Point::RollupFiles.pass();
    match writer.replace(&replacement).await? {
        Replaced::Committed(_) => Ok(()),
        Replaced::PlanAgain(why) => bail!("another wrote the same days of the rollup ({why:?})"),
    }
}

fn is_by_a_forget(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<LakeError>();
    matches!(error, Some(LakeError::Fenced(it)) if it.owner == Owner::Forgotten)
}

/// Up to when hours are in the table, µs.
fn through(writer: &Writer) -> Option<i64> {
    let position = writer.state().position(&reads())?;
    (position.clock_ms != i64::MIN).then(|| position.clock_ms * 1_000)
}

fn window(span: Span) -> anyhow::Result<Window> {
    let at = |us| DateTime::from_timestamp_micros(us).context("an hour is out of range");
    Ok(Window {
        since: at(span.from)?,
        until: at(span.until)?,
        zone: Zone::utc(),
    })
}

/// How the table is.
pub fn spec() -> TableSpec {
    TableSpec {
        columns: schema(),
        by_date: true,
        schema_major: SCHEMA_MAJOR,
    }
}

/// Adds rows of a query to a day's file; returns how many others were put together in them.
fn write(part: &mut Part, columns: &SchemaRef, rows: &RecordBatch) -> anyhow::Result<i64> {
    let column = |field: &FieldRef| {
        let found = rows.column_by_name(field.name());
        let found = found.with_context(|| format!("the rollup lacks {}", field.name()))?;
        anyhow::Ok(cast(found, field.data_type())?)
    };
    let arrays = columns.fields().iter().map(column);
    let arrays = arrays.collect::<anyhow::Result<Vec<_>>>()?;
    let rows = RecordBatch::try_new(columns.clone(), arrays)?;
    part.write(&rows)?;
    let folded = rows.column_by_name("folded");
    let folded = folded.and_then(|it| it.as_primitive_opt::<Int64Type>());
    Ok(folded.map_or(0, |it| it.iter().flatten().sum()))
}

#[cfg(test)]
mod tests;
