use super::*;
use crate::batch::SourceId;
use crate::silence::Silence;

const LIMITS: StateLimits = StateLimits {
    dedupe_horizon_ms: 600_000,
    replay_max: 1_000_000,
    seen_max: 1_000_000,
};
const NOW: i64 = 1_788_300_000_000;

/// One event: (offset, record time in ms after NOW, identity).
type Event = (i64, i64, u128);

fn batch(events: &[Event]) -> EventBatch {
    let mut batch = EventBatch::new(SourceId("test".into()), 0);
    for &(offset, ms, identity) in events {
        batch.offsets.push(offset);
        batch.record_ms.push(NOW + ms);
        batch.identities.push(identity);
    }
    batch
}

/// Feeds the events in batches of `size`; gives the offsets to write.
fn feed(state: &mut PartitionState, events: &[Event], size: usize) -> Vec<i64> {
    let mut written = Vec::new();
    for part in events.chunks(size) {
        let batch = batch(part);
        let mut effects = Effects::default();
        step(state, &batch, NOW, &mut effects);
        written.extend(effects.keep.iter().map(|&row| batch.offsets[row as usize]));
    }
    written
}

#[test]
fn a_record_from_the_future_moves_no_clock() {
    let mut state = PartitionState::recover(Progress::begin(0), LIMITS);
    let day = 86_400_000;
    let events = batch(&[(0, 0, 1), (1, day, 2), (2, 5, 3)]);
    let mut effects = Effects::default();
    step(&mut state, &events, NOW, &mut effects);
    assert_eq!(effects.keep, [0, 1, 2]);
    assert_eq!(effects.from_the_future, 1);
    assert_eq!(state.progress().clock_ms, NOW + 5);
}

/// Twenty minutes ahead is the future at first and no longer so when it is read again.
#[test]
fn a_record_that_moved_no_clock_moves_none_when_it_is_read_again() {
    let minute = 60_000;
    let mut first = PartitionState::recover(Progress::begin(0), LIMITS);
    let events = batch(&[(0, 0, 1), (1, 20 * minute, 2)]);
    step(&mut first, &events, NOW, &mut Effects::default());
    let stands = first.progress();
    assert_eq!((stands.next, stands.low), (2, 0));

    let mut second = PartitionState::recover(stands, LIMITS);
    let later = NOW + 25 * minute;
    let mut effects = Effects::default();
    step(&mut second, &events, later, &mut effects);
    assert_eq!((effects.replayed, effects.from_the_future), (2, 1));
    // The first event again, a minute after it: both lives have to know it.
    let again = batch(&[(2, minute, 1)]);
    for state in [&mut first, &mut second] {
        effects.clear();
        step(state, &again, later, &mut effects);
        assert_eq!((effects.keep.len(), effects.duplicates), (0, 1));
    }
}

#[test]
fn offsets_without_events_move_the_position() {
    let mut state = PartitionState::recover(Progress::begin(5), LIMITS);
    state.advance(9);
    assert_eq!(state.progress().next, 9);
    assert_eq!(
        state.progress().low,
        9,
        "nothing live: nothing to read again"
    );
    feed(&mut state, &[(9, 0, 1)], 1);
    state.advance(20);
    assert_eq!((state.progress().next, state.progress().low), (20, 9));
}

#[test]
fn a_silent_partition_waits_by_our_clock_and_never_back() {
    let mut state = PartitionState::recover(Progress::begin(0), LIMITS);
    feed(&mut state, &[(0, 0, 1)], 1);
    state.idle(NOW + 9_000);
    state.idle(NOW + 4_000);
    assert_eq!(state.progress().clock_ms, NOW + 9_000);
    feed(&mut state, &[(1, 1_000, 2)], 1);
    assert_eq!(state.progress().clock_ms, NOW + 9_000);
    assert_eq!(state.log_clock_ms(), NOW + 1_000);
}

/// F23: records wait that we have not fetched, for we were away.
#[test]
fn a_partition_that_we_are_behind_of_is_not_idle() {
    let mut state = PartitionState::recover(Progress::begin(0), LIMITS);
    let mut silence = Silence::begin(NOW);
    feed(&mut state, &[(0, 0, 1)], 1);
    silence.drained(NOW);
    state.idle(silence.known_ms());
    assert_eq!(state.progress().clock_ms, NOW);
    // An hour later we wake, and know of no record yet.
    let awake = NOW + 3_600_000;
    silence.look(awake, false);
    state.idle(silence.known_ms());
    assert_eq!(state.progress().clock_ms, NOW);
    // What came meanwhile is in time.
    let came = batch(&[(1, 1_800_000, 2)]);
    step(&mut state, &came, awake, &mut Effects::default());
    assert_eq!(state.progress().clock_ms, NOW + 1_800_000);
    silence.look(awake + 900, false);
    silence.drained(awake + 900);
    state.idle(silence.known_ms());
    assert_eq!(
        state.progress().clock_ms,
        NOW + 1_800_000,
        "an empty poll just after waking shows nothing"
    );
}

/// Twenty lines that know nothing of `Seen`: an event is written unless the last event of its
/// identity is within the horizon by the greatest time so far.
fn oracle(events: &[Event]) -> Vec<i64> {
    let mut clock = i64::MIN;
    let mut lasts: Vec<(u128, i64)> = Vec::new();
    let mut written = Vec::new();
    for &(offset, ms, identity) in events {
        if ms <= SKEW_MS_MAX {
            clock = clock.max(ms);
        }
        let known = lasts.iter_mut().find(|(other, _)| *other == identity);
        let before = known.map(|(_, at)| std::mem::replace(at, clock));
        match before {
            Some(at) if clock - at <= LIMITS.dedupe_horizon_ms => continue,
            Some(_) => {}
            None => lasts.push((identity, clock)),
        }
        written.push(offset);
    }
    written
}

proptest::proptest! {
    /// Whatever the batches, and wherever the process dies and comes back, the rows are those of
    /// one undisturbed run: nothing lost, nothing doubled.
    #[test]
    fn any_restart_writes_the_same_rows(
        steps in proptest::collection::vec((0_i64..400_000, 0_u128..12, 1_i64..4), 1..120),
        size in 1_usize..9,
        deaths in proptest::collection::vec((0_usize..120, 0_usize..40), 0..6),
    ) {
        let mut events = Vec::new();
        let (mut offset, mut ms) = (0, -20_000_000);
        for (gap, identity, skip) in steps {
            // Times wander: mostly forward, every seventh event back, every fifth far ahead.
            ms += gap;
            let odd = if gap % 7 == 0 { -500_000 } else if gap % 5 == 0 { 90_000_000 } else { 0 };
            events.push((offset, ms + odd, identity));
            offset += skip;
        }
        let expected = oracle(&events);

        let mut written = Vec::new();
        let mut position = Progress::begin(0);
        let mut at = 0;
        for (lives, lost) in deaths.into_iter().chain([(usize::MAX, 0)]) {
            // A life: read from `low`, commit some events on, read on uncommitted, die.
            let mut state = PartitionState::recover(position, LIMITS);
            let from = events.partition_point(|event| event.0 < position.low);
            let to = at.max(from).saturating_add(lives).min(events.len());
            written.extend(feed(&mut state, &events[from..to], size));
            if to > at {
                position = state.progress();
                at = to;
            }
            feed(&mut state, &events[to..to.saturating_add(lost).min(events.len())], size);
        }
        proptest::prop_assert_eq!(written, expected);
    }
}
