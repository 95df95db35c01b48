//! Limits → DataFusion, as every question of a session runs on it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::{SQLOptions, SessionContext};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::{DataFrame, SessionConfig};
use datafusion::sql::parser::Statement;

use crate::error::{JobError, Place};
use crate::place::{Planner, request_hash};
use crate::pool::PartsPool;
use crate::profile::power_of_two_function;
use crate::time::Yielding;

/// What the queries of a session may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Memory that sorts, joins and groups may hold, bytes; beyond it they spill.
    pub memory_bytes: usize,
    /// How much they may spill, bytes.
    pub spill_bytes: u64,
    /// Where they spill to; the system's folder for temporary files by default.
    pub spill_folder: Option<PathBuf>,
    /// How many threads one query may use; where memory is short for so many, fewer work.
    pub threads: usize,
    /// How long a query or a job may take; `None`: as long as it takes.
    pub time: Option<Duration>,
    /// What of it is taken, over all sessions that were given a copy of this.
    pub usage: Usage,
}

/// What open sessions take, to be looked at from outside.
#[derive(Clone, Debug, Default)]
pub struct Usage(Arc<Mutex<Vec<Weak<RuntimeEnv>>>>);

impl Usage {
    fn watch(&self, runtime: &Arc<RuntimeEnv>) {
        if let Ok(mut sessions) = self.0.lock() {
            sessions.retain(|it| it.strong_count() > 0);
            sessions.push(Arc::downgrade(runtime));
        }
    }

    /// Bytes of memory that questions hold now, and bytes that they have spilled to disk.
    #[must_use]
    pub fn now(&self) -> (usize, u64) {
        let Ok(sessions) = self.0.lock() else {
            return (0, 0);
        };
        let open = sessions.iter().filter_map(Weak::upgrade);
        open.fold((0, 0), |(memory, spilled), it| {
            let disk = it.disk_manager.used_disk_space();
            (memory + it.memory_pool.reserved(), spilled + disk)
        })
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 48 << 20,
            spill_bytes: 4 << 30,
            spill_folder: None,
            threads: 2,
            usage: Usage::default(),
            time: None,
        }
    }
}

/// What a thread needs of the memory, bytes: each has sorts and buffers of its own, and with less
/// they would not even begin.
const THREAD_BYTES_MIN: usize = 100_000_000;

/// Functions of which one call makes a value as large as it was told to: no pool knows of its
/// memory. The table functions of the same names, in FROM, give their rows batch by batch.
const WITHOUT_BOUND: [&str; 7] = [
    "repeat",
    "lpad",
    "rpad",
    "array_repeat",
    "array_resize",
    "generate_series",
    "range",
];

/// What all questions of a session share: memory, and the folder they spill to.
pub fn runtime(limits: &Limits) -> Result<Arc<RuntimeEnv>, DataFusionError> {
    let mode = match &limits.spill_folder {
        Some(folder) => DiskManagerMode::Directories(vec![folder.clone()]),
        None => DiskManagerMode::OsTmpDirectory,
    };
    let disk = DiskManagerBuilder::default()
        .with_mode(mode)
        .with_max_temp_directory_size(limits.spill_bytes);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(PartsPool::new(limits.memory_bytes)))
        .with_disk_manager_builder(disk)
        .build_arc()?;
    limits.usage.watch(&runtime);
    Ok(runtime)
}

/// One question's tables and settings.
pub fn context(limits: &Limits, runtime: Arc<RuntimeEnv>) -> SessionContext {
    let threads = limits.threads.min(limits.memory_bytes / THREAD_BYTES_MIN);
    let mut config = SessionConfig::new()
        .with_target_partitions(threads.max(1))
        .with_information_schema(true);
    let options = config.options_mut();
    // A number with a point in a query is as exact as the money it stands beside.
    options.sql_parser.parse_float_as_decimal = true;
    // Lines and columns for messages.
    options.sql_parser.collect_spans = true;
    // By default each sort of each thread reserves 10 MB of the pool before it sorts anything.
    options.execution.sort_spill_reservation_bytes = limits.memory_bytes / 512;
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_query_planner(Arc::new(Planner))
        .with_physical_optimizer_rule(Arc::new(Yielding))
        .build();
    let context = SessionContext::new_with_state(state);
    for name in WITHOUT_BOUND {
        context.deregister_udf(name);
    }
    context.register_udf(request_hash());
    context.register_udf(power_of_two_function());
    context
}

/// The plan of a statement that only asks.
///
/// # Errors
/// As [`JobError::query`].
pub async fn plan(
    context: &SessionContext,
    place: &Place,
    statement: Statement,
) -> Result<DataFrame, JobError> {
    let state = context.state();
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
