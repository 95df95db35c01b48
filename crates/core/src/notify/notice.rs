//! A CloudEvent, JSON → a transition of an alert, as whoever receives it needs it.

use serde_json::{Map, Value};

use crate::alert::{Severity, State};
use crate::timestamp;

/// The type of every alert's CloudEvent.
pub const EVENT_TYPE: &str = "dev.retrytoll.alert.v1";
/// The type of what each instance tells of itself, each minute, on the same topic.
pub const HEARTBEAT_TYPE: &str = "dev.retrytoll.heartbeat.v1";

/// A transition of an alert that was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The transition's id, the same whenever it is told.
    pub id: String,
    /// Which deployment tells it, such as `/retrytoll/group`.
    pub source: String,
    pub dedup_key: String,
    pub rule: String,
    /// What it is about; one that must not be named is hidden in it already.
    pub entity: String,
    pub state: State,
    pub severity: Severity,
    /// When the bounds began to hold, event time, ms.
    pub starts_at_ms: i64,
    /// When it was decided, event time, ms. Of one alert it grows with each transition, also
    /// where the lake, and so the transitions' numbers, begin anew.
    pub at_ms: i64,
    /// The alert as `schemas/alert.v1.json` has it.
    pub data: Map<String, Value>,
    /// The event as it came.
    pub body: String,
}

/// Why a message is no alert.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAlert {
    #[error("it is no JSON object")]
    NoObject,
    #[error("it is a heartbeat")]
    Heartbeat,
    #[error("its type is {0:?}, not {EVENT_TYPE:?}: read it with a newer release")]
    OtherType(String),
    #[error("its {0} is missing, or of another kind")]
    Lacks(&'static str),
}

impl Notice {
    /// Reads a CloudEvent in structured JSON.
    ///
    /// # Errors
    /// What it lacks to be an alert.
    pub fn read(body: &str) -> Result<Self, NoAlert> {
        let Ok(Value::Object(mut event)) = serde_json::from_str(body) else {
            return Err(NoAlert::NoObject);
        };
        let text = |map: &Map<String, Value>, name: &'static str, shown: &'static str| {
            let found = map.get(name).and_then(Value::as_str);
            found.map(str::to_owned).ok_or(NoAlert::Lacks(shown))
        };
        let of_type = text(&event, "type", "type")?;
        if of_type == HEARTBEAT_TYPE {
            return Err(NoAlert::Heartbeat);
        }
        if of_type != EVENT_TYPE {
            return Err(NoAlert::OtherType(of_type));
        }
        let Some(Value::Object(data)) = event.remove("data") else {
            return Err(NoAlert::Lacks("data"));
        };
        let time = |name: &'static str, shown: &'static str| {
            let us = timestamp::parse(&text(&data, name, shown)?);
            us.map(|us| us / 1_000).ok_or(NoAlert::Lacks(shown))
        };
        let (state, severity) = (
            State::of_word(&text(&data, "state", "data.state")?),
            Severity::of_word(&text(&data, "severity", "data.severity")?),
        );
        Ok(Self {
            id: text(&event, "id", "id")?,
            source: text(&event, "source", "source")?,
            dedup_key: text(&data, "dedup_key", "data.dedup_key")?,
            rule: text(&data, "rule", "data.rule")?,
            entity: text(&data, "entity", "data.entity")?,
            state: state.ok_or(NoAlert::Lacks("data.state"))?,
            severity: severity.ok_or(NoAlert::Lacks("data.severity"))?,
            starts_at_ms: time("starts_at", "data.starts_at")?,
            at_ms: time("at", "data.at")?,
            data,
            body: body.to_owned(),
        })
    }

    /// A text of the alert's data; `None` where it is null, empty or missing.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        let found = self.data.get(name).and_then(Value::as_str);
        found.filter(|text| !text.is_empty())
    }

    /// One line that says what it is.
    #[must_use]
    pub fn summary(&self) -> &str {
        self.text("summary").unwrap_or(&self.dedup_key)
    }

    /// Redundant cost of the last hour, expected, as a decimal; `None` where it is not known.
    #[must_use]
    pub fn usd_per_hour(&self) -> Option<&str> {
        self.data.get("usd_per_hour")?.get("expected")?.as_str()
    }
}
