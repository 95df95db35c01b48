//! The completeness mark → the ticks that are due, each: ask, decide, commit, send, mark.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use retrytoll_core::alert::{Tick, next_tick};
use retrytoll_jobs::{Catalog, Limits, Session};
use retrytoll_lake::{Clock, Mark, completeness_mark};

use super::ALERTS;
use super::data::{self, Evidence};
use super::event::{AlertOutlet, Letter, letter};
use super::extent;
use super::outbox::{Key, Outbox};
use super::row::Row;
use super::watch::Watch;
use crate::config::Config;
use crate::config::usable::Alerts;
use crate::lake;

/// Alerts that are sent at a tick; what is left goes with the next one.
const SENT_A_TICK_MAX: usize = 20;
/// What fires is sent again after this, ms of wall time.
const RESEND_MS: i64 = 60_000;
/// A tick that is decided later than this after its instant, ms, makes an alert `stale`.
const STALE_MS: i64 = 300_000;
/// How often to look at the mark.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The longest wait after failures: each opens the outbox anew, which is a commit.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(60);

/// What alerting is made of.
pub struct AlertingSettings {
    /// The lake's root on local disk.
    pub root: PathBuf,
    /// The consumer group, or another name of this deployment: it is the events' source.
    pub group: String,
    pub alerts: Alerts,
    pub catalog: Catalog,
    pub limits: Limits,
    /// Between two ticks, ms of event time.
    pub tick_ms: i64,
}

impl AlertingSettings {
    /// As configured. A job of the user's that is none is a warning.
    ///
    /// # Errors
    /// The folder of the user's jobs cannot be listed.
    pub fn of(config: &Config, group: &str, root: PathBuf) -> anyhow::Result<Self> {
        let mut catalog = Catalog::embedded();
        if let Some(folder) = &config.jobs.sql_dir {
            for wrong in catalog.overlay(folder)? {
                tracing::warn!(job = %wrong, "left out");
            }
        }
        // Reading and committing go on beside the queries.
        let threads = std::thread::available_parallelism().map_or(1, usize::from) / 2;
        Ok(Self {
            root,
            group: group.to_owned(),
            alerts: config.alerts.clone(),
            catalog,
            limits: Limits {
                memory_bytes: config.limits.sql_bytes,
                spill_bytes: config.limits.spill_bytes_max,
                spill_folder: None,
                threads: threads.max(1),
            },
            tick_ms: lake::ms(config.jobs.tick).max(1),
        })
    }
}

/// An alert that was sent and acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub dedup_key: String,
    pub id: String,
    /// Whether it was sent before.
    pub again: bool,
    /// The CloudEvent, JSON.
    pub body: String,
}

/// The alerts of one lake.
pub struct Alerting {
    settings: AlertingSettings,
    outlet: Arc<AlertOutlet>,
    clock: Clock,
    watches: Vec<Watch>,
    /// `None` until it is needed, and after every failure: it is opened, and read, anew.
    outbox: Option<Outbox>,
    /// The last tick that is done with, ms; `None` before the first.
    last_ms: Option<i64>,
    /// When what fires was sent last, ms of wall time.
    sent_ms: BTreeMap<String, i64>,
    /// When alerts were last sent, or could have been, ms of wall time: between ticks no more go
    /// than once in [`RESEND_MS`].
    occasion_ms: Option<i64>,
}

impl Alerting {
    /// Fails where an alert rule of a job is none.
    pub fn new(
        settings: AlertingSettings,
        outlet: AlertOutlet,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let rules: &[&str] = if settings.alerts.retry_share {
            &["retry_share"]
        } else {
            &[]
        };
        let watches = Watch::all(&settings.catalog, rules, &settings.alerts.hide)?;
        Ok(Self {
            settings,
            outlet: Arc::new(outlet),
            clock,
            watches,
            outbox: None,
            last_ms: None,
            sent_ms: BTreeMap::new(),
            occasion_ms: None,
        })
    }

    /// Ticks begin after this instant of event time, in place of the first mark that is seen.
    pub fn start_after(&mut self, event_ms: i64) {
        self.last_ms = Some(event_ms);
    }

    /// Before a source is read to its end: notes where the lake stands, so that the ticks of
    /// [`Alerting::run_to_end`] begin there.
    ///
    /// # Errors
    /// The lake's.
    pub async fn begin(&mut self) -> anyhow::Result<()> {
        self.last_ms = self.complete_ms().await?.map(|ms| self.tick_before(ms));
        Ok(())
    }

    /// The newest tick is looked at once more: who stood there may have been killed before.
    fn tick_before(&self, ms: i64) -> i64 {
        ms.saturating_sub(self.settings.tick_ms)
    }

    /// After a source was read to its end: every tick since [`Alerting::begin`], in a new lake
    /// since its first event.
    ///
    /// # Errors
    /// As [`Alerting::run_due`].
    pub async fn run_to_end(&mut self) -> anyhow::Result<Vec<Sent>> {
        let end_ms = self.complete_ms().await?;
        if self.last_ms.is_none() {
            let found = extent::of(&self.settings.root, &self.settings.limits).await?;
            self.last_ms = found.map(|(first_ms, _)| first_ms.saturating_sub(1));
        }
        self.run_due(end_ms).await
    }

    /// Up to when everything is in the lake, ms; `None` where nothing is, or a source has yet to
    /// say. Where every source was read to its end: the tick that sees the last event.
    async fn complete_ms(&self) -> anyhow::Result<Option<i64>> {
        let table = lake::open_attempts(&self.settings.root, &self.clock).await?;
        let positions = table.check().await?.positions();
        match completeness_mark(&positions) {
            Mark::Before(ms) => Ok(Some(ms)),
            Mark::Nothing => Ok(None),
            Mark::Everything => {
                let found = extent::of(&self.settings.root, &self.settings.limits).await?;
                // A clock follows no time that lies in the future.
                let clock_ms = positions.values().map(|it| it.clock_ms).max();
                let clock_ms = clock_ms.filter(|&ms| ms != i64::MIN);
                let last_ms = found
                    .zip(clock_ms)
                    .map(|((_, last), clock)| last.min(clock));
                let tick_ms = self.settings.tick_ms;
                // A window ends before its tick.
                Ok(last_ms.map(|last_ms| (last_ms.div_euclid(tick_ms) + 1) * tick_ms))
            }
        }
    }

    /// Runs while `leading` is set, until the runtime ends. What fails is a warning, and tried
    /// again.
    pub async fn run(mut self, leading: Arc<AtomicBool>) {
        let mut wait = LOOK_EVERY;
        loop {
            let done = match leading.load(Ordering::Acquire) {
                true => self.lead().await,
                false => self.stand_by().await,
            };
            wait = match done {
                Ok(()) => LOOK_EVERY,
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(error, "alerts; they are tried again");
                    (wait * 2).min(LOOK_EVERY_MAX)
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    async fn lead(&mut self) -> anyhow::Result<()> {
        let mark_ms = self.mark_ms().await?;
        self.run_due(mark_ms).await.map(drop)
    }

    /// Another instance alerts, or none yet. The mark stands still from when that one is gone
    /// until we lead: our ticks begin there.
    async fn stand_by(&mut self) -> anyhow::Result<()> {
        self.outbox = None;
        self.sent_ms.clear();
        self.last_ms = self.mark_ms().await?.map(|ms| self.tick_before(ms));
        Ok(())
    }

    /// The mark of the sources that go on; `None` where there is none, or one has yet to say.
    async fn mark_ms(&self) -> anyhow::Result<Option<i64>> {
        let table = lake::open_attempts(&self.settings.root, &self.clock).await?;
        match completeness_mark(&table.check().await?.positions()) {
            Mark::Before(ms) => Ok(Some(ms)),
            Mark::Nothing | Mark::Everything => Ok(None),
        }
    }

    /// All ticks up to the mark, and what is to be sent, or sent again, now. Without a mark there
    /// is no tick.
    ///
    /// # Errors
    /// The lake's, the queries', the outlet's. Whatever was committed stays so and is sent by the
    /// next call.
    pub async fn run_due(&mut self, mark_ms: Option<i64>) -> anyhow::Result<Vec<Sent>> {
        if self.watches.is_empty() && !self.settings.root.join(ALERTS).exists() {
            return Ok(Vec::new());
        }
        let mut outbox = match self.outbox.take() {
            Some(outbox) => outbox,
            None => {
                self.occasion_ms = None;
                Outbox::open(&self.settings.root, &self.settings.group, &self.clock).await?
            }
        };
        // After an error it is not put back: what it knows may be behind what was committed.
        let mut sent = Vec::new();
        if self.is_occasion() {
            sent = self.send_due(&mut outbox).await?;
        }
        if let Some(mark_ms) = mark_ms {
            sent.extend(self.run_ticks(&mut outbox, mark_ms).await?);
        }
        self.outbox = Some(outbox);
        Ok(sent)
    }

    fn is_occasion(&self) -> bool {
        let since = |last_ms| self.clock.now_ms() - last_ms;
        // A clock that was set back must keep no alert back.
        self.occasion_ms
            .is_none_or(|last_ms| !(0..RESEND_MS).contains(&since(last_ms)))
    }

    async fn run_ticks(&mut self, outbox: &mut Outbox, mark_ms: i64) -> anyhow::Result<Vec<Sent>> {
        let tick_ms = self.settings.tick_ms;
        let for_ms = self.watches.iter().map(|watch| watch.rule.for_ms).max();
        // What held for a while before a restart begins to hold anew.
        let first = || mark_ms.div_euclid(tick_ms) * tick_ms - tick_ms - for_ms.unwrap_or(0);
        let last_ms = self.last_ms.unwrap_or_else(first);
        // What was decided at an instant is not asked again, and nothing before it.
        let mut last_ms = last_ms.max(outbox.decided_ms());
        let mut sent = Vec::new();
        let mut session = None;
        while let Some(at_ms) = next_tick(last_ms, mark_ms, tick_ms) {
            let session = match &session {
                Some(session) => session,
                None => {
                    let url = lake::url_of(&self.settings.root)?;
                    let limits = self.settings.limits.clone();
                    session.insert(Session::open(&url, None, limits).await?)
                }
            };
            self.tick(outbox, session, at_ms)
                .await
                .with_context(|| format!("the tick of {}", super::cell::time_text(at_ms)))?;
            sent.extend(self.send_due(outbox).await?);
            last_ms = at_ms;
            self.last_ms = Some(at_ms);
        }
        Ok(sent)
    }

    /// Decides and commits what changes at an instant; without a change there is no commit.
    async fn tick(&self, outbox: &mut Outbox, session: &Session, at_ms: i64) -> anyhow::Result<()> {
        let rules = self
            .watches
            .iter()
            .map(|it| it.rule.name.as_str())
            .collect::<Vec<_>>();
        let removed = outbox.alerts.end_removed(&rules, at_ms);
        let config = &self.settings.alerts;
        let mut decided = removed
            .into_iter()
            .map(|it| (data::without_rule(&it, config), it))
            .map(|(data, it)| (it, data))
            .collect::<Vec<_>>();
        let at: DateTime<Utc> =
            DateTime::from_timestamp_millis(at_ms).context("the mark is out of range")?;
        let stale = self.clock.now_ms() - at_ms > STALE_MS;
        for watch in &self.watches {
            let window = watch.window_to(at)?;
            let answer = watch.ask(session, &window).await?;
            let samples = watch.samples(&answer);
            let silent = outbox
                .alerts
                .firing()
                .any(|open| open.rule == watch.rule.name && !samples.contains_key(&open.entity));
            let heard_of = match silent {
                true => watch.heard_of(session, &window).await?,
                false => BTreeSet::new(),
            };
            let tick = Tick {
                at_ms,
                samples: &samples,
                heard_of: &heard_of,
            };
            let changes = outbox.alerts.decide(&watch.rule, &tick);
            if changes.is_empty() {
                continue;
            }
            let evidence = Evidence::gather(watch, session, &window).await?;
            decided.extend(changes.into_iter().map(|it| {
                let data = data::of(&it, watch, &answer, &evidence, config, stale);
                (it, data)
            }));
        }
        let transitions = decided.iter().map(|(it, _)| it.clone()).collect::<Vec<_>>();
        outbox.decide(decided).await?;
        for transition in transitions {
            tracing::info!(
                dedup_key = transition.dedup_key,
                id = transition.id(),
                state = transition.state.word(),
                severity = transition.severity.word(),
                at = super::cell::time_text(at_ms),
                "alert"
            );
        }
        Ok(())
    }

    /// Sends what was decided and marks it; then what fires, each minute again.
    async fn send_due(&mut self, outbox: &mut Outbox) -> anyhow::Result<Vec<Sent>> {
        self.occasion_ms = Some(self.clock.now_ms());
        let unsent = outbox.unsent();
        let more = unsent.len().saturating_sub(SENT_A_TICK_MAX);
        let due = unsent.into_iter().take(SENT_A_TICK_MAX).collect::<Vec<_>>();
        let (keys, letters) = self.letters(&due, more)?;
        let mut sent = self.send(outbox, &keys, letters, false).await?;
        outbox.mark_sent(&keys).await?;

        // Read after the sends above, which it must not be before.
        let now_ms = self.clock.now_ms();
        let again = |row: &&Row| {
            let last = self.sent_ms.get(&row.transition.dedup_key).copied();
            last.is_none_or(|last| !(0..RESEND_MS).contains(&(now_ms - last)))
        };
        let mut due = outbox.firing().filter(again).collect::<Vec<_>>();
        due.sort_by_key(|row| self.sent_ms.get(&row.transition.dedup_key).copied());
        due.truncate(SENT_A_TICK_MAX - keys.len());
        let (keys, letters) = self.letters(&due, 0)?;
        sent.extend(self.send(outbox, &keys, letters, true).await?);
        self.sent_ms.retain(|key, _| outbox.is_firing(key));
        Ok(sent)
    }

    fn letters(&self, rows: &[&Row], more: usize) -> anyhow::Result<(Vec<Key>, Vec<Letter>)> {
        let source = format!("/retrytoll/{}", self.settings.group);
        let (mut keys, mut letters) = (Vec::new(), Vec::new());
        for (at, row) in rows.iter().enumerate() {
            let more = if at + 1 == rows.len() { more } else { 0 };
            letters.push(letter(row, &source, more)?);
            keys.push((row.transition.dedup_key.clone(), row.transition.number));
        }
        Ok((keys, letters))
    }

    async fn send(
        &mut self,
        outbox: &mut Outbox,
        keys: &[Key],
        letters: Vec<Letter>,
        again: bool,
    ) -> anyhow::Result<Vec<Sent>> {
        if letters.is_empty() {
            return Ok(Vec::new());
        }
        outbox.fence().await?;
        let outlet = Arc::clone(&self.outlet);
        let letters = tokio::task::spawn_blocking(move || outlet.send(&letters).map(|()| letters));
        let letters = letters.await.context("the sender broke")??;
        let now_ms = self.clock.now_ms();
        let ids = keys.iter().map(|(key, number)| {
            self.sent_ms.insert(key.clone(), now_ms);
            retrytoll_core::alert::transition_id(key, *number)
        });
        let sent = letters.into_iter().zip(ids);
        Ok(sent
            .map(|(it, id)| Sent {
                dedup_key: it.key,
                id,
                again,
                body: it.body,
            })
            .collect())
    }
}
