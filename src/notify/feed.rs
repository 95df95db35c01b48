//! The alert topic, or the table `alerts` where there is no topic → what is heard.

use std::collections::BTreeMap;
use std::time::Duration;

use retrytoll_core::alert::State;
use retrytoll_core::notify::{NoAlert, Notice, Position};
use tokio::runtime::Handle;

use crate::alerts::{Row, Stored, letter};
use crate::clock::Stopwatch;
use crate::kafka::{AlertTopic, Heard};

/// How long to wait for something to be heard.
const POLL: Duration = Duration::from_millis(100);
/// How often the table is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Where notices come from.
pub enum Feed {
    Topic(AlertTopic),
    Table(TableFeed),
}

impl Feed {
    /// What is heard, within a while.
    ///
    /// # Errors
    /// The group cannot be joined, or the table cannot be read at the first time.
    pub fn poll(&mut self, runtime: &Handle) -> anyhow::Result<Vec<Heard>> {
        match self {
            Self::Topic(topic) => topic.poll(POLL),
            Self::Table(table) => table.poll(runtime),
        }
    }

    /// Keeps where a restart goes on, where that can be kept; `false`: not yet.
    #[must_use]
    pub fn commit(&self, positions: &[Position]) -> bool {
        match self {
            Self::Topic(topic) => topic.commit(positions),
            Self::Table(_) => true,
        }
    }
}

/// The table as one partition, whose offsets count the transitions that were told. Nothing is kept
/// over a restart.
pub struct TableFeed {
    stored: Stored,
    /// The CloudEvents' source.
    source: String,
    /// Of what was decided before the start, what is told.
    first: fn(Vec<Row>, i64) -> Vec<Row>,
    since_ms: i64,
    looked: Option<Stopwatch>,
    next: i64,
}

impl TableFeed {
    /// `first` says what is told of the transitions that are there at the start, by `since_ms`.
    #[must_use]
    pub fn new(
        stored: Stored,
        source: String,
        first: fn(Vec<Row>, i64) -> Vec<Row>,
        since_ms: i64,
    ) -> Self {
        Self {
            stored: stored.settled(),
            source,
            first,
            since_ms,
            looked: None,
            next: 0,
        }
    }

    fn poll(&mut self, runtime: &Handle) -> anyhow::Result<Vec<Heard>> {
        let mut heard = Vec::new();
        match self.looked {
            Some(looked) if looked.elapsed() < LOOK_EVERY => {
                std::thread::park_timeout(POLL);
                return Ok(heard);
            }
            Some(_) => {}
            None => heard.push(Heard::Begin {
                partition: 0,
                next: 0,
                known: String::new(),
                is_kept: true,
            }),
        }
        let rows = match (runtime.block_on(self.stored.more()), self.looked) {
            (Ok(rows), Some(_)) => rows,
            (Ok(rows), None) => (self.first)(rows, self.since_ms),
            (Err(error), None) => return Err(error),
            (Err(error), Some(_)) => {
                let error = format!("{error:#}");
                tracing::warn!(error, "the table of alerts; it is looked at again");
                Vec::new()
            }
        };
        self.looked = Some(Stopwatch::start());
        for row in rows.into_iter().filter(|row| row.inhibited_by().is_none()) {
            heard.push(Heard::Message {
                partition: 0,
                offset: self.next,
                body: letter(&row, &self.source, 0)?.body,
            });
            self.next += 1;
        }
        Ok(heard)
    }
}

/// Of transitions in order: the newest of each alert, where it fires, or was resolved at this
/// time, ms, or later.
#[must_use]
pub fn standing(rows: Vec<Row>, since_ms: i64) -> Vec<Row> {
    let mut newest: BTreeMap<String, Row> = BTreeMap::new();
    for row in rows {
        newest.insert(row.transition.dedup_key.clone(), row);
    }
    let stands =
        |row: &Row| row.transition.state == State::Firing || row.transition.at_ms >= since_ms;
    let mut rows = newest.into_values().filter(stands).collect::<Vec<_>>();
    rows.sort_by_key(|row| row.transition.at_ms);
    rows
}

/// Of transitions in order: those of this time, ms, or later, and what fires since before.
#[must_use]
pub fn notices(rows: Vec<Row>, since_ms: i64) -> Vec<Row> {
    let stands = standing(rows.clone(), since_ms);
    let earlier = stands
        .into_iter()
        .filter(|row| row.transition.at_ms < since_ms);
    let mut told = earlier.collect::<Vec<_>>();
    told.extend(
        rows.into_iter()
            .filter(|row| row.transition.at_ms >= since_ms),
    );
    told
}

/// A message as a notice; what is none is told, and passed over.
pub(super) fn notice(body: &str, partition: i32, offset: i64) -> Option<Notice> {
    match Notice::read(body) {
        Ok(notice) => Some(notice),
        Err(NoAlert::Heartbeat) => None,
        Err(error) => {
            tracing::warn!(partition, offset, %error, "no alert, passed over");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use retrytoll_core::alert::{Severity, Transition};

    use super::*;

    fn row(entity: &str, number: i64, at_ms: i64) -> Row {
        let transition = Transition {
            dedup_key: format!("rule/{entity}"),
            number,
            rule: "rule".into(),
            entity: entity.into(),
            state: match number % 2 {
                1 => State::Firing,
                _ => State::Resolved,
            },
            severity: Severity::Warning,
            ends_reason: None,
            starts_at_ms: at_ms,
            at_ms,
        };
        Row {
            transition,
            revision: 0,
            data: "{}".into(),
        }
    }

    #[test]
    fn a_sender_starts_with_what_stands_and_a_reader_with_what_was_told_since() {
        let rows = vec![
            row("fires", 1, 10),
            row("gone", 1, 20),
            row("gone", 2, 30),
            row("ended", 1, 40),
            row("ended", 2, 60),
            row("again", 1, 50),
            row("again", 2, 60),
            row("again", 3, 70),
        ];
        let names = |rows: Vec<Row>| {
            let name = |row: &Row| format!("{}{}", row.transition.entity, row.transition.number);
            rows.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(
            names(standing(rows.clone(), 50)),
            ["fires1", "ended2", "again3"]
        );
        assert_eq!(
            names(notices(rows, 50)),
            ["fires1", "ended2", "again1", "again2", "again3"]
        );
    }
}
