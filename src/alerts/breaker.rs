//! An alert of rule `retry_budget` → a record of the control topic that gateways read.
//!
//! Compacted, key = scope. A gateway stops automatic retries of the scope while its record says
//! `open` and `until` has not passed; without a record, or past `until`, it lets them go.

use retrytoll_core::alert::{HOUR_MS, State};
use serde_json::{Value, json};

use super::cell::time_text;
use super::row::Row;

const RULE: &str = "retry_budget";

/// A record of the control topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// The record's key: the service.
    pub scope: String,
    /// JSON.
    pub value: String,
}

/// What an alert means for the breaker; `None` for one of another rule.
pub fn control(row: &Row) -> Option<Control> {
    let transition = &row.transition;
    if transition.rule != RULE {
        return None;
    }
    let data: Value = serde_json::from_str(&row.data).unwrap_or_default();
    // The entity's own row comes first.
    let own = &data["rows"][0];
    let open = transition.state == State::Firing;
    let reason = match transition.ends_reason {
        Some(reason) => reason.word().into(),
        None => data["summary"].clone(),
    };
    // The budget is of the clock hour in which the tick's last instant lies.
    let hour_ends_ms = (transition.at_ms - 1).div_euclid(HOUR_MS) * HOUR_MS + HOUR_MS;
    let value = json!({
        "state": if open { "open" } else { "closed" },
        "scope": transition.entity,
        "budget": own["retries_per_hour"],
        "used": own["retries"],
        "opened_at": time_text(transition.starts_at_ms),
        "until": open.then(|| time_text(hour_ends_ms)),
        "reason": reason,
    });
    Some(Control {
        scope: transition.entity.clone(),
        value: value.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use retrytoll_core::alert::{EndsReason, Severity, Transition};

    use super::*;
    use crate::alerts::row::SENT;

    #[test]
    fn it_is_open_until_the_hour_turns() {
        // 2025-11-20T10:17:00Z.
        let at_ms = 1_763_633_820_000;
        let mut row = Row {
            transition: Transition {
                dedup_key: "retry_budget/checkout".into(),
                number: 1,
                rule: RULE.into(),
                entity: "checkout".into(),
                state: State::Firing,
                severity: Severity::Error,
                ends_reason: None,
                starts_at_ms: at_ms,
                at_ms,
            },
            revision: SENT,
            data:
                json!({ "summary": "over", "rows": [{ "retries": 512, "retries_per_hour": 500 }] })
                    .to_string(),
        };
        let told = |row: &Row| -> Value {
            let control = control(row).unwrap();
            assert_eq!(control.scope, "checkout");
            serde_json::from_str(&control.value).unwrap()
        };
        let open = json!({
            "state": "open", "scope": "checkout", "budget": 500, "used": 512, "reason": "over",
            "opened_at": "2025-11-20T10:17:00Z", "until": "2025-11-20T11:00:00Z",
        });
        assert_eq!(told(&row), open);
        // The tick at the hour's end still looks at that hour.
        row.transition.at_ms = at_ms + 43 * 60_000;
        assert_eq!(told(&row)["until"], "2025-11-20T11:00:00Z");
        row.transition.state = State::Resolved;
        row.transition.ends_reason = Some(EndsReason::Recovered);
        let closed = told(&row);
        assert_eq!(
            (&closed["state"], &closed["until"], &closed["reason"]),
            (&json!("closed"), &Value::Null, &json!("recovered"))
        );
        row.transition.rule = "retry_share".into();
        assert_eq!(control(&row), None);
    }
}
