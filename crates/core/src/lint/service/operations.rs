//! what the operations of a service show → its findings.

use crate::lint::finding::{Counted, Finding, Severity};
use crate::lint::requests::Operations;

pub fn findings(service: &str, operations: &Operations) -> impl Iterator<Item = Finding> {
    let Operations {
        requests,

        retried,
        attempts,
        ..
    } = *operations;
    let lines = [
        (
            (&operations.torn, retried, Counted::Operations),
            (Severity::Warning, "torn_operation"),
            "operations lie on more than one partition, and an event that comes twice, on two of \
             them, is not seen as such",
            "key each message by the prompt_hash of the operation's first attempt, carried \
             unchanged by every attempt (without a hash: by the request_id)",
        ),
        (
            (&operations.two_layers, requests, Counted::Requests),
            (Severity::Error, "two_layers"),
            "two layers log the same attempts, and the money of both is counted",
            "set source.count_layer to the layer whose events carry the provider's usage",
        ),
        (
            (&operations.double_logged, attempts, Counted::Attempts),
            (Severity::Warning, "double_logged"),
            "a success is logged twice with the same number, prompt and usage; the first counts",
            "log each attempt once, or give both lines the same event_id",
        ),
        (
            (&operations.growing, attempts, Counted::Attempts),
            (Severity::Warning, "growing_lines"),
            "an attempt is logged in several lines of growing usage; the last one counts",
            "set final = false on every line of an attempt but its last",
        ),
        (
            (&operations.several, requests, Counted::Requests),
            (Severity::Info, "several_operations"),
            "one request_id has several operations, each with its own first attempt",
            "nothing, where an agent makes its calls under one id; else log one request_id an \
             operation",
        ),
    ];
    let seen = lines
        .into_iter()
        .filter(|((tally, ..), ..)| tally.count > 0);
    seen.map(|((tally, of, counted), (severity, rule), what, mend)| {
        Finding::of(service, severity, rule, what, mend).counted(tally, of, counted)
    })
}
