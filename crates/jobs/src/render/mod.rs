//! Rows → table, JSON, CSV or Parquet.
//!
//! Every format but the table is exact and whole: decimals are text in JSON and in CSV, so that
//! no reader makes floats of them, times are RFC 3339. A *unit* is the end of a column's name,
//! `_usd` or `_pct`; only the tables of reports are drawn by it.

mod cell;
mod report;
mod rows;
mod table;
mod width;

use std::io;

use arrow::error::ArrowError;

use crate::error::JobError;

pub use cell::{count_text, decimal_text, dollars_text, harmless, percent_text};
pub use report::{columns, footer, report};
pub use rows::RowWriter;
pub use table::Style;
pub use width::wrap;

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Table,
    /// One document.
    Json,
    /// A header, then a row a line.
    Csv,
    /// A file for other programs.
    Parquet,
}

impl Format {
    /// Its name, as it is typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }
}

/// Either end of writing: the place it goes to, or what is written.
#[derive(Debug)]
enum WriteError {
    Io(io::Error),
    Arrow(ArrowError),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ArrowError> for WriteError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, error) => Self::Io(error),
            error => Self::Arrow(error),
        }
    }
}

impl WriteError {
    fn of(self, format: Format) -> JobError {
        match self {
            Self::Io(error) => JobError::Write {
                source: Box::new(error),
            },
            Self::Arrow(source) => JobError::Format {
                format: format.name(),
                source,
            },
        }
    }
}
