//! The table `alerts`: transitions, committed before they are sent and marked afterwards.
//!
//! Opening it takes the leader's place, and only then reads it: what a former leader committed
//! until then is all there, and its next commit is refused.

mod tidy;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use retrytoll_core::alert::{Alerts, State, Transition};
use retrytoll_lake::{Clock, DataFile, Point, Writer, replay};
use serde_json::Value;

use super::row::{DECIDED, INHIBITED_BY, Key, Row, SENT, keep_newest, schema, to_batch};
use super::{ALERTS, stored};
use crate::lake;
use crate::part::Part;

/// A send follows a fenced commit that began less than this ago, ms: a leader that slept and was
/// replaced meanwhile must not send.
pub const FENCE_MS_MAX: i64 = 10_000;

/// What is sent is taken within this, ms, or it was not sent: later it could pass a newer
/// leader's.
pub const SEND_MS_MAX: i64 = FENCE_MS_MAX / 2;

/// Rows that are read before the data of old ones is dropped.
const ROWS_MAX: usize = 1_000;

/// The outbox, in the leader's place.
pub struct Outbox {
    folder: PathBuf,
    clock: Clock,
    writer: Writer,
    /// Where every alert stands.
    pub alerts: Alerts,
    /// Decided and not yet marked as sent.
    unsent: BTreeMap<Key, Row>,
    /// What fires, by `dedup_key`.
    firing: BTreeMap<String, Row>,
    /// The newest tick of a transition, ms.
    decided_ms: i64,
    /// When the last commit of ours began, ms.
    fenced_ms: i64,
    /// The version at which it was last tidied; 0 before.
    tidied: u64,
}

impl Outbox {
    /// Opens the table below the lake's root, or makes it, and takes the leader's place.
    pub async fn open(root: &Path, group: &str, clock: &Clock) -> anyhow::Result<Self> {
        let folder = root.join(ALERTS);
        let table = stored::open(&folder, clock).await?;
        let mut writer = lake::open_writer(table, group, clock).await?;
        let fenced_ms = clock.now_ms();
        writer.claim_leader().await?;
        let mut outbox = Self {
            folder,
            clock: clock.clone(),
            writer,
            alerts: Alerts::default(),
            unsent: BTreeMap::new(),
            firing: BTreeMap::new(),
            decided_ms: i64::MIN,
            fenced_ms,
            tidied: 0,
        };
        outbox.read().await?;
        Ok(outbox)
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        let version = self.writer.state().version;
        let files = replay::load_files(self.writer.table(), version).await?;
        let (mut newest, mut read): (BTreeMap<Key, Row>, _) = (BTreeMap::new(), 0);
        for path in files.live.keys() {
            for row in stored::read_file(&self.folder.join(path))? {
                keep_newest(&mut newest, row);
                read += 1;
            }
            if read >= ROWS_MAX {
                drop_old_data(&mut newest);
                read = 0;
            }
        }
        for row in newest.into_values() {
            self.take(row);
        }
        Ok(())
    }

    /// Takes a committed row in; of one alert, in the order of its numbers.
    fn take(&mut self, row: Row) {
        let key = row.key();
        match row.transition.state {
            State::Firing => self.firing.insert(key.0.clone(), row.clone()),
            State::Resolved => self.firing.remove(&key.0),
        };
        self.decided_ms = self.decided_ms.max(row.transition.at_ms);
        self.alerts.apply(row.transition.clone());
        if row.revision == DECIDED {
            self.unsent.insert(key, row);
        }
    }

    /// Commits what was decided; only then is it so.
    pub async fn decide(&mut self, decided: Vec<(Transition, String)>) -> anyhow::Result<()> {
        let of = |(transition, data)| Row {
            transition,
            revision: DECIDED,
            data,
        };
        let rows = decided.into_iter().map(of).collect::<Vec<_>>();
        self.append(&rows).await?;
        if !rows.is_empty() {
            Point::AlertDecided.pass();
        }
        rows.into_iter().for_each(|row| self.take(row));
        Ok(())
    }

    /// Commits that these were sent.
    pub async fn mark_sent(&mut self, keys: &[Key]) -> anyhow::Result<()> {
        self.mark(keys.iter().map(|key| (key, None))).await
    }

    /// Commits that these are not sent, each for the alert beside it.
    pub async fn mark_inhibited(&mut self, by: &[(Key, String)]) -> anyhow::Result<()> {
        self.mark(by.iter().map(|(key, by)| (key, Some(by.as_str()))))
            .await
    }

    async fn mark<'a>(
        &mut self,
        marks: impl Iterator<Item = (&'a Key, Option<&'a str>)>,
    ) -> anyhow::Result<()> {
        let (mut keys, mut rows) = (Vec::new(), Vec::new());
        for (key, inhibited_by) in marks {
            let Some(row) = self.unsent.get(key) else {
                continue;
            };
            let data = match inhibited_by {
                Some(by) => with_inhibitor(&row.data, by),
                None => row.data.clone(),
            };
            keys.push(key.clone());
            rows.push(Row {
                transition: row.transition.clone(),
                revision: SENT,
                data,
            });
        }
        if rows.is_empty() {
            return Ok(());
        }
        self.append(&rows).await?;
        Point::AlertMarked.pass();
        for key in keys {
            self.unsent.remove(&key);
        }
        Ok(())
    }

    /// What is to be sent, in the order in which it was decided.
    pub fn unsent(&self) -> Vec<&Row> {
        let mut rows = self.unsent.values().collect::<Vec<_>>();
        rows.sort_by_key(|row| row.transition.at_ms);
        rows
    }

    /// What fires, sent or not.
    pub fn all_firing(&self) -> impl Iterator<Item = &Row> {
        self.firing.values()
    }

    /// What fires and was sent, or kept back.
    pub fn firing(&self) -> impl Iterator<Item = &Row> {
        let unsent: BTreeSet<&str> = self.unsent.keys().map(|(key, _)| key.as_str()).collect();
        self.firing
            .values()
            .filter(move |row| !unsent.contains(row.transition.dedup_key.as_str()))
    }

    /// What the entity of an alert that fires is, such as `service`.
    pub fn entity_kind(&self, dedup_key: &str) -> Option<String> {
        let data: Value = serde_json::from_str(&self.firing.get(dedup_key)?.data).ok()?;
        Some(data["entity_kind"].as_str()?.to_owned())
    }

    /// Whether this alert fires.
    pub fn is_firing(&self, dedup_key: &str) -> bool {
        self.firing.contains_key(dedup_key)
    }

    /// The newest tick at which something was decided, ms; the least time where nothing was.
    pub fn decided_ms(&self) -> i64 {
        self.decided_ms
    }

    /// Makes sure that we are the leader still: a send may follow, within what is left of
    /// [`FENCE_MS_MAX`].
    pub async fn fence(&mut self) -> anyhow::Result<()> {
        if self.clock.since_ms(self.fenced_ms) < FENCE_MS_MAX - SEND_MS_MAX {
            return Ok(());
        }
        let began_ms = self.clock.now_ms();
        self.writer.confirm().await?;
        self.fenced_ms = began_ms;
        Ok(())
    }

    async fn append(&mut self, rows: &[Row]) -> anyhow::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let began_ms = self.clock.now_ms();
        let file = write_file(&self.folder, rows).context("cannot write a file of alerts")?;
        self.writer.append(began_ms, vec![file]).await?;
        self.fenced_ms = began_ms;
        Ok(())
    }
}

/// Keeps no more in memory than what may still be sent, and the newest of each alert.
fn drop_old_data(newest: &mut BTreeMap<Key, Row>) {
    let mut rows = newest.values_mut().peekable();
    while let Some(row) = rows.next() {
        let next = rows.peek().map(|it| &it.transition.dedup_key);
        if row.revision == SENT && next == Some(&row.transition.dedup_key) {
            row.data = String::new();
        }
    }
}

/// The data of an alert that is kept back for another.
fn with_inhibitor(data: &str, by: &str) -> String {
    let mut data: Value = serde_json::from_str(data).unwrap_or_default();
    data[INHIBITED_BY] = by.into();
    data.to_string()
}

/// Writes a file that is not yet part of the table.
fn write_file(folder: &Path, rows: &[Row]) -> anyhow::Result<DataFile> {
    let mut part = Part::create(folder, None, schema())?;
    part.write(&to_batch(rows)?)?;
    part.close()?.context("there is no row to write")
}
