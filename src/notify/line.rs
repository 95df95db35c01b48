//! A notice → one line, for a person or for a program.

use retrytoll_core::alert::State;
use retrytoll_core::money::{SCALE, parse_rounded};
use retrytoll_core::notify::Notice;
use retrytoll_jobs::render::dollars_text;

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For a person.
    Text,
    /// The CloudEvent.
    Json,
}

impl Form {
    /// The line, without its end.
    #[must_use]
    pub fn line(self, notice: &Notice) -> String {
        match self {
            Self::Text => text(notice),
            // A line feed in JSON is white space: within a text it is escaped.
            Self::Json => notice.body.replace(['\n', '\r'], " "),
        }
    }
}

fn text(notice: &Notice) -> String {
    let state = match notice.state {
        State::Firing => "FIRING",
        State::Resolved => "RESOLVED",
    };
    let mut line = format!(
        "{}  {state:8}  {:8}  {}",
        notice.text("at").unwrap_or_default(),
        notice.severity.word(),
        notice.summary()
    );
    if notice.state == State::Firing && notice.data.contains_key("usd_per_hour") {
        let known = notice.usd_per_hour().map(|usd| parse_rounded(usd, SCALE));
        let cost = match known {
            Some(Ok(usd)) => dollars_text(usd),
            _ => "an unknown sum".to_owned(),
        };
        line.push_str(&format!("; last hour {cost} redundant"));
    }
    // Names come from events, and could do things to a terminal.
    line.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn notice(more: Value) -> Notice {
        let mut data = json!({
            "dedup_key": "retry_share/checkout", "rule": "retry_share", "entity": "checkout",
            "state": "firing", "severity": "warning", "starts_at": "2026-11-20T03:20:00Z",
            "at": "2026-11-20T03:20:00Z", "summary": "Retry-cost share, service checkout: 10 %",
            "usd_per_hour": {"expected": "6.505"},
        });
        if let (Value::Object(data), Value::Object(more)) = (&mut data, more) {
            data.extend(more);
        }
        let event = json!({
            "id": "1", "source": "/retrytoll/g", "type": "dev.retrytoll.alert.v1", "data": data,
        });
        Notice::read(&format!("{event:#}")).expect("an alert")
    }

    #[test]
    fn a_line_says_what_changed_and_what_it_costs() {
        let line = |more| Form::Text.line(&notice(more));
        let start = "2026-11-20T03:20:00Z  FIRING    warning   Retry-cost share, service checkout: \
                     10 %; last hour ";
        assert_eq!(line(json!({})), format!("{start}$6.50 redundant"));
        assert_eq!(
            line(json!({"usd_per_hour": {"expected": null}})),
            format!("{start}an unknown sum redundant")
        );
        let more = json!({"state": "resolved", "summary": "it \u{1b}[31mended\n"});
        assert_eq!(
            line(more),
            "2026-11-20T03:20:00Z  RESOLVED  warning   it  [31mended "
        );
    }

    #[test]
    fn json_is_one_line() {
        let notice = notice(json!({}));
        let line = Form::Json.line(&notice);
        assert!(!line.contains('\n') && notice.body.contains('\n'));
        let read: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(read["data"], Value::Object(notice.data));
    }
}
