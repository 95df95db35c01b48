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

fn facts(verdict: Verdict) -> BillFacts<'static> {
    BillFacts {
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
        ..facts(BILLED)
    };
    check(
        &used,
        (Billed, E::Usage, Some(1_200), Some(1_200), Some(B::Usage)),
    );
    let refused = BillFacts {
        verdict: UNBILLED,
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
        ..facts(BILLED)
    };
    check(
        &unpriced,
        (Billed, E::Usage, Some(5_000), Some(5_000), Some(B::Caller)),
    );
    let no_usage = BillFacts {
        caller_cost: cost,
        ..facts(UNKNOWN)
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
        input_tokens: Some(0),
        usage: UsageSource::Other,
        ..no_usage
    };
    assert!(bill(&credits).unit_unknown);
    check(
        &credits,
        (Unknown, E::Policy, Some(0), Some(20), Some(B::Formula)),
    );
}

#[test]
fn a_cost_of_zero_is_free_only_where_nothing_went_out() {
    // M49: cost 0, tokens 5,000, no cache hit.
    let zero = BillFacts {
        caller_cost: Some(0),
        input_tokens: Some(5_000),
        ..facts(BILLED)
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
            ..facts(UNKNOWN)
        },
        (Unknown, E::Policy, Some(0), None, Some(B::Formula)),
    );
}

#[test]
fn zero_tokens_on_a_failure_are_unknown_not_free() {
    // M4: usage 0/0 on a timed-out attempt.
    let zero = BillFacts {
        input_tokens: Some(0),
        output_tokens: Some(0),
        max_tokens: Some(500),
        ..facts(UNKNOWN)
    };
    let bill = bill(&zero);
    assert_eq!(
        (bill.state, bill.confirmed, bill.p_billed),
        (Unknown, Some(0), Chance(9_000))
    );
    assert!(bill.ceiling > Some(0));
}

#[test]
fn unknown_has_a_ceiling_by_formula() {
    // 1,000 input and 512 × 2 output: 1,000 × $1 + 1,024 × $2 for a million.
    let unknown = BillFacts {
        input_tokens: Some(1_000),
        usage: UsageSource::Other,
        max_tokens: Some(512),
        n: 2,
        ..facts(UNKNOWN)
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
        (Unknown, E::Policy, None, None, Some(B::Unpriced)),
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
        ..facts(stops)
    };
    check(
        &cut,
        (Unknown, E::Policy, Some(0), Some(1_080), Some(B::Formula)),
    );
    let runs_on = BillFacts {
        verdict: UNKNOWN,
        ..cut
    };
    check(
        &runs_on,
        (Unknown, E::Policy, Some(0), Some(2_024), Some(B::Formula)),
    );
}

#[test]
fn a_success_without_usage_is_billed_and_uncovered() {
    let silent = BillFacts {
        max_tokens: Some(100),
        ..facts(BILLED)
    };
    check(&silent, (Billed, E::Policy, None, None, Some(B::Formula)));
    // M8: estimated tokens are no evidence.
    let estimated = BillFacts {
        input_tokens: Some(2_900),
        usage: UsageSource::Other,
        caller_cost: Some(0),
        max_tokens: Some(100),
        ..facts(UNKNOWN)
    };
    check(
        &estimated,
        (Unknown, E::Policy, Some(0), Some(3_100), Some(B::Formula)),
    );
}

#[test]
fn unbilled_costs_nothing() {
    let limited = facts(UNBILLED);
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
        ..facts(BILLED)
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
}
