//! The table `alerts` → its transitions, as whoever leads it and whoever reads it see them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use retrytoll_lake::{Clock, Table, TableSpec, replay};

use super::ALERTS;
use super::row::{DECIDED, Key, Row, from_batch, keep_newest, schema};
use crate::lake;

/// The newest schema major of `alerts` that this release knows, and creates.
const SCHEMA_MAJOR: u32 = 1;

/// Opens the table in this folder, or makes it.
pub async fn open(folder: &Path, clock: &Clock) -> anyhow::Result<Table> {
    let spec = TableSpec {
        columns: schema(),
        by_date: false,
        schema_major: SCHEMA_MAJOR,
    };
    lake::open_table(folder, spec, clock).await
}

/// The rows of a file of the table.
pub fn read_file(path: &Path) -> anyhow::Result<Vec<Row>> {
    let read = || -> anyhow::Result<Vec<Row>> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?.build()?;
        let mut rows = Vec::new();
        for batch in reader {
            rows.extend(from_batch(&batch?)?);
        }
        Ok(rows)
    };
    read().with_context(|| format!("cannot read {}", path.display()))
}

/// How many rows of a lake's `alerts` have this text as a value of their data.
///
/// # Errors
/// The lake's.
pub async fn rows_that_name(root: &Path, clock: &Clock, text: &str) -> anyhow::Result<u64> {
    let folder = root.join(ALERTS);
    if !folder.exists() {
        return Ok(0);
    }
    let table = open(&folder, clock).await?;
    let files = replay::load_files(&table, table.check().await?.version).await?;
    let value = serde_json::to_string(text)?;
    let mut named = 0;
    for path in files.live.keys() {
        let rows = read_file(&folder.join(path))?;
        named += rows.iter().filter(|it| it.data.contains(&value)).count() as u64;
    }
    Ok(named)
}

/// A reader of the table, which makes none and leads nothing.
pub struct Stored {
    folder: PathBuf,
    clock: Clock,
    /// `None` until it is there.
    table: Option<Table>,
    /// The version that was read.
    version: Option<u64>,
    /// The files that were read.
    files: BTreeSet<String>,
    /// The transitions that were told.
    told: BTreeSet<Key>,
    /// What was only decided is not told yet.
    settled: bool,
}

impl Stored {
    /// Of the lake with this root on local disk.
    #[must_use]
    pub fn new(root: &Path, clock: Clock) -> Self {
        Self {
            folder: root.join(ALERTS),
            clock,
            table: None,
            version: None,
            files: BTreeSet::new(),
            told: BTreeSet::new(),
            settled: false,
        }
    }

    /// Tells of a transition when it was sent, or kept back for another alert.
    #[must_use]
    pub fn settled(self) -> Self {
        Self {
            settled: true,
            ..self
        }
    }

    /// The transitions that were decided since it was asked last, each once, in the order in
    /// which they were decided. None where there is no such table yet.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn more(&mut self) -> anyhow::Result<Vec<Row>> {
        if self.table.is_none() {
            if !self.folder.join("_delta_log").is_dir() {
                return Ok(Vec::new());
            }
            self.table = Some(open(&self.folder, &self.clock).await?);
        }
        let Some(table) = &self.table else {
            return Ok(Vec::new());
        };
        let version = table.check().await?.version;
        if self.version == Some(version) {
            return Ok(Vec::new());
        }
        let files = replay::load_files(table, version).await?;
        let mut more: BTreeMap<Key, Row> = BTreeMap::new();
        let fresh = files.live.keys().filter(|it| !self.files.contains(*it));
        let fresh = fresh.cloned().collect::<Vec<_>>();
        for path in &fresh {
            for row in read_file(&self.folder.join(path))? {
                let waits = self.settled && row.revision == DECIDED;
                if !waits && !self.told.contains(&row.key()) {
                    keep_newest(&mut more, row);
                }
            }
        }
        // Only now: what failed on the way is read again.
        self.files = files.live.into_keys().collect();
        self.version = Some(version);
        self.told.extend(more.keys().cloned());
        let mut more = more.into_values().collect::<Vec<_>>();
        // Of one alert and one instant, by number: the order of the keys.
        more.sort_by_key(|row| row.transition.at_ms);
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use retrytoll_core::alert::{Severity, State, Transition};
    use tokio::runtime::Runtime;

    use super::super::outbox::Outbox;
    use super::*;

    fn transition(entity: &str, number: i64, at_ms: i64) -> (Transition, String) {
        let transition = Transition {
            dedup_key: format!("retry_share/{entity}"),
            number,
            rule: "retry_share".into(),
            entity: entity.into(),
            state: State::Firing,
            severity: Severity::Warning,
            ends_reason: None,
            starts_at_ms: at_ms,
            at_ms,
        };
        (transition, "{}".into())
    }

    #[test]
    fn a_transition_is_told_once_in_the_order_of_time_and_no_table_is_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = Runtime::new().expect("a runtime");
        let clock = Clock::new(|| 0);
        let mut stored = Stored::new(folder.path(), clock.clone());
        let mut more = || {
            let rows = runtime.block_on(stored.more()).expect("read");
            let names = rows.into_iter().map(|row| row.transition.entity);
            names.collect::<Vec<_>>()
        };
        assert_eq!(more(), [""; 0]);
        assert!(!folder.path().join(ALERTS).exists());

        let outbox = Outbox::open(folder.path(), "g", &clock);
        let mut outbox = runtime.block_on(outbox).expect("an outbox");
        assert_eq!(more(), [""; 0]);
        let decided = vec![transition("b", 1, 2_000), transition("c", 1, 1_000)];
        runtime.block_on(outbox.decide(decided)).expect("decided");
        assert_eq!(more(), ["c", "b"]);
        let key = ("retry_share/c".to_owned(), 1);
        runtime.block_on(outbox.mark_sent(&[key])).expect("marked");
        let decided = vec![transition("a", 1, 3_000)];
        runtime.block_on(outbox.decide(decided)).expect("decided");
        assert_eq!(more(), ["a"]);
        assert_eq!(more(), [""; 0]);
    }
}
