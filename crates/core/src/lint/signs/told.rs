//! a sign and what it is about → how grave it is, what is wrong, and the mend.

use super::Sign;
use crate::lint::finding::Severity;

/// Severity, rule, what is wrong, and the mend.
pub fn told(sign: Sign, detail: &str) -> (Severity, &'static str, String, String) {
    let (severity, rule) = match sign {
        Sign::NoService => (Severity::Warning, "no_service"),
        Sign::NoTime => (Severity::Error, "no_time"),
        Sign::TsOdd => (Severity::Warning, "ts_odd"),
        Sign::TsAhead => (Severity::Warning, "ts_ahead"),
        Sign::HashForm => (Severity::Warning, "hash_form"),
        Sign::HashBare => (Severity::Info, "hash_bare"),
        Sign::InvalidField => (Severity::Warning, "invalid_field"),
        Sign::UnknownDecision => (Severity::Error, "unknown_decision"),
        Sign::Unpriced => (Severity::Warning, "unpriced"),
        Sign::CostSuspect => (Severity::Warning, "cost_suspect"),
        Sign::CostUnit => (Severity::Warning, "cost_unit"),
        Sign::CostTooLarge => (Severity::Warning, "cost_too_large"),
        Sign::ZeroCost => (Severity::Info, "zero_cost"),
        Sign::Secret => (Severity::Error, "secret"),
        Sign::TimeoutWithUsage => (Severity::Warning, "timeout_with_usage"),
    };
    (severity, rule, what(sign, detail), mend(sign, detail))
}

fn what(sign: Sign, detail: &str) -> String {
    match sign {
        Sign::NoService => "no service, so no figure tells whose they are, and equal request_ids \
                            of two services meet"
            .into(),
        Sign::NoTime => "no time at all (ts, or started_at and elapsed_ms): they are in no window \
                         and in no figure"
            .into(),
        Sign::TsOdd => "ts lies more than 400 days before or a day after the record's time".into(),
        Sign::TsAhead => "ts lies minutes or hours after the record's time".into(),
        Sign::HashForm => {
            format!("{detail} is not sha256: or hmac-sha256: and 64 hex digits; it is hashed again")
        }
        Sign::HashBare => {
            format!("{detail} is a bare sha256: the prompt of a short one can be guessed")
        }
        Sign::InvalidField => format!("{detail} has an impossible value, which is taken as absent"),
        Sign::UnknownDecision => {
            format!("the decision {detail:?} is not known, and is taken as going on")
        }
        Sign::Unpriced => format!("the model {detail} has no price, so its cost is unknown"),
        Sign::CostSuspect => "the logged cost and the price table are more than 20 times apart, \
                              so the cost is not used"
            .into(),
        Sign::CostUnit => {
            format!("cost_unit {detail:?} is neither dollars nor cents, so the cost is not used")
        }
        Sign::CostTooLarge => "a cost is too large for its column, and is left out".into(),
        Sign::ZeroCost => "a cost of 0 where nothing shows that it was free: it is not used, and \
                           the cost counts as unknown"
            .into(),
        Sign::Secret => {
            format!("{detail} held what looks like a credential; retrytoll keeps its hash only")
        }
        Sign::TimeoutWithUsage => "read time-outs with tokens as if the provider had counted \
                                   them: each is taken as billed, by evidence usage"
            .into(),
    }
}

fn mend(sign: Sign, detail: &str) -> String {
    match sign {
        Sign::NoService => "log service, the name of the program that calls".into(),
        Sign::NoTime => "log ts, the end of the attempt, as RFC 3339 with its zone".into(),
        Sign::TsOdd => "log ts as RFC 3339 with its zone, or as epoch seconds, ms, µs or ns".into(),
        Sign::TsAhead => "log ts with its zone (a local time without one is read as UTC), and \
                          keep the hosts' clocks in step"
            .into(),
        Sign::HashForm => {
            format!("write {detail} as `retrytoll hash` prints it: sha256: and 64 hex digits")
        }
        Sign::HashBare => {
            "key the hash: `retrytoll hash --key-file`, with one key for all callers".into()
        }
        Sign::InvalidField => {
            format!(
                "log {detail} as schemas/retry-decision.v1.json has it, in type, unit and range"
            )
        }
        Sign::UnknownDecision => format!(
            "map it under [source.decisions], as {detail:?} = \"success\" (or retry, give_up …, \
             whatever it means)"
        ),
        Sign::Unpriced => {
            "give its price in a table of LiteLLM's form (prices.file), or log the name that the \
             table has"
                .into()
        }
        Sign::CostSuspect => {
            "log cost in dollars, or say cost_unit = \"cents\" where it is cents".into()
        }
        Sign::CostUnit => "log cost in dollars, with cost_unit \"usd\" or without one".into(),
        Sign::CostTooLarge => "log the cost of one attempt, in dollars".into(),
        Sign::ZeroCost => "log no cost where it is not known; where nothing is charged, log \
                           cache_hit, or billing_mode as free or self_hosted"
            .into(),
        Sign::Secret => format!(
            "revoke it, for whoever reads the topic or the file has it, and log an id in {detail}"
        ),
        Sign::TimeoutWithUsage => {
            "set usage_source = \"estimated\" where the caller counted the tokens itself".into()
        }
    }
}
