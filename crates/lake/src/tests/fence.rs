//! Who may write a partition when two believe that they own it.

use super::store::Verdict;
use super::*;
use crate::error::LakeError;

#[track_caller]
fn is_fenced(result: Result<crate::Committed, LakeError>) {
    match result {
        Err(LakeError::Fenced(_)) => {}
        other => panic!("expected a fence, found {other:?}"),
    }
}

/// F1: A sleeps with a flush in hand, B takes over and writes, A wakes.
#[tokio::test]
async fn f1_a_frozen_writer_is_refused() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    a.flush(&world.flush(&run(0, 0, 10))).await.unwrap();
    let frozen = world.flush(&run(0, 10, 20));
    let mut b = world.owner("b", &[0]).await;
    b.flush(&world.flush(&run(0, 10, 25))).await.unwrap();
    world.pass(11 * MINUTE_MS);
    is_fenced(a.flush(&frozen).await);
    b.flush(&world.flush(&run(0, 25, 30))).await.unwrap();
    assert_eq!(world.rows().await, run(0, 0, 30));
    assert_eq!(world.next().await, BTreeMap::from([(0, 30)]));
}

/// F31: A commits p0 only while B has taken p1.
#[tokio::test]
async fn f31_every_commit_is_fenced_by_all_that_is_owned() {
    let world = World::new();
    let mut a = world.owner("a", &[0, 1]).await;
    let mut b = world.owner("b", &[1]).await;
    b.flush(&world.flush(&run(1, 0, 7))).await.unwrap();
    is_fenced(a.flush(&world.flush(&run(0, 0, 5))).await);
    let refused = a.flush(&world.flush(&run(1, 0, 3))).await.unwrap_err();
    assert!(matches!(refused, LakeError::NotOurs { .. }), "{refused}");
    assert_eq!(world.rows().await, run(1, 0, 7));
}

/// F31 with a revoke that A heard of: p0 goes on over B's claim, p1 never does.
#[tokio::test]
async fn f31_a_revoked_partition_is_not_written_any_more() {
    let world = World::new();
    let mut a = world.owner("a", &[0, 1]).await;
    a.revoke(&[p(1)]);
    let mut b = world.owner("b", &[1]).await;
    b.flush(&world.flush(&run(1, 0, 7))).await.unwrap();
    a.flush(&world.flush(&run(0, 0, 5))).await.unwrap();
    let refused = a.flush(&world.flush(&run(1, 0, 3))).await.unwrap_err();
    assert!(matches!(refused, LakeError::NotOurs { .. }), "{refused}");
    // That was refused before anything happened: A still owns p0.
    a.flush(&world.flush(&run(0, 5, 6))).await.unwrap();
    assert_eq!(world.rows().await, sorted(&[run(0, 0, 6), run(1, 0, 7)]));
}

/// The flush at hand has rows of the revoked partition, so it stays ours until it is settled.
#[tokio::test]
async fn a_revoked_partition_stays_ours_until_the_flush_is_settled() {
    let world = World::new();
    let mut a = world.owner("a", &[0, 1]).await;
    a.begin_flush(&[p(0), p(1)]).unwrap();
    let flush = world.flush(&sorted(&[run(0, 0, 5), run(1, 0, 3)]));
    a.revoke(&[p(1)]);
    // Nobody took it: the flush goes through, and then it is no longer ours.
    a.flush(&flush).await.unwrap();
    let mut b = world.owner("b", &[1]).await;
    b.flush(&world.flush(&run(1, 3, 7))).await.unwrap();
    a.flush(&world.flush(&run(0, 5, 6))).await.unwrap();
    assert_eq!(world.rows().await, sorted(&[run(0, 0, 6), run(1, 0, 7)]));

    // The same, and B takes it before the flush: even a commit of p0 alone finds the fence.
    a.claim(&starts(&[2])).await.unwrap();
    a.begin_flush(&[p(0), p(2)]).unwrap();
    a.revoke(&[p(2)]);
    let mut c = world.owner("c", &[2]).await;
    c.flush(&world.flush(&run(2, 0, 4))).await.unwrap();
    is_fenced(
        a.flush(&Flush {
            positions: world.flush(&run(0, 6, 7)).positions,
            ..Flush::default()
        })
        .await,
    );
    assert_eq!(
        world.rows().await,
        sorted(&[run(0, 0, 6), run(1, 0, 7), run(2, 0, 4)])
    );
}

/// F33, before: the old owner's commit arrives just before the new owner's claim.
#[tokio::test]
async fn f33_a_claim_reads_again_what_moved_under_it() {
    let world = Arc::new(World::new());
    let mut a = world.owner("a", &[0]).await;
    let (mut b, faults) = world.faulty_writer("b").await;
    let flush = world.flush(&run(0, 0, 10));
    faults.race(move || async move {
        a.flush(&flush).await.unwrap();
        Verdict::Pass
    });
    let claimed = b.claim(&starts(&[0])).await.unwrap()[&p(0)];
    assert!(claimed.known && faults.are_spent());
    assert_eq!(claimed.position.next, 10);
    b.flush(&world.flush(&run(0, 10, 15))).await.unwrap();
    assert_eq!(world.rows().await, run(0, 0, 15));
    assert_eq!(world.next().await, BTreeMap::from([(0, 15)]));
}

/// F33, after: the old owner's commit arrives just after it.
#[tokio::test]
async fn f33_the_old_owner_is_refused_after_the_claim() {
    let world = Arc::new(World::new());
    let (mut a, faults) = world.faulty_owner("a", &[0]).await;
    let (send, receive) = tokio::sync::oneshot::channel();
    let other = world.clone();
    faults.race(move || async move {
        let _ = send.send(other.owner("b", &[0]).await);
        Verdict::Pass
    });
    is_fenced(a.flush(&world.flush(&run(0, 0, 10))).await);
    let mut b = receive.await.unwrap();
    b.flush(&world.flush(&run(0, 0, 15))).await.unwrap();
    assert_eq!(world.rows().await, run(0, 0, 15));
}

/// Two claim the same partition at once: both get through, the later one owns it.
#[tokio::test]
async fn of_two_claims_the_later_owns() {
    let world = Arc::new(World::new());
    let (mut a, faults) = world.faulty_writer("a").await;
    let (send, receive) = tokio::sync::oneshot::channel();
    let other = world.clone();
    faults.race(move || async move {
        let _ = send.send(other.owner("b", &[0]).await);
        Verdict::Pass
    });
    a.claim(&starts(&[0])).await.unwrap();
    let mut b = receive.await.unwrap();
    is_fenced(b.flush(&world.flush(&run(0, 0, 4))).await);
    a.flush(&world.flush(&run(0, 0, 5))).await.unwrap();
    assert_eq!(world.rows().await, run(0, 0, 5));
}

#[tokio::test]
async fn a_later_claim_does_not_jump_over_a_fence() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    let _b = world.owner("b", &[0]).await;
    // A's claim of another partition must not take the base over B's claim of p0.
    let refused = a.claim(&starts(&[1])).await.unwrap_err();
    assert!(matches!(refused, LakeError::Fenced(_)), "{refused}");
    assert!(a.owned().is_empty());
}

#[tokio::test]
async fn positions_never_go_back() {
    let world = World::new();
    let mut a = world.owner("a", &[0]).await;
    a.flush(&world.flush(&run(0, 0, 10))).await.unwrap();
    let back = a.flush(&world.flush(&run(0, 0, 9))).await.unwrap_err();
    assert!(
        matches!(
            back,
            LakeError::PositionBack {
                field: "next",
                committed: 10,
                given: 9,
                ..
            }
        ),
        "{back}"
    );
    assert_eq!(world.rows().await, run(0, 0, 10));
    // Left untouched: the writer goes on.
    a.flush(&world.flush(&run(0, 10, 11))).await.unwrap();
}

/// F45: a file that was read before, and has grown, is known by its source; so is the same
/// content under another name.
#[tokio::test]
async fn f45_a_known_file_goes_on_where_it_ended() {
    let world = World::new();
    let file = SourcePartition::new("sha256-of-first-record", 0);
    let begin = BTreeMap::from([(file.clone(), Position::start(0))]);
    let mut first = world.writer("ingest-1").await;
    assert!(!first.claim(&begin).await.unwrap()[&file].known);
    let end = Position {
        digest: Some(4_611_686_018_427),
        done: true,
        ..Position::start(10)
    };
    let mut flush = world.flush(&run(0, 0, 10));
    flush.positions = BTreeMap::from([(file.clone(), end)]);
    first.flush(&flush).await.unwrap();

    let mut second = world.writer("ingest-2").await;
    let claimed = second.claim(&begin).await.unwrap()[&file];
    assert_eq!((claimed.known, claimed.position), (true, end));
    let mut flush = world.flush(&run(0, 10, 13));
    let grown = Position {
        next: 13,
        low: 13,
        ..end
    };
    flush.positions = BTreeMap::from([(file.clone(), grown)]);
    second.flush(&flush).await.unwrap();
    assert_eq!(world.rows().await, run(0, 0, 13));
    // A third run of the same content writes nothing.
    let claimed = world.writer("ingest-3").await.claim(&begin).await.unwrap()[&file];
    assert_eq!(claimed.position, grown);
}

/// One maintains at a time.
#[tokio::test]
async fn a_second_leader_fences_the_first() {
    let world = World::new();
    let mut a = world.writer("a").await;
    a.claim_leader().await.unwrap();
    a.append(world.now_ms(), vec![world.file(None, &run(0, 0, 2))])
        .await
        .unwrap();
    let mut b = world.writer("b").await;
    b.claim_leader().await.unwrap();
    is_fenced(a.confirm().await);
    assert!(!a.is_leader());
    b.confirm().await.unwrap();
    assert_eq!(world.rows().await, run(0, 0, 2));
}

/// Two take the leader's place at once: the later holds it, under a number of its own.
#[tokio::test]
async fn of_two_leaders_the_later_leads() {
    let world = Arc::new(World::new());
    let (mut a, faults) = world.faulty_writer("a").await;
    let (send, receive) = tokio::sync::oneshot::channel();
    let other = world.clone();
    faults.race(move || async move {
        let mut b = other.writer("b").await;
        b.claim_leader().await.unwrap();
        let _ = send.send(b);
        Verdict::Pass
    });
    a.claim_leader().await.unwrap();
    let mut b = receive.await.unwrap();
    is_fenced(b.confirm().await);
    a.confirm().await.unwrap();
    assert_eq!(a.state().txns["retrytoll/leader"], 2);
}
