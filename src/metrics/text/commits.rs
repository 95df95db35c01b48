//! What the writing stage has done → families of commits, rows and the table.

use std::fmt::Result;

use retrytoll_lake::{ConflictCounts, Mark};

use crate::metrics::page::Page;
use crate::metrics::{FileFacts, Metrics, seconds};
use crate::pipeline::WriteFacts;

/// Commits, what they brought, and what they and those of maintenance met.
pub fn commits(
    page: &mut Page,
    written: &WriteFacts,
    maintenance: &ConflictCounts,
    metrics: &Metrics,
) -> Result {
    let done = &written.summary;
    let with_rows = done.commits - done.claims - done.position_commits;
    let kinds = [
        ("rows", with_rows),
        ("positions", done.position_commits),
        ("claim", done.claims),
    ];
    let by_kind = kinds.map(|(kind, count)| ([("kind", kind)], count));
    let what = (
        "retrytoll_commits",
        "Commits to attempts, by what they bring.",
    );
    page.counters(what, by_kind)?;
    let mut conflicts = written.conflicts;
    conflicts.add(maintenance);
    let by_kind = conflicts.by_kind();
    let what = (
        "retrytoll_commit_conflicts",
        "Puts of commits to attempts that did not plainly succeed, by what the log then said.",
    );
    page.counters(what, by_kind.map(|(kind, count)| ([("kind", kind)], count)))?;
    for (name, help, value) in [
        (
            "retrytoll_rows_committed",
            "Rows of attempts committed.",
            done.rows,
        ),
        (
            "retrytoll_rows_forgotten",
            "Rows that were not written, of tenants that were forgotten.",
            done.forgotten,
        ),
        (
            "retrytoll_files_committed",
            "Parquet files of attempts committed.",
            done.files,
        ),
        (
            "retrytoll_parquet_bytes",
            "Bytes of Parquet files of attempts committed.",
            done.bytes,
        ),
        (
            "retrytoll_dead_letters_delivered",
            "Dead letters that the topic for them has acknowledged.",
            done.dead_letters,
        ),
        (
            "retrytoll_restarts",
            "Times that reading began anew, since a commit was refused.",
            done.restarts,
        ),
    ] {
        page.counter((name, help), value)?;
    }
    times(page, metrics)?;
    table(page, written, metrics.files.get())
}

/// How long flushes and commits take.
fn times(page: &mut Page, metrics: &Metrics) -> Result {
    let what = (
        "retrytoll_flush_seconds",
        "From a flush's first row or dead letter to its commit.",
    );
    page.histogram(what, &metrics.flush_seconds)?;
    let what = (
        "retrytoll_commit_seconds",
        "From a commit's first put until it is in the log, files synced before.",
    );
    page.histogram(what, &metrics.commit_seconds)
}

/// How the table stands.
fn table(page: &mut Page, written: &WriteFacts, files: Option<FileFacts>) -> Result {
    let version = written.summary.version.map(|it| it as f64);
    let what = (
        "retrytoll_table_version",
        "The version of attempts that this instance committed last.",
    );
    page.gauge(what, version)?;
    let complete = match written.mark {
        Mark::Before(ms) => Some(ms),
        Mark::Nothing | Mark::Everything => None,
    };
    let what = (
        "retrytoll_complete_timestamp_seconds",
        "The completeness mark, since 1970: what happened before is in the lake, of all sources.",
    );
    page.gauge(what, complete.map(seconds))?;
    let what = (
        "retrytoll_live_files",
        "Live Parquet files of attempts; the leader looks each minute.",
    );
    page.gauge(what, files.map(|it| it.files as f64))?;
    let what = (
        "retrytoll_live_bytes",
        "Bytes of the live Parquet files of attempts; the leader looks each minute.",
    );
    page.gauge(what, files.map(|it| it.bytes as f64))
}
