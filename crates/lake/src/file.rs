//! A Parquet file that was written → the `add` action that makes it part of the table.

use std::collections::HashMap;

use deltalake::kernel::Add;

/// The date of a live file's rows; `None` where they have none, or the table has no dates.
#[must_use]
pub fn date_of(add: &Add) -> Option<&str> {
    add.partition_values.get("date")?.as_deref()
}

/// A complete Parquet file within a table's folder, not yet committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataFile {
    /// Relative to the table's folder, with `/`.
    pub path: String,
    /// Its size, bytes.
    pub size: u64,
    /// Its rows.
    pub rows: u64,
    /// The partition's value, for a table by date: a date as text, or `None` for rows without
    /// one. `None` too for other tables.
    pub date: Option<String>,
    /// Delta's statistics as JSON; without them only the number of rows is stated.
    pub stats: Option<String>,
    /// More about the file, kept in the log.
    pub tags: HashMap<String, String>,
}

impl DataFile {
    /// The folder of a date within a table by date, as Hive writes it.
    ///
    /// ```
    /// use retrytoll_lake::DataFile;
    /// assert_eq!(DataFile::folder(Some("2026-09-01")), "date=2026-09-01");
    /// assert_eq!(DataFile::folder(None), "date=__HIVE_DEFAULT_PARTITION__");
    /// ```
    #[must_use]
    pub fn folder(date: Option<&str>) -> String {
        format!("date={}", date.unwrap_or("__HIVE_DEFAULT_PARTITION__"))
    }

    pub(crate) fn to_add(&self, by_date: bool, now_ms: i64, data_change: bool) -> Add {
        let partition = by_date.then(|| ("date".to_owned(), self.date.clone()));
        let stats = self
            .stats
            .clone()
            .unwrap_or_else(|| format!(r#"{{"numRecords":{}}}"#, self.rows));
        let tags = self.tags.iter().map(|(k, v)| (k.clone(), Some(v.clone())));
        Add {
            path: self.path.clone(),
            partition_values: partition.into_iter().collect(),
            size: i64::try_from(self.size).unwrap_or(i64::MAX),
            modification_time: now_ms,
            data_change,
            stats: Some(stats),
            tags: (!self.tags.is_empty()).then(|| tags.collect()),
            ..Add::default()
        }
    }
}
