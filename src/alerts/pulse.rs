//! How this instance does → rule `pipeline` and a heartbeat each minute, straight to the topic.
//!
//! By wall clock and without the outbox: they must work when commits do not. What is missing is a
//! sign as well: without a heartbeat for some minutes the instance is gone.

mod judge;

use std::sync::Arc;
use std::time::Duration;

use retrytoll_core::alert::{dedup_key, transition_id};
use retrytoll_core::notify::{EVENT_TYPE, HEARTBEAT_TYPE};
use retrytoll_lake::Clock;
use serde_json::{Map, Value, json};

use super::cell::time_text;
use super::event::{AlertOutlet, DATA_SCHEMA, Letter};
use crate::config::usable::Alerts;
use crate::pipeline::{Health, Reading};
use judge::Minutes;

/// The rule's name.
pub const PIPELINE: &str = "pipeline";
const EVERY: Duration = Duration::from_secs(60);

/// What is told of one instance.
pub struct Pulse {
    /// The instance's name.
    pub instance: String,
    pub group: String,
    pub alerts: Alerts,
    pub health: Arc<Health>,
    pub clock: Clock,
    pub outlet: Arc<AlertOutlet>,
}

/// An alert that fires.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Open {
    since_ms: i64,
    problems: Vec<String>,
}

impl Pulse {
    /// Runs until the runtime ends. What can't be sent is a warning: the next minute sends anew.
    pub async fn run(self) {
        let pulse = Arc::new(self);
        let (mut minutes, mut open) = (Minutes::default(), None);
        loop {
            let reading = pulse.health.read(pulse.clock.now_ms());
            let letters = pulse.letters(&mut minutes, &mut open, reading);
            let sender = Arc::clone(&pulse);
            let sent = tokio::task::spawn_blocking(move || sender.outlet.send(&letters)).await;
            if let Ok(Err(error)) = sent {
                let error = format!("{error:#}");
                tracing::warn!(error, "no heartbeat; the next one is due in a minute");
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// The heartbeat, and the alert while it fires and when it has ended.
    fn letters(
        &self,
        minutes: &mut Minutes,
        open: &mut Option<Open>,
        reading: Reading,
    ) -> Vec<Letter> {
        let problems = minutes.judge(reading, self.alerts.silent_after_ms);
        let mut letters = vec![self.heartbeat(reading, &problems)];
        if self.alerts.off.iter().any(|it| it == PIPELINE) {
            return letters;
        }
        if !problems.is_empty() {
            let since_ms = open.as_ref().map_or(reading.at_ms, |it| it.since_ms);
            let now = Open { since_ms, problems };
            letters.push(self.alert(&now, None, reading));
            *open = Some(now);
        } else if let Some(ended) = open.take() {
            letters.push(self.alert(&ended, Some(reading.at_ms), reading));
        }
        letters
    }

    fn heartbeat(&self, reading: Reading, problems: &[String]) -> Letter {
        let key = format!("heartbeat/{}", self.instance);
        let mut data = figures(reading);
        data.insert("instance".to_owned(), self.instance.clone().into());
        data.insert("at".to_owned(), time_text(reading.at_ms).into());
        data.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
        data.insert("problems".to_owned(), problems.into());
        let id = transition_id(&key, reading.at_ms);
        let event = self.event(HEARTBEAT_TYPE, &id, reading.at_ms, data);
        Letter::new(key, &event)
    }

    /// Under one number while it fires, and the next when it ends; times of wall clock have no
    /// number twice.
    fn alert(&self, open: &Open, ended_ms: Option<i64>, reading: Reading) -> Letter {
        let key = dedup_key(PIPELINE, &self.instance);
        let number = open.since_ms + i64::from(ended_ms.is_some());
        let id = transition_id(&key, number);
        let told = open.problems.join("; ");
        let state = if ended_ms.is_some() {
            "resolved"
        } else {
            "firing"
        };
        let summary = match ended_ms {
            Some(_) => format!("Pipeline, instance {}: resolved, recovered", self.instance),
            None => format!("Pipeline, instance {}: {told}", self.instance),
        };
        let data = json!({
            "dedup_key": key,
            "id": id,
            "transition": number,
            "rule": PIPELINE,
            "entity": self.instance,
            "entity_kind": "instance",
            "state": state,
            "severity": "critical",
            "starts_at": time_text(open.since_ms),
            "ends_at": ended_ms.map(time_text),
            "ends_reason": ended_ms.map(|_| "recovered"),
            "at": time_text(reading.at_ms),
            "stale": false,
            "title": "Pipeline",
            "summary": summary,
            "counted": "records",
            "counts": { "rows": reading.rows, "dead_letters": reading.dead_letters },
            "likely_cause": told,
            "action": "Read this instance's log for its last errors, and try `retrytoll check` with its configuration.",
            "owner": self.alerts.owner,
            "runbook_url": self.alerts.runbook_url,
        });
        let Value::Object(data) = data else {
            return Letter::new(key, &Value::Null);
        };
        let mut event = self.event(EVENT_TYPE, &id, reading.at_ms, data);
        event["dataschema"] = DATA_SCHEMA.into();
        Letter::new(key, &event)
    }

    fn event(&self, kind: &str, id: &str, at_ms: i64, data: Map<String, Value>) -> Value {
        json!({
            "specversion": "1.0",
            "id": id,
            "source": format!("/retrytoll/{}", self.group),
            "type": kind,
            "subject": self.instance,
            "time": time_text(at_ms),
            "datacontenttype": "application/json",
            "data": data,
        })
    }
}

fn figures(reading: Reading) -> Map<String, Value> {
    let figures = json!({
        "rows": reading.rows,
        "dead_letters": reading.dead_letters,
        "taken_at": reading.taken_ms.map(time_text),
        "committed_at": reading.committed_ms.map(time_text),
        "behind_ms": reading.behind_ms,
        "failed_rules": reading.failed_rules,
    });
    match figures {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: i64 = 60_000;
    const START_MS: i64 = 1_763_596_800_000;

    fn pulse(off: &[&str]) -> Pulse {
        Pulse {
            instance: "host-1".into(),
            group: "g".into(),
            alerts: Alerts {
                off: off.iter().map(|it| (*it).to_owned()).collect(),
                silent_after_ms: 10 * MINUTE_MS,
                ..Alerts::default()
            },
            health: Arc::default(),
            clock: Clock::new(|| START_MS),
            outlet: Arc::new(AlertOutlet::Stdout),
        }
    }

    /// Rows wait for a commit from minute 1 on, which comes in minute 9.
    fn told(off: &[&str]) -> Vec<String> {
        let pulse = pulse(off);
        let (mut minutes, mut open) = (Minutes::default(), None);
        let mut told = Vec::new();
        for minute in 0..12 {
            let at_ms = START_MS + minute * MINUTE_MS;
            let waits = (1..9).contains(&minute);
            let reading = Reading {
                at_ms,
                taken_ms: Some(at_ms),
                waiting_since_ms: waits.then_some(START_MS + MINUTE_MS),
                ..Reading::default()
            };
            for letter in pulse.letters(&mut minutes, &mut open, reading) {
                let event: Value = serde_json::from_str(&letter.body).unwrap();
                let data = &event["data"];
                let words = [&data["state"], &data["starts_at"], &event["id"]];
                let words = words.map(|it| it.as_str().unwrap_or("heartbeat").to_owned());
                told.push(format!("{minute} {} {}", letter.key, words[0]));
                if words[0] != "heartbeat" {
                    assert_eq!(words[1], "2025-11-20T00:06:00Z");
                    assert_eq!(data["severity"], "critical");
                }
            }
        }
        told
    }

    #[test]
    fn it_beats_each_minute_and_fires_while_rows_wait() {
        let alerts = |told: Vec<String>| {
            let of_rule = told.into_iter().filter(|it| it.contains("pipeline/"));
            of_rule.collect::<Vec<_>>()
        };
        let all = told(&[]);
        assert_eq!(
            all.iter().filter(|it| it.ends_with("heartbeat")).count(),
            12
        );
        assert_eq!(
            alerts(all),
            [
                "6 pipeline/host-1 firing",
                "7 pipeline/host-1 firing",
                "8 pipeline/host-1 firing",
                "9 pipeline/host-1 resolved",
            ]
        );
        assert!(alerts(told(&["pipeline"])).is_empty());
    }
}
