//! What a seed decides before anything happens: how many take part, and what goes wrong how often.
//!
//! Each kind of fault is left out of some runs, so that what hides behind it is found as well.

use retrytoll_core::step::StateLimits;

/// One run. Weights are relative to each other, percentages stand alone.
#[derive(Clone, Debug)]
pub struct Plan {
    pub partitions: i32,
    /// Instances at a time.
    pub slots: usize,
    /// Steps before faults end.
    pub steps: u32,
    /// Records that come, at most.
    pub records: u32,
    pub limits: StateLimits,
    /// Events in a batch.
    pub batch_max: usize,
    /// Rows that make a flush large enough.
    pub flush_rows: usize,
    pub interval_ms: i64,
    pub interval_behind_ms: i64,
    pub position_interval_ms: i64,
    /// Weights.
    pub append: u32,
    pub read: u32,
    pub write: u32,
    pub maintain: u32,
    pub serve: u32,
    pub time: u32,
    pub assign: u32,
    pub revoke: u32,
    pub kick: u32,
    pub crash: u32,
    pub freeze: u32,
    pub stop: u32,
    /// Once in a run at most, after which so many steps.
    pub keep_log: Option<u32>,
    /// Percentages: of requests that are not served at once, of those that go wrong, of dead
    /// letters that are refused, of times that leap.
    pub slow_put: u32,
    pub slow_read: u32,
    pub fault: u32,
    pub refused_letter: u32,
    pub leap: u32,
    /// How often one that was thrown out finds that, when it polls.
    pub finds_out: u32,
}

impl Plan {
    pub fn of(seed: u64) -> Self {
        let mut luck = fastrand::Rng::with_seed(seed);
        let luck = &mut luck;
        fn one<T: Copy>(luck: &mut fastrand::Rng, of: &[T]) -> T {
            of[luck.usize(0..of.len())]
        }
        let limits = StateLimits {
            dedupe_horizon_ms: one(luck, &[2_000, 60_000, 600_000]),
            replay_max: one(luck, &[6, 30, 2_000_000]),
            seen_max: 1_000_000,
        };
        let slots = luck.usize(1..=4);
        let steps = slots as u32 * one(luck, &[80, 160, 320]);
        Self {
            partitions: luck.i32(1..=4),
            slots,
            steps,
            records: luck.u32(10..=120),
            limits,
            batch_max: one(luck, &[2, 6, 40]),
            flush_rows: one(luck, &[2, 6, 20]),
            interval_ms: one(luck, &[200, 1_500, 5_000]),
            interval_behind_ms: one(luck, &[400, 6_000]),
            position_interval_ms: one(luck, &[500, 3_000]),
            append: 8,
            read: 24,
            write: 24,
            maintain: one(luck, &[0, 2, 6]),
            serve: one(luck, &[8, 16, 32]),
            time: 8,
            assign: 8,
            revoke: one(luck, &[0, 1, 4]),
            kick: one(luck, &[0, 1, 4]),
            crash: one(luck, &[0, 1, 4]),
            freeze: one(luck, &[0, 1, 4]),
            stop: u32::from(luck.u32(0..4) == 0),
            keep_log: (luck.u32(0..10) == 0).then(|| luck.u32(0..steps)),
            slow_put: one(luck, &[10, 50, 90]),
            slow_read: one(luck, &[0, 1, 4]),
            fault: one(luck, &[0, 10, 40]),
            refused_letter: one(luck, &[0, 0, 5, 30]),
            leap: one(luck, &[0, 3, 15]),
            finds_out: one(luck, &[2, 10, 50]),
        }
    }
}
