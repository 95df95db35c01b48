//! `sql/jobs/*.sql` and `jobs.toml`, the embedded ones and then a user's folder → [`Catalog`].
//!
//! A file that is no job is kept as the error it is: it stops no other job.

#[cfg(any(test, feature = "contract"))]
pub(crate) mod contract;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::ask;
use crate::error::{JobError, Place};
use crate::meta::{self, Meta};

/// A query with its meaning.
#[derive(Clone, Debug)]
pub struct Job {
    /// The file's name without `.sql`.
    pub name: String,
    /// The file, for messages.
    pub file: String,
    /// The query, with `$name` where a value goes.
    pub sql: String,
    /// What it means.
    pub meta: Meta,
}

/// Every job there is, by name.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    jobs: BTreeMap<String, Arc<Job>>,
}

const EMBEDDED_META: &str = include_str!("../../../sql/jobs.toml");
/// The jobs of `sql/jobs/`, by name.
macro_rules! embedded {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../../sql/jobs/", $name, ".sql")))),+]
    };
}

/// A job that comes with the binary stands here and in `sql/jobs/`; a test compares the two.
const EMBEDDED: &[(&str, &str)] = embedded![
    "cancelled",
    "doomed_outage",
    "doomed_retries",
    "hedges",
    "identical_prompts",
    "inner_retries",
    "late",
    "month",
    "operations",
    "redundant_cost",
    "repeated_billing",
    "resends",
    "retries",
    "retry_after",
    "retry_budget",
    "retry_cost_share",
    "retry_rescue",
    "retry_storm",
    "synchronized_retries",
    "timeout_fit",
    "token_budget",
    "toll",
    "truncation_resends",
    "unpriced",
    "usage_coverage",
];

impl Catalog {
    /// The jobs that come with the binary.
    #[must_use]
    pub fn embedded() -> Self {
        let (metas, wrong) = meta::parse("sql/jobs.toml", EMBEDDED_META);
        debug_assert!(wrong.is_empty(), "{wrong:?}");
        let mut catalog = Self::default();
        for (name, sql) in EMBEDDED {
            let file = format!("sql/jobs/{name}.sql");
            let meta = metas.get(*name).cloned();
            // The tests show that every embedded job is one.
            let _ = catalog.add(name, file, (*sql).to_owned(), meta);
        }
        catalog
    }

    /// Adds the jobs of a user's folder, which go before embedded ones of the same name: each
    /// `*.sql` is a job, a `jobs.toml` beside them tells their meaning. Without an entry, the
    /// comment at the head of the file is the meaning. An entry for an embedded job replaces
    /// its meaning. What is wrong is returned, and is in no catalog.
    ///
    /// # Errors
    /// [`JobError::Read`] where the folder cannot be listed.
    pub fn overlay(&mut self, folder: &Path) -> Result<Vec<JobError>, JobError> {
        let read = |path: &Path, source| JobError::Read {
            path: path.into(),
            source,
        };
        let mut paths = std::fs::read_dir(folder)
            .and_then(|entries| {
                entries
                    .map(|entry| entry.map(|it| it.path()))
                    .collect::<Result<Vec<_>, _>>()
            })
            .map_err(|source| read(folder, source))?;
        paths.sort();

        let mut wrong = Vec::new();
        let mut metas = BTreeMap::new();
        let meta_path = folder.join("jobs.toml");
        if paths.contains(&meta_path) {
            match std::fs::read_to_string(&meta_path) {
                Ok(text) => (metas, wrong) = meta::parse(&meta_path.to_string_lossy(), &text),
                Err(source) => wrong.push(read(&meta_path, source)),
            }
        }
        for path in paths
            .iter()
            .filter(|it| it.extension().is_some_and(|it| it == "sql"))
        {
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let added = match std::fs::read_to_string(path) {
                Ok(sql) => {
                    let meta = metas.remove(&name);
                    self.add(&name, path.to_string_lossy().into_owned(), sql, meta)
                }
                Err(source) => Err(read(path, source)),
            };
            wrong.extend(added.err());
        }
        for (name, meta) in metas {
            match self.jobs.get_mut(&name) {
                Some(job) => Arc::make_mut(job).meta = meta,
                None => wrong.push(JobError::Sql {
                    place: Place::file(meta_path.to_string_lossy()),
                    reason: format!("job {name} has no file {name}.sql"),
                }),
            }
        }
        Ok(wrong)
    }

    fn add(
        &mut self,
        name: &str,
        file: String,
        sql: String,
        meta: Option<Meta>,
    ) -> Result<(), JobError> {
        let named = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || !name.chars().all(named) {
            let reason = "a job's name is of a-z, 0-9 and _: rename the file".into();
            return Err(JobError::Sql {
                place: Place::file(file),
                reason,
            });
        }
        let meta = meta.unwrap_or_else(|| Meta {
            title: name.replace('_', " "),
            meaning: head_comment(&sql),
            counts: "rows".into(),
            ..Meta::default()
        });
        ask::check(&Place::file(&file), &sql, &meta)?;
        let job = Job {
            name: name.into(),
            file,
            sql,
            meta,
        };
        self.jobs.insert(name.into(), Arc::new(job));
        Ok(())
    }

    /// The job named `name`.
    ///
    /// # Errors
    /// [`JobError::UnknownJob`] where there is none.
    pub fn get(&self, name: &str) -> Result<Arc<Job>, JobError> {
        self.jobs
            .get(name)
            .cloned()
            .ok_or_else(|| JobError::UnknownJob {
                name: name.into(),
                known: self.jobs.keys().cloned().collect(),
            })
    }

    /// Every job, by name.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values()
    }
}

/// The first sentence of the comment a file begins with.
fn head_comment(sql: &str) -> String {
    let lines = sql.lines().map_while(|line| line.trim().strip_prefix("--"));
    let text = lines.map(str::trim).collect::<Vec<_>>().join(" ");
    text.split_once(". ")
        .map_or(text.trim(), |(first, _)| first)
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(catalog: &Catalog) -> Vec<&str> {
        catalog.jobs().map(|it| it.name.as_str()).collect()
    }

    #[test]
    fn every_file_of_the_repository_is_embedded_with_its_meaning() {
        let catalog = Catalog::embedded();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sql/jobs");
        let mut files = fs::read_dir(folder)
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect::<Vec<_>>();
        files.sort();
        let jobs = names(&catalog)
            .iter()
            .map(|it| format!("{it}.sql"))
            .collect::<Vec<_>>();
        assert_eq!(jobs, files);
        let (metas, wrong) = meta::parse("sql/jobs.toml", EMBEDDED_META);
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(metas.keys().collect::<Vec<_>>(), names(&catalog));
        for job in catalog.jobs() {
            let Meta {
                title,
                meaning,
                unit,
                counts,
                action,
                schedule,
                ..
            } = &job.meta;
            for text in [title, meaning, unit] {
                assert!(!text.is_empty(), "{}", job.name);
            }
            assert!(
                ["attempts", "operations"].contains(&counts.as_str()),
                "{}",
                job.name
            );
            assert!(action.is_some() && schedule.is_some(), "{}", job.name);
        }
    }

    #[test]
    fn a_users_folder_adds_and_replaces_and_a_bad_file_stops_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        put(
            "mine.sql",
            "-- Attempts of a\n-- month. More words.\nSELECT count(*) FROM attempts",
        );
        put("retries.sql", "SELECT 1 AS one");
        put("cut.sql", "SELECT a\nFROM attempts\nWHERE )");
        put("drop.sql", "DROP TABLE attempts");
        put("two.sql", "SELECT 1; SELECT 2");
        put("blank.sql", "-- nothing\n");
        put("asks.sql", "SELECT *\nFROM attempts\nWHERE model = $modle");
        put("Odd name.sql", "SELECT 1");
        put("notes.txt", "not a job");
        put(
            "jobs.toml",
            "[asks.parameters.model]\ndefault = 'a'\n[unpriced]\ntitle = 'New'\n[gone]\ntitle = 'x'\n",
        );
        fs::write(folder.path().join("bytes.sql"), b"SELECT '\xff'").unwrap();

        let mut catalog = Catalog::embedded();
        let wrong = catalog.overlay(folder.path()).unwrap();
        let prefix = format!("{}/", folder.path().display());
        let wrong = wrong
            .iter()
            .map(|it| it.to_string().replace(&prefix, ""))
            .collect::<Vec<_>>();
        assert_eq!(
            wrong,
            [
                "Odd name.sql: a job's name is of a-z, 0-9 and _: rename the file",
                "asks.sql:3:15: no parameter is named $modle: use one of $model, $since, $until, $zone_type",
                "blank.sql: there is no statement: write one SELECT",
                "cannot read bytes.sql: check the path and its permissions",
                "cut.sql:3:7: Expected: an expression, found: )",
                "drop.sql:1:1: DROP would change something, and the lake is written by retrytoll alone: use SELECT, WITH, EXPLAIN or SHOW",
                "two.sql: there are 2 statements: write one SELECT",
                "jobs.toml: job gone has no file gone.sql",
            ]
        );
        let embedded = Catalog::embedded();
        let mut every = names(&embedded);
        every.push("mine");
        every.sort_unstable();
        assert_eq!(names(&catalog), every);
        assert_eq!(catalog.get("retries").unwrap().sql, "SELECT 1 AS one");
        assert_eq!(
            catalog.get("mine").unwrap().meta.meaning,
            "Attempts of a month"
        );
        assert_eq!(catalog.get("unpriced").unwrap().meta.title, "New");
        let missing = catalog.get("cut").unwrap_err().to_string();
        assert!(
            missing.starts_with("no job is named cut: the jobs are "),
            "{missing}"
        );
    }
}
