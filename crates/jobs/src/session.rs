//! One lake at one version → [`Session`], which answers queries and jobs about it.
//!
//! Every query of a session sees the same rows of `attempts`, whatever is committed meanwhile.

use std::collections::BTreeMap;
use std::ops::Not as _;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use chrono::{DateTime, Duration, NaiveDate, Utc};
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::context::SessionContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::prelude::{col, lit};
use datafusion::sql::parser::Statement;
use futures::StreamExt as _;
use retrytoll_lake::position::Mark;
use url::Url;

use crate::ask;
use crate::catalog::Job;
use crate::engine::{self, Limits, plan};
use crate::error::{JobError, Place};
use crate::facts::{self, Facts};
use crate::hours::{Span, any_holds};
use crate::meta::{Meta, Value};
use crate::open;
use crate::place::Requests;
use crate::profile::{Kept, PROFILE, Profiles};
use crate::rollup::{self, Rollup};
use crate::time::{Alarm, TimeIsOver};
use crate::views::{self, About, Views};
use crate::window::Window;

/// Up to when all money is in the lake and will not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompleteThrough {
    /// Nobody looked, or the version is an older one.
    Unknown,
    /// A source has yet to say what time it is.
    Nothing,
    /// All that happened before this time.
    Before(DateTime<Utc>),
    /// Every source was read to its end.
    Everything,
}

/// An operation may stay open this long after the completeness mark.
const WINDOW_MAX: Duration = Duration::hours(2);

impl CompleteThrough {
    /// The completeness mark, microseconds since 1970: what waits for no later time is closed.
    /// `None` is all of it, and also what nobody looked at.
    fn mark_us(self) -> Option<i64> {
        match self {
            Self::Unknown | Self::Everything => None,
            Self::Nothing => Some(i64::MIN),
            Self::Before(time) => Some((time + WINDOW_MAX).timestamp_micros()),
        }
    }
}

impl From<Mark> for CompleteThrough {
    fn from(mark: Mark) -> Self {
        match mark {
            Mark::Nothing => Self::Nothing,
            Mark::Everything => Self::Everything,
            Mark::Before(ms) => DateTime::from_timestamp_millis(ms)
                .and_then(|it| it.checked_sub_signed(WINDOW_MAX))
                .map_or(Self::Nothing, Self::Before),
        }
    }
}

/// A lake at one version.
pub struct Session {
    runtime: Arc<RuntimeEnv>,
    /// `attempts` as stored, at `version`.
    attempts: Arc<dyn TableProvider>,
    /// The other tables, by name.
    tables: Vec<(&'static str, Arc<dyn TableProvider>)>,
    /// The table `rollup`, where it is true of `version`.
    rollup: Option<Rollup>,
    profiles: Kept,
    limits: Limits,
    version: u64,
    complete_through: CompleteThrough,
}

/// A job's answer.
#[derive(Clone, Debug)]
pub struct JobResult {
    /// What was asked.
    pub job: Arc<Job>,
    /// With which values.
    pub parameters: BTreeMap<String, String>,
    /// About which time.
    pub window: Window,
    /// Of which version of `attempts`.
    pub version: u64,
    /// How final it is.
    pub complete_through: CompleteThrough,
    /// The SQL as run: every value in its place.
    pub sql: String,
    /// The columns.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Vec<RecordBatch>,
    /// What the whole window holds beside the rows, where it was asked for.
    pub facts: Option<Facts>,
}

/// A job's answer is read by people and alerts.
const JOB_ROWS_MAX: usize = 100_000;

impl Session {
    /// The lake at `lake`, at `at_version` of its table `attempts`, or at the newest.
    ///
    /// # Errors
    /// [`JobError::NoTable`] where there is no lake, [`JobError::NoVersion`],
    /// [`JobError::NewerMajor`], [`JobError::Delta`].
    pub async fn open(
        lake: &Url,
        at_version: Option<u64>,
        limits: Limits,
    ) -> Result<Self, JobError> {
        let attempts = open::attempts(lake, at_version).await?;
        let runtime = engine::runtime(&limits)
            .map_err(|error| JobError::query(&Place::file("limits.sql"), error))?;
        let mut tables = Vec::new();
        for name in ["alerts", PROFILE] {
            if let Some(table) = open::optional(lake, name).await? {
                tables.push((name, open::provider(&table).await?));
            }
        }
        Ok(Self {
            runtime,
            rollup: Rollup::open(lake, &attempts).await,
            attempts: open::provider(&attempts).await?,
            tables,
            profiles: Kept::default(),
            limits,
            version: attempts.version().unwrap_or_default(),
            complete_through: CompleteThrough::Unknown,
        })
    }

    /// Tells how final this version's money is; reports print it.
    #[must_use]
    pub fn with_complete_through(mut self, complete_through: CompleteThrough) -> Self {
        self.complete_through = complete_through;
        self
    }

    /// The version of `attempts` that every query sees.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How final this version's money is.
    #[must_use]
    pub fn complete_through(&self) -> CompleteThrough {
        self.complete_through
    }

    /// Answers `sql`, one question; `$since`, `$until` and `$zone_type` are the window's.
    ///
    /// # Errors
    /// [`JobError::Sql`] with line and reason, [`JobError::NotAQuestion`], [`JobError::Query`],
    /// [`JobError::TooLarge`], [`JobError::TooLong`]; the stream gives errors for [`Session::failed`].
    pub async fn query(
        &self,
        sql: &str,
        window: &Window,
    ) -> Result<SendableRecordBatchStream, JobError> {
        let place = Place::file("query");
        let mut statement = ask::parse(&place, sql)?;
        let bound = ask::bind(&place, &mut statement, &ask::window_values(window))?;
        // A question about the window needs what is near it; any other, everything.
        let is_of_window = ["since", "until"].iter().all(|it| bound.contains(*it));
        let about = match is_of_window {
            true => About::window(window, &Meta::default()),
            false => About::EVERYTHING,
        };
        self.answer_in_time(&place, statement, &about).await
    }

    /// Answers a job. `given` are its parameters' values as text; the others have their default.
    ///
    /// # Errors
    /// As [`Session::query`], and [`JobError::UnknownParameter`], [`JobError::BadParameter`],
    /// [`JobError::TooManyRows`].
    pub async fn run_job(
        &self,
        job: &Arc<Job>,
        window: &Window,
        given: &BTreeMap<String, String>,
    ) -> Result<JobResult, JobError> {
        let place = Place::file(&job.file);
        let (statement, parameters) = asked(&place, job, window, given)?;
        let sql = statement.to_string();
        let (schema, batches) = self
            .collect(
                &place,
                &job.name,
                statement,
                &About::window(window, &job.meta),
            )
            .await?;
        Ok(JobResult {
            job: job.clone(),
            parameters: parameters
                .into_iter()
                .map(|(name, it)| (name, it.to_string()))
                .collect(),
            window: window.clone(),
            version: self.version,
            complete_through: self.complete_through,
            sql,
            schema,
            batches,
            facts: None,
        })
    }

    /// Whether `job` can be run: its tables and columns are there.
    ///
    /// # Errors
    /// As [`Session::run_job`].
    pub async fn check_job(&self, job: &Job, window: &Window) -> Result<(), JobError> {
        let place = Place::file(&job.file);
        let (statement, _) = asked(&place, job, window, &BTreeMap::new())?;
        let about = About::window(window, &job.meta);
        let context = self.engine(&Requests::default(), &Profiles::default())?;
        self.tell(&context, &place, &statement, &about).await?;
        plan(&context, &place, statement).await.map(drop)
    }

    /// The rows of the table `rollup` of the whole hours of `window`, made of the attempts. Of an hour,
    /// beyond `rows_max` the rows with the fewest attempts are put together under `other`.
    ///
    /// # Errors
    /// As [`Session::query`].
    pub async fn roll(
        &self,
        window: &Window,
        rows_max: i64,
    ) -> Result<SendableRecordBatchStream, JobError> {
        let place = Place::file("sql/rollup.sql");
        let mut statement = ask::parse(&place, rollup::FOLD)?;
        let mut values = ask::window_values(window);
        let version = i64::try_from(self.version).unwrap_or(i64::MAX);
        for (name, number) in [("rows_max", rows_max), ("version", version)] {
            values.insert(name.to_owned(), ask::value(&Value::Integer(number)));
        }
        ask::bind(&place, &mut statement, &values)?;
        let about = About::window(window, &Meta::default()).of_attempts();
        self.answer(&place, statement, &about).await
    }

    /// The rows that the table `rollup` has of a day of UTC, but for those of some hours; `None` where
    /// [`Session::rollup`] is.
    ///
    /// # Errors
    /// As [`Session::query`].
    pub async fn rolled(
        &self,
        date: NaiveDate,
        but: &[Span],
    ) -> Result<Option<SendableRecordBatchStream>, JobError> {
        let Some(rollup) = &self.rollup else {
            return Ok(None);
        };
        let days = date.signed_duration_since(NaiveDate::default()).num_days();
        let day = ScalarValue::Date32(i32::try_from(days).ok());
        let kept = col("date").eq(lit(day));
        let kept = kept.and(any_holds(but, &col("hour")).not());
        let context = self.engine(&Requests::default(), &Profiles::default())?;
        let rows = context.read_table(Arc::clone(&rollup.provider));
        let rows = async { rows?.filter(kept)?.execute_stream().await };
        let rows = rows.await;
        let place = Place::file("rollup");
        Ok(Some(rows.map_err(|error| self.failed(&place, error))?))
    }

    /// The table `rollup`, where it is known what it lacks of this version of `attempts`.
    #[must_use]
    pub fn rollup(&self) -> Option<&Rollup> {
        self.rollup.as_ref()
    }

    /// What the window holds, of which the rows of a job say a part.
    ///
    /// # Errors
    /// As [`Session::query`].
    pub async fn facts(&self, window: &Window) -> Result<Facts, JobError> {
        let place = Place::file("sql/facts.sql");
        let mut statement = ask::parse(&place, facts::SQL)?;
        ask::bind(&place, &mut statement, &ask::window_values(window))?;
        let (_, batches) = self
            .collect(
                &place,
                "facts",
                statement,
                &About::window(window, &Meta::default()),
            )
            .await?;
        Ok(Facts::of(&batches))
    }

    /// The tables that no question narrows.
    fn engine(&self, requests: &Requests, profiles: &Profiles) -> Result<SessionContext, JobError> {
        let context = engine::context(&self.limits, Arc::clone(&self.runtime));
        context.register_udf(requests.to_place());
        context.register_udf(profiles.profile_of());
        for (name, table) in &self.tables {
            context
                .register_table(*name, Arc::clone(table))
                .map_err(|error| JobError::query(&Place::file(*name), error))?;
        }
        if let Some(rollup) = &self.rollup {
            context
                .register_table("rollup_raw", Arc::clone(&rollup.provider))
                .map_err(|error| JobError::query(&Place::file("rollup"), error))?;
        }
        Ok(context)
    }

    /// The views, with the stored rows that the question may need; which of them it reads, and from
    /// when these rows are.
    async fn tell(
        &self,
        context: &SessionContext,
        place: &Place,
        statement: &Statement,
        about: &About,
    ) -> Result<(Views, Vec<Span>), JobError> {
        let names = context.state().resolve_table_references(statement);
        let names = names.map_err(|error| JobError::query(place, error))?;
        let reads = Views::among(names.iter().map(|it| it.table()));
        let hours = about.hours(self.rollup.as_ref());
        let tables = views::Tables {
            attempts: Arc::clone(&self.attempts),
            rollup: self.rollup.as_ref(),
            mark_us: self.complete_through.mark_us(),
        };
        let near = about.near(reads, &hours);
        views::register(context, &tables, reads, &near, &hours).await?;
        Ok((reads, near))
    }

    /// What is asked by others ends when its time is over.
    async fn answer_in_time(
        &self,
        place: &Place,
        statement: Statement,
        about: &About,
    ) -> Result<SendableRecordBatchStream, JobError> {
        let answer = self.answer(place, statement, about);
        let Some(time) = self.limits.time else {
            return answer.await;
        };
        let over = |error| self.failed(place, error);
        let mut alarm = Alarm::after(time).map_err(over)?;
        let rows = alarm.before(answer).await.map_err(over)??;
        Ok(alarm.bound(rows))
    }

    async fn answer(
        &self,
        place: &Place,
        statement: Statement,
        about: &About,
    ) -> Result<SendableRecordBatchStream, JobError> {
        let (requests, profiles) = (Requests::default(), Profiles::default());
        let context = self.engine(&requests, &profiles)?;
        let (reads, near) = self.tell(&context, place, &statement, about).await?;
        let frame = plan(&context, place, statement).await?;
        if reads != Views::default() {
            self.find_requests(&context, &requests).await?;
            self.load_profiles(&context, &profiles, &near).await?;
        }
        let stream = frame.execute_stream().await;
        stream.map_err(|error| self.failed(place, error))
    }

    /// What `to_place` has to know before views are read.
    async fn find_requests(
        &self,
        context: &SessionContext,
        requests: &Requests,
    ) -> Result<(), JobError> {
        let place = Place::file("sql/views/to_place.sql");
        let statement = ask::parse(&place, views::TO_PLACE)?;
        let found = plan(context, &place, statement).await?;
        let memory_bytes = self.limits.memory_bytes;
        let done = match found.execute_stream().await {
            Ok(found) => {
                let pool = &self.runtime.memory_pool;
                requests.remember(found, pool, memory_bytes).await
            }
            Err(error) => Err(error),
        };
        done.map_err(|error| self.failed(&place, error))
    }

    /// What `profile_of` has to know before views are read.
    async fn load_profiles(
        &self,
        context: &SessionContext,
        profiles: &Profiles,
        near: &[Span],
    ) -> Result<(), JobError> {
        let pool = &self.runtime.memory_pool;
        let memory_bytes = self.limits.memory_bytes;
        let done = profiles.load(context, near, pool, memory_bytes, &self.profiles);
        done.await
            .map_err(|error| self.failed(&Place::file(PROFILE), error))
    }

    async fn collect(
        &self,
        place: &Place,
        job: &str,
        statement: Statement,
        about: &About,
    ) -> Result<(SchemaRef, Vec<RecordBatch>), JobError> {
        let mut stream = self.answer_in_time(place, statement, about).await?;
        let (mut batches, mut rows) = (Vec::new(), 0);
        while let Some(batch) = stream.next().await {
            let batch = batch.map_err(|error| self.failed(place, error))?;
            rows += batch.num_rows();
            if rows > JOB_ROWS_MAX {
                return Err(JobError::TooManyRows {
                    job: job.into(),
                    rows_max: JOB_ROWS_MAX,
                });
            }
            batches.push(batch);
        }
        Ok((stream.schema(), batches))
    }

    /// The error of a query that failed while it ran.
    #[must_use]
    pub fn failed(&self, place: &Place, error: DataFusionError) -> JobError {
        if TimeIsOver::is(&error) {
            return JobError::TooLong {
                place: place.clone(),
                time: self.limits.time.unwrap_or_default(),
            };
        }
        let too_large = match error.find_root() {
            DataFusionError::ResourcesExhausted(_) => true,
            // A full spill folder is an I/O error to Arrow, told by its text alone.
            root => root.to_string().contains("max_temp_directory_size"),
        };
        if too_large {
            return JobError::TooLarge {
                place: place.clone(),
                memory_bytes: self.limits.memory_bytes,
                spill_bytes: self.limits.spill_bytes,
                source: Box::new(error),
            };
        }
        JobError::Query {
            place: place.clone(),
            source: Box::new(error),
        }
    }
}

/// A job's statement with every value in its place, and the parameters it was given or has by
/// default.
fn asked(
    place: &Place,
    job: &Job,
    window: &Window,
    given: &BTreeMap<String, String>,
) -> Result<(Statement, BTreeMap<String, Value>), JobError> {
    let parameters = ask::job_values(&job.name, &job.meta, given)?;
    let mut values = ask::window_values(window);
    values.extend(
        parameters
            .iter()
            .map(|(name, value)| (name.clone(), ask::value(value))),
    );
    let mut statement = ask::parse(place, &job.sql)?;
    ask::bind(place, &mut statement, &values)?;
    Ok((statement, parameters))
}
