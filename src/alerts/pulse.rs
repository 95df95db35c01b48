//! How this instance does → rule `pipeline` and a heartbeat each minute, straight to the topic.
//!
//! By wall clock and without the outbox: they must work when commits do not. What is missing is a
//! sign as well: without a heartbeat for some minutes the instance is gone.

mod judge;

use std::sync::Arc;
use std::time::Duration;

use retrytoll_core::alert::{EndsReason, Severity, State, Transition, dedup_key, transition_id};
use retrytoll_core::notify::HEARTBEAT_TYPE;
use retrytoll_lake::Clock;
use serde_json::{Value, json};

use super::cell::time_text;
use super::data;
use super::event::{AlertOutlet, Letter, event, letter, source};
use super::row::{Row, SENT};
use crate::config::usable::Alerts;
use crate::metrics::Metrics;
use crate::pipeline::{Health, Reading};
use crate::told::Told;
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
    pub metrics: Arc<Metrics>,
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
        let (mut minutes, mut open) = (Minutes::default(), None);
        let mut told = Told::default();
        loop {
            let reading = self.health.read(self.clock.now_ms());
            let letters = self.letters(&mut minutes, &mut open, reading);
            let outlet = Arc::clone(&self.outlet);
            let send = move || letters.and_then(|it| outlet.send(&it));
            let sent = tokio::task::spawn_blocking(send).await;
            let now_ms = self.clock.now_ms();
            match sent {
                Ok(Err(error)) => {
                    self.metrics.tasks.send_failed();
                    let message = "no heartbeat; the next one is due in a minute";
                    told.failed(message, &error, now_ms);
                }
                _ => told.went_well("the heartbeat", now_ms),
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
    ) -> anyhow::Result<Vec<Letter>> {
        let problems = minutes.judge(reading, self.alerts.silent_after_ms);
        let mut letters = vec![self.heartbeat(reading, &problems)];
        if self.alerts.off.iter().any(|it| it == PIPELINE) {
            return Ok(letters);
        }
        if !problems.is_empty() {
            let since_ms = open.as_ref().map_or(reading.at_ms, |it| it.since_ms);
            let now = Open { since_ms, problems };
            letters.push(self.alert(&now, false, reading)?);
            *open = Some(now);
        } else if let Some(ended) = open.take() {
            letters.push(self.alert(&ended, true, reading)?);
        }
        Ok(letters)
    }

    fn heartbeat(&self, reading: Reading, problems: &[String]) -> Letter {
        let key = format!("heartbeat/{}", self.instance);
        let data = json!({
            "instance": self.instance,
            "at": time_text(reading.at_ms),
            "version": env!("CARGO_PKG_VERSION"),
            "rows": reading.rows,
            "dead_letters": reading.dead_letters,
            "taken_at": reading.taken_ms.map(time_text),
            "committed_at": reading.committed_ms.map(time_text),
            "behind_ms": reading.behind_ms,
            "failed_rules": reading.failed_rules,
            "problems": problems,
        });
        let (source, id) = (source(&self.group), transition_id(&key, reading.at_ms));
        let (subject, at_ms) = (&self.instance, reading.at_ms);
        let event = event(HEARTBEAT_TYPE, &source, &id, subject, at_ms, data);
        Letter::new(key, &event)
    }

    /// Under one number while it fires, and the next when it ends; times of wall clock have no
    /// number twice.
    fn alert(&self, open: &Open, ended: bool, reading: Reading) -> anyhow::Result<Letter> {
        let transition = Transition {
            dedup_key: dedup_key(PIPELINE, &self.instance),
            number: open.since_ms + i64::from(ended),
            rule: PIPELINE.to_owned(),
            entity: self.instance.clone(),
            state: if ended {
                State::Resolved
            } else {
                State::Firing
            },
            severity: Severity::Critical,
            ends_reason: ended.then_some(EndsReason::Recovered),
            starts_at_ms: open.since_ms,
            at_ms: reading.at_ms,
        };
        let told = open.problems.join("; ");
        let summary = match ended {
            true => "resolved, recovered",
            false => &told,
        };
        let mut data = data::head(&transition, &self.alerts, false);
        data.extend(data::map(json!({
            "entity_kind": "instance",
            "title": "Pipeline",
            "summary": format!("Pipeline, instance {}: {summary}", self.instance),
            "counted": "records",
            "counts": { "rows": reading.rows, "dead_letters": reading.dead_letters },
            "likely_cause": told,
            "action": "Read this instance's log for its last errors, and try `retrytoll check` with its configuration.",
        })));
        let row = Row {
            transition,
            revision: SENT,
            data: Value::Object(data).to_string(),
        };
        letter(&row, &source(&self.group), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::extent::MINUTE_MS;

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
            metrics: Arc::default(),
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
            for letter in pulse.letters(&mut minutes, &mut open, reading).unwrap() {
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
