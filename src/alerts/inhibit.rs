//! An alert and what fires → the alert that it follows from.
//!
//! When a provider fails, whoever calls it retries: the provider's alert is worth waking for, and
//! those of thirty services behind it are not. They are recorded, and sent when it has ended and
//! they have not. What ended is always told: it may have been told before.

use retrytoll_core::alert::State;
use serde_json::Value;

use super::row::Row;

/// Rules whose alerts of a provider inhibit others, each by those before it.
const PARENTS: [&str; 2] = ["retry_storm", "doomed_outage"];
/// Rules that a failing provider sets off.
const CHILDREN: [&str; 4] = [
    "doomed_outage",
    "retry_share",
    "repeated_billing",
    "retry_budget",
];

/// The `dedup_key` of the alert among `firing` that `row` follows from.
pub fn inhibitor<'a>(row: &Row, firing: impl Iterator<Item = &'a Row>) -> Option<String> {
    let child = &row.transition;
    if child.state != State::Firing || !CHILDREN.contains(&child.rule.as_str()) {
        return None;
    }
    let provider = provider(row)?;
    let rank = |rule: &str| PARENTS.iter().position(|it| *it == rule);
    let mut parents = firing.filter(|parent| {
        let it = &parent.transition;
        let is_above =
            rank(&it.rule).is_some_and(|above| rank(&child.rule).is_none_or(|own| above < own));
        // Of a provider or of its models; a storm of one service is that service's.
        let is_wide = it.entity.split('/').next() == Some(provider.as_str());
        is_above && is_wide && self::provider(parent).as_ref() == Some(&provider)
    });
    parents.next().map(|it| it.transition.dedup_key.clone())
}

/// The provider that most of an alert's cost comes from.
fn provider(row: &Row) -> Option<String> {
    let data: Value = serde_json::from_str(&row.data).ok()?;
    data["provider"].as_str().map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use retrytoll_core::alert::{Severity, Transition, dedup_key};
    use serde_json::json;

    use super::*;
    use crate::alerts::row::SENT;

    fn row(rule: &str, entity: &str, provider: Option<&str>, state: State) -> Row {
        Row {
            transition: Transition {
                dedup_key: dedup_key(rule, entity),
                number: 1,
                rule: rule.into(),
                entity: entity.into(),
                state,
                severity: Severity::Warning,
                ends_reason: None,
                starts_at_ms: 0,
                at_ms: 0,
            },
            revision: SENT,
            data: json!({ "provider": provider }).to_string(),
        }
    }

    #[test]
    fn a_failing_provider_is_one_alert() {
        let storm = row("retry_storm", "openai", Some("openai"), State::Firing);
        let of_service = row("retry_storm", "checkout", Some("openai"), State::Firing);
        let doomed = row(
            "doomed_outage",
            "openai/gpt-4o",
            Some("openai"),
            State::Firing,
        );
        let share = |provider| row("retry_share", "checkout", provider, State::Firing);
        let check = |child: &Row, firing: &[&Row], expected: Option<&str>| {
            let found = inhibitor(child, firing.iter().copied());
            assert_eq!(found.as_deref(), expected, "{child:?}");
        };
        check(
            &share(Some("openai")),
            &[&storm],
            Some("retry_storm/openai"),
        );
        check(&doomed, &[&storm], Some("retry_storm/openai"));
        check(
            &share(Some("openai")),
            &[&doomed],
            Some("doomed_outage/openai/gpt-4o"),
        );
        // Not by one of another provider, by itself, by one of its own rank or by a child.
        check(&share(Some("anthropic")), &[&storm, &doomed], None);
        check(&share(None), &[&storm], None);
        check(&storm, &[&storm, &doomed], None);
        check(&doomed, &[&doomed], None);
        check(
            &doomed,
            &[&row("retry_share", "openai", Some("openai"), State::Firing)],
            None,
        );
        check(&share(Some("openai")), &[&of_service], None);
        // What nobody caused, and what is over.
        check(
            &row("unpriced", "gpt-9", Some("openai"), State::Firing),
            &[&storm],
            None,
        );
        check(
            &row("retry_share", "checkout", Some("openai"), State::Resolved),
            &[&storm],
            None,
        );
    }
}
