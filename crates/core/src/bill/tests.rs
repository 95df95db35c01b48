use super::*;
use BillingState::{Billed, Unbilled, Unknown};
use CostBasis as B;
use Evidence as E;

/// $1 and $2 for a million tokens.
const PRICE: Price = Price {
    input: 1_000_000_000_000_000_000,
    output: 2_000_000_000_000_000_000,
    cache_read: None,
    cache_write: None,
    cache_write_1h: None,
};

const UNKNOWN: Verdict = Verdict {
    state: Unknown,
    p_billed: Chance(9_000),
    stops_on_disconnect: false,
};
const BILLED: Verdict = Verdict {
    state: Billed,
    p_billed: Chance::SURE,
    stops_on_disconnect: false,
};
const UNBILLED: Verdict = Verdict {
    state: Unbilled,
    p_billed: Chance::NEVER,
    stops_on_disconnect: false,
};

fn facts(class: ErrorClass, verdict: Verdict) -> BillFacts<'static> {
    BillFacts {
        class,
        verdict,
        price: Some(&PRICE),
        input_tokens: None,
        output_tokens: None,
        received_output_tokens: None,
        cache: Tokens::default(),
        usage: UsageSource::Provider,
        stream: None,
        max_tokens: None,
        n: 1,
        caller_cost: None,
        cost_unit: "",
        cache_hit: false,
        billing_mode: "",
    }
}

/// (state, evidence, confirmed, ceiling, basis): money in 10^-6 dollars.
type Line = (
    BillingState,
    Evidence,
    Option<i128>,
    Option<i128>,
    Option<CostBasis>,
);

#[track_caller]
fn check(facts: &BillFacts<'_>, expected: Line) {
    let bill = bill(facts);
    let micro = |amount: Option<i128>| amount.map(|it| it / 1_000_000);
    let line = (
        bill.state,
        bill.evidence,
        micro(bill.confirmed),
        micro(bill.ceiling),
        bill.basis,
    );
    assert_eq!(line, expected);
}

#[test]
fn usage_is_evidence_whatever_the_status() {
    let used = BillFacts {
        input_tokens: Some(1_000),
        output_tokens: Some(100),
        ..facts(ErrorClass::None, BILLED)
    };
    check(
        &used,
        (Billed, E::Usage, Some(1_200), Some(1_200), Some(B::Usage)),
    );
    let refused = BillFacts {
        verdict: UNBILLED,
        class: ErrorClass::Client,
        ..used
    };
    check(
        &refused,
        (Billed, E::Usage, Some(1_200), Some(1_200), Some(B::Usage)),
    );
    // The table's price counts, whatever the caller says.
    let told = BillFacts {
        caller_cost: Some(2_000_000_000),
        ..used
    };
    check(
        &told,
        (Billed, E::Usage, Some(1_200), Some(1_200), Some(B::Usage)),
    );
}

#[test]
fn the_callers_cost_counts_where_price_or_usage_is_missing() {
    let cost = Some(5_000_000_000);
    let unpriced = BillFacts {
        price: None,
        input_tokens: Some(10),
        caller_cost: cost,
        ..facts(ErrorClass::None, BILLED)
    };
    check(
        &unpriced,
        (Billed, E::Usage, Some(5_000), Some(5_000), Some(B::Caller)),
    );
    let no_usage = BillFacts {
        caller_cost: cost,
        ..facts(ErrorClass::Read, UNKNOWN)
    };
    check(
        &no_usage,
        (Billed, E::Caller, Some(5_000), Some(5_000), Some(B::Caller)),
    );
    let cents = BillFacts {
        cost_unit: "cents",
        ..no_usage
    };
    check(
        &cents,
        (Billed, E::Caller, Some(50), Some(50), Some(B::Caller)),
    );
    let credits = BillFacts {
        cost_unit: "credits",
        max_tokens: Some(10),
        input_tokens: Some(10),
        usage: UsageSource::Other,
        ..no_usage
    };
    assert!(bill(&credits).unit_unknown);
    // 10 × $1 + 10 × $2 for a million.
    check(
        &credits,
        (Unknown, E::Policy, Some(0), Some(30), Some(B::Formula)),
    );
}

#[test]
fn a_cost_of_zero_is_free_only_where_nothing_went_out() {
    // M49: cost 0, tokens 5,000, no cache hit.
    let zero = BillFacts {
        caller_cost: Some(0),
        input_tokens: Some(5_000),
        output_tokens: Some(0),
        ..facts(ErrorClass::None, BILLED)
    };
    check(
        &zero,
        (Billed, E::Usage, Some(5_000), Some(5_000), Some(B::Usage)),
    );
    check(
        &BillFacts {
            price: None,
            ..zero
        },
        (Billed, E::Usage, None, None, Some(B::Unpriced)),
    );
    check(
        &BillFacts {
            cache_hit: true,
            ..zero
        },
        (Unbilled, E::Caller, Some(0), Some(0), None),
    );
    check(
        &BillFacts {
            billing_mode: "self_hosted",
            ..zero
        },
        (Billed, E::Usage, Some(0), Some(0), Some(B::Usage)),
    );
    check(
        &BillFacts {
            caller_cost: Some(0),
            ..facts(ErrorClass::Read, UNKNOWN)
        },
        (Unknown, E::Policy, Some(0), None, Some(B::Formula)),
    );
}

#[test]
fn a_cost_of_zero_is_flagged_where_it_shows_nothing() {
    let estimated = BillFacts {
        caller_cost: Some(0),
        input_tokens: Some(2_900),
        usage: UsageSource::Other,
        ..facts(ErrorClass::Server, UNKNOWN)
    };
    let counted = BillFacts {
        usage: UsageSource::Provider,
        ..estimated
    };
    let answer = BillFacts {
        caller_cost: Some(0),
        ..facts(ErrorClass::None, BILLED)
    };
    let unpriced = BillFacts {
        price: None,
        ..counted
    };
    for (name, told, flagged) in [
        ("M8: a failure with estimated tokens", estimated, true),
        ("a failure that the provider counted", counted, false),
        ("an answer whose tokens are unknown", answer, true),
        ("billed, without a price", unpriced, true),
        (
            "nobody says a cost",
            BillFacts {
                caller_cost: None,
                ..estimated
            },
            false,
        ),
        (
            "a cost above zero",
            BillFacts {
                caller_cost: Some(1),
                ..answer
            },
            false,
        ),
        (
            "the gateway's cache answered",
            BillFacts {
                cache_hit: true,
                ..answer
            },
            false,
        ),
        (
            "a free mode",
            BillFacts {
                billing_mode: "free",
                ..estimated
            },
            false,
        ),
        (
            "a rate limit is not billed",
            BillFacts {
                caller_cost: Some(0),
                ..facts(ErrorClass::RateLimit, UNBILLED)
            },
            false,
        ),
    ] {
        assert_eq!(bill(&told).zero_cost, flagged, "{name}");
    }
}

#[test]
fn zero_tokens_on_a_failure_are_unknown_not_free() {
    // M4: usage 0/0 on a timed-out attempt.
    let zero = BillFacts {
        input_tokens: Some(0),
        output_tokens: Some(0),
        max_tokens: Some(500),
        ..facts(ErrorClass::Read, UNKNOWN)
    };
    let bill = bill(&zero);
    assert_eq!(
        (bill.state, bill.confirmed, bill.p_billed),
        (Unknown, Some(0), Chance(9_000))
    );
    // Of an input that nobody knows there is no most; a sibling's may tell it, in the view.
    assert_eq!(bill.ceiling, None);
}

#[test]
fn unknown_has_a_ceiling_by_formula() {
    // 1,000 input and 512 × 2 output: 1,000 × $1 + 1,024 × $2 for a million.
    let unknown = BillFacts {
        input_tokens: Some(1_000),
        usage: UsageSource::Other,
        max_tokens: Some(512),
        n: 2,
        ..facts(ErrorClass::Read, UNKNOWN)
    };
    check(
        &unknown,
        (Unknown, E::Policy, Some(0), Some(3_048), Some(B::Formula)),
    );
    for missing in [
        BillFacts {
            max_tokens: None,
            ..unknown
        },
        BillFacts {
            input_tokens: None,
            ..unknown
        },
    ] {
        check(
            &missing,
            (Unknown, E::Policy, Some(0), None, Some(B::Formula)),
        );
    }
    check(
        &BillFacts {
            price: None,
            ..unknown
        },
        (Unknown, E::Policy, Some(0), None, Some(B::Unpriced)),
    );
    let huge = BillFacts {
        max_tokens: Some(i64::MAX),
        ..unknown
    };
    check(&huge, (Unknown, E::Policy, Some(0), None, Some(B::Formula)));
    assert!(bill(&huge).overflow);
    assert!(!bill(&unknown).overflow);
}

#[test]
fn tokens_that_are_missing_are_not_zero() {
    let answer = BillFacts {
        input_tokens: Some(1_000),
        output_tokens: Some(100),
        max_tokens: Some(500),
        ..facts(ErrorClass::None, BILLED)
    };
    let no_input = BillFacts {
        input_tokens: None,
        ..answer
    };
    let no_output = BillFacts {
        output_tokens: None,
        ..answer
    };
    for partly in [no_input, no_output] {
        check(&partly, (Billed, E::Usage, None, None, None));
        let told = BillFacts {
            caller_cost: Some(7_000_000_000),
            ..partly
        };
        check(
            &told,
            (Billed, E::Usage, Some(7_000), Some(7_000), Some(B::Caller)),
        );
    }
    // A refusal has no output to count, and an embedding's costs nothing.
    let refusal = BillFacts {
        class: ErrorClass::Content,
        ..no_output
    };
    let line = (Billed, E::Usage, Some(1_000), Some(1_000), Some(B::Usage));
    check(&refusal, line);
    let embedding = Price { output: 0, ..PRICE };
    check(
        &BillFacts {
            price: Some(&embedding),
            ..no_output
        },
        line,
    );
}

#[test]
fn where_the_provider_stops_only_what_was_received_counts() {
    let stops = Verdict {
        p_billed: Chance::SURE,
        stops_on_disconnect: true,
        ..UNKNOWN
    };
    let cut = BillFacts {
        input_tokens: Some(1_000),
        usage: UsageSource::Other,
        received_output_tokens: Some(40),
        max_tokens: Some(512),
        stream: Some(true),
        ..facts(ErrorClass::Stream, stops)
    };
    check(
        &cut,
        (Unknown, E::Policy, Some(0), Some(1_080), Some(B::Formula)),
    );
    assert!(bill(&cut).stops);
    let runs_on = BillFacts {
        verdict: UNKNOWN,
        ..cut
    };
    assert!(!bill(&runs_on).stops);
    let all = (Unknown, E::Policy, Some(0), Some(2_024), Some(B::Formula));
    check(&runs_on, all);
    // A cut stream was a stream, also where nobody said so; a read was not.
    let unsaid = BillFacts {
        stream: None,
        ..cut
    };
    check(
        &unsaid,
        (Unknown, E::Policy, Some(0), Some(1_080), Some(B::Formula)),
    );
    check(
        &BillFacts {
            class: ErrorClass::Read,
            ..unsaid
        },
        all,
    );
}

#[test]
fn a_success_without_usage_is_billed_and_uncovered() {
    let silent = BillFacts {
        max_tokens: Some(100),
        ..facts(ErrorClass::None, BILLED)
    };
    check(&silent, (Billed, E::Policy, None, None, None));
    // Its own estimate bounds nothing: sums leave it out, and count it beside.
    let guessed = BillFacts {
        input_tokens: Some(1_000),
        usage: UsageSource::Other,
        ..silent
    };
    check(&guessed, (Billed, E::Policy, None, None, None));
    check(
        &BillFacts {
            price: None,
            ..silent
        },
        (Billed, E::Policy, None, None, Some(B::Unpriced)),
    );
    // M8: estimated tokens are no evidence.
    let estimated = BillFacts {
        input_tokens: Some(2_900),
        usage: UsageSource::Other,
        caller_cost: Some(0),
        max_tokens: Some(100),
        ..facts(ErrorClass::Server, UNKNOWN)
    };
    check(
        &estimated,
        (Unknown, E::Policy, Some(0), Some(3_100), Some(B::Formula)),
    );
}

#[test]
fn unbilled_costs_nothing() {
    let limited = facts(ErrorClass::RateLimit, UNBILLED);
    check(&limited, (Unbilled, E::Policy, Some(0), Some(0), None));
    check(
        &BillFacts {
            price: None,
            ..limited
        },
        (Unbilled, E::Policy, Some(0), Some(0), None),
    );
}

#[test]
fn a_cost_far_from_the_table_is_suspect() {
    // The table says $0.0012.
    let used = BillFacts {
        input_tokens: Some(1_000),
        output_tokens: Some(100),
        ..facts(ErrorClass::None, BILLED)
    };
    for (cost, suspect) in [
        (24_000_000_000, false),
        (24_000_000_001, true),
        (60_000_000, false),
        (59_999_999, true),
        (0, false),
    ] {
        let told = BillFacts {
            caller_cost: Some(cost),
            ..used
        };
        assert_eq!(bill(&told).unit_suspect, suspect, "{cost}");
    }
    // Without usage: 1,000 input and at most 100 output are at most $0.0012.
    let unknown = BillFacts {
        input_tokens: Some(1_000),
        max_tokens: Some(100),
        usage: UsageSource::Other,
        ..facts(ErrorClass::Read, UNKNOWN)
    };
    for (cost, line) in [
        (
            24_000_000_000,
            (
                Billed,
                E::Caller,
                Some(24_000),
                Some(24_000),
                Some(B::Caller),
            ),
        ),
        (
            24_000_000_001,
            (Unknown, E::Policy, Some(0), Some(1_200), Some(B::Formula)),
        ),
        (
            1_000_000,
            (Billed, E::Caller, Some(1), Some(1), Some(B::Caller)),
        ),
    ] {
        let told = BillFacts {
            caller_cost: Some(cost),
            ..unknown
        };
        check(&told, line);
        assert_eq!(bill(&told).unit_suspect, cost > 24_000_000_000, "{cost}");
    }
}

#[test]
fn a_unit_is_known_in_any_case() {
    for (unit, micros) in [
        ("USD", Some(5_000)),
        ("Usd", Some(5_000)),
        ("", Some(5_000)),
        ("Cents", Some(50)),
        ("USD_CENTS", Some(50)),
        ("eur", None),
    ] {
        let told = BillFacts {
            caller_cost: Some(5_000_000_000),
            cost_unit: unit,
            ..facts(ErrorClass::None, BILLED)
        };
        let bill = bill(&told);
        assert_eq!(bill.confirmed.map(|it| it / 1_000_000), micros, "{unit}");
        assert_eq!(bill.unit_unknown, micros.is_none(), "{unit}");
    }
}

#[test]
fn a_bill_tells_the_price_of_a_million_tokens() {
    // 3 and 15 dollars; 10^-12 dollars a unit.
    let price = Price {
        input: 3 * 10_i128.pow(18),
        output: 15 * 10_i128.pow(18),
        ..PRICE
    };
    let unknown = BillFacts {
        price: Some(&price),
        ..facts(ErrorClass::Read, UNKNOWN)
    };
    let per_million = |facts: &BillFacts<'_>| bill(facts).per_million;
    let dollars = 10_i128.pow(12);
    assert_eq!(per_million(&unknown), Some((3 * dollars, 15 * dollars)));
    let free = BillFacts {
        billing_mode: "free",
        ..unknown
    };
    assert_eq!(per_million(&free), Some((0, 0)));
    let unpriced = BillFacts {
        price: None,
        ..unknown
    };
    assert_eq!(per_million(&unpriced), None);
}
