//! One lake at one version → [`Session`], which answers queries and jobs about it.
//!
//! Every query of a session sees the same rows of `attempts`, whatever is committed meanwhile.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use chrono::{DateTime, Duration, Utc};
use datafusion::datasource::ViewTable;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::context::{SQLOptions, SessionContext};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{DataFrame, SessionConfig};
use datafusion::sql::parser::Statement;
use futures::StreamExt as _;
use retrytoll_lake::position::Mark;
use url::Url;

use crate::ask;
use crate::catalog::Job;
use crate::error::{JobError, Place};
use crate::facts::{self, Facts};
use crate::meta::Value;
use crate::open;
use crate::window::Window;

/// What the queries of a session may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Memory that sorts, joins and groups may hold, bytes; beyond it they spill.
    pub memory_bytes: usize,
    /// How much they may spill, bytes.
    pub spill_bytes: u64,
    /// Where they spill to; the system's folder for temporary files by default.
    pub spill_folder: Option<PathBuf>,
    /// How many threads one query may use.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 48 << 20,
            spill_bytes: 4 << 30,
            spill_folder: None,
            threads: 2,
        }
    }
}

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
    context: SessionContext,
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

const ATTEMPTS_VIEW: &str = include_str!("../../../sql/views/attempts.sql");

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
        let place = Place::file("sql/views/attempts.sql");
        let failed = |error| JobError::query(&place, error);
        let context = context(&limits).map_err(failed)?;
        let raw = open::provider(&attempts).await?;
        context
            .register_table("attempts_raw", raw)
            .map_err(failed)?;
        if let Some(alerts) = open::optional(lake, "alerts").await? {
            let alerts = open::provider(&alerts).await?;
            context.register_table("alerts", alerts).map_err(failed)?;
        }
        let version = attempts.version().unwrap_or_default();
        let session = Self {
            context,
            limits,
            version,
            complete_through: CompleteThrough::Unknown,
        };
        let view = ask::parse(&place, ATTEMPTS_VIEW)?;
        let plan = session.plan(&place, view).await?.into_parts().1;
        let view = ViewTable::new(plan, Some(ATTEMPTS_VIEW.to_owned()));
        session
            .context
            .register_table("attempts", Arc::new(view))
            .map_err(failed)?;
        Ok(session)
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
    /// [`JobError::TooLarge`]; the stream gives errors for [`Session::failed`].
    pub async fn query(
        &self,
        sql: &str,
        window: &Window,
    ) -> Result<SendableRecordBatchStream, JobError> {
        let place = Place::file("query");
        let mut statement = ask::parse(&place, sql)?;
        ask::bind(&place, &mut statement, &ask::window_values(window))?;
        let frame = self.plan(&place, statement).await?;
        frame
            .execute_stream()
            .await
            .map_err(|error| self.failed(&place, error))
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
        let (schema, batches) = self.collect(&place, &job.name, statement).await?;
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
        self.plan(&place, statement).await.map(drop)
    }

    /// What the window holds, of which the rows of a job say a part.
    ///
    /// # Errors
    /// As [`Session::query`].
    pub async fn facts(&self, window: &Window) -> Result<Facts, JobError> {
        let place = Place::file("sql/facts.sql");
        let mut statement = ask::parse(&place, facts::SQL)?;
        ask::bind(&place, &mut statement, &ask::window_values(window))?;
        let (_, batches) = self.collect(&place, "facts", statement).await?;
        Ok(Facts::of(&batches))
    }

    async fn plan(&self, place: &Place, statement: Statement) -> Result<DataFrame, JobError> {
        let state = self.context.state();
        let options = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        let planned = match state.statement_to_plan(statement).await {
            Ok(plan) => options.verify_plan(&plan).map(|()| plan),
            Err(error) => Err(error),
        };
        planned
            .map(|plan| DataFrame::new(state, plan))
            .map_err(|error| JobError::query(place, error))
    }

    async fn collect(
        &self,
        place: &Place,
        job: &str,
        statement: Statement,
    ) -> Result<(SchemaRef, Vec<RecordBatch>), JobError> {
        let frame = self.plan(place, statement).await?;
        let mut stream = frame
            .execute_stream()
            .await
            .map_err(|e| self.failed(place, e))?;
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

fn context(limits: &Limits) -> Result<SessionContext, DataFusionError> {
    let mode = match &limits.spill_folder {
        Some(folder) => DiskManagerMode::Directories(vec![folder.clone()]),
        None => DiskManagerMode::OsTmpDirectory,
    };
    let disk = DiskManagerBuilder::default()
        .with_mode(mode)
        .with_max_temp_directory_size(limits.spill_bytes);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(limits.memory_bytes)))
        .with_disk_manager_builder(disk)
        .build_arc()?;
    let mut config = SessionConfig::new()
        .with_target_partitions(limits.threads.max(1))
        .with_information_schema(true);
    let options = config.options_mut();
    // Lines and columns for messages.
    options.sql_parser.collect_spans = true;
    // By default each sort of each thread reserves 10 MB of the pool before it sorts anything.
    options.execution.sort_spill_reservation_bytes = limits.memory_bytes / 16;
    Ok(SessionContext::new_with_config_rt(config, runtime))
}
