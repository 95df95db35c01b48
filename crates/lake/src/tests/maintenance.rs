//! Checkpoints, clean-up, compaction, vacuum: the rows and positions are what they were.

use std::mem::ManuallyDrop;
use std::time::{Duration, SystemTime};

use object_store::ObjectStoreExt;

use super::*;
use crate::compact::{CompactLimits, Layout, compact};
use crate::error::LakeError;
use crate::maintain::{self, LogKept, VacuumLimits};
use crate::replay;
use crate::table::LOG_KEPT_MS;

const FAR_MS: i64 = NOW_MS + 1_000 * 24 * HOUR_MS;

/// Positions of every kind, in a log of a hundred commits.
async fn hundred_commits(world: &World) -> Writer {
    let mut a = world.owner("a", &[0, 1]).await;
    for at in 0..98 {
        a.flush(&world.flush(&run(0, at, at + 1))).await.unwrap();
    }
    let last = Position {
        low: 3,
        low_clock_ms: -7,
        clock_ms: 8,
        digest: Some(i64::MAX),
        done: true,
        ..Position::start(9)
    };
    let positions = BTreeMap::from([(p(1), last)]);
    a.flush(&Flush {
        positions,
        ..Flush::default()
    })
    .await
    .unwrap();
    a
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_come_back_from_a_checkpoint_alone() {
    let world = World::new();
    let mut a = hundred_commits(&world).await;
    let head = world.head().await;
    assert_eq!(head, 100);
    let before = a.state().clone();
    let kept = LOG_KEPT_MS;
    let none = maintain::keep_log(a.table(), 99, NOW_MS, kept)
        .await
        .unwrap();
    assert_eq!(none, LogKept::default());
    // However late it is, what is kept for so long stays.
    let kept = maintain::keep_log(a.table(), head, FAR_MS, FAR_MS)
        .await
        .unwrap();
    assert_eq!(
        kept,
        LogKept {
            checkpoint: Some(100),
            removed: 0
        }
    );
    let again = maintain::keep_log(a.table(), head, FAR_MS, 0)
        .await
        .unwrap();
    assert_eq!(again, LogKept::default());

    // All entries below the checkpoint go; what is left says the same.
    assert_eq!(
        maintain::clean_log(a.table(), head, FAR_MS).await.unwrap(),
        100
    );
    fs::remove_file(world.log_path("00000000000000000100.json")).unwrap();
    let after = replay::load(&world.table().await).await.unwrap().unwrap();
    assert_eq!(after.version, 100);
    assert_eq!(after.txns, before.txns);
    assert_eq!(after.metadata, before.metadata);
    assert_eq!(after.positions().len(), 2);
    assert_eq!(world.rows().await, run(0, 0, 98));

    // Later entries count from there, with and without the hint.
    a.flush(&world.flush(&run(0, 98, 100))).await.unwrap();
    assert_eq!(world.next().await, BTreeMap::from([(0, 100), (1, 9)]));
    fs::write(world.log_path("_last_checkpoint"), "{").unwrap();
    assert_eq!(world.next().await, BTreeMap::from([(0, 100), (1, 9)]));
}

/// The hint names a checkpoint that was cleaned up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_hint_does_no_harm() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    a.flush(&world.flush(&run(0, 0, 1))).await.unwrap();
    maintain::checkpoint(a.table(), 2).await.unwrap();
    let hint = fs::read(world.log_path("_last_checkpoint")).unwrap();
    a.flush(&world.flush(&run(0, 1, 2))).await.unwrap();
    maintain::checkpoint(a.table(), 3).await.unwrap();
    fs::write(world.log_path("_last_checkpoint"), hint).unwrap();
    assert_eq!(maintain::clean_log(a.table(), 3, FAR_MS).await.unwrap(), 4);
    assert_eq!(world.next().await, BTreeMap::from([(0, 2)]));
    a.flush(&world.flush(&run(0, 2, 3))).await.unwrap();
    assert_eq!(world.next().await, BTreeMap::from([(0, 3)]));
}

/// Power is lost while a checkpoint is written: the entries are still there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_checkpoint_is_set_aside() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    a.flush(&world.flush(&run(0, 0, 5))).await.unwrap();
    maintain::checkpoint(a.table(), 2).await.unwrap();
    let path = world.log_path("00000000000000000002.checkpoint.parquet");
    let whole = fs::read(&path).unwrap();
    for cut in [&[][..], &whole[..whole.len() / 2]] {
        fs::write(&path, cut).unwrap();
        assert_eq!(world.next().await, BTreeMap::from([(0, 5)]));
        assert!(!path.exists());
        assert_eq!(world.rows().await, run(0, 0, 5));
    }
}

fn layout() -> Layout {
    Layout {
        sort_by: Some("request_id".into()),
        properties: crate::encode::writer_properties(),
    }
}

fn limits() -> CompactLimits {
    CompactLimits {
        open_files_min: 3,
        sort_rows_max: 40,
        ..CompactLimits::default()
    }
}

async fn leader(world: &World) -> Writer {
    let mut leader = world.writer("m").await;
    leader.claim_leader().await.unwrap();
    leader
}

/// The request ids of each live file, in the file's order.
async fn ids_by_file(world: &World) -> Vec<Vec<String>> {
    let table = world.table().await;
    let head = table.check().await.unwrap().version;
    let files = replay::load_files(&table, head).await.unwrap();
    let mut found = Vec::new();
    for path in files.live.keys() {
        let file = File::open(world.dir.path().join(path)).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file)
            .unwrap()
            .build()
            .unwrap();
        let mut ids = Vec::new();
        for batch in reader {
            let batch = batch.unwrap();
            let column = batch
                .column_by_name("request_id")
                .unwrap()
                .as_string::<i32>();
            ids.extend(column.iter().map(|id| id.unwrap().to_owned()));
        }
        found.push(ids);
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_day_becomes_one_sorted_file() {
    let world = World::new();
    let mut a = world.owner("a", &[0, 1]).await;
    for at in 0..10 {
        let rows = sorted(&[run(0, 10 * at, 10 * at + 10), run(1, at, at + 1)]);
        a.flush(&world.flush(&rows)).await.unwrap();
    }
    let all = sorted(&[run(0, 0, 100), run(1, 0, 10)]);
    let mut m = leader(&world).await;
    // 110 rows, 40 at a time or the batch that fills them: 44, 44 and 22.
    let done = compact(&mut m, &layout(), world.now_ms(), limits())
        .await
        .unwrap();
    assert_eq!(
        (done.jobs, done.files_in, done.files_out, done.stale),
        (1, 10, 3, 0)
    );
    let files = ids_by_file(&world).await;
    let mut sizes: Vec<_> = files.iter().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [22, 44, 44]);
    assert!(files.iter().all(|ids| ids.is_sorted()));
    assert_eq!(world.rows().await, all);

    let done = compact(&mut m, &layout(), world.now_ms(), limits())
        .await
        .unwrap();
    assert_eq!((done.jobs, done.files_in, done.files_out), (1, 3, 1));
    let files = ids_by_file(&world).await;
    let mut expected: Vec<_> = all.iter().map(|row| request_id(*row)).collect();
    expected.sort_unstable();
    assert_eq!(files, [expected]);
    assert_eq!(world.rows().await, all);
    let done = compact(&mut m, &layout(), world.now_ms(), limits())
        .await
        .unwrap();
    assert_eq!(done, crate::compact::Compacted::default());

    // Compaction is no change of data, and what it removed stays for readers of old versions.
    let entry = format!("{:020}.json", m.state().version - 1);
    let entry = fs::read_to_string(world.log_path(&entry)).unwrap();
    assert_eq!(entry.matches(r#""dataChange":false"#).count(), 4, "{entry}");
    assert_eq!(entry.matches(r#""dataChange":true"#).count(), 0, "{entry}");
    a.flush(&world.flush(&run(1, 10, 12))).await.unwrap();
    assert_eq!(world.rows().await, sorted(&[run(0, 0, 100), run(1, 0, 12)]));
}

/// A merged file carries statistics and its level through a checkpoint.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_keeps_statistics_and_levels() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    a.flush(&world.flush(&run(0, 0, 5))).await.unwrap();
    a.append(world.now_ms(), vec![world.file(None, &run(3, 0, 2))])
        .await
        .unwrap();
    let mut m = leader(&world).await;
    compact(&mut m, &layout(), world.now_ms(), limits())
        .await
        .unwrap();
    let at = m.state().version;
    let before = replay::load_files(m.table(), at).await.unwrap();
    maintain::checkpoint(m.table(), at).await.unwrap();
    let after = replay::load_files(m.table(), at).await.unwrap();
    assert_eq!(before.live.len(), 2);
    for (path, add) in &before.live {
        let kept = &after.live[path];
        assert_eq!(
            (kept.size, kept.modification_time),
            (add.size, add.modification_time)
        );
        assert_eq!((&kept.stats, &kept.tags), (&add.stats, &add.tags));
        let date = |a: &deltalake::kernel::Add| a.partition_values.get("date").cloned().flatten();
        assert_eq!(date(kept), date(add));
    }
    let stats: serde_json::Value = before
        .live
        .values()
        .find(|a| a.path.starts_with("date=2026-09-01/"))
        .map(|a| serde_json::from_str(a.stats.as_ref().unwrap()).unwrap())
        .unwrap();
    assert_eq!(stats["numRecords"], 5);
    assert_eq!(stats["minValues"]["source_offset"], 0);
    assert_eq!(stats["maxValues"]["source_offset"], 4);
    assert_eq!(stats["minValues"]["request_id"], "r0-999995");
    assert_eq!(stats["nullCount"]["ts"], 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_hundred_small_files_of_a_closed_day_become_one() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    for at in 0..30 {
        let mut flush = world.flush(&run(0, 20 * at, 20 * at + 1));
        for n in 1..20 {
            let offset = 20 * at + n;
            flush
                .files
                .push(world.file(Some(DAY), &run(0, offset, offset + 1)));
            flush.positions.get_mut(&p(0)).unwrap().next = offset + 1;
        }
        a.flush(&flush).await.unwrap();
    }
    let mut m = leader(&world).await;
    let limits = CompactLimits {
        sort_rows_max: 10,
        ..limits()
    };
    let mut runs = 0;
    while compact(&mut m, &layout(), world.now_ms(), limits)
        .await
        .unwrap()
        .jobs
        > 0
    {
        runs += 1;
    }
    // 60 sorted files, then groups of 16: 4, then 1.
    assert_eq!(runs, 3);
    assert_eq!(ids_by_file(&world).await.len(), 1);
    assert_eq!(world.rows().await, run(0, 0, 600));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_gives_added_columns_to_old_rows() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    a.flush(&world.flush(&run(0, 0, 3))).await.unwrap();
    let mut fields = spec().columns.fields().to_vec();
    fields.push(Arc::new(Field::new("tenant", DataType::Utf8, true)));
    let newer = TableSpec {
        columns: Arc::new(Schema::new(fields)),
        ..spec()
    };
    let table = Table::open(&world.url(), newer, &world.clock(), RETRY)
        .await
        .unwrap();
    let mut m = world.writer_on(table, "m").await;
    m.claim_leader().await.unwrap();
    compact(&mut m, &layout(), world.now_ms(), limits())
        .await
        .unwrap();
    let batches = world.batches().await;
    assert!(
        batches
            .iter()
            .all(|b| b.column_by_name("tenant").unwrap().null_count() == b.num_rows())
    );
    assert_eq!(world.rows().await, run(0, 0, 3));
}

#[tokio::test]
async fn maintenance_is_the_leaders() {
    let world = World::new();
    let mut a = world.writer("a").await;
    let refused = compact(&mut a, &layout(), world.now_ms(), limits())
        .await
        .unwrap_err();
    assert!(matches!(refused, LakeError::NotLeader), "{refused}");
    let vacuum = maintain::vacuum(&mut a, VacuumLimits::default(), NOW_MS, true).await;
    assert!(matches!(vacuum, Err(LakeError::NotLeader)));
    // Taken and lost: nothing is compacted.
    a.claim_leader().await.unwrap();
    leader(&world).await;
    let refused = compact(&mut a, &layout(), world.now_ms(), limits())
        .await
        .unwrap_err();
    assert!(matches!(refused, LakeError::Fenced(_)), "{refused}");
}

fn make_old(world: &World, path: &str, age_ms: i64) {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis((NOW_MS - age_ms) as u64);
    File::options()
        .write(true)
        .open(world.dir.path().join(path))
        .unwrap()
        .set_modified(at)
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vacuum_removes_old_orphans_and_files_removed_long_ago() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    let live = world.flush(&run(0, 0, 5));
    a.flush(&live).await.unwrap();
    let orphan = world.file(Some(DAY), &run(0, 5, 9)).path;
    let young = world.file(Some(DAY), &run(0, 9, 12)).path;
    fs::write(world.dir.path().join("notes.txt"), "mine").unwrap();
    for path in [&live.files[0].path, &orphan, &"notes.txt".to_owned()] {
        make_old(&world, path, 25 * HOUR_MS);
    }
    make_old(&world, &young, HOUR_MS);
    let mut m = leader(&world).await;
    let ages = VacuumLimits::default();
    let found = maintain::vacuum(&mut m, ages, NOW_MS, true).await.unwrap();
    assert_eq!(found.files, std::slice::from_ref(&orphan));
    assert!(world.dir.path().join(&orphan).exists());
    maintain::vacuum(&mut m, ages, NOW_MS, false).await.unwrap();
    assert!(!world.dir.path().join(&orphan).exists());
    assert_eq!(world.rows().await, run(0, 0, 5));

    // A file that compaction removed stays as long as old versions can be read.
    compact(&mut m, &layout(), world.now_ms(), limits())
        .await
        .unwrap();
    let day = 24 * HOUR_MS;
    let soon = maintain::vacuum(&mut m, ages, NOW_MS + 7 * day - 1, true)
        .await
        .unwrap();
    assert!(!soon.files.contains(&live.files[0].path));
    let late = maintain::vacuum(&mut m, ages, NOW_MS + 7 * day, true)
        .await
        .unwrap();
    assert!(late.files.contains(&live.files[0].path));

    let young = VacuumLimits {
        orphan_age_ms: HOUR_MS,
        ..ages
    };
    let refused = maintain::vacuum(&mut m, young, NOW_MS, true)
        .await
        .unwrap_err();
    assert!(
        matches!(refused, LakeError::VacuumTooYoung { .. }),
        "{refused}"
    );
}

/// As kill -9 leaves them: the store itself names them, and hides them from its lists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vacuum_removes_uploads_that_were_never_finished() {
    let world = World::new();
    let mut m = leader(&world).await;
    for (name, age_ms) in [("old", 25 * HOUR_MS), ("young", HOUR_MS)] {
        let path = format!("{}/{name}.parquet", DataFile::folder(Some(DAY)));
        let store = m.table().store();
        let upload = store.put_multipart(&path.as_str().into()).await.unwrap();
        let mut upload = ManuallyDrop::new(upload);
        upload.put_part("PAR1".into()).await.unwrap();
        let staged = staged(&world).into_iter().find(|it| it.starts_with(&path));
        make_old(&world, &staged.unwrap(), age_ms);
    }
    assert!(maintain::data_files(m.table()).await.unwrap().is_empty());
    let ages = VacuumLimits::default();
    let told = maintain::vacuum(&mut m, ages, NOW_MS, true).await.unwrap();
    assert_eq!((told.files.len(), told.bytes), (1, 4));
    assert!(told.files[0].contains("old.parquet#"), "{:?}", told.files);
    assert_eq!(staged(&world).len(), 2);
    maintain::vacuum(&mut m, ages, NOW_MS, false).await.unwrap();
    let left = staged(&world);
    assert!(left.len() == 1 && left[0].contains("young"), "{left:?}");
}

/// What lies in the day's folder.
fn staged(world: &World) -> Vec<String> {
    let folder = DataFile::folder(Some(DAY));
    let names = fs::read_dir(world.dir.path().join(&folder)).unwrap();
    let names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
    names.map(|name| format!("{folder}/{name}")).collect()
}

/// F48 again: a flush frozen before its put wakes after vacuum, and finds its version taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vacuum_stands_between_a_frozen_flush_and_its_put() {
    let world = Arc::new(World::new());
    let mut m = leader(&world).await;
    let (mut a, faults) = world.faulty_owner("a", &[0]).await;
    let flush = world.flush(&run(0, 0, 5));
    make_old(&world, &flush.files[0].path, 0);
    let other = world.clone();
    // The process sleeps for two days right before the put, and the leader vacuums meanwhile.
    faults.race(move || async move {
        other.pass(48 * HOUR_MS);
        let gone = maintain::vacuum(&mut m, VacuumLimits::default(), other.now_ms(), false).await;
        assert_eq!(gone.unwrap().files.len(), 1);
        store::Verdict::Pass
    });
    let old = a.flush(&flush).await.unwrap_err();
    assert!(matches!(old, LakeError::FlushTooOld { .. }), "{old}");
    assert_eq!(world.rows().await, []);
}
