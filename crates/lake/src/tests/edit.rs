//! Rows are taken out while others commit, and a tenant is forgotten while others own partitions.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, not};
use arrow::datatypes::Int32Type;
use deltalake::kernel::Add;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::*;
use crate::compact::{CompactLimits, Layout, compact};
use crate::edit::{Change, EditPlan, EditRows, Edited, edit, expire};
use crate::error::Cause;
use crate::sweep::sweep;
use crate::writer::FLUSH_AGE_MS_MAX;
use crate::{Conflict, LakeError, Owner, Replaced, Replacement, replay};

type Meanwhile = Box<dyn FnOnce() + Send>;

/// Takes the rows of partition 1 out; once, in the middle of it, something else happens.
#[derive(Default)]
struct WithoutOne {
    meanwhile: Mutex<Option<Meanwhile>>,
}

impl WithoutOne {
    fn after(meanwhile: impl FnOnce() + Send + 'static) -> Self {
        Self {
            meanwhile: Mutex::new(Some(Box::new(meanwhile))),
        }
    }

    fn goes(rows: &RecordBatch) -> BooleanArray {
        let partitions = rows.column_by_name("source_partition").unwrap();
        let partitions = partitions.as_primitive::<Int32Type>();
        partitions.iter().map(|it| Some(it == Some(1))).collect()
    }
}

impl EditRows for WithoutOne {
    fn looks_at(&self) -> &[&'static str] {
        &["source_partition"]
    }

    fn concerns(&self, rows: &RecordBatch) -> Result<bool, Cause> {
        Ok(Self::goes(rows).true_count() > 0)
    }

    fn edit(&self, rows: &RecordBatch) -> Result<(RecordBatch, Change), Cause> {
        if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
            tokio::task::block_in_place(meanwhile);
        }
        let goes = Self::goes(rows);
        let change = Change {
            removed: goes.true_count() as u64,
            ..Change::default()
        };
        Ok((filter_record_batch(rows, &not(&goes)?)?, change))
    }
}

fn layout() -> Layout {
    Layout {
        sort_by: Some("request_id".into()),
        properties: WriterProperties::default(),
    }
}

fn plan() -> EditPlan {
    EditPlan {
        operation: "DELETE",
        layout: layout(),
        meets_new_rows: false,
        files_max: usize::MAX,
        dry_run: false,
    }
}

fn no_record(_: &Edited) -> Value {
    Value::Null
}

/// Two flushes with rows of partitions 0 and 1, one with rows of 0 alone.
async fn world() -> (World, Writer) {
    let world = World::new();
    let mut a = world.owner("a", &[0, 1]).await;
    for at in 0..3 {
        let mut rows = run(0, 10 * at, 10 * at + 10);
        if at < 2 {
            rows.extend(run(1, at, at + 1));
        }
        a.flush(&world.flush(&rows)).await.unwrap();
    }
    (world, a)
}

/// The data files on disk, and those of them that are live.
async fn files(world: &World) -> (BTreeSet<String>, BTreeSet<String>) {
    let table = world.table().await;
    let listed = crate::maintain::data_files(&table).await.unwrap();
    let head = table.check().await.unwrap().version;
    let live = replay::load_files(&table, head).await.unwrap().live;
    let listed = listed.into_iter().map(|it| it.location.to_string());
    (listed.collect(), live.into_keys().collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_files_with_such_rows_are_rewritten_and_the_commit_says_what_it_did() {
    let (world, _) = world().await;
    let mut m = world.writer("m").await;
    let (_, before) = files(&world).await;
    let dry = EditPlan {
        dry_run: true,
        ..plan()
    };
    let told = edit(&mut m, &dry, &WithoutOne::default(), &no_record).await;
    let told = told.unwrap();
    assert_eq!((told.change.removed, told.commit), (2, None));
    assert_eq!(files(&world).await, (before.clone(), before.clone()));

    let record = |edited: &Edited| json!({"rows": edited.change.removed});
    let done = edit(&mut m, &plan(), &WithoutOne::default(), &record).await;
    let done = done.unwrap();
    assert_eq!((done.files_in, done.files_out), (2, 2));
    assert_eq!(done.change.removed, 2);
    assert_eq!(world.rows().await, run(0, 0, 30));
    let (_, after) = files(&world).await;
    assert_eq!(
        before.intersection(&after).count(),
        1,
        "the third is as it was"
    );
    let version = done.commit.unwrap().version;
    let entry = fs::read_to_string(world.log_path(&format!("{version:020}.json"))).unwrap();
    assert!(entry.contains(r#""retrytollRecord":{"rows":2}"#), "{entry}");

    let swept = sweep(&mut m, &layout(), &WithoutOne::default(), i64::MAX).await;
    let swept = swept.unwrap();
    assert_eq!((swept.files, swept.unread), (2, 0));
    let (listed, live) = files(&world).await;
    assert_eq!(listed, live);
    let again = edit(&mut m, &plan(), &WithoutOne::default(), &no_record).await;
    assert_eq!(again.unwrap(), Edited::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_compaction_does_meanwhile_is_planned_again() {
    // Late, all that was done is for nothing, and what comes next is young.
    for (took_ms, files_max) in [(0, usize::MAX), (FLUSH_AGE_MS_MAX / 2 + 1, 64)] {
        let (world, _) = world().await;
        let world = Arc::new(world);
        let (handle, other) = (Handle::current(), Arc::clone(&world));
        let rows = WithoutOne::after(move || {
            handle.block_on(async {
                let mut leader = other.writer("leader").await;
                leader.claim_leader().await.unwrap();
                let limits = CompactLimits::default();
                let done = compact(&mut leader, &layout(), NOW_MS, limits).await;
                assert_eq!(done.unwrap().files_in, 3);
                other.pass(took_ms);
            });
        });
        let plan = EditPlan {
            files_max,
            ..plan()
        };
        let mut m = world.writer("m").await;
        let done = edit(&mut m, &plan, &rows, &no_record).await.unwrap();
        assert_eq!((done.files_in, done.change.removed), (1, 2));
        assert_eq!(world.rows().await, run(0, 0, 30));
        // Three flushes, what compaction made of them, and what came of that: nothing else is left.
        assert_eq!(files(&world).await.0.len(), 5);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_others_add_meanwhile_are_met_where_that_is_asked() {
    for (meets_new_rows, left) in [(true, 0), (false, 1)] {
        let (world, mut a) = world().await;
        let handle = Handle::current();
        let flush = world.flush(&run(1, 7, 8));
        let rows = WithoutOne::after(move || {
            handle.block_on(a.flush(&flush)).unwrap();
        });
        let mut m = world.writer("m").await;
        let plan = EditPlan {
            meets_new_rows,
            ..plan()
        };
        let done = edit(&mut m, &plan, &rows, &no_record).await.unwrap();
        assert_eq!(done.change.removed, 3 - left);
        // Without new files the date's folder has the four flushes and the two rewritten.
        assert_eq!(world.rows().await.len() as u64, 30 + left);
        assert_eq!(files(&world).await.0.len(), 6);
    }
}

/// Counts how often each file is looked at.
#[derive(Default)]
struct Looking {
    rows: WithoutOne,
    looks: AtomicUsize,
}

impl EditRows for Looking {
    fn looks_at(&self) -> &[&'static str] {
        self.rows.looks_at()
    }

    fn concerns(&self, rows: &RecordBatch) -> Result<bool, Cause> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.rows.concerns(rows)
    }

    fn edit(&self, rows: &RecordBatch) -> Result<(RecordBatch, Change), Cause> {
        self.rows.edit(rows)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_files_a_commit_and_each_is_looked_at_once() {
    let (world, _) = world().await;
    let mut m = world.writer("m").await;
    let before = m.state().version;
    let few = EditPlan {
        files_max: 1,
        ..plan()
    };
    let rows = Looking::default();
    let record = |edited: &Edited| json!(edited.change.removed);
    let done = edit(&mut m, &few, &rows, &record).await.unwrap();
    assert_eq!((done.files_in, done.change.removed), (2, 2));
    assert_eq!(done.commit.unwrap().version, before + 2);
    assert_eq!(world.rows().await, run(0, 0, 30));
    // The three, and no more than both of the new ones.
    let looks = rows.looks.load(Ordering::SeqCst);
    assert!((3..=5).contains(&looks), "{looks}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_to_be_one_commit_ends_within_a_flushs_age() {
    let (world, _) = world().await;
    let taking = |ms| {
        let now = Arc::clone(&world.now);
        WithoutOne::after(move || {
            now.fetch_add(ms, Ordering::SeqCst);
        })
    };
    let (before, _) = files(&world).await;
    let mut m = world.writer("m").await;
    let refused = edit(&mut m, &plan(), &taking(FLUSH_AGE_MS_MAX + 1), &no_record).await;
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, LakeError::EditTooLong { .. }),
        "{refused}"
    );
    assert_eq!(files(&world).await.0, before, "nothing is left");

    // Where it may be several, what is old is committed first.
    let several = EditPlan {
        files_max: 64,
        ..plan()
    };
    let half = taking(FLUSH_AGE_MS_MAX / 2 + 1);
    let version = m.state().version;
    let done = edit(&mut m, &several, &half, &no_record).await.unwrap();
    assert_eq!(done.commit.unwrap().version, version + 2);
    assert_eq!(world.rows().await, run(0, 0, 30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_others_replaced_and_swept_meanwhile_is_planned_again() {
    let (world, _) = world().await;
    let world = Arc::new(world);
    let (handle, other) = (Handle::current(), Arc::clone(&world));
    let rows = WithoutOne::after(move || {
        handle.block_on(async {
            let mut n = other.writer("n").await;
            let rows = WithoutOne::default();
            let done = edit(&mut n, &plan(), &rows, &no_record).await.unwrap();
            assert_eq!(done.files_in, 2);
            let swept = sweep(&mut n, &layout(), &rows, i64::MAX).await.unwrap();
            // With the first file of the other, which is in no commit.
            assert!(swept.files >= 2);
        });
    });
    let mut m = world.writer("m").await;
    let done = edit(&mut m, &plan(), &rows, &no_record).await.unwrap();
    assert_eq!((done.commit, done.change.removed), (None, 0));
    assert_eq!(world.rows().await, run(0, 0, 30));
    let again = sweep(&mut m, &layout(), &WithoutOne::default(), i64::MAX).await;
    assert_eq!(again.unwrap().files, 0);
}

/// What another forgets goes with every file that has it, those that are not committed yet as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_file_that_others_sweep_before_the_commit_is_made_again() {
    let (world, _) = world().await;
    let (before, _) = files(&world).await;
    let sweeps = AtomicUsize::new(0);
    let folder = world.dir.path().join(DataFile::folder(Some(DAY)));
    let record = |_: &Edited| {
        if sweeps.fetch_add(1, Ordering::SeqCst) == 0 {
            let is_new = |it: &PathBuf| !before.iter().any(|known| it.ends_with(known));
            let paths = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path());
            paths
                .filter(is_new)
                .for_each(|it| fs::remove_file(it).unwrap());
        }
        Value::Null
    };
    let mut m = world.writer("m").await;
    let done = edit(&mut m, &plan(), &WithoutOne::default(), &record).await;
    assert_eq!(done.unwrap().change.removed, 2);
    assert_eq!(sweeps.load(Ordering::SeqCst), 2);
    assert_eq!(world.rows().await, run(0, 0, 30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweeping_leaves_what_is_live_clean_or_under_way() {
    let (world, _) = world().await;
    let orphan = world.file(Some(DAY), &run(1, 50, 52));
    let clean = world.file(Some(DAY), &run(0, 50, 52));
    let folder = world.dir.path().join(DataFile::folder(Some(DAY)));
    fs::write(folder.join("under-way.parquet"), b"PAR1").unwrap();
    let mut m = world.writer("m").await;
    edit(&mut m, &plan(), &WithoutOne::default(), &no_record)
        .await
        .unwrap();
    // Two were replaced now: who reads an older version has a while.
    for (until_ms, files, later) in [(NOW_MS, 1, 2), (NOW_MS + 1, 2, 0)] {
        let swept = sweep(&mut m, &layout(), &WithoutOne::default(), until_ms).await;
        let swept = swept.unwrap();
        assert_eq!((swept.files, swept.later, swept.unread), (files, later, 1));
    }
    let (listed, live) = files(&world).await;
    assert!(!listed.contains(&orphan.path) && listed.contains(&clean.path));
    assert_eq!(listed.difference(&live).count(), 2);
    assert_eq!(world.rows().await, run(0, 0, 30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_owns_a_partition_is_fenced_by_what_is_forgotten() {
    let (world, mut a) = world().await;
    let mut leader = world.writer("leader").await;
    leader.claim_leader().await.unwrap();
    let mut m = world.writer("m").await;
    m.forget("0a", NOW_MS).await.unwrap();
    let refused = a.flush(&world.flush(&run(0, 30, 31))).await.unwrap_err();
    match refused {
        LakeError::Fenced(fence) => assert_eq!(fence.owner, Owner::Forgotten),
        other => panic!("{other}"),
    }
    assert!(a.owned().is_empty());
    // Who owns nothing but the leader's place writes no rows.
    leader.confirm().await.unwrap();
    a.claim(&starts(&[0, 1])).await.unwrap();
    // By a clock that is behind.
    m.forget("0a", NOW_MS - HOUR_MS).await.unwrap();
    a.flush(&world.flush(&run(0, 30, 31))).await.unwrap_err();
    a.claim(&starts(&[0, 1])).await.unwrap();
    let keys = crate::forget::unfinished(&a.state().txns);
    assert_eq!(keys, BTreeMap::from([("0a".to_owned(), NOW_MS)]));
    m.forgot("0a", NOW_MS).await.unwrap();
    a.flush(&world.flush(&run(0, 30, 31))).await.unwrap();
    assert_eq!(world.rows().await.len(), 33);
    assert!(crate::forget::unfinished(&a.state().txns).is_empty());
}

/// Files of such rows are removed before their writer knows why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_gone_is_told_as_the_fence_that_it_comes_from() {
    let (world, mut a) = world().await;
    let lost = |flush: &Flush| fs::remove_file(world.dir.path().join(&flush.files[0].path));
    let flush = world.flush(&run(0, 30, 31));
    lost(&flush).unwrap();
    let refused = a.flush(&flush).await.unwrap_err();
    assert!(matches!(refused, LakeError::Io { .. }), "{refused}");
    world.writer("m").await.forget("0a", NOW_MS).await.unwrap();
    let refused = a.flush(&flush).await.unwrap_err();
    assert!(matches!(refused, LakeError::Fenced(_)), "{refused}");
    assert!(a.owned().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_dates_go_and_rows_without_one_by_their_commit() {
    let (world, mut a) = world().await;
    for (date, offset) in [(Some("2026-08-30"), 30), (None, 31)] {
        let rows = run(0, offset, offset + 1);
        let mut flush = world.flush(&rows);
        flush.files = vec![world.file(date, &rows)];
        a.flush(&flush).await.unwrap();
    }
    let mut m = world.writer("m").await;
    let told = expire(&mut m, DAY, NOW_MS, true).await.unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(world.rows().await.len(), 34);
    expire(&mut m, DAY, NOW_MS, false).await.unwrap();
    assert_eq!(world.rows().await.len(), 33);
    expire(&mut m, DAY, NOW_MS + 1, false).await.unwrap();
    assert_eq!(world.rows().await.len(), 32);
    assert!(
        expire(&mut m, DAY, NOW_MS + 1, false)
            .await
            .unwrap()
            .is_empty()
    );
}

/// Without the leader's place or a partition, a replacement still loses to who removed its files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_edits_of_the_same_file() {
    let (world, _) = world().await;
    let mut first = world.writer("m").await;
    let version = first.state().version;
    let removes = replay::load_files(first.table(), version).await.unwrap();
    let mut second = world.writer("n").await;
    edit(&mut second, &plan(), &WithoutOne::default(), &no_record)
        .await
        .unwrap();
    let replacement = Replacement {
        operation: "DELETE",
        began_ms: NOW_MS,
        removes: removes.live.into_values().collect(),
        data_change: true,
        ..Replacement::default()
    };
    let lost = first.replace(&replacement).await.unwrap();
    assert!(matches!(lost, Replaced::PlanAgain(_)), "{lost:?}");
    assert_eq!(world.rows().await, run(0, 0, 30));
}

/// Of two jobs of one plan the first moves the base past the edit that made the second stale.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_planned_before_an_edit_is_stale_behind_a_commit_that_was_not() {
    let (world, mut a) = world().await;
    let rows = run(0, 30, 32);
    let mut flush = world.flush(&rows);
    flush.files = vec![world.file(Some("2026-08-30"), &rows)];
    a.flush(&flush).await.unwrap();
    let mut leader = world.writer("leader").await;
    leader.claim_leader().await.unwrap();
    let planned_at = leader.confirm().await.unwrap().version;
    let live = replay::load_files(leader.table(), planned_at)
        .await
        .unwrap();
    let mut m = world.writer("m").await;
    edit(&mut m, &plan(), &WithoutOne::default(), &no_record)
        .await
        .unwrap();

    let job = |date: &str, rows: &[Row]| {
        let of_date = |add: &Add| add.partition_values["date"].as_deref() == Some(date);
        Replacement {
            operation: "OPTIMIZE",
            began_ms: NOW_MS,
            planned_at,
            removes: live
                .live
                .values()
                .filter(|it| of_date(it))
                .cloned()
                .collect(),
            adds: vec![world.file(Some(date), rows)],
            ..Replacement::default()
        }
    };
    let first = leader.replace(&job("2026-08-30", &rows)).await.unwrap();
    assert!(matches!(first, Replaced::Committed(_)), "{first:?}");
    let all = [run(0, 0, 30), run(1, 0, 2)].concat();
    let second = leader.replace(&job(DAY, &all)).await.unwrap();
    assert_eq!(second, Replaced::PlanAgain(Conflict::FileRemoved));
    assert_eq!(world.rows().await, run(0, 0, 32));
}
