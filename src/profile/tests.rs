use std::fs;
use std::io::Write as _;

use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::*;
use crate::commands::ingest::ingest_for_test;

const HOUR_MS: i64 = 3_600_000;
/// 2025-11-01.
const FIRST_DAY: i32 = 20_393;

struct Lake {
    folder: TempDir,
    runtime: Runtime,
}

impl Lake {
    /// 30 answers on each of these days after the first of November, at noon; without profiles.
    fn of(days: &[i32]) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut file = fs::File::create(&path).unwrap();
        for day in days {
            for n in 0..30 {
                let event = json!({
                    "request_id": format!("r{day}-{n}"), "attempt": 0, "decision": "success",
                    "model": "gpt-4o", "provider": "openai", "service": "shop",
                    "input_tokens": 100, "output_tokens": 10 + day,
                    "ts": start_ms(FIRST_DAY + day) + 12 * HOUR_MS,
                });
                writeln!(file, "{event}").unwrap();
            }
        }
        let lake = Self {
            folder,
            runtime: Runtime::new().unwrap(),
        };
        let root = lake.root();
        ingest_for_test(&path, &root);
        fs::remove_dir_all(root.join(PROFILE)).unwrap();
        lake
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("lake")
    }

    /// As after a start of the process.
    fn profiles(&self) -> Profiles {
        let clock = Clock::new(|| start_ms(FIRST_DAY + 40));
        Profiles::new(self.root(), "g", clock, Limits::default())
    }

    fn look(&self, profiles: &mut Profiles, mark_ms: i64) -> Vec<String> {
        let done = self.runtime.block_on(profiles.make_next(Some(mark_ms)));
        done.unwrap();
        self.files()
    }

    /// The day and the rows of each file of the table, in order.
    fn files(&self) -> Vec<String> {
        let folder = self.root().join(PROFILE);
        let files = async {
            let table = lake::open_table(&folder, rows::spec(), &Clock::new(|| 0)).await?;
            let version = table.check().await?.version;
            anyhow::Ok(replay::load_files(&table, version).await?.live)
        };
        let files = self.runtime.block_on(files).unwrap();
        let mut shown = files
            .values()
            .map(|it| {
                let stats = it.stats.as_deref().unwrap_or_default();
                let date = it.partition_values["date"].as_deref().unwrap_or_default();
                format!("{date} {stats}")
            })
            .collect::<Vec<_>>();
        shown.sort();
        shown
    }

    fn commits(&self) -> usize {
        let log = self.root().join(PROFILE).join("_delta_log");
        fs::read_dir(log).unwrap().count()
    }
}

fn start_ms(day: i32) -> i64 {
    i64::from(day) * DAY_MS
}

/// A file of so many rows.
fn file(date: &str, rows: usize) -> String {
    format!(r#"{date} {{"numRecords":{rows}}}"#)
}

#[test]
fn a_look_makes_the_oldest_missing_day_and_a_day_is_made_once() {
    let lake = Lake::of(&[0, 1]);
    let mut profiles = lake.profiles();
    let mark_ms = start_ms(FIRST_DAY + 2) + 2 * HOUR_MS;
    // Of a kind, and of the model in all.
    let second = file("2025-11-02", 2);
    let third = file("2025-11-03", 2);
    // Until two hours after its end the second day is not closed, and the third has no profile.
    assert_eq!(
        lake.look(&mut profiles, mark_ms - 1),
        std::slice::from_ref(&second)
    );
    let commits = lake.commits();
    assert_eq!(
        lake.look(&mut profiles, mark_ms - 1),
        std::slice::from_ref(&second)
    );
    assert_eq!(lake.commits(), commits, "a quiet look writes nothing");
    let both = [second, third];
    assert_eq!(lake.look(&mut profiles, mark_ms), both);
    let commits = lake.commits();
    // After a restart, and whatever else made them.
    assert_eq!(lake.look(&mut lake.profiles(), mark_ms), both);
    lake.runtime.block_on(lake.profiles().make_to_end());
    assert_eq!(lake.files(), both);
    assert_eq!(lake.commits(), commits);
}

#[test]
fn days_of_which_nothing_is_known_are_remembered() {
    let lake = Lake::of(&[0, 9]);
    let mut profiles = lake.profiles();
    let mark_ms = start_ms(FIRST_DAY + 10) + 2 * HOUR_MS;
    // Up to the 8th the first is looked at; of the 9th and the 10th nothing is told.
    let dates = (2..=11).map(|day| format!("2025-11-{day:02}"));
    let rows = [2, 2, 2, 2, 2, 2, 2, 1, 1, 2];
    let expected = dates.zip(rows).map(|(date, rows)| file(&date, rows));
    let expected = expected.collect::<Vec<_>>();
    for made in 1..=expected.len() {
        assert_eq!(lake.look(&mut profiles, mark_ms), expected[..made]);
    }
    assert_eq!(lake.look(&mut profiles, mark_ms), expected);
}

#[test]
fn a_lake_of_a_day_has_no_profile() {
    let lake = Lake::of(&[0, 1]);
    let mut profiles = lake.profiles();
    let done = lake.runtime.block_on(profiles.make_next(None));
    assert!(!done.unwrap(), "without a mark nothing is due");
    let mark_ms = start_ms(FIRST_DAY) + 23 * HOUR_MS;
    let done = lake.runtime.block_on(profiles.make_next(Some(mark_ms)));
    done.unwrap();
    assert!(!lake.root().join(PROFILE).exists());
}

#[test]
fn of_two_leaders_one_commits_a_day() {
    let lake = Lake::of(&[0, 1]);
    let folder = lake.root().join(PROFILE);
    let mut old = lake.profiles();
    let day = FIRST_DAY + 2;
    let refused = lake.runtime.block_on(async {
        let table = lake::open_table(&folder, rows::spec(), &old.clock).await?;
        let mut writer = lake::open_writer(table, "g", &old.clock).await?;
        writer.claim_leader().await?;
        let url = lake::url_of(&lake.root())?;
        let session = Session::open(&url, None, old.limits.clone()).await?;
        // Another begins and ends meanwhile.
        let mut new = lake.profiles();
        new.make_next(Some(start_ms(day) + 2 * HOUR_MS))
            .await
            .unwrap();
        old.make_day(&folder, &mut writer, &session, day - 1).await
    });
    let refused = format!("{:#}", refused.unwrap_err());
    assert!(refused.contains("leader's place"), "{refused}");
    assert_eq!(lake.files(), [file("2025-11-02", 2)]);
    let mark_ms = start_ms(day) + 2 * HOUR_MS;
    let both = [file("2025-11-02", 2), file("2025-11-03", 2)];
    assert_eq!(lake.look(&mut old, mark_ms), both);
}
