//! What can go wrong in a query or a job, by what its user does next.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use deltalake::DeltaTableError;

/// Where in a text something stands: `FILE:LINE:COLUMN`, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A file, or `query` for a text typed by the user.
    pub file: String,
    /// From 1.
    pub line: Option<u64>,
    /// From 1, in characters.
    pub column: Option<u64>,
}

impl Place {
    /// Somewhere in `file`.
    pub fn file(file: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line: None,
            column: None,
        }
    }

    /// The same file, at a line and column.
    #[must_use]
    pub fn at(&self, line: Option<u64>, column: Option<u64>) -> Self {
        Self {
            file: self.file.clone(),
            line,
            column,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        for number in [self.line, self.column].into_iter().map_while(|it| it) {
            write!(f, ":{number}")?;
        }
        Ok(())
    }
}

/// Why a query or job gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// There is no lake here.
    #[error(
        "no table `attempts` at {location}: name the lake with --lake, or fill it with `retrytoll ingest FILE` or `retrytoll run`"
    )]
    NoTable {
        /// Where it was looked for.
        location: String,
    },

    /// A version that the table never had, or has no more.
    #[error(
        "version {version} of {location} is not there, the newest is {newest}: choose one up to it that log clean-up has kept"
    )]
    NoVersion {
        /// The table.
        location: String,
        /// What was asked.
        version: u64,
        /// The newest.
        newest: u64,
    },

    /// The lake is of a newer release.
    #[error(
        "{location} has schema major {found}, this release knows {known}: use the newer release"
    )]
    NewerMajor {
        /// The table.
        location: String,
        /// In the table.
        found: String,
        /// The newest known.
        known: u32,
    },

    /// Not a place a lake can be.
    #[error("{text} is neither a folder nor a URL: {reason}")]
    BadLocation {
        /// What was typed.
        text: String,
        /// Why not.
        reason: String,
    },

    /// The table could not be read.
    #[error("cannot {what}: check the lake's address and permissions")]
    Delta {
        /// What was tried.
        what: String,
        /// Why.
        source: Box<DeltaTableError>,
    },

    /// The log names a file that does not belong to the table.
    #[error(
        "the log of {location} names a file outside of it, {path:?}: another writer made that entry; ask for a version before it with --at-version, or restore the table"
    )]
    Outside {
        /// The table.
        location: String,
        /// As in the log, decoded.
        path: String,
    },

    /// A text that is no SQL, or names what does not exist.
    #[error("{place}: {reason}")]
    Sql {
        /// Where.
        place: Place,
        /// What is wrong there.
        reason: String,
    },

    /// Something else than a question.
    #[error(
        "{place}: {statement} would change something, and the lake is written by retrytoll alone: use SELECT, WITH, EXPLAIN or SHOW"
    )]
    NotAQuestion {
        /// Where.
        place: Place,
        /// Its first word.
        statement: String,
    },

    /// The query needs more than it may have.
    #[error(
        "{place}: the query needs more than its {memory_bytes} bytes of memory and {spill_bytes} of spill: narrow it with --since and --until, group by less, or raise limits.sql and limits.spill_max"
    )]
    TooLarge {
        /// Where.
        place: Place,
        /// The pool.
        memory_bytes: usize,
        /// The spill folder.
        spill_bytes: u64,
        /// What DataFusion says.
        source: Box<DataFusionError>,
    },

    /// The query takes longer than it may.
    #[error(
        "{place}: the query took longer than {time:?}: narrow it with --since and --until, join on something, or raise limits.sql_time (for jobs of `run` jobs.time_max)"
    )]
    TooLong {
        /// Where.
        place: Place,
        /// How long it may take.
        time: Duration,
    },

    /// The query failed while it ran.
    #[error("{place}: the query failed")]
    Query {
        /// Where.
        place: Place,
        /// Why.
        source: Box<DataFusionError>,
    },

    /// A job's answer is meant to be read by people and alerts.
    #[error(
        "job {job} answers with more than {rows_max} rows: add LIMIT to it, or run its query with `retrytoll sql`"
    )]
    TooManyRows {
        /// The job.
        job: String,
        /// The limit.
        rows_max: usize,
    },

    /// No job of this name.
    #[error("no job is named {name}: the jobs are {}", known.join(", "))]
    UnknownJob {
        /// What was asked.
        name: String,
        /// What there is.
        known: Vec<String>,
    },

    /// The job has no such parameter.
    #[error("job {job} has no parameter {name}: {}", known_parameters(known))]
    UnknownParameter {
        /// The job.
        job: String,
        /// What was given.
        name: String,
        /// What there is.
        known: Vec<String>,
    },

    /// The parameter does not take this value.
    #[error("parameter {name} of job {job} is {value}: give {expected}")]
    BadParameter {
        /// The job.
        job: String,
        /// The parameter.
        name: String,
        /// What was given.
        value: String,
        /// What it takes.
        expected: String,
    },

    /// A time, duration or zone that is none.
    #[error("{option} {value}: {reason}")]
    BadTime {
        /// Which option.
        option: &'static str,
        /// What was given.
        value: String,
        /// What is wrong, and what to give.
        reason: String,
    },

    /// A file of jobs, or the folder, could not be read.
    #[error("cannot read {}: check the path and its permissions", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },

    /// The answer could not be written out.
    #[error("cannot write the answer")]
    Write {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The answer has a column the format cannot hold.
    #[error("the answer cannot be written as {format}")]
    Format {
        /// The format.
        format: &'static str,
        /// Why.
        source: ArrowError,
    },
}

fn known_parameters(known: &[String]) -> String {
    if known.is_empty() {
        "it has none".into()
    } else {
        format!("it has {}", known.join(", "))
    }
}

impl JobError {
    /// Whether what was typed is wrong, so that trying again will not help.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Sql { .. }
                | Self::NotAQuestion { .. }
                | Self::UnknownJob { .. }
                | Self::UnknownParameter { .. }
                | Self::BadParameter { .. }
                | Self::BadTime { .. }
                | Self::BadLocation { .. }
        )
    }

    /// An error of planning or running a query, with the line it speaks of where it knows one.
    pub(crate) fn query(place: &Place, error: DataFusionError) -> Self {
        if let DataFusionError::SQL(parser, _) = error.find_root() {
            let (reason, line, column) = split_position(&parser.to_string());
            return Self::Sql {
                place: place.at(line, column),
                reason,
            };
        }
        if let Some(diagnostic) = error.diagnostic() {
            let start = diagnostic.span.map(|it| it.start);
            let reason = std::iter::once(diagnostic.message.clone())
                .chain(diagnostic.helps.iter().map(|it| it.message.clone()))
                .collect::<Vec<_>>()
                .join("; ");
            return Self::Sql {
                place: place.at(start.map(|it| it.line), start.map(|it| it.column)),
                reason: with_tables(reason),
            };
        }
        match error.find_root() {
            DataFusionError::Plan(reason) => Self::Sql {
                place: place.clone(),
                reason: with_tables(reason.clone()),
            },
            DataFusionError::SchemaError(reason, _) => Self::Sql {
                place: place.clone(),
                reason: reason.to_string(),
            },
            _ => Self::Query {
                place: place.clone(),
                source: Box::new(error),
            },
        }
    }
}

/// A table that is not there may be the path of a file, which no query reads.
fn with_tables(reason: String) -> String {
    let is_of_table = reason.starts_with("table ") && reason.ends_with(" not found");
    if is_of_table {
        return reason + ": queries read the lake alone, and SHOW TABLES lists what it has";
    }
    reason
}

/// The parser puts ` at Line: 3, Column: 5` at the end of what it says.
fn split_position(text: &str) -> (String, Option<u64>, Option<u64>) {
    let text = text.strip_prefix("sql parser error: ").unwrap_or(text);
    let Some((reason, position)) = text.rsplit_once(" at Line: ") else {
        return (text.to_owned(), None, None);
    };
    let mut numbers = position
        .split(", Column: ")
        .map(|it| it.trim().parse().ok());
    (
        reason.to_owned(),
        numbers.next().flatten(),
        numbers.next().flatten(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_shows_what_is_known() {
        let place = Place::file("jobs/a.sql");
        assert_eq!(place.to_string(), "jobs/a.sql");
        assert_eq!(place.at(Some(3), None).to_string(), "jobs/a.sql:3");
        assert_eq!(place.at(Some(3), Some(7)).to_string(), "jobs/a.sql:3:7");
    }

    #[test]
    fn the_parser_tells_the_position() {
        let text = "sql parser error: Expected: an expression, found: FROM at Line: 3, Column: 5";
        let expected = (
            "Expected: an expression, found: FROM".to_owned(),
            Some(3),
            Some(5),
        );
        assert_eq!(split_position(text), expected);
        assert_eq!(split_position("odd"), ("odd".to_owned(), None, None));
    }
}
