//! A lake's location and a version → its tables, as DataFusion reads them.

use std::path::Path;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use deltalake::{DeltaTable, DeltaTableBuilder, DeltaTableError};
use url::Url;

use crate::error::JobError;

/// The newest schema major that these queries know.
const SCHEMA_MAJOR_KNOWN: u32 = 1;
const SCHEMA_MAJOR: &str = "retrytoll.schema.major";

/// The URL of a lake that is a folder or a URL.
///
/// # Errors
/// [`JobError::BadLocation`] where it can be neither.
pub fn lake_url(text: &str) -> Result<Url, JobError> {
    let bad = |reason: String| JobError::BadLocation {
        text: text.into(),
        reason,
    };
    if text.contains("://") {
        return Url::parse(text).map_err(|error| bad(error.to_string()));
    }
    if text.is_empty() {
        return Err(bad("it is empty".into()));
    }
    let path = std::path::absolute(Path::new(text)).map_err(|error| bad(error.to_string()))?;
    Url::from_directory_path(path).map_err(|()| bad("it has no absolute path".into()))
}

/// The URL of table `name` in a lake.
fn table_url(lake: &Url, name: &str) -> Result<Url, JobError> {
    let mut url = lake.clone();
    let bad = || JobError::BadLocation {
        text: lake.to_string(),
        reason: "it has no path that tables could lie under".into(),
    };
    url.path_segments_mut()
        .map_err(|()| bad())?
        .pop_if_empty()
        .push(name);
    Ok(url)
}

/// The table `attempts` at a version, or at its newest.
///
/// # Errors
/// [`JobError::NoTable`], [`JobError::NoVersion`], [`JobError::NewerMajor`],
/// [`JobError::Delta`].
pub async fn attempts(lake: &Url, at_version: Option<u64>) -> Result<DeltaTable, JobError> {
    let url = table_url(lake, "attempts")?;
    let location = show(&url);
    let no_table = || JobError::NoTable {
        location: location.clone(),
    };
    let newest = load(&url, None).await?.ok_or_else(no_table)?;
    let newest_version = newest.version().unwrap_or_default();
    let table = match at_version {
        None => newest,
        Some(version) if version == newest_version => newest,
        Some(version) => {
            let no_version = || JobError::NoVersion {
                location: location.clone(),
                version,
                newest: newest_version,
            };
            if version > newest_version {
                return Err(no_version());
            }
            load(&url, Some(version))
                .await
                .ok()
                .flatten()
                .ok_or_else(no_version)?
        }
    };
    check_major(&table, &location)?;
    Ok(table)
}

/// Another table of the lake at its newest version, if there is one.
///
/// # Errors
/// [`JobError::Delta`].
pub async fn optional(lake: &Url, name: &str) -> Result<Option<DeltaTable>, JobError> {
    load(&table_url(lake, name)?, None).await
}

async fn load(url: &Url, version: Option<u64>) -> Result<Option<DeltaTable>, JobError> {
    // The local store makes a missing folder a fault of the store, not a missing table.
    if url
        .to_file_path()
        .is_ok_and(|it| url.scheme() == "file" && !it.is_dir())
    {
        return Ok(None);
    }
    let failed = |source| JobError::Delta {
        what: format!("read {}", show(url)),
        source: Box::new(source),
    };
    let mut builder = DeltaTableBuilder::from_url(url.clone()).map_err(failed)?;
    if let Some(version) = version {
        builder = builder.with_version(version);
    }
    match builder.load().await {
        Ok(table) => Ok(Some(table)),
        Err(DeltaTableError::NotATable(_)) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn check_major(table: &DeltaTable, location: &str) -> Result<(), JobError> {
    let Ok(state) = table.snapshot() else {
        return Ok(());
    };
    let Some(found) = state.metadata().configuration().get(SCHEMA_MAJOR) else {
        return Ok(());
    };
    if found
        .parse::<u32>()
        .is_ok_and(|it| it <= SCHEMA_MAJOR_KNOWN)
    {
        return Ok(());
    }
    Err(JobError::NewerMajor {
        location: location.into(),
        found: found.clone(),
        known: SCHEMA_MAJOR_KNOWN,
    })
}

/// As DataFusion reads it: exactly the files of the table's version.
///
/// # Errors
/// [`JobError::Delta`], [`JobError::Outside`].
pub async fn provider(table: &DeltaTable) -> Result<Arc<dyn TableProvider>, JobError> {
    check_inside(table)?;
    table
        .table_provider()
        .await
        .map_err(|error| JobError::Delta {
            what: format!("read {}", show(table.table_url())),
            source: Box::new(DeltaTableError::GenericError {
                source: Box::new(error),
            }),
        })
}

/// The format lets a log name files anywhere; ours name those below the table alone.
fn check_inside(table: &DeltaTable) -> Result<(), JobError> {
    let Ok(state) = table.snapshot() else {
        return Ok(());
    };
    let files = state.log_data();
    match files.iter().find(|file| !is_inside(&file.path())) {
        Some(file) => Err(JobError::Outside {
            location: show(table.table_url()),
            path: file.path().into_owned(),
        }),
        None => Ok(()),
    }
}

/// Whether a decoded path stays below its table: it is relative, goes up nowhere, and is no URL.
fn is_inside(path: &str) -> bool {
    !path.starts_with('/')
        && !path.contains([':', '\\', '%'])
        && path.split('/').all(|it| it != "..")
}

/// A location as its user knows it: a local one as a path; no passwords.
fn show(url: &Url) -> String {
    if let (true, Ok(path)) = (url.scheme() == "file", url.to_file_path()) {
        return path.display().to_string();
    }
    let mut url = url.clone();
    let _ = url.set_password(None);
    url.set_query(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lake_is_a_folder_or_a_url() {
        let table = |text: &str| {
            lake_url(text)
                .and_then(|lake| table_url(&lake, "attempts"))
                .map_or_else(|error| error.to_string(), |url| url.to_string())
        };
        assert_eq!(table("/data/lake"), "file:///data/lake/attempts");
        assert_eq!(table("/data/a lake/"), "file:///data/a%20lake/attempts");
        assert_eq!(table("s3://bucket/a/b"), "s3://bucket/a/b/attempts");
        assert_eq!(table("s3://bucket"), "s3://bucket/attempts");
        assert!(table("").contains("is empty"));
        assert!(table("s3://[").contains("neither a folder nor a URL"));
    }

    #[test]
    fn files_lie_below_their_table() {
        for path in ["date=2026-11-30/a-1.parquet", "a..b", "date=2026-11-30/..a"] {
            assert!(is_inside(path), "{path}");
        }
        for path in [
            "../a",
            "date=2026-11-30/../../a",
            "/a",
            "file:///a",
            "s3://b/a",
            "..\\a",
            "%2e%2e/a",
        ] {
            assert!(!is_inside(path), "{path}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let url = Url::parse("s3://key:secret@bucket/lake?token=1").unwrap();
        assert_eq!(show(&url), "s3://key@bucket/lake");
    }
}
