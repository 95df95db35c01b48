//! looks, pauses, empty polls → until when a source is known to be silent.
//!
//! A partition that was read to its end and tells nothing more is *silent*, and its waiting clock
//! follows ours. It is not silent because we are behind: while we were frozen, or paused by a slow
//! lake, records may have come that nobody fetched yet. So time counts as silent only up to a
//! moment at which the source was *drained*: it had nothing more to hand over, and had been
//! fetched from without a break.

/// We were away when two looks lie further apart than this, ms.
const GAP_MS_MAX: i64 = 1_000;
/// Until what came while we were away is fetched, ms: a lost connection is made anew meanwhile.
const SETTLE_MS: i64 = 5_000;
/// The same after a pause, ms: the connection stands. At full load there is a pause every few
/// seconds, and the clock of a silent partition has to move between them.
const RESUME_MS: i64 = 1_000;

/// What a poll loop knows of its source's silence. Times are our own clock's.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    looked_ms: i64,
    unsure_until_ms: i64,
    known_ms: i64,
}

impl Silence {
    /// Of a source that begins to be read now.
    #[must_use]
    pub fn begin(now_ms: i64) -> Self {
        Self {
            looked_ms: now_ms,
            unsure_until_ms: i64::MIN,
            known_ms: i64::MIN,
        }
    }

    /// Once a round, before the poll. `is_paused`: nothing was fetched in the last round.
    pub fn look(&mut self, now_ms: i64, is_paused: bool) {
        let was_away = now_ms.saturating_sub(self.looked_ms) > GAP_MS_MAX;
        let settle_ms = match (was_away, is_paused) {
            (true, _) => SETTLE_MS,
            (false, true) => RESUME_MS,
            (false, false) => 0,
        };
        self.unsure_until_ms = self.unsure_until_ms.max(now_ms.saturating_add(settle_ms));
        self.looked_ms = now_ms;
    }

    /// A poll of this round had nothing to hand over, or the end of a partition.
    pub fn drained(&mut self, now_ms: i64) {
        if now_ms >= self.unsure_until_ms {
            self.known_ms = self.known_ms.max(now_ms);
        }
    }

    /// Whatever came before this was handed over, ms; `i64::MIN` when nothing is known.
    #[must_use]
    pub fn known_ms(&self) -> i64 {
        self.known_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_788_300_000_000;

    /// Rounds of 100 ms, each with an empty poll; gives what is known after the last.
    fn rounds(silence: &mut Silence, from_ms: i64, to_ms: i64, is_paused: bool) -> i64 {
        for now_ms in (from_ms..=to_ms).step_by(100) {
            silence.look(now_ms, is_paused);
            silence.drained(now_ms);
        }
        silence.known_ms()
    }

    #[test]
    fn an_empty_poll_is_silence_up_to_now() {
        let mut silence = Silence::begin(NOW);
        assert_eq!(silence.known_ms(), i64::MIN);
        assert_eq!(rounds(&mut silence, NOW, NOW + 300, false), NOW + 300);
        silence.look(NOW + 400, false);
        assert_eq!(silence.known_ms(), NOW + 300, "this poll had something");
    }

    #[test]
    fn a_frozen_reader_knows_of_no_silence() {
        let mut silence = Silence::begin(NOW);
        rounds(&mut silence, NOW, NOW + 1_000, false);
        let awake = NOW + 3_600_000;
        silence.look(awake, false);
        assert_eq!(silence.known_ms(), NOW + 1_000);
        // Nothing is fetched yet, so that a poll has nothing to hand over.
        let settled = awake + SETTLE_MS;
        assert_eq!(
            rounds(&mut silence, awake, settled - 100, false),
            NOW + 1_000
        );
        assert_eq!(rounds(&mut silence, settled, settled, false), settled);
    }

    #[test]
    fn a_paused_reader_knows_of_no_silence() {
        let mut silence = Silence::begin(NOW);
        rounds(&mut silence, NOW, NOW + 1_000, false);
        let resumed = NOW + 60_000;
        assert_eq!(
            rounds(&mut silence, NOW + 1_100, resumed, true),
            NOW + 1_000
        );
        let settled = resumed + RESUME_MS;
        assert_eq!(
            rounds(&mut silence, resumed + 100, settled - 100, false),
            NOW + 1_000
        );
        assert_eq!(rounds(&mut silence, settled, settled, false), settled);
    }

    #[test]
    fn a_round_of_a_second_is_no_gap() {
        let mut silence = Silence::begin(NOW);
        silence.look(NOW + GAP_MS_MAX, false);
        silence.drained(NOW + GAP_MS_MAX);
        assert_eq!(silence.known_ms(), NOW + GAP_MS_MAX);
        silence.look(NOW + 2 * GAP_MS_MAX + 1, false);
        silence.drained(NOW + 2 * GAP_MS_MAX + 1);
        assert_eq!(silence.known_ms(), NOW + GAP_MS_MAX);
    }
}
