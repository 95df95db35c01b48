//! configuration → the tables of a lake, and what a writer of them needs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use retrytoll_core::batch::SourceId;
use retrytoll_core::bill::{Policy, Prices};
use retrytoll_core::class::Classes;
use retrytoll_core::derive::Tables;
use retrytoll_core::seen::ENTRY_BYTES;
use retrytoll_core::step::StateLimits;
use retrytoll_jobs::{Limits, Usage};
use retrytoll_lake::encode::{FileLimits, SCHEMA_MAJOR, Versions, attempts_schema};
use retrytoll_lake::{
    Clock, Flush, Member, Position, RetryLimits, Table, TableSpec, Writer, WriterLimits,
};
use url::Url;

use crate::clock::now_ms;
use crate::config::Config;
use crate::exit::Stop;
use crate::pipeline::{ReadLimits, WriteSettings};

/// The folder of the table with the events, below the lake's root.
pub const ATTEMPTS: &str = "attempts";

/// Milliseconds of a duration.
pub fn ms(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The lake's root on local disk, made if it is not there.
pub fn local_root(config: &Config) -> anyhow::Result<PathBuf> {
    let place = config.lake.as_str();
    let path = match place.strip_prefix("file://") {
        Some(path) => Path::new(path),
        None if place.contains("://") => {
            let hint = "write to a local folder, and copy it there";
            bail!(Stop::usage(
                format!("{place} is an object store: not written to yet"),
                hint
            ));
        }
        None => Path::new(place),
    };
    std::fs::create_dir_all(path)
        .and_then(|()| path.canonicalize())
        .with_context(|| format!("cannot make the lake's folder {}", path.display()))
}

/// A folder as a URL.
pub fn url_of(folder: &Path) -> anyhow::Result<Url> {
    match Url::from_directory_path(folder) {
        Ok(url) => Ok(url),
        Err(()) => bail!("{} can't be written as a URL", folder.display()),
    }
}

/// Opens the table of events, or makes it.
pub async fn open_attempts(root: &Path, clock: &Clock) -> anyhow::Result<Table> {
    let spec = TableSpec {
        columns: attempts_schema(),
        by_date: true,
        schema_major: SCHEMA_MAJOR,
    };
    open_table(&root.join(ATTEMPTS), spec, clock).await
}

/// Opens a table in its folder, or makes both.
pub async fn open_table(folder: &Path, spec: TableSpec, clock: &Clock) -> anyhow::Result<Table> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(Table::open(&url_of(folder)?, spec, clock, RetryLimits::default()).await?)
}

/// The one way into the table's log, for a member of a group.
pub async fn open_writer(table: Table, group: &str, clock: &Clock) -> anyhow::Result<Writer> {
    let member = Member {
        group: group.to_owned(),
        name: member_name(),
    };
    Ok(Writer::open(table, member, clock.clone(), WriterLimits::default()).await?)
}

/// Says that nothing more comes from these sources, and so takes their partitions from whoever reads
/// them; returns how many there are. What comes later is read all the same.
pub async fn retire(
    root: &Path,
    group: &str,
    which: impl Fn(&str) -> bool,
) -> anyhow::Result<usize> {
    let clock = Clock::new(now_ms);
    let table = open_attempts(root, &clock).await?;
    let mut writer = open_writer(table, group, &clock).await?;
    let mut starts = writer.state().positions();
    starts.retain(|partition, _| which(&partition.source));
    let claimed = writer.claim(&starts).await?;
    let positions = claimed.into_iter().map(|(partition, claimed)| {
        let done = true;
        (
            partition,
            Position {
                done,
                ..claimed.position
            },
        )
    });
    let flush = Flush {
        positions: positions.collect(),
        ..Flush::default()
    };
    writer.flush(&flush).await?;
    Ok(flush.positions.len())
}

/// The host and the process.
pub fn member_name() -> String {
    format!("{}-{}", host_name(), std::process::id())
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() {
        "host".to_owned()
    } else {
        name.to_owned()
    }
}

/// Prices, policy and settings, as configured.
pub fn tables(config: &Config) -> anyhow::Result<Arc<Tables>> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| {
            let message = format!("cannot read {}", path.display());
            Stop::usage(message, "correct the path in the configuration").because(error)
        })
    };
    let prices = match &config.prices_file {
        Some(path) => {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            Prices::read(&read(path)?, &name).map_err(|error| {
                Stop::usage(format!("{} is no price table", path.display()), "").because(error)
            })?
        }
        None => Prices::built_in(),
    };
    let rows = config.policy_file.as_deref().map(read).transpose()?;
    let policy = Policy::new(rows.as_deref())
        .map_err(|error| Stop::usage("the billing policy can't be used", "").because(error))?;
    let settings = config.source.clone();
    Ok(Arc::new(Tables {
        classes: Classes::built_in(),
        policy,
        prices,
        settings,
    }))
}

/// Bounds of queries beside the pipeline.
pub fn query_limits(config: &Config) -> Limits {
    // Reading and committing go on beside them.
    let threads = std::thread::available_parallelism().map_or(1, usize::from) / 2;
    Limits {
        memory_bytes: config.limits.sql_bytes,
        spill_bytes: config.limits.spill_bytes_max,
        spill_folder: None,
        threads: threads.max(1),
        usage: Usage::default(),
        time: Some(config.jobs.time_max),
    }
}

/// How long any query may take, of a user or of a job.
pub fn query_time(config: &Config) -> std::time::Duration {
    config.limits.sql_time.max(config.jobs.time_max)
}

/// Bounds of the reading stage.
pub fn read_limits(config: &Config) -> ReadLimits {
    let seen_max = config.limits.seen_bytes / ENTRY_BYTES;
    ReadLimits {
        state: StateLimits {
            dedupe_horizon_ms: ms(config.dedupe.horizon),
            replay_max: i64::try_from(config.dedupe.replay_max).unwrap_or(i64::MAX),
            seen_max,
        },
        seen_bytes_max: config.limits.seen_bytes,
        keep_payloads: config.dead_letters.full,
    }
}

/// The names of the tables, on each row.
pub fn versions(tables: &Tables) -> Versions {
    Versions {
        prices: tables.prices.version().to_owned(),
        policy: tables.policy_version(),
    }
}

/// When a flush ends, and what goes with it.
pub fn write_settings(config: &Config, source: SourceId, tables: &Tables) -> WriteSettings {
    WriteSettings {
        source,
        versions: versions(tables),
        flush_bytes: config.flush.size_bytes,
        interval_ms: ms(config.flush.interval),
        interval_behind_ms: ms(config.flush.interval_behind),
        position_interval_ms: ms(config.flush.position_interval),
        files: FileLimits {
            memory_bytes_max: config.limits.encode_bytes,
            ..FileLimits::default()
        },
        restarts: true,
    }
}
