//! The completeness mark → the ticks that are due ([`ticks`]) → what they decide, sent ([`sending`]).

mod sending;
mod ticks;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use retrytoll_jobs::{Catalog, Limits};
use retrytoll_lake::{Clock, Mark, completeness_mark};

use super::ALERTS;
use super::event::AlertOutlet;
use super::extent;
use super::outbox::Outbox;
use super::watch::Watch;
use crate::clock::Stopwatch;
use crate::config::Config;
use crate::config::usable::Alerts;
use crate::lake;
use crate::metrics::{Firing, Metrics};
use crate::pipeline::Health;
use crate::profile::{NOT_MADE, Profiles};
use crate::rollup::{Rollup, RollupSettings};
use crate::told::Told;

/// What fires is sent again after this, ms of wall time.
const RESEND_MS: i64 = 60_000;
/// How often to look at the mark.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The longest wait after failures: each opens the outbox anew, which is a commit.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(60);

/// What is told of a rollup that failed.
const NOT_ROLLED_UP: &str = "the rollup; it is tried again";

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
    /// Rows that an hour of the rollup has at most.
    pub rollup_rows: i64,
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
        Ok(Self {
            root,
            group: group.to_owned(),
            alerts: config.alerts.clone(),
            catalog,
            limits: lake::query_limits(config),
            tick_ms: lake::ms(config.jobs.tick).max(1),
            rollup_rows: config.jobs.rollup_rows,
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
    /// What rules over long windows read.
    rollup: Rollup,
    /// `None` until it is needed, and after every failure: it is opened, and read, anew.
    outbox: Option<Outbox>,
    /// The last tick that is done with, ms; `None` before the first.
    last_ms: Option<i64>,
    /// When what fires was sent last, ms of wall time.
    sent_ms: BTreeMap<String, i64>,
    /// When alerts were last sent, or could have been, ms of wall time: between ticks no more go
    /// than once in [`RESEND_MS`].
    occasion_ms: Option<i64>,
    /// At the last tick every rule is looked at, whenever it is due.
    to_end: bool,
    /// Made before the ticks that may look at them.
    pub profiles: Profiles,
    /// Where it is told that a rule's job failed.
    pub health: Arc<Health>,
    /// Where it is told what was done.
    pub metrics: Arc<Metrics>,
    /// What was told of failures: of all of it, of profile and rollup, and of each rule.
    told: Told,
    told_jobs: BTreeMap<&'static str, Told>,
    told_rules: BTreeMap<String, Told>,
}

impl Alerting {
    /// Fails where an alert rule of a job is none.
    pub fn new(
        settings: AlertingSettings,
        outlet: AlertOutlet,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let watches = Watch::all(&settings.catalog, &settings.alerts)?;
        let rollup = Rollup::new(
            RollupSettings {
                root: settings.root.clone(),
                group: settings.group.clone(),
                limits: settings.limits.clone(),
                rows_max: settings.rollup_rows,
            },
            clock.clone(),
        );
        let profiles = Profiles::new(
            settings.root.clone(),
            &settings.group,
            clock.clone(),
            settings.limits.clone(),
        );
        Ok(Self {
            rollup,
            settings,
            outlet: Arc::new(outlet),
            clock,
            watches,
            outbox: None,
            last_ms: None,
            sent_ms: BTreeMap::new(),
            occasion_ms: None,
            to_end: false,
            profiles,
            health: Arc::default(),
            metrics: Arc::default(),
            told: Told::default(),
            told_jobs: BTreeMap::new(),
            told_rules: BTreeMap::new(),
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
        self.to_end = true;
        // Without it the rules read the attempts.
        if let Err(error) = self.rollup.run_to_end(self.profiles.made_through()).await {
            let error = format!("{error:#}");
            tracing::warn!(error, "{NOT_ROLLED_UP}");
        }
        let sent = self.run_due(end_ms).await?;
        match self.health.failed_rules() {
            0 => Ok(sent),
            failed => anyhow::bail!(
                "{failed} looks of alert rules failed, as told above; the rows are committed"
            ),
        }
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
                let AlertingSettings { root, limits, .. } = &self.settings;
                let last_ms = extent::last_ms(root, limits, &positions).await?;
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
            let now_ms = self.clock.now_ms();
            wait = match done {
                Ok(()) => {
                    self.told.went_well("alerts", now_ms);
                    LOOK_EVERY
                }
                Err(error) => {
                    let message = "alerts; they are tried again";
                    self.told.failed(message, &error, now_ms);
                    (wait * 2).min(LOOK_EVERY_MAX)
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    async fn lead(&mut self) -> anyhow::Result<()> {
        let mark_ms = self.mark_ms().await?;
        // Ticks see the profile of their own day where it is due.
        let watch = Stopwatch::start();
        let made = self.profiles.make_next(mark_ms).await;
        self.ran("profile", NOT_MADE, watch, &made);
        self.run_due(mark_ms).await?;
        let watch = Stopwatch::start();
        let made = self.rollup.run_due(self.profiles.made_through()).await;
        self.ran("rollup", NOT_ROLLED_UP, watch, &made);
        Ok(())
    }

    /// Tells how a job went, where it was due; `failed` is what is told of a failure.
    fn ran(
        &mut self,
        job: &'static str,
        failed: &str,
        watch: Stopwatch,
        done: &anyhow::Result<bool>,
    ) {
        if matches!(done, Ok(false)) {
            return;
        }
        self.metrics.tasks.ran(job, watch.elapsed(), done.is_err());
        let (done, now_ms) = (done.as_ref().map(|_| ()), self.clock.now_ms());
        let told = self.told_jobs.entry(job).or_default();
        told.tell(job, failed, done, now_ms);
    }

    /// Another instance alerts, or none yet. The mark stands still from when that one is gone
    /// until we lead: our ticks begin there.
    async fn stand_by(&mut self) -> anyhow::Result<()> {
        self.outbox = None;
        self.metrics.tasks.fires(None);
        self.rollup.stand_by();
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
        let mut firing = Firing::new();
        for row in outbox.all_firing() {
            *firing.entry(row.transition.rule.clone()).or_default() += 1;
        }
        self.metrics.tasks.fires(Some(firing));
        // After what is to be sent: a send must follow soon on the commit before it.
        outbox.tidy_due().await?;
        self.outbox = Some(outbox);
        Ok(sent)
    }

    fn is_occasion(&self) -> bool {
        self.occasion_ms
            .is_none_or(|last_ms| self.clock.since_ms(last_ms) >= RESEND_MS)
    }
}
