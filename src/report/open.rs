//! Flags and configuration → a session over the lake, and the window asked about.

use std::ops::Deref;
use std::path::Path;

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use retrytoll_jobs::{
    CompleteThrough, Format, JobError, Limits, Session, Usage, Window, Zone, lake_url,
};
use retrytoll_lake::{Clock, completeness_mark};
use tokio::runtime::Runtime;
use url::Url;

use super::args::AskArgs;
use crate::cli::World;
use crate::clock::now_ms;
use crate::config::{Config, Need};
use crate::exit::Stop;
use crate::lake::{ATTEMPTS, open_attempts};

/// What is asked, and of which lake.
pub struct Asked {
    pub config: Config,
    pub window: Window,
    pub session: Session,
    pub runtime: AskRuntime,
}

/// Where queries run; at its end it waits for none that was given up.
pub struct AskRuntime(Option<Runtime>);

impl AskRuntime {
    fn new() -> anyhow::Result<Self> {
        let runtime = Runtime::new().context("cannot start the runtime")?;
        Ok(Self(Some(runtime)))
    }
}

impl Deref for AskRuntime {
    type Target = Runtime;

    #[expect(clippy::expect_used, reason = "only drop takes it")]
    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("a runtime")
    }
}

impl Drop for AskRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// What the window is where no `--since` is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual {
    /// The last 24 hours.
    Day,
    /// From the first of the month, in the zone.
    MonthToDate,
}

/// Opens the lake that the configuration names. `now` is read here, once.
///
/// # Errors
/// A wrong flag or configuration; no lake.
pub fn open(args: &AskArgs, usual: Usual, world: &World) -> anyhow::Result<Asked> {
    if args.format == Format::Parquet && args.output.is_none() && world.out_is_terminal {
        let message = "Parquet is not for a terminal";
        return Err(Stop::usage(message, "name a file with --output, or use a pipe").into());
    }
    let config = args.settings.load(None, Need::Lake, world)?;
    let now = DateTime::from_timestamp_millis(now_ms()).context("the clock is out of range")?;
    let window = window(args, usual, now).map_err(stop)?;
    let lake = lake_url(&config.lake).map_err(stop)?;
    let runtime = AskRuntime::new()?;
    let limits = limits(&config);
    let session = runtime
        .block_on(session(&lake, args.at_version, limits))
        .map_err(stop)?;
    Ok(Asked {
        config,
        window,
        session,
        runtime,
    })
}

/// What a query may use where nothing else runs in this process.
#[must_use]
pub fn limits(config: &Config) -> Limits {
    Limits {
        memory_bytes: config.limits.all_bytes(),
        spill_bytes: config.limits.spill_bytes_max,
        spill_folder: None,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        usage: Usage::default(),
        time: Some(config.limits.sql_time),
    }
}

fn window(args: &AskArgs, usual: Usual, now: DateTime<Utc>) -> Result<Window, JobError> {
    let zone = Zone::parse(&args.tz)?;
    let (since, until) = (args.since.as_deref(), args.until.as_deref());
    if usual == Usual::MonthToDate && since.is_none() && until.is_none() {
        let start = zone.month_start(now);
        // At the very beginning of a month there is nothing to show of it yet.
        if start < now {
            return Ok(Window {
                since: start,
                until: now,
                zone,
            });
        }
    }
    Window::parse(since, until, zone, now)
}

async fn session(lake: &Url, at_version: Option<u64>, limits: Limits) -> Result<Session, JobError> {
    // The mark is that of the version that is read, whatever is committed meanwhile.
    let head = head(lake).await;
    let version = at_version.or(head.map(|(version, _)| version));
    let session = Session::open(lake, version, limits).await?;
    let complete = match head {
        Some((version, complete)) if version == session.version() => complete,
        _ => CompleteThrough::Unknown,
    };
    Ok(session.with_complete_through(complete))
}

/// The newest version, and up to when it is complete; `None` where that can't be told.
async fn head(lake: &Url) -> Option<(u64, CompleteThrough)> {
    let root = lake.to_file_path().ok()?;
    // A reader makes no lake.
    if !Path::new(&root).join(ATTEMPTS).join("_delta_log").is_dir() {
        return None;
    }
    let state = async {
        let table = open_attempts(&root, &Clock::new(now_ms)).await?;
        anyhow::Ok(table.check().await?)
    };
    match state.await {
        Ok(state) => Some((state.version, completeness_mark(&state.positions()).into())),
        Err(error) => {
            tracing::debug!(error = %format!("{error:#}"), "completeness is not known");
            None
        }
    }
}

/// The error of a query or job, with the exit code that is its own.
pub fn stop(error: JobError) -> anyhow::Error {
    if error.is_usage() {
        Stop::usage(error.to_string(), "").into()
    } else {
        error.into()
    }
}
