//! What the table says is what the attempts say, whatever was made, touched, killed or put together.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arrow::util::pretty::pretty_format_batches;
use retrytoll_jobs::Catalog;
use retrytoll_jobs::rollup::ROLLUP;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::*;
use crate::commands::ingest::ingest_for_test;
use crate::demo::{Kind, Plan, Produced, generate};
use crate::maintenance::forget::forget;

/// 2025-11-20T00:00:00Z.
const START_MS: i64 = 1_763_596_800_000;
const HOUR_MS: i64 = 3_600_000;
const MINUTE_MS: i64 = 60_000;

/// The jobs that read the rollup, each by all that it can be asked by.
const JOBS: [(&str, &[&str]); 5] = [
    (
        "retry_cost_share",
        &["all", "hour", "day", "service", "model", "tenant"],
    ),
    ("retries", &["class", "model", "service", "tenant"]),
    ("cancelled", &["service", "model"]),
    ("month", &[""]),
    ("toll", &[""]),
];

/// Of them those that have the most to say.
const FEW_JOBS: &[(&str, &[&str])] = &[("retry_cost_share", &["hour"]), ("toll", &[""])];

struct Lake {
    folder: TempDir,
    now: Arc<AtomicI64>,
    runtime: Runtime,
    files: usize,
}

impl Lake {
    fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            now: Arc::new(AtomicI64::new(START_MS + 30 * HOUR_MS + 30 * MINUTE_MS)),
            runtime: Runtime::new().unwrap(),
            files: 0,
        }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("lake")
    }

    fn ingest(&mut self, events: &[Produced]) {
        self.files += 1;
        let file = self.folder.path().join(format!("{}.jsonl", self.files));
        let lines = events.iter().map(|it| it.payload.clone() + "\n");
        fs::write(&file, lines.collect::<String>()).unwrap();
        ingest_for_test(&file, &self.root());
    }

    fn rollup(&self, rows_max: i64) -> Rollup {
        let now = Arc::clone(&self.now);
        let settings = RollupSettings {
            root: self.root(),
            group: "g".into(),
            limits: Limits::default(),
            rows_max,
        };
        Rollup::new(settings, Clock::new(move || now.load(Ordering::SeqCst)))
    }

    fn make(&self, rollup: &mut Rollup) {
        self.runtime
            .block_on(rollup.run_to_end(Some(i32::MAX)))
            .unwrap();
    }

    fn session(&self) -> Session {
        let url = lake::url_of(&self.root()).unwrap();
        let session = Session::open(&url, None, Limits::default());
        self.runtime.block_on(session).unwrap()
    }

    /// What some jobs say of some windows, and what these hold.
    fn told(&self, jobs: &[(&str, &[&str])], windows: &[Window]) -> Vec<String> {
        let (session, catalog) = (self.session(), Catalog::embedded());
        let asked = windows
            .iter()
            .map(|it| self.told_of(&session, &catalog, jobs, it));
        asked.flatten().collect()
    }

    fn told_of(
        &self,
        session: &Session,
        catalog: &Catalog,
        jobs: &[(&str, &[&str])],
        window: &Window,
    ) -> Vec<String> {
        let mut told = Vec::new();
        for (name, keys) in jobs {
            for by in *keys {
                let job = catalog.get(name).unwrap();
                let by = (!by.is_empty()).then(|| ("by".to_owned(), (*by).to_owned()));
                let given = by.into_iter().collect::<BTreeMap<_, _>>();
                let asked = session.run_job(&job, window, &given);
                let result = self.runtime.block_on(asked).unwrap();
                let rows = pretty_format_batches(&result.batches).unwrap();
                told.push(format!("{name} {given:?}\n{rows}"));
            }
        }
        let facts = self.runtime.block_on(session.facts(window)).unwrap();
        told.push(format!("{facts:?}"));
        told
    }

    /// What the few jobs say of a few windows.
    fn tells(&self) -> Vec<String> {
        self.told(FEW_JOBS, &windows()[..3])
    }

    /// The rows of the view `rollup`, hour by hour.
    fn rows(&self) -> String {
        self.answer(
            "SELECT * FROM rollup ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
        )
    }

    fn answer(&self, sql: &str) -> String {
        let session = self.session();
        let rows = self.runtime.block_on(async {
            let mut stream = session.query(sql, &window(0, 0, "UTC")).await.unwrap();
            let mut batches = Vec::new();
            while let Some(rows) = stream.next().await {
                batches.push(rows.unwrap());
            }
            batches
        });
        pretty_format_batches(&rows).unwrap().to_string()
    }

    /// Takes the attempts of the first day away: whatever still answers does not read them.
    fn lose_the_first_day(&self) {
        let folder = self.root().join(lake::ATTEMPTS).join("date=2025-11-20");
        fs::rename(folder, self.folder.path().join("lost")).unwrap();
    }
}

/// Thirty hours of every kind of attempt.
fn traffic(seed: u64) -> Vec<Produced> {
    let mut all = generate(Plan {
        seed,
        operations: 900,
        start_ms: START_MS,
        span_ms: 30 * HOUR_MS,
    });
    all.retain(|it| it.kind != Kind::Malformed);
    all
}

/// From and until, minutes after the start.
fn window(from: i64, until: i64, zone: &str) -> Window {
    let at = |minutes| DateTime::from_timestamp_millis(START_MS + minutes * MINUTE_MS).unwrap();
    Window {
        since: at(from),
        until: at(until),
        zone: Zone::parse(zone).unwrap(),
    }
}

fn windows() -> [Window; 6] {
    [
        window(0, 24 * 60, "UTC"),
        window(30, 29 * 60 + 17, "UTC"),
        window(59, 61, "UTC"),
        window(-600, 40 * 60, "Europe/Berlin"),
        window(45, 28 * 60, "Asia/Kolkata"),
        window(90 * 24 * 60, 91 * 24 * 60, "UTC"),
    ]
}

#[test]
fn closed_hours_say_the_same_from_the_table_and_do_not_need_the_attempts() {
    let mut lake = Lake::new();
    lake.ingest(&traffic(3));
    let of_attempts = lake.told(&JOBS, &windows());
    let rows = lake.rows();
    lake.make(&mut lake.rollup(20_000));
    assert_eq!(lake.told(&JOBS, &windows()), of_attempts);
    assert_eq!(lake.rows(), rows);
    lake.lose_the_first_day();
    let of_the_day = lake.told(&JOBS, &windows()[..1]);
    assert_eq!(of_the_day, of_attempts[..of_the_day.len()]);
}

#[test]
fn what_comes_late_is_read_from_the_attempts_until_its_hours_are_made_again() {
    let all = traffic(5);
    let hour = |it: &Produced| (it.ts_ms - START_MS) / HOUR_MS;
    // Of some operations one attempt or the other comes late, of others all.
    let is_late = |it: &&Produced| (3..5).contains(&hour(it)) && it.payload.len().is_multiple_of(3);
    let late: Vec<_> = all.iter().filter(is_late).cloned().collect();
    let in_time: Vec<_> = all.iter().filter(|it| !is_late(it)).cloned().collect();
    assert!(late.len() > 5, "{}", late.len());

    let mut whole = Lake::new();
    whole.ingest(&in_time);
    whole.ingest(&late);
    let expected = whole.tells();

    let mut lake = Lake::new();
    lake.ingest(&in_time);
    let mut rollup = lake.rollup(20_000);
    lake.make(&mut rollup);
    let before = lake.tells();
    lake.ingest(&late);
    assert_ne!(before, expected);
    assert_eq!(lake.tells(), expected);

    let older = lake.answer("SELECT count(DISTINCT attempts_version) AS n FROM rollup_raw");
    lake.make(&mut rollup);
    assert_eq!(lake.tells(), expected);
    let newer = lake.answer("SELECT count(DISTINCT attempts_version) AS n FROM rollup_raw");
    assert_ne!(
        older, newer,
        "hours that were not touched stay as they were"
    );
    lake.lose_the_first_day();
    let of_the_day = lake.told(FEW_JOBS, &windows()[..1]);
    assert_eq!(of_the_day, expected[..of_the_day.len()]);
}

/// Days that were made and are touched: as many a call as time allows, and true in between.
#[test]
fn days_that_are_made_again_take_several_calls() {
    let all = traffic(11);
    let third = |n: usize| all.iter().skip(n).step_by(3).cloned().collect::<Vec<_>>();
    let mut lake = Lake::new();
    lake.ingest(&third(0));
    lake.make(&mut lake.rollup(20_000));

    let now = Arc::clone(&lake.now);
    let mut rollup = lake.rollup(20_000);
    // Each look at the clock takes a millisecond.
    rollup.clock = Clock::new(move || now.fetch_add(1, Ordering::SeqCst));
    let through_us = (START_MS + 30 * HOUR_MS) * 1_000;
    let position = |lake: &Lake| {
        lake.runtime.block_on(async {
            let folder = lake.root().join(ROLLUP);
            let clock = Clock::new(|| START_MS);
            let table = lake::open_table(&folder, spec(), &clock).await.unwrap();
            table.check().await.unwrap().position(&reads()).unwrap()
        })
    };
    let tells = |lake: &Lake| lake.told(FEW_JOBS, &windows()[1..2]);
    let before = position(&lake);
    let mut left = Vec::new();
    for late in [third(1), third(2)] {
        lake.ingest(&late);
        let expected = tells(&lake);
        let made = rollup.make(through_us, 1);
        lake.runtime.block_on(made).unwrap();
        left.push((rollup.again.is_some(), position(&lake) == before));
        assert_eq!(tells(&lake), expected);
    }
    // The first day; the second, with what touched both meanwhile yet to be made.
    assert_eq!(left, [(true, true), (false, false)]);
    let expected = tells(&lake);
    lake.make(&mut rollup);
    assert_eq!(tells(&lake), expected);
    let of_the_day = lake.told(FEW_JOBS, &windows()[..1]);
    lake.lose_the_first_day();
    assert_eq!(lake.told(FEW_JOBS, &windows()[..1]), of_the_day);
}

/// Hours that were made of attempts from before are refused, and made again at once.
#[test]
fn a_tenant_that_is_forgotten_meanwhile_comes_back_in_no_hour() {
    let mut lake = Lake::new();
    lake.ingest(&traffic(12));
    let mut rollup = lake.rollup(20_000);
    lake.make(&mut rollup);
    let tenants = |lake: &Lake| lake.answer("SELECT DISTINCT tenant FROM rollup_raw ORDER BY 1");
    assert!(tenants(&lake).contains("acme"));

    let root = lake.root();
    lake.runtime.block_on(async {
        let mut writer = rollup.writer.take().unwrap();
        let url = lake::url_of(&root).unwrap();
        let session = Session::open(&url, None, Limits::default()).await.unwrap();
        let files = replay::load_files(writer.table(), writer.state().version)
            .await
            .unwrap();
        let date = NaiveDate::from_ymd_opt(2025, 11, 20).unwrap();
        let (spans, mut made) = (due(None, date, i64::MAX), Made::default());
        let day = rollup.make_day(&session, date, &spans, &mut made);
        day.await.unwrap();
        let forgotten = forget(&root, "acme", Duration::ZERO, &rollup.clock);
        let forgotten = forgotten.await.unwrap();
        assert!(
            forgotten.rows.values().all(|it| *it > 0),
            "{:?}",
            forgotten.rows
        );
        let position = writer.state().position(&reads()).unwrap();
        let began_ms = rollup.clock.now_ms();
        let refused = commit(&mut writer, &files, &made, position, began_ms).await;
        assert!(is_by_a_forget(&refused.unwrap_err()));
    });
    assert!(!tenants(&lake).contains("acme"));
    let expected = lake.tells();
    // One that held its place all the while.
    let mut other = lake.rollup(20_000);
    lake.make(&mut other);
    let again = forget(&root, "acme", Duration::ZERO, &rollup.clock);
    lake.runtime.block_on(again).unwrap();
    lake.make(&mut other);
    assert_eq!((other.failures, other.writer.is_some()), (0, true));
    assert_eq!(lake.tells(), expected);
    assert!(!tenants(&lake).contains("acme"));
}

#[test]
fn killed_before_the_commit_nothing_is_lost_or_doubled() {
    let mut lake = Lake::new();
    lake.ingest(&traffic(6));
    let expected = lake.tells();
    let rollup = lake.rollup(20_000);
    // A day's file is whole, and nobody's.
    lake.runtime.block_on(async {
        drop(rollup.open().await.unwrap());
        let url = lake::url_of(&lake.root()).unwrap();
        let session = Session::open(&url, None, Limits::default()).await.unwrap();
        let date = NaiveDate::from_ymd_opt(2025, 11, 20).unwrap();
        let (spans, mut made) = (due(None, date, i64::MAX), Made::default());
        let day = rollup.make_day(&session, date, &spans, &mut made);
        day.await.unwrap();
        assert_eq!((made.files.len(), made.hours), (1, 24));
    });
    assert_eq!(lake.tells(), expected);
    lake.make(&mut lake.rollup(20_000));
    assert_eq!(lake.tells(), expected);
    let files = fs::read_dir(lake.root().join(ROLLUP).join("date=2025-11-20")).unwrap();
    assert_eq!(files.count(), 2);
    let dates = lake.answer("SELECT DISTINCT date FROM rollup_raw ORDER BY date");
    assert!(
        dates.contains("2025-11-20") && dates.contains("2025-11-21"),
        "{dates}"
    );
    let table = lake.root().join(ROLLUP).join("_delta_log");
    let commits = fs::read_dir(table).unwrap().count();
    lake.make(&mut lake.rollup(20_000));
    // Who leads and reads is told again, and no day is made.
    let log = lake.root().join(ROLLUP).join("_delta_log");
    assert_eq!(fs::read_dir(log).unwrap().count(), commits + 2);
}

#[test]
fn what_fails_waits_longer_each_time() {
    let mut lake = Lake::new();
    lake.ingest(&traffic(10));
    let mut rollup = lake.rollup(20_000);
    // A file that can't be read.
    lake.lose_the_first_day();
    let mut tried = Vec::new();
    for minute in 0..20 {
        let before = rollup.failures;
        let done = lake.runtime.block_on(rollup.run_due(Some(i32::MAX)));
        if rollup.failures > before {
            assert!(done.is_err());
            tried.push(minute);
        }
        lake.now.fetch_add(MINUTE_MS, Ordering::SeqCst);
    }
    assert_eq!(tried, [0, 2, 6, 14]);
    let folder = lake.root().join(ROLLUP).join("date=2025-11-20");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "what was begun");
}

#[test]
fn a_leader_that_was_replaced_makes_nothing() {
    let mut lake = Lake::new();
    let all = traffic(7);
    let (first, second) = all.split_at(all.len() / 2);
    lake.ingest(first);
    let (mut old, mut new) = (lake.rollup(20_000), lake.rollup(20_000));
    lake.make(&mut old);
    lake.make(&mut new);
    lake.ingest(second);
    let expected = lake.tells();
    let refused = lake
        .runtime
        .block_on(old.run_to_end(Some(i32::MAX)))
        .unwrap_err();
    assert!(
        format!("{refused:#}").contains("leader's place"),
        "{refused:#}"
    );
    assert_eq!(lake.tells(), expected);
    lake.make(&mut new);
    assert_eq!(lake.tells(), expected);
}

#[test]
fn the_tail_is_put_together_and_no_sum_loses_anything() {
    let mut lake = Lake::new();
    lake.ingest(&traffic(8));
    let all = "SELECT sum(attempts), sum(operations), sum(cost_expected), sum(covered), \
               sum(attempts) FILTER (WHERE redundant), sum(repeated_confirmed) FROM rollup";
    let expected = lake.answer(all);
    let by_class = "SELECT error_class, retry, role, sum(attempts), sum(cost_confirmed) \
                    FROM rollup GROUP BY 1, 2, 3 ORDER BY 1, 2, 3";
    let expected_by_class = lake.answer(by_class);
    lake.make(&mut lake.rollup(3));
    assert_eq!(lake.answer(all), expected);
    assert_eq!(lake.answer(by_class), expected_by_class);
    let named = "SELECT max(n) FROM (SELECT count(*) AS n FROM rollup_raw \
                 WHERE folded = 0 GROUP BY hour)";
    assert!(lake.answer(named).contains(" 3 "), "{}", lake.answer(named));
    let put = "SELECT count(*) > 0 AND bool_and(service = 'other' AND tenant = 'other') AS put \
               FROM rollup_raw WHERE folded > 0";
    assert!(lake.answer(put).contains("true"), "{}", lake.answer(put));
}

#[test]
fn an_old_version_is_asked_of_the_attempts() {
    let mut lake = Lake::new();
    let all = traffic(9);
    let (first, second) = all.split_at(all.len() / 2);
    lake.ingest(first);
    let [day, ..] = windows();
    let facts = |lake: &Lake, session: &Session| {
        let asked = session.facts(&day);
        lake.runtime.block_on(asked).unwrap()
    };
    let expected = facts(&lake, &lake.session());
    let version = lake.session().version();
    lake.ingest(second);
    lake.make(&mut lake.rollup(20_000));
    assert_ne!(facts(&lake, &lake.session()), expected);
    let url = lake::url_of(&lake.root()).unwrap();
    let old = Session::open(&url, Some(version), Limits::default());
    let old = lake.runtime.block_on(old).unwrap();
    assert!(old.rollup().is_none());
    assert_eq!(facts(&lake, &old), expected);
}
