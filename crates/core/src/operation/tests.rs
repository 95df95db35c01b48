//! Cases by hand, and properties over any order.

use proptest::prelude::*;

use super::*;

const SECOND: i64 = 1_000_000;

/// An attempt that ran from `start` to `end`, seconds.
fn attempt(number: i64, start: i64, end: i64, decision: &str) -> Attempt<'static> {
    Attempt {
        lineage: ("t", 0, start * 100 + number, 0),
        started_us: Some(start * SECOND),
        ended_us: Some(end * SECOND),
        number: Some(number),
        above_base: Some(number > 0),
        layer: b"",
        prompt: Some(b"p"),
        last_line: true,
        counted: true,
        decision: Decision::of_word(decision).unwrap(),
        next_retry_us: 0,
        timeout_us: None,
        may_have_answer: false,
        was_cancelled: decision == "cancelled",
        cache_hit: false,
        billed: match decision {
            "success" => Billed::Yes,
            _ => Billed::No,
        },
        usage: None,
        output_tokens: None,
        server_id: None,
    }
}

fn timed_out(number: i64, start: i64, end: i64, decision: &str) -> Attempt<'static> {
    Attempt {
        may_have_answer: true,
        billed: Billed::Likely,
        ..attempt(number, start, end, decision)
    }
}

fn used(output: i64, of: Attempt<'static>) -> Attempt<'static> {
    Attempt {
        usage: Some(Usage {
            input: Some(100),
            cached: None,
            output: Some(output),
        }),
        output_tokens: Some(output),
        ..of
    }
}

/// Each attempt as `operation.place role of outcome`, in the order given.
fn told(attempts: &[Attempt<'_>], mark_us: Option<i64>) -> Vec<String> {
    let places = place(attempts, mark_us);
    let tell = |it: &Place| {
        if it.superseded {
            return "superseded".to_owned();
        }
        let beside = if it.counted { "" } else { " beside" };
        let hedge = if it.is_hedge { " hedge!" } else { "" };
        format!(
            "{}.{} {} of {}{beside}{hedge}",
            it.op_seq,
            it.op_place,
            it.role.map_or("-", Role::word),
            it.outcome.map_or("-", Outcome::word)
        )
    };
    places.iter().map(tell).collect()
}

#[track_caller]
fn check(attempts: &[Attempt<'_>], expected: &[&str]) {
    assert_eq!(told(attempts, None), expected);
    let mut turned = attempts.to_vec();
    turned.reverse();
    let mut found = told(&turned, None);
    found.reverse();
    assert_eq!(found, expected, "in the other order");
}

#[test]
fn a_retry_that_delivers_makes_the_first_one_a_repeat() {
    check(
        &[timed_out(0, 0, 30, "retry"), attempt(1, 31, 33, "success")],
        &["1.0 repeat of delivered", "1.1 delivered of delivered"],
    );
}

/// The one that was sent first may end last, and a hedge is no retry.
#[test]
fn each_attempt_knows_how_its_operation_went() {
    let attempts = [
        attempt(0, 0, 50, "retry"),
        attempt(1, 10, 20, "retry"),
        attempt(2, 52, 60, "retry"),
        attempt(3, 61, 62, "success"),
    ];
    let told = |attempts: &[Attempt<'_>]| {
        let places = place(attempts, None);
        let tell = |it: &Place| (it.op_retries, it.op_ended_us.unwrap() / SECOND, it.is_last);
        places.iter().map(tell).collect::<Vec<_>>()
    };
    let (no, last) = ((2, 62, false), (2, 62, true));
    assert_eq!(told(&attempts), [no, no, no, last]);
    assert_eq!(told(&attempts[..2]), [(0, 50, true), (0, 50, false)]);
}

/// M2: four attempts a minute apart, none delivered.
#[test]
fn what_delivers_nothing_is_undelivered() {
    check(
        &[
            timed_out(0, 0, 61, "retry"),
            timed_out(1, 62, 125, "retry"),
            timed_out(2, 127, 190, "retry"),
            timed_out(3, 194, 258, "give_up"),
        ],
        &[
            "1.0 undelivered of timed_out",
            "1.1 undelivered of timed_out",
            "1.2 undelivered of timed_out",
            "1.3 undelivered of timed_out",
        ],
    );
    check(
        &[attempt(0, 0, 1, "retry"), attempt(1, 2, 3, "give_up")],
        &["1.0 undelivered of failed", "1.1 undelivered of failed"],
    );
}

/// M35: an agent's calls under one request id, each with a prompt of its own.
#[test]
fn base_attempts_of_other_prompts_are_operations_of_their_own() {
    let prompts: [&'static [u8]; 3] = [b"a", b"b", b"c"];
    let calls = prompts.map(|prompt| Attempt {
        prompt: Some(prompt),
        lineage: ("t", 0, i64::from(prompt[0]), 0),
        ..attempt(0, 0, 5, "success")
    });
    check(
        &calls,
        &[
            "1.0 delivered of delivered",
            "2.0 delivered of delivered",
            "3.0 delivered of delivered",
        ],
    );
    // Retries of operations that run side by side stay with their own.
    let a = |it| Attempt {
        prompt: Some(b"a"),
        ..it
    };
    let b = |it| Attempt {
        prompt: Some(b"b"),
        ..it
    };
    check(
        &[
            a(attempt(0, 0, 5, "retry")),
            b(attempt(0, 1, 4, "retry")),
            a(attempt(1, 6, 8, "success")),
            b(attempt(1, 7, 9, "give_up")),
        ],
        &[
            "1.0 repeat of delivered",
            "2.0 undelivered of failed",
            "1.1 delivered of delivered",
            "2.1 undelivered of failed",
        ],
    );
}

/// M30: a fallback, whose prompt may be another, belongs to the running operation.
#[test]
fn a_retry_joins_whatever_its_prompt() {
    let other = Attempt {
        prompt: Some(b"q"),
        ..attempt(1, 6, 8, "success")
    };
    check(
        &[attempt(0, 0, 5, "fallback"), other],
        &["1.0 repeat of delivered", "1.1 delivered of delivered"],
    );
}

#[test]
fn a_base_attempt_after_the_end_begins_the_next() {
    check(
        &[
            attempt(0, 0, 5, "retry"),
            attempt(1, 6, 8, "success"),
            attempt(0, 60, 61, "success"),
        ],
        &[
            "1.0 repeat of delivered",
            "1.1 delivered of delivered",
            "2.0 delivered of delivered",
        ],
    );
}

/// M46, F41: two time-outs of 600 s, then a success.
#[test]
fn long_time_outs_stay_together() {
    check(
        &[
            timed_out(0, 0, 600, "retry"),
            timed_out(1, 601, 1_201, "retry"),
            attempt(2, 1_202, 1_230, "success"),
        ],
        &[
            "1.0 repeat of delivered",
            "1.1 repeat of delivered",
            "1.2 delivered of delivered",
        ],
    );
}

/// M17: a request id that is used again hours later.
#[test]
fn past_the_gap_it_is_another_operation() {
    let first = attempt(0, 0, 5, "retry");
    // 5 + 600 + 60 s is the deadline.
    let at = |end: i64| attempt(1, end - 1, end, "give_up");
    check(
        &[first, at(665)],
        &["1.0 undelivered of failed", "1.1 undelivered of failed"],
    );
    check(
        &[first, at(666)],
        &["1.0 undelivered of abandoned", "2.0 undelivered of failed"],
    );
    let patient = Attempt {
        next_retry_us: SECOND,
        ..first
    };
    check(
        &[patient, at(666)],
        &["1.0 undelivered of failed", "1.1 undelivered of failed"],
    );
}

/// F42: a request id that never rests is cut, and told.
#[test]
fn an_operation_is_cut_at_two_hours_and_at_a_thousand_attempts() {
    let each_minute: Vec<_> = (0..241)
        .map(|n| attempt(n, n * 60, n * 60 + 1, "retry"))
        .collect();
    let places = place(&each_minute, None);
    let cuts: Vec<_> = places
        .iter()
        .filter(|it| it.op_place == 0)
        .map(|it| it.first)
        .collect();
    assert_eq!(cuts, [0, 120, 240]);
    assert!(places.iter().all(|it| it.overlong && it.op_seq == 1));
    let quick: Vec<_> = (0..2_001).map(|n| attempt(n, n, n + 1, "retry")).collect();
    let sizes: Vec<_> = place(&quick, None)
        .iter()
        .filter(|it| it.op_place == 0)
        .map(|it| it.op_attempts)
        .collect();
    assert_eq!(sizes, [1_000, 1_000, 1]);
}

/// F44, M18: the last line of an attempt counts.
#[test]
fn growing_lines_supersede_one_another() {
    let line = |output, end| used(output, attempt(0, 0, end, "success"));
    check(
        &[line(5, 1), line(40, 2), line(82, 3)],
        &["superseded", "superseded", "1.0 delivered of delivered"],
    );
    let part = Attempt {
        last_line: false,
        ..attempt(0, 0, 3, "retry")
    };
    check(
        &[part, attempt(0, 1, 9, "success")],
        &["superseded", "1.0 delivered of delivered"],
    );
    // Two calls that began at the same instant have ids of their own: the second is a hedge.
    let call = |id, offset| Attempt {
        server_id: Some(id),
        lineage: ("t", 0, offset, 0),
        ..used(offset, attempt(0, 0, 1, "success"))
    };
    check(
        &[call("a", 5), call("b", 6)],
        &[
            "1.0 delivered of delivered",
            "1.1 hedge of delivered hedge!",
        ],
    );
}

/// F44: the one that was not needed ends after the one that delivered.
#[test]
fn an_operation_waits_two_hours_at_most() {
    let told_to_wait = |mark: i64| {
        let patient = Attempt {
            next_retry_us: 3 * 3_600 * SECOND,
            ..attempt(0, 0, 30, "retry")
        };
        place(&[patient], Some(mark * SECOND))[0].outcome
    };
    assert_eq!(told_to_wait(7_199), None);
    assert_eq!(told_to_wait(7_200), Some(Outcome::Abandoned));
}

#[test]
fn what_was_billed_twice_is_told_of_each_attempt() {
    let billed = |attempts: &[Attempt<'_>], mark_us| {
        let places = place(attempts, mark_us);
        let told = places
            .iter()
            .map(|it| (it.op_billed, it.op_likely_billed))
            .collect::<Vec<_>>();
        assert!(told.iter().all(|it| *it == told[0]), "{told:?}");
        told[0]
    };
    let late = [timed_out(0, 0, 30, "retry"), attempt(1, 31, 33, "success")];
    assert_eq!(billed(&late, None), (1, 1));
    // Its operation may go on.
    let open = [timed_out(0, 0, 30, "retry"), timed_out(1, 31, 61, "retry")];
    assert_eq!(billed(&open, Some(62 * SECOND)), (0, 0));
    assert_eq!(billed(&open, None), (0, 2));
    // Either side of a hedge was wanted: the one that was delivered, and the loser.
    let hedged = [attempt(0, 0, 30, "success"), attempt(1, 10, 12, "success")];
    assert_eq!(billed(&hedged, None), (0, 0));
    let cancelled = Attempt {
        billed: Billed::Yes,
        ..attempt(1, 31, 33, "cancelled")
    };
    let stopped = [timed_out(0, 0, 30, "retry"), cancelled];
    assert_eq!(billed(&stopped, None), (0, 1));
}

#[test]
fn an_overlap_is_a_hedge() {
    check(
        &[
            attempt(0, 0, 30, "cancelled"),
            attempt(1, 10, 12, "success"),
        ],
        &[
            "1.0 cancelled of delivered",
            "1.1 delivered of delivered hedge!",
        ],
    );
    check(
        &[attempt(0, 0, 30, "success"), attempt(1, 10, 12, "success")],
        &[
            "1.0 hedge of delivered",
            "1.1 delivered of delivered hedge!",
        ],
    );
    // By 5 % of 30 s, which is within what clocks differ.
    let close = Attempt {
        started_us: Some(28_500_000),
        ..attempt(1, 28, 40, "success")
    };
    check(
        &[attempt(0, 0, 30, "retry"), close],
        &["1.0 repeat of delivered", "1.1 delivered of delivered"],
    );
    let clear = Attempt {
        started_us: Some(28_499_999),
        ..close
    };
    check(
        &[attempt(0, 0, 30, "retry"), clear],
        &[
            "1.0 hedge of delivered",
            "1.1 delivered of delivered hedge!",
        ],
    );
}

#[test]
fn two_layers_tell_of_one_answer() {
    let layer = |layer: &'static [u8], start, end| Attempt {
        layer,
        ..used(900, attempt(0, start, end, "success"))
    };
    check(
        &[layer(b"app", 0, 5), layer(b"gateway", 1, 4)],
        &[
            "1.0 delivered of delivered",
            "1.0 delivered of delivered beside",
        ],
    );
    // Where one layer counts, the other's row is beside it whatever it says.
    let beside = Attempt {
        counted: false,
        ..layer(b"gateway", 1, 4)
    };
    check(
        &[
            timed_out(0, 0, 5, "retry"),
            beside,
            attempt(1, 6, 7, "give_up"),
        ],
        &[
            "1.0 undelivered of timed_out",
            "1.0 delivered of delivered beside",
            "1.1 undelivered of timed_out",
        ],
    );
}

/// F51, M37: formats without numbers are numbered by start.
#[test]
fn without_numbers_the_order_numbers() {
    let plain = |start, end, decision| Attempt {
        number: None,
        above_base: None,
        ..attempt(0, start, end, decision)
    };
    let rows = [
        plain(0, 5, "retry"),
        plain(6, 8, "success"),
        plain(60, 61, "success"),
    ];
    check(
        &rows,
        &[
            "1.0 repeat of delivered",
            "1.1 delivered of delivered",
            "2.0 delivered of delivered",
        ],
    );
    let retries: Vec<_> = place(&rows, None).iter().map(|it| it.is_retry).collect();
    assert_eq!(retries, [false, true, false]);
}

#[test]
fn a_retry_whose_first_attempt_was_not_logged_is_one_still() {
    let rows = [attempt(1, 0, 5, "success")];
    let places = place(&rows, None);
    assert!(places[0].is_retry && places[0].op_place == 0);
}

#[test]
fn an_open_operation_has_no_outcome_yet() {
    let rows = [attempt(0, 0, 5, "retry")];
    let deadline_us = (5 + 600 + 60) * SECOND;
    assert_eq!(told(&rows, Some(deadline_us - 1)), ["1.0 - of -"]);
    assert_eq!(
        told(&rows, Some(deadline_us)),
        ["1.0 undelivered of abandoned"]
    );
    // Whole, it waits for nothing.
    let rows = [attempt(0, 0, 5, "retry"), attempt(1, 6, 8, "success")];
    assert_eq!(
        told(&rows, Some(i64::MIN)),
        ["1.0 repeat of delivered", "1.1 delivered of delivered"]
    );
    // An end without the beginning waits for it.
    assert_eq!(told(&rows[1..], Some(8 * SECOND)), ["1.0 - of -"]);
}

#[test]
fn the_sibling_is_the_delivered_one_else_the_nearest() {
    let outputs = |rows: &[Attempt<'_>]| {
        let places = place(rows, None);
        let output = |it: &Place| it.sibling.and_then(|usage| usage.output);
        places.iter().map(output).collect::<Vec<_>>()
    };
    let rows = [
        used(7, attempt(0, 0, 5, "retry")),
        timed_out(1, 6, 36, "retry"),
        used(9, attempt(2, 100, 103, "success")),
    ];
    assert_eq!(outputs(&rows), [Some(9), Some(9), Some(7)]);
    let rows = [
        used(7, attempt(0, 0, 5, "retry")),
        timed_out(1, 6, 36, "retry"),
        used(9, attempt(2, 100, 103, "give_up")),
    ];
    assert_eq!(outputs(&rows), [Some(9), Some(7), Some(7)]);
}

#[test]
fn a_cache_hit_and_a_stopped_call_have_their_own_roles() {
    let hit = Attempt {
        cache_hit: true,
        ..attempt(1, 6, 7, "success")
    };
    check(
        &[attempt(0, 0, 5, "retry"), hit],
        &["1.0 repeat of delivered", "1.1 cached of delivered"],
    );
    check(
        &[timed_out(0, 0, 5, "retry"), attempt(1, 6, 7, "cancelled")],
        &["1.0 undelivered of cancelled", "1.1 cancelled of cancelled"],
    );
}

/// The definition once more, for numbered attempts of one prompt that are never cut or hedged:
/// walk by start, begin anew past a deadline and at a base attempt after an end.
fn oracle(attempts: &[Attempt<'_>]) -> Vec<(i64, i64)> {
    let mut order: Vec<usize> = (0..attempts.len()).collect();
    order.sort_by_key(|&row| {
        (
            attempts[row].started_us,
            attempts[row].number,
            attempts[row].lineage,
        )
    });
    let mut out = vec![(0, 0); attempts.len()];
    let (mut seq, mut at, mut deadline, mut ended) = (0, 0, i64::MIN, None);
    for row in order {
        let it = &attempts[row];
        let (end, wait) = match (it.ended_us.unwrap(), it.decision) {
            (end, Decision::GoesOn) => (end, 660 * SECOND),
            (end, _) => (end, 1_200 * SECOND),
        };
        let is_next =
            it.number == Some(0) && ended.is_some_and(|at: i64| at <= it.started_us.unwrap());
        if end > deadline || is_next {
            (seq, at) = (seq + 1, 0);
        }
        out[row] = (seq, at);
        at += 1;
        ended = (wait == 1_200 * SECOND).then_some(end);
        deadline = deadline.max(end + wait);
    }
    out
}

proptest! {
    #[test]
    fn any_order_gives_the_same_places(
        events in prop::collection::vec((0_i64..4, 0_i64..6_000, 0_usize..3), 1..40),
        seed in any::<u64>(),
    ) {
        let words = ["retry", "success", "give_up"];
        let rows: Vec<_> = events
            .iter()
            .enumerate()
            .map(|(n, &(number, start, word))| Attempt {
                lineage: ("t", 0, n as i64, 0),
                server_id: Some(["a", "b", "c", "d"][n % 4]),
                ..attempt(number, start, start + 1, words[word])
            })
            .collect();
        let places = place(&rows, None);
        let kept: Vec<_> = rows.iter().zip(&places).filter(|(_, it)| !it.superseded).collect();
        let kept_rows: Vec<_> = kept.iter().map(|(row, _)| **row).collect();
        let found: Vec<_> = kept.iter().map(|(_, it)| (it.op_seq, it.op_place)).collect();
        prop_assert_eq!(found, oracle(&kept_rows));

        // Any order of arrival, any split over partitions: the same.
        let mut order: Vec<usize> = (0..rows.len()).collect();
        let mut random = seed;
        for at in (1..order.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            order.swap(at, (random >> 33) as usize % (at + 1));
        }
        let turned: Vec<_> = order.iter().map(|&row| rows[row]).collect();
        for (place, &row) in place(&turned, None).iter().zip(&order) {
            let expected = places[row];
            if !expected.superseded {
                prop_assert_eq!(order[place.first], expected.first);
            }
            prop_assert_eq!(Place { first: 0, ..*place }, Place { first: 0, ..expected });
        }

        // Each operation has one delivered attempt at most, and every place once.
        let mut seen = std::collections::HashSet::new();
        for it in places.iter().filter(|it| !it.superseded) {
            prop_assert!(seen.insert((it.first, it.op_place)));
            prop_assert!(it.op_place < it.op_attempts);
        }
        let delivered = places.iter().filter(|it| it.role == Some(Role::Delivered));
        let mut of: Vec<_> = delivered.map(|it| it.first).collect();
        let all = of.len();
        of.sort_unstable();
        of.dedup();
        prop_assert_eq!(of.len(), all);
    }
}
