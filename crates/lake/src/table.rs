//! A location and the columns it must have → an open [`Table`].
//!
//! Version 0 is created by the same put-if-absent as every commit; whoever loses reads what the
//! other created. Columns are only ever added, and a newer schema major is refused.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use deltalake::kernel::engine::arrow_conversion::TryIntoKernel;
use deltalake::kernel::{
    Action, Metadata, MetadataExt, Protocol, StructField, StructType, new_metadata,
};
use deltalake::logstore::{
    CommitOrBytes, LogStore, LogStoreRef, StorageConfig, default_logstore, logstore_for,
};
use object_store::ObjectStore;
use serde_json::Value;
use url::Url;
use uuid::Uuid;

use crate::clock::Clock;
use crate::durable;
use crate::error::LakeError;
use crate::log::{Author, entry_bytes, read_entry};
use crate::replay::{self, LogState};
use crate::retry::{Retry, RetryLimits};
use crate::writer::BASE_AGE_MS_MAX;

/// The property that says which release may write the table.
pub const SCHEMA_MAJOR_PROPERTY: &str = "retrytoll.schema.major";
/// Commits between two checkpoints.
pub const CHECKPOINT_COMMITS: u64 = 100;
/// How long entries, and removed files, stay where nothing else is said: the reach of
/// `--at-version` and of an alert's version.
pub const LOG_KEPT_MS: i64 = 7 * 24 * 3_600_000;

/// What a table must look like.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// All columns, the partition column too.
    pub columns: SchemaRef,
    /// Whether the table lies in folders `date=YYYY-MM-DD`, by its column `date`.
    pub by_date: bool,
    /// The newest schema major that this release knows, and creates.
    pub schema_major: u32,
}

impl TableSpec {
    fn struct_type(&self) -> Result<StructType, LakeError> {
        self.columns
            .as_ref()
            .try_into_kernel()
            .map_err(|e| LakeError::data("state the columns as a Delta schema", e))
    }

    fn partition_columns(&self) -> &'static [&'static str] {
        if self.by_date { &["date"] } else { &[] }
    }

    /// The columns that stand in the data files.
    #[must_use]
    pub fn file_columns(&self) -> SchemaRef {
        let fields = self.columns.fields().iter();
        let in_files = |f: &&Arc<arrow::datatypes::Field>| !self.by_date || f.name() != "date";
        Arc::new(Schema::new(
            fields.filter(in_files).cloned().collect::<Vec<_>>(),
        ))
    }

    /// The metadata of version 0.
    fn metadata(&self) -> Result<Metadata, LakeError> {
        // `delta.setTransactionRetentionDuration` stays unset and no `txn` has a `lastUpdated`:
        // with either, other programs' checkpoints would drop positions as expired.
        let properties = [
            (SCHEMA_MAJOR_PROPERTY, self.schema_major.to_string()),
            ("delta.logRetentionDuration", "interval 7 days".to_owned()),
            (
                "delta.deletedFileRetentionDuration",
                "interval 7 days".to_owned(),
            ),
            ("delta.checkpointInterval", CHECKPOINT_COMMITS.to_string()),
        ];
        new_metadata(&self.struct_type()?, self.partition_columns(), properties)
            .map_err(|e| LakeError::data("make the table's metadata", e))
    }

    /// Checks what the log says against this release.
    ///
    /// # Errors
    /// [`LakeError::NewerMajor`], [`LakeError::NotOurTable`], [`LakeError::ProtocolUnknown`],
    /// [`LakeError::ColumnChanged`] for another type or another partition column.
    pub(crate) fn check(&self, location: &str, state: &LogState) -> Result<(), LakeError> {
        let location = location.to_owned();
        let major = state.metadata.configuration().get(SCHEMA_MAJOR_PROPERTY);
        let Some(found) = major.and_then(|text| text.parse::<u32>().ok()) else {
            return Err(LakeError::NotOurTable { location });
        };
        if found > self.schema_major {
            return Err(LakeError::NewerMajor {
                location,
                found,
                known: self.schema_major,
            });
        }
        let (reader, writer) = (
            state.protocol.min_reader_version(),
            state.protocol.min_writer_version(),
        );
        if reader > 1 || writer > 2 {
            return Err(LakeError::ProtocolUnknown {
                location,
                reader,
                writer,
            });
        }
        if state.metadata.partition_columns() != self.partition_columns() {
            return Err(LakeError::ColumnChanged {
                column: "date".to_owned(),
                found: format!("partitioned by {:?}", state.metadata.partition_columns()),
                expected: format!("partitioned by {:?}", self.partition_columns()),
            });
        }
        self.missing(&state.metadata).map(drop)
    }

    /// The columns of this release that the table lacks.
    fn missing(&self, metadata: &Metadata) -> Result<Vec<StructField>, LakeError> {
        let found = schema_of(metadata)?;
        let mut missing = Vec::new();
        for wanted in self.struct_type()?.fields() {
            match found.field(wanted.name()) {
                None => missing.push(wanted.clone()),
                Some(field) if field.data_type() == wanted.data_type() => {}
                Some(field) => {
                    return Err(LakeError::ColumnChanged {
                        column: wanted.name().clone(),
                        found: field.data_type().to_string(),
                        expected: wanted.data_type().to_string(),
                    });
                }
            }
        }
        Ok(missing)
    }

    /// The metadata with the missing columns added, nullable; `None` where none is missing.
    pub(crate) fn extended(&self, metadata: &Metadata) -> Result<Option<Metadata>, LakeError> {
        let missing = self.missing(metadata)?;
        if missing.is_empty() {
            return Ok(None);
        }
        let found = schema_of(metadata)?;
        let added = missing.into_iter().map(|mut field| {
            // Rows that are there already have no value.
            field.nullable = true;
            field
        });
        let fields = found.fields().cloned().chain(added);
        let failed = |e: Box<dyn std::error::Error + Send + Sync>| {
            LakeError::data("add columns to the table's schema", e)
        };
        let schema = StructType::try_new(fields).map_err(|e| failed(e.into()))?;
        metadata
            .clone()
            .with_schema(&schema)
            .map(Some)
            .map_err(|e| failed(e.into()))
    }
}

fn schema_of(metadata: &Metadata) -> Result<StructType, LakeError> {
    metadata
        .parse_schema()
        .map_err(|e| LakeError::data("read the table's schema", e))
}

/// A Delta table of ours. Cheap to clone.
#[derive(Clone)]
pub struct Table {
    log: LogStoreRef,
    /// The folder, on local disk.
    local: Option<PathBuf>,
    spec: Arc<TableSpec>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({})", self.location())
    }
}

impl Table {
    /// Opens the table at `location` (`file://…`, or another scheme that the Delta crate has a
    /// store for), and creates it where there is none.
    ///
    /// On local disk a cut last entry is set aside first. Missing columns are added by
    /// [`crate::Writer::open`], since that is a commit.
    ///
    /// # Errors
    /// As [`Table::check`], and [`LakeError::Unavailable`] where it could not be created within
    /// `limits`.
    pub async fn open(
        location: &Url,
        spec: TableSpec,
        clock: &Clock,
        limits: RetryLimits,
    ) -> Result<Self, LakeError> {
        let local = local_folder(location)?;
        let log = logstore_for(location, StorageConfig::default())
            .map_err(|e| LakeError::delta(format!("open {location}"), e))?;
        Self {
            log,
            local,
            spec: Arc::new(spec),
        }
        .opened(clock, limits)
        .await
    }

    /// As [`Table::open`], on a given store whose root is that of the scheme (for `file://` the
    /// file system's).
    ///
    /// # Errors
    /// As [`Table::open`].
    pub async fn open_on(
        store: Arc<dyn ObjectStore>,
        location: &Url,
        spec: TableSpec,
        clock: &Clock,
        limits: RetryLimits,
    ) -> Result<Self, LakeError> {
        let local = local_folder(location)?;
        let config = StorageConfig::default();
        let prefixed = config
            .decorate_store(store.clone(), location)
            .map_err(|e| LakeError::delta(format!("open {location}"), e))?;
        let log = default_logstore(Arc::from(prefixed), store, location, &config);
        Self {
            log,
            local,
            spec: Arc::new(spec),
        }
        .opened(clock, limits)
        .await
    }

    async fn opened(self, clock: &Clock, limits: RetryLimits) -> Result<Self, LakeError> {
        if let Some(local) = &self.local {
            durable::set_aside_cut(local.clone(), clock.now_ms()).await?;
        }
        let looked_ms = clock.now_ms();
        if replay::survey(&self).await?.is_none() {
            self.create(looked_ms, clock, limits).await?;
        }
        self.check().await?;
        Ok(self)
    }

    /// Makes the table, of which there was nothing at `looked_ms`.
    pub(crate) async fn create(
        &self,
        mut looked_ms: i64,
        clock: &Clock,
        limits: RetryLimits,
    ) -> Result<(), LakeError> {
        let id = Uuid::new_v4();
        let by = Author {
            commit_id: Some(id.to_string()),
            operation: Some("CREATE TABLE".to_owned()),
            ..Author::default()
        };
        let protocol = serde_json::json!({ "minReaderVersion": 1, "minWriterVersion": 2 });
        let protocol: Protocol = serde_json::from_value(protocol)
            .map_err(|e| LakeError::data("make the protocol", e))?;
        let actions = [
            Action::Protocol(protocol),
            Action::Metadata(self.spec.metadata()?),
        ];
        let bytes =
            CommitOrBytes::LogBytes(entry_bytes(&by, clock.now_ms(), &actions, &Value::Null)?);
        let mut retry = Retry::begin(limits, clock.clone(), Arc::default());
        loop {
            // Where another made it meanwhile, log clean-up may have removed its first entry.
            if clock.since_ms(looked_ms) > BASE_AGE_MS_MAX {
                looked_ms = clock.now_ms();
                if replay::survey(self).await?.is_some() {
                    return Ok(());
                }
            }
            let put = self.log.write_commit_entry(0, bytes.clone(), id).await;
            // Whoever's it is: a lost answer, another's entry and our own look the same.
            let there = read_entry(self.log(), 0).await;
            match (put, there) {
                (_, Ok(Some(_))) => break,
                (Err(e), _) => retry.wait(0, e.into()).await?,
                (Ok(()), Err(e)) => retry.wait(0, e.into()).await?,
                (Ok(()), Ok(None)) => break,
            }
        }
        self.sync_entry(0).await;
        Ok(())
    }

    /// Syncs the entry of `version` on local disk. A failure is told and no more: the commit is
    /// visible, and at worst replayed after a power loss.
    pub(crate) async fn sync_entry(&self, version: u64) {
        if let Some(local) = &self.local
            && let Err(e) = durable::sync_entry(local.clone(), version).await
        {
            let cause = std::error::Error::source(&e).map(ToString::to_string);
            tracing::warn!(version, error = %e, cause, "an entry may not survive a power loss");
        }
    }

    /// Checks schema and protocol at the head, and returns what the log says.
    ///
    /// # Errors
    /// [`LakeError::NewerMajor`], [`LakeError::NotOurTable`], [`LakeError::ProtocolUnknown`],
    /// [`LakeError::ColumnChanged`], and those of reading the log.
    pub async fn check(&self) -> Result<LogState, LakeError> {
        let state = replay::load(self)
            .await?
            .ok_or_else(|| LakeError::LogHole {
                location: self.location(),
                version: 0,
            })?;
        self.spec.check(&self.location(), &state)?;
        Ok(state)
    }

    /// Where the table lies.
    #[must_use]
    pub fn location(&self) -> String {
        self.log.root_url().to_string()
    }

    /// The folder on local disk, where it is on local disk.
    #[must_use]
    pub fn local(&self) -> Option<&std::path::Path> {
        self.local.as_deref()
    }

    /// What the table must look like.
    #[must_use]
    pub fn spec(&self) -> &TableSpec {
        &self.spec
    }

    /// The store, its root being the table's folder.
    #[must_use]
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        self.log.object_store(None)
    }

    /// The Delta crate's handle, for readers.
    #[must_use]
    pub fn log_store(&self) -> LogStoreRef {
        self.log.clone()
    }

    pub(crate) fn log(&self) -> &dyn LogStore {
        self.log.as_ref()
    }

    /// The table's properties at the head.
    ///
    /// # Errors
    /// As [`Table::check`].
    pub async fn properties(&self) -> Result<HashMap<String, String>, LakeError> {
        Ok(self.check().await?.metadata.configuration().clone())
    }
}

/// The folder of a local location, created if it is missing.
fn local_folder(location: &Url) -> Result<Option<PathBuf>, LakeError> {
    if location.scheme() != "file" {
        return Ok(None);
    }
    let folder = location.to_file_path().map_err(|()| {
        let bad = deltalake::DeltaTableError::InvalidTableLocation(location.to_string());
        LakeError::delta(format!("open {location}"), bad)
    })?;
    std::fs::create_dir_all(&folder).map_err(|e| LakeError::io("create", &folder, e))?;
    Ok(Some(folder))
}
