use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const UNIT: i128 = 1_000_000_000_000;

/// Over 5, and at least 200.
fn rule(for_ms: i64) -> Rule {
    let bound = |figure: &str, side, limit: i128| Bound {
        figure: figure.to_owned(),
        side,
        limit: limit * UNIT,
    };
    Rule {
        name: "retry_share".to_owned(),
        severity: Severity::Warning,
        bounds: vec![
            bound("share_pct", Side::Over, 5),
            bound("first_attempts", Side::AtLeast, 200),
        ],
        levels: vec![],
        for_ms,
    }
}

/// A share in tenths of a percent, and first attempts.
fn sample(share_tenths: i128, first_attempts: i128) -> Sample {
    let figures = [share_tenths * UNIT / 10, first_attempts * UNIT];
    Sample {
        figures: figures.map(Some).into(),
        levels: vec![],
    }
}

/// What a service says at a tick.
#[derive(Clone, Copy, Debug)]
enum Says {
    Share(i128, i128),
    Withheld,
    /// No row, though there are events in the window.
    Idle,
    /// No row and no event in the window, but heard of lately.
    Quiet,
    Gone,
}

/// Plays one service, a tick a minute; each transition is applied once it is decided.
fn played(alerts: &mut Alerts, rule: &Rule, ticks: &[Says]) -> Vec<Transition> {
    let mut out = Vec::new();
    for (minute, says) in (0..).zip(ticks) {
        let mut samples = BTreeMap::new();
        let (mut idle, mut heard_of) = (BTreeSet::new(), BTreeSet::new());
        let entity = "checkout".to_owned();
        match *says {
            Share(tenths, first) => drop(samples.insert(entity, sample(tenths, first))),
            Withheld => {
                let figures = vec![None, Some(500 * UNIT)];
                let levels = vec![];
                samples.insert(entity, Sample { figures, levels });
            }
            Idle => {
                heard_of.insert(entity.clone());
                idle.insert(entity);
            }
            Quiet => drop(heard_of.insert(entity)),
            Gone => {}
        }
        let tick = Tick {
            at_ms: minute * 60_000,
            samples: &samples,
            idle: &idle,
            heard_of: &heard_of,
        };
        for transition in alerts.decide(rule, &tick) {
            alerts.apply(transition.clone());
            out.push(transition);
        }
    }
    out
}

/// `minute: state number (since minute) reason`.
#[track_caller]
fn check(for_minutes: i64, ticks: &[Says], expected: &[&str]) {
    let minutes = |ms: i64| ms / 60_000;
    let found = played(&mut Alerts::default(), &rule(for_minutes * 60_000), ticks);
    let found = found.iter().map(|it| {
        let reason = it.ends_reason.map_or("", EndsReason::word);
        let (at, since) = (minutes(it.at_ms), minutes(it.starts_at_ms));
        format!(
            "{at}: {} {} since {since} {reason}",
            it.state.word(),
            it.number
        )
    });
    let found = found
        .map(|line| line.trim_end().to_owned())
        .collect::<Vec<_>>();
    assert_eq!(found, expected, "{ticks:?}");
}

use Says::{Gone, Idle, Quiet, Share, Withheld};

#[test]
fn it_fires_once_and_resolves_once() {
    let ticks = [
        Share(40, 500),
        Share(51, 500),
        Share(60, 500),
        Share(40, 500),
        Share(40, 500),
    ];
    check(
        0,
        &ticks,
        &["1: firing 1 since 1", "3: resolved 2 since 1 recovered"],
    );
    let again = [Share(60, 500), Share(0, 500), Share(60, 500)];
    check(
        0,
        &again,
        &[
            "0: firing 1 since 0",
            "1: resolved 2 since 0 recovered",
            "2: firing 3 since 2",
        ],
    );
}

#[test]
fn a_bound_is_met_as_its_name_says() {
    // Over 5 is not 5; at least 200 is 200.
    check(0, &[Share(50, 500)], &[]);
    check(0, &[Share(51, 199)], &[]);
    check(0, &[Share(51, 200)], &["0: firing 1 since 0"]);
}

#[test]
fn an_open_alert_holds_down_to_90_percent() {
    // 4.6 is over 4.5, which is 90 % of 5; 180 is 90 % of 200.
    check(
        0,
        &[Share(60, 500), Share(46, 180)],
        &["0: firing 1 since 0"],
    );
    let resolved = ["0: firing 1 since 0", "1: resolved 2 since 0 recovered"];
    check(0, &[Share(60, 500), Share(45, 500)], &resolved);
    check(0, &[Share(60, 500), Share(60, 179)], &resolved);
}

#[test]
fn what_is_withheld_neither_starts_nor_ends_an_alert() {
    check(0, &[Withheld, Withheld], &[]);
    check(
        0,
        &[Share(60, 500), Withheld, Withheld, Share(40, 500)],
        &["0: firing 1 since 0", "3: resolved 2 since 0 recovered"],
    );
}

#[test]
fn an_entity_that_vanishes_keeps_its_state_until_it_is_gone() {
    check(
        0,
        &[Share(60, 500), Quiet, Quiet, Gone, Gone],
        &["0: firing 1 since 0", "3: resolved 2 since 0 no_data"],
    );
    check(0, &[Gone, Quiet], &[]);
}

#[test]
fn an_alert_ends_when_its_entity_goes_on_without_what_it_was_about() {
    check(
        0,
        &[Share(60, 500), Quiet, Idle, Idle, Share(60, 500)],
        &[
            "0: firing 1 since 0",
            "2: resolved 2 since 0 recovered",
            "4: firing 3 since 4",
        ],
    );
    check(0, &[Idle, Idle], &[]);
}

#[test]
fn bounds_must_hold_for_so_long() {
    check(2, &[Share(60, 500), Share(60, 500)], &[]);
    check(
        2,
        &[Share(60, 500), Share(60, 500), Share(60, 500)],
        &["2: firing 1 since 0"],
    );
    // A tick below begins anew, and so does one without a word; a withheld one does not.
    check(
        2,
        &[
            Share(60, 500),
            Share(48, 500),
            Share(60, 500),
            Share(60, 500),
        ],
        &[],
    );
    check(
        2,
        &[Share(60, 500), Quiet, Share(60, 500), Share(60, 500)],
        &[],
    );
    check(
        2,
        &[Share(60, 500), Withheld, Share(60, 500)],
        &["2: firing 1 since 0"],
    );
}

#[test]
fn without_its_rule_an_alert_ends() {
    let mut alerts = Alerts::default();
    played(&mut alerts, &rule(0), &[Share(60, 500)]);
    assert_eq!(alerts.end_removed(&["retry_share"], 60_000), []);
    let ended = alerts.end_removed(&["another"], 60_000);
    let reasons = ended
        .iter()
        .map(|it| (it.number, it.ends_reason))
        .collect::<Vec<_>>();
    assert_eq!(reasons, [(2, Some(EndsReason::RuleRemoved))]);
    alerts.apply(ended[0].clone());
    assert_eq!(alerts.end_removed(&["another"], 120_000), []);
}

#[test]
fn a_bound_below_eases_upwards() {
    // Under 3: at 90 % that is under 3.33.
    let mut rescue = rule(0);
    rescue.bounds = vec![Bound {
        figure: "rescue_rate_pct".to_owned(),
        side: Side::Under,
        limit: 3 * UNIT,
    }];
    let holds = |tenths: i128, pct| {
        let figures = vec![Some(tenths * UNIT / 10)];
        let levels = vec![];
        rescue.holds(&Sample { figures, levels }, pct)
    };
    assert_eq!(holds(29, 100), Some(true));
    assert_eq!(holds(30, 100), Some(false));
    assert_eq!(holds(33, HYSTERESIS_PCT), Some(true));
    assert_eq!(holds(34, HYSTERESIS_PCT), Some(false));
}

/// A share over 8 is an error, over 15 critical; each level ends below 90 % of its bound.
#[test]
fn an_alert_grows_and_lessens_under_one_key() {
    let level = |severity, limit: i128| Level {
        severity,
        bounds: vec![Bound {
            figure: "share_pct".to_owned(),
            side: Side::Over,
            limit: limit * UNIT,
        }],
    };
    let mut leveled = rule(0);
    leveled.levels = vec![level(Severity::Error, 8), level(Severity::Critical, 15)];
    let mut alerts = Alerts::default();
    let mut found = Vec::new();
    let shares = [60, 81, 75, 0, 72, 160, 130, 60, 40]
        .into_iter()
        .enumerate();
    for (minute, tenths) in shares {
        // The fourth tick does not look at the levels: they stay as they are.
        let share = |tenths| sample(tenths, 500).figures;
        let at = match tenths {
            0 => Sample {
                figures: share(60),
                levels: vec![],
            },
            _ => Sample {
                figures: share(tenths),
                levels: vec![share(tenths); 2],
            },
        };
        let tick = Tick {
            at_ms: minute as i64 * 60_000,
            samples: &BTreeMap::from([("checkout".to_owned(), at)]),
            idle: &BTreeSet::new(),
            heard_of: &BTreeSet::new(),
        };
        for transition in alerts.decide(&leveled, &tick) {
            assert_eq!(transition.starts_at_ms, 0);
            let (state, severity) = (transition.state.word(), transition.severity.word());
            found.push(format!(
                "{minute}: {state} {} {severity}",
                transition.number
            ));
            alerts.apply(transition);
        }
    }
    assert_eq!(
        found,
        [
            "0: firing 1 warning",
            "1: firing 2 error",
            // 7.5 is over 7.2; 7.2 is not.
            "4: firing 3 warning",
            "5: firing 4 critical",
            // 13 is not over 13.5, and over 8.
            "6: firing 5 error",
            "7: firing 6 warning",
            "8: resolved 7 warning",
        ]
    );
}

#[test]
fn a_rule_is_looked_at_as_often_as_it_says_and_hourly_far_behind() {
    const MINUTE: i64 = 60_000;
    const DAY: i64 = 24 * 60;
    let check = |every, window, last: i64, at: i64, behind: i64, expected| {
        let found = is_due(
            every * MINUTE,
            window * MINUTE,
            last * MINUTE,
            at * MINUTE,
            (at + behind) * MINUTE,
        );
        assert_eq!(found, expected, "{every} {window} {last} {at} {behind}");
    };
    check(1, 1, 100, 101, 0, true);
    check(5, DAY, 100, 101, 0, false);
    check(5, DAY, 104, 105, 0, true);
    check(5, DAY, 104, 111, 0, true);
    // An hour behind a day's window is looked at by the hour, a minute's is not.
    check(1, DAY, 105, 119, 61, false);
    check(1, DAY, 105, 120, 61, true);
    check(1, 1, 105, 119, 61, true);
    // More than a day behind, everything is.
    check(1, 1, 105, 119, DAY + 1, false);
    check(1, 1, 105, 120, DAY + 1, true);
}

#[test]
fn words_go_both_ways() {
    for state in [State::Firing, State::Resolved] {
        assert_eq!(State::of_word(state.word()), Some(state));
    }
    assert_eq!(Severity::of_word("critical"), Some(Severity::Critical));
    assert_eq!(EndsReason::of_word("resolved"), None);
}

#[test]
fn a_long_key_keeps_its_beginning_and_differs_by_its_end() {
    let long = |end: &str| dedup_key("retry_share", &format!("{}{end}", "ü".repeat(200)));
    let (one, two) = (long("1"), long("2"));
    assert_ne!(one, two);
    assert!(
        one.len() <= DEDUP_KEY_BYTES_MAX && one.starts_with("retry_share/üüü"),
        "{one}"
    );
    // 12 bytes of rule and slash, 243 of entity: exactly the limit stays whole.
    assert_eq!(dedup_key("retry_share", &"a".repeat(243)).len(), 255);
    assert!(!dedup_key("retry_share", &"a".repeat(243)).contains('~'));
    assert!(dedup_key("retry_share", &"a".repeat(244)).contains('~'));
}

#[test]
fn an_id_is_a_function_of_key_and_number() {
    // printf 'retry_share/checkout\n1' | sha256sum
    let expected = "eb9c01946d60ffef5a726404b45d923b6779e2b71ca5295803635bb8edaea8e5";
    assert_eq!(transition_id("retry_share/checkout", 1), expected);
    assert_ne!(transition_id("retry_share/checkout", 2), expected);
}

#[test]
fn ticks_are_whole_and_coarser_when_far_behind() {
    const MINUTE: i64 = 60_000;
    let check = |last: i64, mark: i64, expected: Option<i64>| {
        let found = next_tick(last * MINUTE, mark * MINUTE + 7, MINUTE);
        assert_eq!(found, expected.map(|it| it * MINUTE), "{last} {mark}");
    };
    check(100, 100, None);
    check(100, 99, None);
    check(100, 101, Some(101));
    check(100, 115, Some(101));
    check(100, 116, Some(105));
    check(105, 500, Some(120));
    // A week is 10,080 minutes: what is older is skipped.
    check(0, 15_000, Some(4_920 + 15));
    // A tick longer than the coarse step stays as it is.
    assert_eq!(next_tick(0, 10 * 3_600_000, 3_600_000), Some(3_600_000));
}

fn says() -> impl Strategy<Value = Says> {
    prop_oneof![
        4 => (prop::sample::select(vec![0_i128, 44, 45, 46, 50, 51, 90]), prop::sample::select(vec![179_i128, 180, 199, 200, 900]))
            .prop_map(|(tenths, first)| Share(tenths, first)),
        1 => Just(Withheld),
        1 => Just(Idle),
        1 => Just(Quiet),
        1 => Just(Gone),
    ]
}

proptest! {
    /// Against the rule written out for one service, and a restart after any tick: what the
    /// committed transitions make, in any order and twice, is where the alerts stood.
    #[test]
    fn as_written_out_and_the_same_after_a_restart(
        ticks in prop::collection::vec(says(), 0..40),
        cut in 0_usize..40,
    ) {
        let (mut firing, mut expected) = (false, Vec::new());
        for says in &ticks {
            let next = match *says {
                Share(tenths, first) if firing => tenths > 45 && first >= 180,
                Share(tenths, first) => tenths > 50 && first >= 200,
                Gone | Idle => false,
                Withheld | Quiet => firing,
            };
            if next != firing {
                expected.push(next);
            }
            firing = next;
        }
        let mut alerts = Alerts::default();
        let all = played(&mut alerts, &rule(0), &ticks);
        let states = all.iter().map(|it| it.state == State::Firing).collect::<Vec<_>>();
        prop_assert_eq!(states, expected);

        let cut = cut.min(ticks.len());
        let mut before = Alerts::default();
        let committed = played(&mut before, &rule(0), &ticks[..cut]);
        let mut after = Alerts::default();
        for transition in committed.iter().rev().chain(&committed) {
            after.apply(transition.clone());
        }
        prop_assert_eq!(&after, &before);
    }
}
