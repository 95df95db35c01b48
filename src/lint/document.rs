//! What was found → one JSON document.

use retrytoll_core::lint::{Example, Finding, Wanted};
use serde_json::{Map, Value, json};

use super::{Looked, Origin};

/// The whole answer as one document.
#[must_use]
pub fn json(looked: &Looked, name: &str, origin: Origin) -> Value {
    let report = &looked.report;
    let coverage = report.coverage.iter().map(|it| {
        let fields: Map<String, Value> = Wanted::ALL
            .iter()
            .zip(it.fields)
            .map(|(wanted, (has, of))| (wanted.name().to_owned(), json!({"has": has, "of": of})))
            .collect();
        json!({"service": it.service, "attempts": it.attempts, "fields": fields})
    });
    json!({
        "looked_at": {
            "name": name,
            "events": report.events,
            "dead_letters": report.bad,
            "nulls": looked.nulls,
            "services": report.coverage.len(),
            "requests": report.requests,
            "one_request_in": report.one_request_in,
        },
        "findings": report.findings.iter().map(|it| document(it, origin)).collect::<Vec<_>>(),
        "coverage": coverage.collect::<Vec<_>>(),
    })
}

fn document(found: &Finding, origin: Origin) -> Value {
    let example = |it: &Example| match origin {
        Origin::Files => {
            json!({"request_id": it.request_id, "file": &*it.source.0, "line": it.offset + 1})
        }
        Origin::Topic => json!({
            "request_id": it.request_id, "partition": it.partition, "offset": it.offset,
        }),
    };
    json!({
        "severity": found.severity.name(),
        "rule": found.rule,
        "service": found.service,
        "what": found.what,
        "count": found.count,
        "of": found.of,
        "counted": found.counted.name(),
        "examples": found.examples.iter().map(example).collect::<Vec<_>>(),
        "mend": found.mend,
    })
}
