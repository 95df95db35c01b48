//! The flags of every command that asks the lake.

use std::path::PathBuf;

use clap::Args;
use retrytoll_jobs::Format;

use crate::config::Settings;

/// Which time, which version, and how the answer is written.
#[derive(Debug, Args)]
pub struct AskArgs {
    /// Where the window begins, inclusive: 7d, 24h, 90m (before its end), a date such as
    /// 2026-11-01, or RFC 3339 [default: 24h]
    #[arg(long, value_name = "TIME", help_heading = "Window")]
    pub since: Option<String>,
    /// Where it ends, exclusive: the same forms [default: now]
    #[arg(long, value_name = "TIME", help_heading = "Window")]
    pub until: Option<String>,
    /// The zone in which dates, days and hours are meant: Europe/Berlin, +08:00
    #[arg(
        long,
        value_name = "ZONE",
        default_value = "UTC",
        help_heading = "Window"
    )]
    pub tz: String,
    /// table, json, csv or parquet
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = format)]
    pub format: Format,
    /// Write the answer to this file, in place of stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The Delta version of the table attempts to read, in place of the newest
    #[arg(long, value_name = "VERSION")]
    pub at_version: Option<u64>,
    #[command(flatten)]
    pub settings: Settings,
}

fn format(text: &str) -> Result<Format, String> {
    let all = [Format::Table, Format::Json, Format::Csv, Format::Parquet];
    let found = all.into_iter().find(|format| format.name() == text);
    found.ok_or_else(|| "give table, json, csv or parquet".to_owned())
}

/// `NAME=VALUE`.
pub fn name_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE, as coverage_pct_min=90".to_owned()),
    }
}
