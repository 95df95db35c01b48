//! Sessions: versions, views, what they refuse.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;

use super::fixture::{Lake, rows, success, the_day, timeout};
use crate::{Catalog, JobError, Limits, Session, lake_url};

async fn answer(session: &Session, sql: &str) -> String {
    let batches = async {
        let stream = session.query(sql, &the_day()).await?;
        stream
            .try_collect::<Vec<_>>()
            .await
            .map_err(|error| session.failed(&crate::Place::file("query"), error))
    };
    match batches.await {
        Ok(batches) => {
            let batches = batches
                .iter()
                .filter(|it| it.num_rows() > 0)
                .cloned()
                .collect::<Vec<_>>();
            let mut lines = Vec::new();
            for batch in &batches {
                for row in 0..batch.num_rows() {
                    let cells = batch.columns().iter().map(|column| {
                        arrow::util::display::array_value_to_string(column, row).unwrap()
                    });
                    lines.push(cells.collect::<Vec<_>>().join(" | "));
                }
            }
            lines.join("\n")
        }
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_session_stays_at_its_version() {
    let first = [success("a", "r1", false, "0.01")];
    let second = [success("a", "r2", false, "0.02")];
    let lake = Lake::of(&[&first, &second]).await;
    let count = "SELECT count(*), sum(cost_confirmed) FROM attempts";
    let old = lake.open(Some(0)).await.unwrap();
    assert_eq!(answer(&old, count).await, "1 | 0.010000000000");
    let new = lake.open(None).await.unwrap();
    assert_eq!((old.version(), new.version()), (0, 1));
    assert_eq!(answer(&new, count).await, "2 | 0.030000000000");
    let Err(error) = lake.open(Some(9)).await else {
        panic!("version 9 opened")
    };
    let folder = lake.folder.path().join("attempts");
    assert_eq!(
        error.to_string(),
        format!(
            "version 9 of {} is not there, the newest is 1: choose one up to it that log clean-up has kept",
            folder.display()
        )
    );
}

#[tokio::test]
async fn a_missing_lake_is_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("attempts")).unwrap();
    for (path, what) in [
        (folder.path().join("nowhere"), "no folder"),
        (folder.path().into(), "no log"),
    ] {
        let url = lake_url(&path.to_string_lossy()).unwrap();
        let Err(error) = Session::open(&url, None, Limits::default()).await else {
            panic!("opened {what}")
        };
        assert!(
            matches!(error, JobError::NoTable { .. }),
            "{what}: {error:?}"
        );
    }
    assert!(
        !folder.path().join("nowhere").exists(),
        "a reader makes no folder"
    );
}

#[tokio::test]
async fn the_view_shows_hashes_and_expected_cost() {
    let lake = Lake::of(&[&[
        success("a", "r1", false, "0.01"),
        timeout("a", "r2", false, "0.02"),
        super::fixture::unpriced("a", "r3", false),
        super::fixture::rate_limited("a", "r4", false),
    ]])
    .await;
    let session = lake.open(None).await.unwrap();
    let sql = "SELECT cost_expected, expected_basis FROM attempts ORDER BY request_id";
    assert_eq!(
        answer(&session, sql).await,
        "0.010000000000 | own\n0.018000000000 | formula\n | \n0.000000000000 | "
    );
    let hash = format!("sha256:{}", "ab".repeat(32));
    let sql = "SELECT DISTINCT prompt_hash, system_hash FROM attempts";
    assert_eq!(answer(&session, sql).await, format!("{hash} | {hash}"));
    let sql = "SELECT count(*) FROM attempts_raw WHERE encode(prompt_hash, 'hex') LIKE 'abab%'";
    assert_eq!(answer(&session, sql).await, "4");
}

#[tokio::test]
async fn questions_only_and_their_mistakes_have_lines() {
    let lake = Lake::of(&[&[success("a", "r1", false, "0.01")]]).await;
    let session = lake.open(None).await.unwrap();
    let asks = async |sql: &str| answer(&session, sql).await;
    assert_eq!(
        asks("SELECT count(*) FROM attempts WHERE ts >= $since AND ts < $until").await,
        "1"
    );
    assert!(asks("SHOW TABLES").await.contains("attempts_raw"));
    assert!(
        asks("DROP TABLE attempts")
            .await
            .contains("DROP would change something")
    );
    assert_eq!(
        asks("SELECT model\nFROM attempts\nWHERE\n  modle = 'x'").await,
        "query:4:3: column 'modle' not found"
    );
    assert_eq!(
        asks("SELECT 1\nFROM attemps").await,
        "query:2:6: table 'attemps' not found: queries read the lake alone, and SHOW TABLES lists \
         what it has"
    );
    for path in [
        "'/etc/passwd'",
        "\"/etc/passwd\"",
        "'file:///etc/passwd'",
        "read_parquet('/etc/passwd')",
        "read_csv('/etc/passwd')",
        "glob('/etc/*')",
    ] {
        let refused = asks(&format!("SELECT * FROM {path}")).await;
        assert!(
            refused.contains("not found: queries read the lake alone"),
            "{refused}"
        );
    }
    for value in [
        "repeat('x', 9)",
        "lpad('x', 9)",
        "array_repeat(1, 9)",
        "range(9)",
    ] {
        let refused = asks(&format!("SELECT {value}")).await;
        assert!(refused.contains("nvalid function"), "{refused}");
    }
    assert_eq!(asks("SELECT count(*) FROM range(0, 5)").await, "5");
    assert_eq!(
        asks("SELEC 1").await,
        "query:1:1: Expected: an SQL statement, found: SELEC"
    );
}

#[tokio::test]
async fn a_users_job_that_names_no_column_stops_no_other() {
    let lake = Lake::of(&[&[success("a", "r1", false, "0.01")]]).await;
    let session = lake.open(None).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    put(
        "good.sql",
        "SELECT count(*) AS n FROM attempts WHERE service = $service",
    );
    put("bad.sql", "SELECT 1\nFROM attempts\nWHERE tenat = 'x'");
    put("jobs.toml", "[good.parameters.service]\ndefault = 'a'\n");
    let mut catalog = Catalog::embedded();
    assert!(catalog.overlay(folder.path()).unwrap().is_empty());
    let run = async |name: &str, given: &[(&str, &str)]| {
        let given = given
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect();
        let job = catalog.get(name)?;
        session.run_job(&job, &the_day(), &given).await
    };
    assert_eq!(rows(&run("good", &[]).await.unwrap(), &["n"]), ["1"]);
    let other = run("good", &[("service", "b' OR 'a' = 'a")]).await.unwrap();
    assert_eq!(rows(&other, &["n"]), ["0"]);
    assert!(
        other.sql.ends_with("WHERE service = 'b'' OR ''a'' = ''a'"),
        "{}",
        other.sql
    );
    let error = run("bad", &[]).await.unwrap_err().to_string();
    let file = folder.path().join("bad.sql");
    assert_eq!(
        error,
        format!("{}:3:7: column 'tenat' not found", file.display())
    );
    let error = run("good", &[("by", "a")]).await.unwrap_err().to_string();
    assert_eq!(error, "job good has no parameter by: it has service");
    for job in catalog.jobs().filter(|it| it.name != "bad") {
        session.check_job(job, &the_day()).await.unwrap();
    }
    let bad = catalog.get("bad").unwrap();
    assert!(session.check_job(&bad, &the_day()).await.is_err());
}

#[tokio::test]
async fn files_outside_the_window_are_not_read() {
    let on = |ts, n: usize| super::fixture::Row {
        ts: Some(ts),
        ..success("a", &format!("r{n}"), false, "0.01")
    };
    let lake = Lake::of(&[
        &[on("2026-11-18T08:00:00Z", 1)],
        &[on("2026-11-19T08:00:00Z", 2)],
        &[on("2026-11-20T08:00:00Z", 3)],
    ])
    .await;
    let attempts = lake.folder.path().join("attempts");
    for day in ["2026-11-18", "2026-11-19"] {
        // A file that is not there can't be read.
        std::fs::remove_dir_all(attempts.join(format!("date={day}"))).unwrap();
    }
    let result = lake.job("retry_cost_share", &the_day(), None).await;
    assert_eq!(rows(&result, &["key", "attempts"]), ["a | 1"]);
    let session = lake.open(None).await.unwrap();
    let sql = "SELECT count(*) FROM attempts WHERE ts >= $since AND ts < $until";
    assert_eq!(answer(&session, sql).await, "1");
    // A text that looks like the window's names narrows nothing.
    let worded = "SELECT sum(cost_confirmed), '$since' AS a, '$until' AS b FROM attempts";
    assert!(answer(&session, worded).await.contains("the query failed"));
    let whole = "SELECT sum(cost_confirmed) FROM attempts";
    assert!(answer(&session, whole).await.contains("the query failed"));
}

#[tokio::test]
async fn memory_has_a_limit() {
    let many = (0..20_000)
        .map(|n| success("a", &format!("request-{n:060}"), false, "0.01"))
        .collect::<Vec<_>>();
    let lake = Lake::of(&[&many]).await;
    let url = lake_url(&lake.folder.path().to_string_lossy()).unwrap();
    let open = async |memory_bytes, spill_bytes| {
        let limits = Limits {
            memory_bytes,
            spill_bytes,
            ..Limits::default()
        };
        Session::open(&url, None, limits).await.unwrap()
    };
    let sql = "SELECT request_id, count(*) AS n FROM attempts GROUP BY request_id ORDER BY n, request_id LIMIT 1";
    let small = open(300_000, 1000).await;
    let refused = answer(&small, sql).await;
    assert!(
        refused.contains("more than its 300000 bytes of memory and 1000 of spill"),
        "{refused}"
    );
    let roomy = open(48 << 20, 1 << 30).await;
    assert_eq!(answer(&roomy, sql).await, format!("request-{:060} | 1", 0));
}

#[tokio::test]
async fn every_embedded_job_answers() {
    let lake = Lake::of(&[&[success("a", "r1", false, "0.01")]]).await;
    let session = lake.open(None).await.unwrap();
    for job in Catalog::embedded().jobs() {
        let result = session
            .run_job(&Arc::clone(job), &the_day(), &BTreeMap::new())
            .await
            .unwrap();
        for name in &job.meta.shown {
            assert!(
                result.schema.index_of(name).is_ok(),
                "{} shows {name}",
                job.name
            );
        }
        // The SQL as run is a query of its own.
        let again = answer(&session, &result.sql).await;
        assert!(!again.starts_with("query"), "{again}");
    }
}

#[tokio::test]
async fn the_views_put_operations_together_and_every_sum_is_the_same_two_ways() {
    let first = [
        success("a", "r1", false, "0.01"),
        timeout("a", "r2", false, "0.02"),
        super::fixture::rate_limited("a", "r3", false),
    ];
    // Rows of the same operations that were committed later.
    let second = [
        success("a", "r2", true, "0.005"),
        timeout("b", "r3", true, "0.04"),
        super::fixture::rate_limited("a", "r3", true),
    ];
    let lake = Lake::of(&[&first, &second]).await;
    let session = lake.open(None).await.unwrap();
    let places =
        "SELECT service, request_id, op_place, outcome, role FROM attempts ORDER BY 1, 2, 3, 5";
    assert_eq!(
        answer(&session, places).await,
        "a | r1 | 0 | delivered | delivered\n\
         a | r2 | 0 | delivered | repeat\n\
         a | r2 | 1 | delivered | delivered\n\
         a | r3 | 0 | abandoned | undelivered\n\
         a | r3 | 1 | abandoned | undelivered\n\
         b | r3 | 0 | abandoned | undelivered"
    );
    let operations = "SELECT request_id, attempts, outcome, repeated_billing, expected_usd, \
                      redundant_expected_usd FROM operations ORDER BY service, request_id";
    // 0.9 x 0.02 is expected of the timeout, 0.9 x 0.04 of the other service's.
    assert_eq!(
        answer(&session, operations).await,
        "r1 | 1 | delivered |  | 0.010000000000 | 0.000000000000\n\
         r2 | 2 | delivered | likely | 0.023000000000 | 0.018000000000\n\
         r3 | 2 | abandoned |  | 0.000000000000 | 0.000000000000\n\
         r3 | 1 | abandoned |  | 0.036000000000 | 0.000000000000"
    );
    let sums = "SELECT (SELECT sum(cost_expected) FROM attempts WHERE counted) AS by_attempt, \
                sum(expected_usd) AS by_operation FROM operations";
    assert_eq!(
        answer(&session, sums).await,
        "0.069000000000 | 0.069000000000"
    );
}

/// Percentiles of times are no money; all else that a view or a job computes is exact.
#[tokio::test]
async fn no_figure_of_money_is_a_float() {
    let lake = Lake::of(&[&[success("a", "r1", false, "0.01")]]).await;
    let session = lake.open(None).await.unwrap();
    for job in Catalog::embedded().jobs() {
        let result = session.run_job(job, &the_day(), &BTreeMap::new()).await;
        for field in result.unwrap().schema.fields() {
            let (name, of) = (field.name(), field.data_type());
            assert!(!of.is_floating(), "{name} of {} is {of}", job.name);
        }
    }
    for view in ["attempts", "operations"] {
        let plan = answer(&session, &format!("EXPLAIN SELECT * FROM {view}")).await;
        assert!(plan.contains("cost_expected"), "{plan}");
        assert!(!plan.contains("Float"), "{plan}");
    }
}

/// What is put together from attempts stands beside what was stored, in one view.
#[tokio::test]
async fn the_view_rollup_has_the_columns_of_its_table() {
    let lake = Lake::of(&[&[success("a", "r1", false, "0.01")]]).await;
    let session = lake.open(None).await.unwrap();
    for sql in [
        "SELECT * FROM rollup",
        "SELECT * FROM rollup WHERE hour >= $since AND hour < $until",
    ] {
        let stream = session.query(sql, &the_day()).await.unwrap();
        let schema = stream.schema();
        let table = crate::rollup::schema();
        let told = schema.fields().iter();
        let told = told
            .map(|it| (it.name(), it.data_type()))
            .collect::<Vec<_>>();
        let stored = table.fields().iter();
        let stored = stored.map(|it| (it.name(), it.data_type()));
        let of_view = |name: &str| !["attempts_version", "date"].contains(&name);
        let stored = stored.filter(|(name, _)| of_view(name)).collect::<Vec<_>>();
        assert_eq!(told, stored, "{sql}");
    }
}

/// Each would go on for days: ones that give rows, ones that find none, and one that repeats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_ends_when_its_time_is_over() {
    let lake = Lake::of(&[&[success("a", "r1", false, "0.01")]]).await;
    let limits = Limits {
        time: Some(Duration::from_millis(300)),
        ..Limits::default()
    };
    let url = lake_url(&lake.folder.path().to_string_lossy()).unwrap();
    let session = Session::open(&url, None, limits).await.unwrap();
    let many = "range(0, 1000000)";
    for sql in [
        format!("SELECT count(*) FROM {many} AS a, {many} AS b, {many} AS c"),
        "SELECT * FROM range(0, 100000) AS a, range(0, 100000) AS b WHERE a.value + b.value < 0"
            .into(),
        format!(
            "SELECT sum(a.value) FROM {many} AS a JOIN {many} AS b ON a.value % 1 = b.value % 1"
        ),
        "WITH RECURSIVE a AS (SELECT 1 AS b UNION ALL SELECT b + 1 FROM a) SELECT max(b) FROM a"
            .into(),
    ] {
        assert_eq!(
            answer(&session, &sql).await,
            "query: the query took longer than 300ms: narrow it with --since and --until, join on \
             something, or raise limits.sql_time (for jobs of `run` jobs.time_max)",
            "{sql}"
        );
    }
    // The session goes on. On a busy machine this takes longer, too, now and then.
    let mut answers = Vec::new();
    while answers.len() < 20 && answers.last().is_none_or(|it| it != "1") {
        answers.push(answer(&session, "SELECT count(*) FROM attempts").await);
    }
    assert_eq!(answers.last().unwrap(), "1");
}
