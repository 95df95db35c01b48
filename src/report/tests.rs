//! `ingest` → `report` and `sql`, as a user runs them.

use std::io;
use std::path::Path;

use clap::{Args, FromArgMatches, Parser as _};
use tempfile::TempDir;

use crate::cli::World;
use crate::cli::tests::Written;
use crate::commands::ingest::{self, IngestArgs};
use crate::commands::report::{self, ReportArgs};
use crate::commands::sql::{self, SqlArgs};
use crate::exit::{Exit, tell};

#[derive(clap::Parser)]
// A test's own window goes before the usual one.
#[command(args_override_self = true)]
struct Line<A: Args> {
    #[command(flatten)]
    args: A,
}

struct Ran {
    exit: Exit,
    out: Written,
    err: String,
}

fn ran<A: Args + FromArgMatches>(
    command: fn(&A, &mut World) -> anyhow::Result<Exit>,
    out_is_terminal: bool,
    args: &[&str],
) -> Ran {
    let (out, err) = (Written::default(), Written::default());
    let mut world = World {
        env: vec![
            ("COLUMNS".into(), "60".into()),
            ("NO_COLOR".into(), "1".into()),
        ],
        folder: Path::new("/nowhere").to_owned(),
        input: Box::new(io::empty()),
        out: Box::new(out.clone()),
        err: Box::new(err.clone()),
        out_is_terminal,
        err_is_terminal: false,
    };
    let line = Line::<A>::parse_from(std::iter::once("retrytoll").chain(args.iter().copied()));
    let exit =
        command(&line.args, &mut world).unwrap_or_else(|error| tell(&error, world.err.as_mut()));
    Ran {
        exit,
        out,
        err: err.text(),
    }
}

/// gpt-4o-mini at $0.15 and $0.60 a million: 1,000 and 500 tokens are $0.00045. The timeout is
/// at most as much, 0.9 of it expected. R = 0.00045; O = 0.00045 + 0.000405.
const EVENTS: &str = r#"
{"request_id":"r1","attempt":0,"model":"gpt-4o-mini","decision":"success","service":"shop","ts":"2026-11-20T08:00:00Z","status_code":200,"input_tokens":1000,"output_tokens":500}
{"request_id":"r2","attempt":0,"model":"gpt-4o-mini","decision":"retry","service":"shop","ts":"2026-11-20T08:01:00Z","error_type":"ReadTimeout","phase":"read","elapsed_ms":30000,"input_tokens":1000,"usage_source":"estimated","max_tokens":500}
{"request_id":"r2","attempt":1,"model":"gpt-4o-mini","decision":"success","service":"shop","ts":"2026-11-20T08:02:00Z","status_code":200,"input_tokens":1000,"output_tokens":500}
"#;

struct Lake {
    folder: TempDir,
}

impl Lake {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("events.jsonl");
        std::fs::write(&file, EVENTS.trim_start()).expect("write");
        let lake = Self { folder };
        let ran = ran::<IngestArgs>(
            ingest::run,
            false,
            &[&file.to_string_lossy(), "--lake", &lake.path("lake")],
        );
        assert_eq!(ran.exit, Exit::Fine, "{}", ran.err);
        lake
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    fn with<'a>(&self, args: &[&'a str], lake: &'a str) -> Vec<&'a str> {
        let usual = [
            "--lake",
            lake,
            "--since",
            "2026-11-20",
            "--until",
            "2026-11-21",
        ];
        [&usual, args].concat()
    }

    fn report(&self, args: &[&str]) -> Ran {
        let lake = self.path("lake");
        ran::<ReportArgs>(report::run, false, &self.with(args, &lake))
    }

    fn sql(&self, args: &[&str]) -> Ran {
        let lake = self.path("lake");
        ran::<SqlArgs>(sql::run, false, &self.with(args, &lake))
    }
}

#[test]
fn files_to_figures() {
    let lake = Lake::new();
    let ran = lake.report(&["retry_cost_share", "--format", "json"]);
    assert_eq!(ran.exit, Exit::Fine, "{}", ran.err);
    let document: serde_json::Value = serde_json::from_str(&ran.out.text()).expect("JSON");
    let row = &document["rows"][0];
    for (name, expected) in [
        ("key", "shop"),
        ("share_pct", "34.482758620690"),
        ("share_low_pct", "33.333333333333"),
        ("share_high_pct", "50"),
        ("retry_expected_usd", "0.00045"),
        ("other_expected_usd", "0.000855"),
        ("other_ceiling_usd", "0.0009"),
        ("coverage_pct", "100"),
    ] {
        let found = row[name]
            .as_str()
            .unwrap_or_else(|| panic!("{name} in {row}"));
        // One digit after the last is cut before it is rounded.
        assert!(
            found == expected || found == expected.trim_end_matches('0'),
            "{name}: {found}"
        );
    }
    assert_eq!(document["complete_through"], "everything");

    let headline = lake.report(&[]).out.text();
    for text in [
        "Your retry-cost share: 34.5 % incident (review at 5 %; at least 33.3 %, at most 50.0 %)",
        "Spend, expected: $0.001305, of which retries $0.00045 (1 of 3 attempts)",
        "jobs, each with `retrytoll report JOB`:",
    ] {
        assert!(headline.contains(text), "{text}\n{headline}");
    }

    let ran = lake.sql(&[
        "SELECT count(*) AS n FROM attempts WHERE ts >= $since",
        "--format",
        "csv",
    ]);
    assert_eq!(
        (ran.exit, ran.out.text().as_str()),
        (Exit::Fine, "n\n3\n"),
        "{}",
        ran.err
    );
}

#[test]
fn the_gate_is_the_exit_code() {
    let lake = Lake::new();
    let over = lake.report(&["retry_cost_share", "--by", "hour", "--fail-over", "34"]);
    assert_eq!(over.exit, Exit::GateNotMet, "{}", over.err);
    let under = lake.report(&["--fail-over", "35"]);
    assert_eq!(under.exit, Exit::Fine, "{}", under.err);
    let withheld = lake.report(&[
        "retry_cost_share",
        "--fail-over",
        "5",
        "--since",
        "2026-11-20T08:01:00Z",
        "--until",
        "2026-11-20T08:02:00Z",
    ]);
    assert_eq!(withheld.exit, Exit::Fine);
    assert!(
        withheld
            .err
            .contains("withheld (not computable: no success"),
        "{}",
        withheld.err
    );
    let other = lake.report(&["retries", "--fail-over", "5"]);
    assert_eq!(other.exit, Exit::Usage, "{}", other.err);
}

#[test]
fn mistakes_are_of_usage_and_say_what_to_do() {
    let lake = Lake::new();
    for (args, text) in [
        (
            vec!["retry_share"],
            "no job is named retry_share: the jobs are cancelled, doomed_outage",
        ),
        (
            vec!["retries", "--by", "colour"],
            "parameter by of job retries is colour: give one of",
        ),
        (
            vec!["unpriced", "--by", "model"],
            "job unpriced has no parameter by: it has none",
        ),
        (vec!["--by", "model"], "--by and --param are for one job"),
        (vec!["--tz", "Mars"], "--tz Mars: no zone is named so"),
        (vec!["--at-version", "99"], "version 99 of"),
    ] {
        let ran = lake.report(&args);
        let exit = if args[0] == "--at-version" {
            Exit::Failed
        } else {
            Exit::Usage
        };
        assert_eq!(ran.exit, exit, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(text), "{args:?}: {}", ran.err);
        assert!(ran.out.text().is_empty());
    }
    let nowhere = lake.path("nowhere");
    let ran = ran::<ReportArgs>(report::run, false, &["--lake", &nowhere]);
    assert_eq!(ran.exit, Exit::Failed);
    assert!(ran.err.contains("no table `attempts` at"), "{}", ran.err);
    assert!(!Path::new(&nowhere).exists());
}

#[test]
fn parquet_goes_to_files_and_pipes() {
    let lake = Lake::new();
    let path = lake.path("lake");
    let args = lake.with(
        &["SELECT model FROM attempts", "--format", "parquet"],
        &path,
    );
    let refused = ran::<SqlArgs>(sql::run, true, &args);
    assert_eq!(refused.exit, Exit::Usage);
    assert!(
        refused.err.contains("Parquet is not for a terminal"),
        "{}",
        refused.err
    );

    let piped = ran::<SqlArgs>(sql::run, false, &args);
    assert_eq!(piped.exit, Exit::Fine, "{}", piped.err);
    let file = lake.path("answer.parquet");
    let written = ran::<SqlArgs>(sql::run, true, &[&args[..], &["-o", &file]].concat());
    assert_eq!(written.exit, Exit::Fine, "{}", written.err);
    let bytes = std::fs::read(&file).expect("read");
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    assert_eq!(bytes, piped.out.bytes());
    assert!(written.out.bytes().is_empty());
}

#[test]
fn a_terminal_is_not_written_beyond_its_width() {
    let lake = Lake::new();
    let path = lake.path("lake");
    let args = lake.with(&["retry_cost_share"], &path);
    let text = ran::<ReportArgs>(report::run, true, &args).out.text();
    assert!(!text.contains('\x1b'), "{text}");
    let table = text
        .lines()
        .skip(2)
        .take_while(|line| !line.starts_with("window"));
    for line in table {
        assert!(line.chars().count() <= 60, "{line}");
    }
}

#[test]
fn a_bad_job_of_the_users_stops_no_other() {
    let lake = Lake::new();
    let jobs = lake.path("jobs");
    std::fs::create_dir(&jobs).expect("folder");
    let put = |name: &str, text: &str| {
        std::fs::write(Path::new(&jobs).join(name), text).expect("write");
    };
    put(
        "mine.sql",
        "-- Attempts of each model.\nSELECT model, count(*) AS n FROM attempts GROUP BY 1",
    );
    put("bad.sql", "SELECT\nFROM WHERE )");
    let ran = lake.report(&["mine", "--sql-dir", &jobs, "--format", "csv"]);
    assert_eq!(
        (ran.exit, ran.out.text().as_str()),
        (Exit::Fine, "model,n\ngpt-4o-mini,3\n")
    );
    assert!(
        ran.err.contains(&format!("warning: {jobs}/bad.sql:2:")),
        "{}",
        ran.err
    );
    let list = lake.report(&["--sql-dir", &jobs]).out.text();
    let mine = list.lines().find(|line| line.starts_with("  mine "));
    assert!(
        mine.is_some_and(|line| line.contains(" Attempts of each model")),
        "{list}"
    );
}
