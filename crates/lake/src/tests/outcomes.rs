//! Two writers, one table, every row of the table of outcomes.

use super::store::Verdict;
use super::*;
use crate::error::LakeError;
use crate::{Conflict, ConflictCounts, Range, Replaced, Replacement};
use crate::{maintain, replay};

#[tokio::test]
async fn the_put_itself_is_refused_where_an_entry_stands() {
    use deltalake::kernel::transaction::TransactionError;
    use deltalake::logstore::{CommitOrBytes, LogStore};
    let world = World::new();
    let log = world.table().await.log_store();
    let put = |text: &'static str| {
        let bytes = CommitOrBytes::LogBytes(bytes::Bytes::from_static(text.as_bytes()));
        let log = log.clone();
        async move { log.write_commit_entry(1, bytes, Uuid::new_v4()).await }
    };
    put("{\"first\":1}").await.unwrap();
    let second = put("{\"second\":2}").await.unwrap_err();
    assert!(
        matches!(second, TransactionError::VersionAlreadyExists(1)),
        "{second}"
    );
    let path = world.log_path("00000000000000000001.json");
    assert_eq!(fs::read_to_string(path).unwrap(), "{\"first\":1}");
}

#[tokio::test]
async fn plain_success() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    let done = a.flush(&world.flush(&run(0, 0, 10))).await.unwrap();
    // 0 creates the table, 1 claims.
    assert_eq!(done.version, 2);
    assert_eq!(world.rows().await, run(0, 0, 10));
    assert_eq!(world.next().await, BTreeMap::from([(0, 10)]));
    let at = a.state().position(&p(0)).unwrap();
    assert_eq!(
        at,
        Position {
            low: 9,
            clock_ms: 90,
            ..Position::start(10)
        }
    );
}

/// Who was to make the table slept for a week, and found no entry where it puts its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_is_not_made_again_where_its_first_entry_was_cleaned_up() {
    let world = World::new();
    let a = world.owner("a", &[0]).await;
    maintain::checkpoint(a.table(), 1).await.unwrap();
    let first = world.log_path("00000000000000000000.json");
    fs::remove_file(&first).unwrap();
    let (looked_ms, clock) = (NOW_MS - 7 * 24 * HOUR_MS, world.clock());
    let made = a.table().create(looked_ms, &clock, RETRY).await;
    made.unwrap();
    assert!(!first.exists());
}

/// F34: the commit lands and its answer is lost.
#[tokio::test]
async fn a_lost_answer_is_a_success() {
    let world = World::new();
    let (mut a, faults) = world.faulty_owner("a", &[0]).await;
    faults.then(Verdict::LoseAnswer);
    let done = a.flush(&world.flush(&run(0, 0, 10))).await.unwrap();
    assert_eq!((done.version, faults.are_spent()), (2, true));
    let met = ConflictCounts {
        answer_lost: 1,
        ..ConflictCounts::default()
    };
    assert_eq!(a.take_conflicts(), met);
    let next = a.flush(&world.flush(&run(0, 10, 12))).await.unwrap();
    assert_eq!(next.version, 3);
    assert_eq!(world.rows().await, run(0, 0, 12));
    assert_eq!(a.take_conflicts(), ConflictCounts::default());
}

/// The answer is lost, and another claims before we look: the flush is in, the next one is not.
#[tokio::test]
async fn a_lost_answer_is_a_success_even_if_fenced_after_it() {
    let world = World::new();
    let (mut a, faults) = world.faulty_owner("a", &[0]).await;
    faults.then(Verdict::LoseAnswer);
    let mut b = world.writer("b").await;
    a.flush(&world.flush(&run(0, 0, 10))).await.unwrap();
    assert_eq!(
        b.claim(&starts(&[0])).await.unwrap()[&p(0)].position.next,
        10
    );
    let refused = a.flush(&world.flush(&run(0, 10, 12))).await.unwrap_err();
    assert!(matches!(refused, LakeError::Fenced(_)), "{refused}");
    assert_eq!(world.rows().await, run(0, 0, 10));
}

#[tokio::test]
async fn one_of_ours_named_is_a_fence_that_says_who() {
    let world = World::new();
    let mut a = world.owner("a", &[0, 1]).await;
    let _b = world.owner("b", &[1]).await;
    let refused = a.flush(&world.flush(&run(0, 0, 10))).await.unwrap_err();
    assert!(refused.ends_ownership());
    let LakeError::Fenced(fence) = refused else {
        panic!("{refused}")
    };
    assert_eq!(fence.owner, crate::Owner::Partition(p(1)));
    assert_eq!(fence.by.to_string(), "member b of group g");
    assert!(a.owned().is_empty());
    let met = ConflictCounts {
        fenced: 1,
        ..ConflictCounts::default()
    };
    assert_eq!(a.take_conflicts(), met);
    assert_eq!(world.rows().await, []);
    // Started again at claim, with what is still assigned.
    assert_eq!(
        a.claim(&starts(&[0])).await.unwrap()[&p(0)].position.next,
        0
    );
    a.flush(&world.flush(&run(0, 0, 10))).await.unwrap();
    assert_eq!(world.rows().await, run(0, 0, 10));
}

#[tokio::test]
async fn others_commits_move_the_base() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    let mut b = world.owner("b", &[1]).await;
    for n in 0..3 {
        b.flush(&world.flush(&run(1, 10 * n, 10 * n + 10)))
            .await
            .unwrap();
    }
    let done = a.flush(&world.flush(&run(0, 0, 5))).await.unwrap();
    assert_eq!(done.version, world.head().await);
    b.flush(&world.flush(&run(1, 30, 40))).await.unwrap();
    assert_eq!(world.rows().await, sorted(&[run(0, 0, 5), run(1, 0, 40)]));
    assert_eq!(world.next().await, BTreeMap::from([(0, 5), (1, 40)]));
}

/// Four writers at once on partitions of their own: all get through, each row once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_at_once() {
    let world = Arc::new(World::new());
    world.table().await;
    let writers = (0..4).map(|n| {
        let world = world.clone();
        tokio::spawn(async move {
            let mut writer = world.owner(&format!("w{n}"), &[n]).await;
            for at in 0..10 {
                writer
                    .flush(&world.flush(&run(n, 5 * at, 5 * at + 5)))
                    .await
                    .unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(
        world.rows().await,
        sorted(&[0, 1, 2, 3].map(|n| run(n, 0, 50)))
    );
    // The table, four claims, forty flushes.
    assert_eq!(world.head().await, 44);
}

/// A writer with the leader's place, and the live files.
async fn remover(world: &World) -> (Writer, Vec<deltalake::kernel::Add>) {
    let mut writer = world.writer("m").await;
    writer.claim_leader().await.unwrap();
    let files = replay::load_files(writer.table(), writer.state().version)
        .await
        .unwrap();
    (writer, files.live.into_values().collect())
}

fn replacement(world: &World, removes: &[deltalake::kernel::Add], rows: &[Row]) -> Replacement {
    Replacement {
        operation: "OPTIMIZE",
        began_ms: world.now_ms(),
        removes: removes.to_vec(),
        adds: vec![world.file(Some(DAY), rows)],
        ..Replacement::default()
    }
}

#[tokio::test]
async fn a_removal_loses_to_a_removal_of_the_same_file() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    a.flush(&world.flush(&run(0, 0, 5))).await.unwrap();
    a.flush(&world.flush(&run(0, 5, 9))).await.unwrap();
    let (mut m, live) = remover(&world).await;
    let compaction = replacement(&world, &live, &run(0, 0, 9));

    // Someone deletes the second file's rows meanwhile.
    let mut other = world.writer("forget").await;
    let second = live
        .iter()
        .find(|f| f.stats.as_ref().unwrap().contains(":4"))
        .unwrap();
    let forget = Replacement {
        operation: "DELETE",
        began_ms: world.now_ms(),
        planned_at: other.state().version,
        removes: vec![second.clone()],
        data_change: true,
        range: Range::Dates([Some(DAY.to_owned())].into()),
        ..Replacement::default()
    };
    let forgotten = other.replace(&forget).await.unwrap();
    assert!(matches!(forgotten, Replaced::Committed(_)));

    let outcome = m.replace(&compaction).await.unwrap();
    assert_eq!(outcome, Replaced::PlanAgain(Conflict::FileRemoved));
    assert_eq!(world.rows().await, run(0, 0, 5));
    // Planned again, it goes through.
    let (mut m, live) = remover(&world).await;
    let outcome = m
        .replace(&replacement(&world, &live, &run(0, 0, 5)))
        .await
        .unwrap();
    assert!(matches!(outcome, Replaced::Committed(_)));
    assert_eq!(world.rows().await, run(0, 0, 5));
}

#[tokio::test]
async fn a_deletion_loses_to_rows_added_in_its_range_and_a_compaction_does_not() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    a.flush(&world.flush(&run(0, 0, 5))).await.unwrap();
    let (mut m, live) = remover(&world).await;
    let mut delete = replacement(&world, &live, &run(0, 0, 1));
    delete.data_change = true;
    delete.range = Range::Dates([Some(DAY.to_owned())].into());
    let compaction = replacement(&world, &live, &run(0, 0, 5));
    a.flush(&world.flush(&run(0, 5, 8))).await.unwrap();

    let outcome = m.replace(&delete).await.unwrap();
    assert_eq!(outcome, Replaced::PlanAgain(Conflict::RowsAdded));
    a.flush(&world.flush(&run(0, 8, 9))).await.unwrap();
    let outcome = m.replace(&compaction).await.unwrap();
    assert!(matches!(outcome, Replaced::Committed(_)));
    assert_eq!(world.rows().await, run(0, 0, 9));
    // And compaction fenced nobody.
    a.flush(&world.flush(&run(0, 9, 10))).await.unwrap();
    assert_eq!(world.rows().await, run(0, 0, 10));
}

#[tokio::test]
async fn a_protocol_action_stops_the_writer() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    let protocol = r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[],"writerFeatures":["appendOnly"]}}"#;
    fs::write(world.log_path("00000000000000000002.json"), protocol).unwrap();
    let stopped = a.flush(&world.flush(&run(0, 0, 5))).await.unwrap_err();
    assert!(
        matches!(stopped, LakeError::ProtocolChanged { version: 2 }),
        "{stopped}"
    );
    assert!(a.owned().is_empty());
    let refused = Table::open(&world.url(), spec(), &world.clock(), RETRY)
        .await
        .unwrap_err();
    assert!(
        matches!(
            refused,
            LakeError::ProtocolUnknown {
                reader: 3,
                writer: 7,
                ..
            }
        ),
        "{refused}"
    );
}

/// F2: the first commit fails; with a 503 and with a time-out that did nothing.
#[tokio::test]
async fn nothing_there_is_put_again_at_the_same_version() {
    let world = World::new();
    let (mut a, faults) = world.faulty_owner("a", &[0]).await;
    faults.then(Verdict::Refuse);
    faults.then(Verdict::Refuse);
    faults.then(Verdict::LoseAnswer);
    let before = faults.puts();
    let done = a.flush(&world.flush(&run(0, 0, 10))).await.unwrap();
    assert_eq!((done.version, faults.puts() - before), (2, 3));
    assert_eq!(world.rows().await, run(0, 0, 10));
}

/// Nothing is there at first; before the second try another's claim is.
#[tokio::test]
async fn a_second_try_is_settled_like_the_first() {
    let world = Arc::new(World::new());
    let (mut a, faults) = world.faulty_owner("a", &[0]).await;
    faults.then(Verdict::Refuse);
    let other = world.clone();
    faults.race(move || async move {
        other.owner("b", &[0]).await;
        Verdict::Pass
    });
    let refused = a.flush(&world.flush(&run(0, 0, 10))).await.unwrap_err();
    assert!(matches!(refused, LakeError::Fenced(_)), "{refused}");
    assert_eq!(world.rows().await, []);
}
