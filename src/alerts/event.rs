//! A row of the outbox → a CloudEvent → a topic, a file or stdout, acknowledged.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use rdkafka::config::ClientConfig;
use retrytoll_core::notify::EVENT_TYPE;
use serde_json::{Value, json};

use super::breaker::{Control, control};
use super::cell::time_text;
use super::outbox::SEND_MS_MAX;
use super::row::{INHIBITED_BY, Row};
use crate::kafka::Producer;

/// The schema of its data: `schemas/alert.v1.json`.
const DATA_SCHEMA: &str = "https://retrytoll.dev/schemas/alert.v1.json";

/// An alert on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The record's key, `dedup_key`.
    pub key: String,
    /// A CloudEvent, JSON.
    pub body: String,
    /// What goes to the control topic with it.
    pub control: Option<Control>,
}

impl Letter {
    /// An event without a control record.
    pub fn new(key: String, event: &Value) -> Self {
        Self {
            key,
            body: event.to_string(),
            control: None,
        }
    }
}

/// The events' source, by the consumer group.
pub fn source(group: &str) -> String {
    format!("/retrytoll/{group}")
}

/// A CloudEvent.
pub fn event(kind: &str, source: &str, id: &str, subject: &str, at_ms: i64, data: Value) -> Value {
    json!({
        "specversion": "1.0",
        "id": id,
        "source": source,
        "type": kind,
        "subject": subject,
        "time": time_text(at_ms),
        "datacontenttype": "application/json",
        "data": data,
    })
}

/// The CloudEvent of a row; `more` is how many wait behind it, 0 unless it is the last of many.
pub fn letter(row: &Row, source: &str, more: usize) -> anyhow::Result<Letter> {
    let transition = &row.transition;
    let mut data: Value = serde_json::from_str(&row.data)
        .with_context(|| format!("the data of alert {} is no JSON", transition.dedup_key))?;
    if let Some(data) = data.as_object_mut() {
        // It was kept back, and is not any more.
        data.remove(INHIBITED_BY);
    }
    if more > 0 {
        data["more"] = more.into();
        if let Some(summary) = data["summary"].as_str() {
            data["summary"] = format!("{summary}; and {more} more").into();
        }
    }
    let (id, subject) = (transition.id(), &transition.entity);
    let mut body = event(EVENT_TYPE, source, &id, subject, transition.at_ms, data);
    body["dataschema"] = DATA_SCHEMA.into();
    Ok(Letter {
        control: control(row),
        ..Letter::new(transition.dedup_key.clone(), &body)
    })
}

/// Where alerts go.
pub enum AlertOutlet {
    Topic {
        producer: Producer,
        topic: String,
        /// The control topic, compacted.
        breaker_topic: String,
    },
    /// JSON lines are appended.
    File(File),
    /// JSON lines.
    Stdout,
}

impl AlertOutlet {
    /// The topics for alerts and for the breaker.
    pub fn topic(
        mut client: ClientConfig,
        topic: &str,
        breaker_topic: &str,
    ) -> anyhow::Result<Self> {
        client.set("message.timeout.ms", SEND_MS_MAX.to_string());
        Ok(Self::Topic {
            producer: Producer::new(client)?,
            topic: topic.to_owned(),
            breaker_topic: breaker_topic.to_owned(),
        })
    }

    /// A file, made if it is not there.
    pub fn file(path: &Path) -> anyhow::Result<Self> {
        let open = OpenOptions::new().create(true).append(true).open(path);
        let file = open.with_context(|| format!("cannot open {} for alerts", path.display()))?;
        Ok(Self::File(file))
    }

    /// Returns when every letter is acknowledged. It blocks.
    pub fn send(&self, letters: &[Letter]) -> anyhow::Result<()> {
        let lines = || {
            letters
                .iter()
                .map(|it| format!("{}\n", it.body))
                .collect::<String>()
        };
        match self {
            Self::Topic {
                producer,
                topic,
                breaker_topic,
            } => {
                for letter in letters {
                    producer.send(topic, &letter.key, &letter.body, None)?;
                    if let Some(control) = &letter.control {
                        producer.send(breaker_topic, &control.scope, &control.value, None)?;
                    }
                }
                producer
                    .flush()
                    .with_context(|| format!("alerts for `{topic}`"))
            }
            Self::File(file) => {
                let mut file: &File = file;
                file.write_all(lines().as_bytes())?;
                Ok(file.sync_data()?)
            }
            Self::Stdout => {
                let mut out = std::io::stdout().lock();
                out.write_all(lines().as_bytes())?;
                Ok(out.flush()?)
            }
        }
    }
}
