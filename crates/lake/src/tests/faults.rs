//! Crashes, frozen processes, stores that fail, disks that lose.

use super::store::Verdict;
use super::*;
use crate::error::LakeError;
use crate::maintain;

/// F2 and F8: the store refuses for good. The writer stops, and nothing goes past the hole.
#[tokio::test]
async fn f8_never_past_the_hole() {
    let world = Arc::new(World::new());
    let (mut a, faults) = world.faulty_owner("a", &[0]).await;
    for _ in 0..8 {
        let now = world.now.clone();
        faults.race(move || async move {
            now.fetch_add(10_000, Ordering::SeqCst);
            Verdict::Refuse
        });
    }
    let stopped = a.flush(&world.flush(&run(0, 0, 10))).await.unwrap_err();
    let LakeError::Unavailable {
        version,
        tries,
        waited_ms,
        ..
    } = stopped
    else {
        panic!("{stopped}")
    };
    // Refused at 10, 20, … 60 s, the deadline.
    assert_eq!((version, tries, waited_ms), (2, 6, 60_000));
    let refused = a.flush(&world.flush(&run(0, 10, 20))).await.unwrap_err();
    assert!(matches!(refused, LakeError::NotOurs { .. }), "{refused}");
    assert_eq!(world.next().await, BTreeMap::from([(0, 0)]));
    // kill -9, and a new process: from the beginning.
    let mut b = world.writer("b").await;
    assert_eq!(
        b.claim(&starts(&[0])).await.unwrap()[&p(0)].position.next,
        0
    );
    b.flush(&world.flush(&run(0, 0, 20))).await.unwrap();
    assert_eq!(world.rows().await, run(0, 0, 20));
}

/// A put that was given up arrives all the same: claiming again finds it.
#[tokio::test]
async fn a_commit_that_arrives_after_all_is_not_written_twice() {
    let world = Arc::new(World::new());
    let (mut a, faults) = world.faulty_owner("a", &[0]).await;
    let flush = world.flush(&run(0, 0, 10));
    let now = world.now.clone();
    faults.race(move || async move {
        now.fetch_add(61_000, Ordering::SeqCst);
        Verdict::Refuse
    });
    let given_up = a.flush(&flush).await.unwrap_err();
    assert!(
        matches!(given_up, LakeError::Unavailable { .. }),
        "{given_up}"
    );
    // The same flush by another writer of the same group stands for the late arrival.
    world.owner("late", &[0]).await.flush(&flush).await.unwrap();
    assert_eq!(
        a.claim(&starts(&[0])).await.unwrap()[&p(0)].position.next,
        10
    );
    a.flush(&world.flush(&run(0, 10, 12))).await.unwrap();
    assert_eq!(world.rows().await, run(0, 0, 12));
}

/// F3: kill -9 after the commit, before Kafka hears of it; the next process flushes otherwise.
#[tokio::test]
async fn f3_next_comes_from_the_lake() {
    let world = World::new();
    let mut a = world.owner("a", &[0, 1]).await;
    a.flush(&world.flush(&sorted(&[run(0, 0, 10), run(1, 0, 4)])))
        .await
        .unwrap();
    drop(a);
    let mut b = world.writer("b").await;
    let claimed = b.claim(&starts(&[0, 1])).await.unwrap();
    let (p0, p1) = (claimed[&p(0)].position, claimed[&p(1)].position);
    assert_eq!((p0.next, p0.low, p0.clock_ms), (10, 9, 90));
    assert_eq!((p1.next, p1.low, p1.clock_ms), (4, 3, 30));
    for at in 10..13 {
        b.flush(&world.flush(&run(0, at, at + 1))).await.unwrap();
    }
    b.flush(&world.flush(&run(1, 4, 9))).await.unwrap();
    assert_eq!(world.rows().await, sorted(&[run(0, 0, 13), run(1, 0, 9)]));
}

/// F9: a row that is not durable keeps `next` where it is.
#[tokio::test]
async fn f9_next_does_not_pass_a_file_that_is_not_there() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    let mut missing = world.flush(&run(0, 0, 3));
    fs::remove_file(world.dir.path().join(&missing.files[0].path)).unwrap();
    let refused = a.flush(&missing).await.unwrap_err();
    assert!(
        matches!(refused, LakeError::Io { what: "open", .. }),
        "{refused}"
    );
    missing = world.flush(&run(0, 0, 3));
    missing.files[0].size += 1;
    let refused = a.flush(&missing).await.unwrap_err();
    assert!(matches!(refused, LakeError::FileCut { .. }), "{refused}");
    assert_eq!(world.next().await, BTreeMap::from([(0, 0)]));
    assert!(!refused.ends_ownership());
    a.flush(&world.flush(&run(0, 0, 3))).await.unwrap();
    assert_eq!(world.rows().await, run(0, 0, 3));
}

/// Without rows, positions are a commit of their own.
#[tokio::test]
async fn positions_alone_are_a_commit() {
    let world = World::new();
    let mut a = world.owner("a", &[0, 1]).await;
    let positions = BTreeMap::from([(
        p(1),
        Position {
            clock_ms: 5,
            ..Position::start(40)
        },
    )]);
    a.flush(&Flush {
        positions,
        ..Flush::default()
    })
    .await
    .unwrap();
    assert_eq!(world.rows().await, []);
    assert_eq!(world.next().await, BTreeMap::from([(0, 0), (1, 40)]));
    // It names `next` of the partition that did not move, or it would not be fenced by it.
    let entry = fs::read_to_string(world.log_path("00000000000000000002.json")).unwrap();
    assert!(
        entry.contains(r#""appId":"retrytoll/next/0/c1/calls""#),
        "{entry}"
    );
    assert!(!entry.contains("lastUpdated"), "{entry}");
}

/// F35: the checkpoint fails after a good commit. Nothing is committed again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f35_a_failed_checkpoint_touches_no_commit() {
    let world = World::new();
    let (mut a, faults) = world.faulty_owner("a", &[0]).await;
    let done = a.flush(&world.flush(&run(0, 0, 5))).await.unwrap();
    faults.refuse_checkpoints(true);
    let puts = faults.puts();
    let failed = maintain::checkpoint(a.table(), done.version)
        .await
        .unwrap_err();
    assert!(matches!(failed, LakeError::Delta { .. }), "{failed}");
    assert!(!failed.ends_ownership());
    assert_eq!(faults.puts(), puts);
    a.flush(&world.flush(&run(0, 5, 6))).await.unwrap();
    assert_eq!(world.rows().await, run(0, 0, 6));
    faults.refuse_checkpoints(false);
    maintain::checkpoint(a.table(), done.version + 1)
        .await
        .unwrap();
    assert_eq!(world.rows().await, run(0, 0, 6));
}

/// F47: two create the table at the same instant.
#[tokio::test]
async fn f47_one_table_is_created() {
    let world = Arc::new(World::new());
    let faults = Faults::default();
    let other = world.clone();
    faults.race(move || async move {
        other.table().await;
        Verdict::Pass
    });
    let a = Table::open_on(faults.store(), &world.url(), spec(), &world.clock(), RETRY).await;
    let (a, b) = (a.unwrap(), world.table().await);
    let id = |state: crate::replay::LogState| state.metadata.id().to_owned();
    assert_eq!(id(a.check().await.unwrap()), id(b.check().await.unwrap()));
    assert!(faults.are_spent());
    assert_eq!(fs::read_dir(world.log_path("")).unwrap().count(), 1);
}

/// The creation's answer is lost, or the first try fails.
#[tokio::test]
async fn creation_is_tried_again() {
    let world = World::new();
    let faults = Faults::default();
    faults.then(Verdict::Refuse);
    faults.then(Verdict::LoseAnswer);
    Table::open_on(faults.store(), &world.url(), spec(), &world.clock(), RETRY)
        .await
        .unwrap();
    assert_eq!(faults.puts(), 2);
    assert_eq!(world.head().await, 0);
}

/// F48: a flush that slept for more than an hour is thrown away, whoever wrote meanwhile.
#[tokio::test]
async fn f48_an_old_flush_is_thrown_away() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    let flush = world.flush(&run(0, 0, 10));
    world.pass(HOUR_MS + 1);
    let old = a.flush(&flush).await.unwrap_err();
    assert!(
        matches!(
            old,
            LakeError::FlushTooOld {
                age_ms: 3_600_001,
                limit_ms: 3_600_000
            }
        ),
        "{old}"
    );
    assert!(old.ends_ownership());
    assert_eq!(world.rows().await, []);
    assert_eq!(
        a.claim(&starts(&[0])).await.unwrap()[&p(0)].position.next,
        0
    );
    a.flush(&world.flush(&run(0, 0, 10))).await.unwrap();
    assert_eq!(world.rows().await, run(0, 0, 10));
}

/// F48: it sleeps between two tries.
#[tokio::test]
async fn f48_a_flush_that_gets_old_while_it_is_tried_is_thrown_away() {
    let world = World::new();
    let (mut a, faults) = world.faulty_owner("a", &[0]).await;
    let mut b = world.owner("b", &[1]).await;
    let (now, other) = (world.now.clone(), world.flush(&run(1, 0, 2)));
    faults.race(move || async move {
        b.flush(&other).await.unwrap();
        now.fetch_add(2 * HOUR_MS, Ordering::SeqCst);
        Verdict::Pass
    });
    let old = a.flush(&world.flush(&run(0, 0, 10))).await.unwrap_err();
    assert!(matches!(old, LakeError::FlushTooOld { .. }), "{old}");
    assert_eq!(world.rows().await, run(1, 0, 2));
}

/// A base older than ten minutes is brought to the head before anything is put.
#[tokio::test]
async fn an_old_base_is_read_before_it_is_used() {
    let world = World::new();
    let (mut a, faults) = world.faulty_owner("a", &[0]).await;
    let mut b = world.owner("b", &[1]).await;
    b.flush(&world.flush(&run(1, 0, 5))).await.unwrap();
    world.pass(11 * MINUTE_MS);
    let puts = faults.puts();
    let done = a.flush(&world.flush(&run(0, 0, 5))).await.unwrap();
    assert_eq!(
        (done.version, faults.puts() - puts),
        (world.head().await, 1)
    );
    assert_eq!(world.rows().await, sorted(&[run(0, 0, 5), run(1, 0, 5)]));
}

/// A version below the head is never written: what follows the base was cleaned up meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_base_below_the_cleaned_log_is_given_up() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    let mut b = world.owner("b", &[1]).await;
    for at in 0..5 {
        b.flush(&world.flush(&run(1, at, at + 1))).await.unwrap();
    }
    let head = world.head().await;
    maintain::checkpoint(b.table(), head).await.unwrap();
    let far = NOW_MS + 1_000 * 24 * HOUR_MS;
    assert!(maintain::clean_log(b.table(), head, far).await.unwrap() > 0);
    world.pass(8 * 24 * HOUR_MS);
    let lost = a.flush(&world.flush(&run(0, 0, 5))).await.unwrap_err();
    assert!(
        matches!(lost, LakeError::BaseLost { base: 1, head: 7 }),
        "{lost}"
    );
    assert_eq!(world.head().await, head);
    a.claim(&starts(&[0])).await.unwrap();
    a.flush(&world.flush(&run(0, 0, 5))).await.unwrap();
    assert_eq!(world.rows().await, sorted(&[run(0, 0, 5), run(1, 0, 5)]));
}

/// Power is lost while the last entry is written: it is empty, zeros, or a part.
#[tokio::test]
async fn a_cut_last_entry_is_set_aside_and_replayed() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    a.flush(&world.flush(&run(0, 0, 5))).await.unwrap();
    a.flush(&world.flush(&run(0, 5, 8))).await.unwrap();
    let last = world.log_path("00000000000000000003.json");
    let whole = fs::read(&last).unwrap();
    let first_line = whole.iter().position(|b| *b == b'\n').unwrap() + 1;
    let cuts = [
        vec![],
        vec![0; 64],
        whole[..whole.len() / 2].into(),
        whole[..first_line].into(),
    ];
    for (n, cut) in cuts.into_iter().enumerate() {
        fs::write(&last, cut).unwrap();
        world.pass(1);
        assert_eq!(world.next().await, BTreeMap::from([(0, 5)]), "cut {n}");
        assert!(!last.exists());
        let aside = format!("00000000000000000003.json.cut.{}", world.now_ms());
        assert!(world.log_path(&aside).exists(), "cut {n}");
        assert_eq!(world.rows().await, run(0, 0, 5));
    }
    let mut b = world.writer("b").await;
    assert_eq!(
        b.claim(&starts(&[0])).await.unwrap()[&p(0)].position.next,
        5
    );
    b.flush(&world.flush(&run(0, 5, 8))).await.unwrap();
    assert_eq!(world.rows().await, run(0, 0, 8));
}

/// An entry that is cut and not the last one must not vanish silently.
#[tokio::test]
async fn a_cut_entry_in_the_middle_is_an_error() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    a.flush(&world.flush(&run(0, 0, 5))).await.unwrap();
    fs::write(world.log_path("00000000000000000001.json"), "").unwrap();
    let bad = Table::open(&world.url(), spec(), &world.clock(), RETRY)
        .await
        .unwrap_err();
    assert!(
        matches!(bad, LakeError::BadEntry { version: 1, .. }),
        "{bad}"
    );
    fs::remove_file(world.log_path("00000000000000000001.json")).unwrap();
    let hole = Table::open(&world.url(), spec(), &world.clock(), RETRY)
        .await
        .unwrap_err();
    assert!(
        matches!(hole, LakeError::LogHole { version: 1, .. }),
        "{hole}"
    );
}

/// The very first entry is cut: the table is created anew.
#[tokio::test]
async fn a_cut_creation_is_created_again() {
    let world = World::new();
    world.table().await;
    fs::write(
        world.log_path("00000000000000000000.json"),
        "{\"commitInfo\":",
    )
    .unwrap();
    let mut a = world.owner("a", &[0]).await;
    a.flush(&world.flush(&run(0, 0, 5))).await.unwrap();
    assert_eq!(world.rows().await, run(0, 0, 5));
}
