//! A job with an alert rule, asked at an instant → a sample per entity.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use arrow::array::RecordBatch;
use chrono::{DateTime, Utc};
use retrytoll_core::alert::{Bound, HYSTERESIS_PCT, Level, Rule, Sample, Severity};
use retrytoll_core::money::{SCALE, parse_scaled};
use retrytoll_jobs::{
    AlertRule, Catalog, Job, JobResult, Session, Window, Zone, duration, threshold,
};

use super::beside::{Beside, ask};
use super::cell;
use super::extent::MINUTE_MS;
use super::name::Names;
use crate::config::usable::Alerts;

/// Windows without a word of an entity after which its alert ends.
pub const SILENT_WINDOWS: i32 = 3;
/// A figure of any level: the redundant cost of the last hour, expected.
const USD_PER_HOUR: &str = "usd_per_hour";

/// A rule and the job whose rows it looks at.
pub struct Watch {
    pub job: Arc<Job>,
    pub rule: Rule,
    /// What an entity is, such as `service`.
    pub kind: String,
    pub names: Names,
    /// The window it looks at, such as `24h`, and how long that is, ms.
    pub window: String,
    pub window_ms: i64,
    /// How often it is looked at, ticks.
    pub every: i64,
    /// The bound that its summary tells.
    pub headline: Option<String>,
    /// The windows of the rule's levels, where they are not its own.
    level_windows: Vec<Option<String>>,
    /// The column that names the entity, and the SQL that does so in the view `attempts`.
    column: String,
    heard: Vec<String>,
    /// Values of the job's parameters.
    given: BTreeMap<String, String>,
}

/// What a job said at an instant.
pub struct Answer {
    pub result: JobResult,
    /// Each entity, as it may be named.
    pub entities: BTreeMap<String, Found>,
}

/// Where an entity stands in the answer.
pub struct Found {
    /// By what it is found beside the answer: its name, or its `key`, as it is in the lake.
    pub key: Option<String>,
    pub batch: usize,
    pub row: usize,
}

impl Answer {
    /// The batch and the row of an entity.
    pub fn row(&self, entity: &str) -> Option<(&RecordBatch, usize)> {
        let found = self.entities.get(entity)?;
        Some((&self.result.batches[found.batch], found.row))
    }

    fn figures(&self, bounds: &[Bound], entity: &str) -> Vec<Option<i128>> {
        let row = self.row(entity);
        let of =
            |bound: &Bound| row.and_then(|(batch, row)| cell::figure(batch, &bound.figure, row));
        bounds.iter().map(of).collect()
    }
}

impl Watch {
    /// The watch of a job's rule; `None` where the rule is off.
    ///
    /// # Errors
    /// The rule is none.
    pub fn new(job: &Arc<Job>, config: &Alerts) -> anyhow::Result<Option<Self>> {
        let Some(alert) = job.meta.alert.clone() else {
            return Ok(None);
        };
        let parameters = &job.meta.parameters;
        let mut given = BTreeMap::new();
        for (name, value) in config.parameters() {
            if parameters.contains_key(name) && value > 0 {
                given.insert(name.to_owned(), value.to_string());
            }
        }
        let is_set = |needed: &String| {
            let default = parameters.get(needed).map(|it| it.default.to_string());
            given.contains_key(needed) || default.is_some_and(|it| it != "0")
        };
        if config.off.contains(&alert.rule) || !alert.needs.as_ref().is_none_or(is_set) {
            return Ok(None);
        }
        let has_by = parameters.contains_key("by");
        if has_by {
            given.insert("by".to_owned(), alert.entity.clone());
        }
        let known = |c: char| c.is_ascii_lowercase() || c == '_' || c == '/';
        if alert.entity.is_empty() || !alert.entity.chars().all(known) {
            bail!("entity {} of job {} is no column", alert.entity, job.name);
        }
        let by_default = || if has_by { "key" } else { &alert.entity }.to_owned();
        let heard = match alert.heard.is_empty() {
            true => vec![alert.entity.clone()],
            false => alert.heard.clone(),
        };
        let window_ms = length_ms(job, "window", &alert.window)?;
        let every = job.meta.schedule.as_deref().map_or(Ok(1), |text| {
            Ok::<_, anyhow::Error>(length_ms(job, "schedule", text)? / MINUTE_MS)
        })?;
        Ok(Some(Self {
            rule: rule(job, &alert)?,
            names: Names::of(&alert.entity, &heard, &config.hide),
            window_ms,
            every: every.max(1),
            level_windows: alert.levels.iter().map(|it| it.window.clone()).collect(),
            column: alert.column.clone().unwrap_or_else(by_default),
            headline: alert.headline,
            kind: alert.entity,
            window: alert.window,
            heard,
            given,
            job: Arc::clone(job),
        }))
    }

    /// The watches of every rule that is on.
    ///
    /// # Errors
    /// As [`Watch::new`].
    pub fn all(catalog: &Catalog, config: &Alerts) -> anyhow::Result<Vec<Self>> {
        let found = catalog.jobs().map(|job| Self::new(job, config));
        let found = found.collect::<anyhow::Result<Vec<_>>>()?;
        let mut watches = found.into_iter().flatten().collect::<Vec<_>>();
        // The most severe first: at one tick, an alert inhibits those that follow from it.
        watches.sort_by_key(|it| std::cmp::Reverse(it.rule.severity));
        Ok(watches)
    }

    /// The time it looks at, up to `at`.
    pub fn window_to(&self, at: DateTime<Utc>) -> anyhow::Result<Window> {
        span(&self.window, at)
    }

    /// What this entity is. One whose row has another key is the other kind that is heard of: the
    /// storm of a provider's one service is that service's.
    pub fn kind_of(&self, answer: &Answer, entity: &str) -> &str {
        let key = answer
            .row(entity)
            .and_then(|(batch, row)| cell::text(batch, "key", row));
        let is_other = !self.names.hidden() && key.is_some_and(|key| key != entity);
        let other = self.heard.iter().find(|kind| **kind != self.kind);
        match other.filter(|_| is_other && self.heard.contains(&self.kind)) {
            Some(kind) => kind,
            None => &self.kind,
        }
    }

    /// What the job says of `window`.
    pub async fn ask(&self, session: &Session, window: &Window) -> anyhow::Result<Answer> {
        let result = session.run_job(&self.job, window, &self.given).await?;
        let mut entities = BTreeMap::new();
        for (at, batch) in result.batches.iter().enumerate() {
            for row in 0..batch.num_rows() {
                let name = cell::text(batch, &self.column, row);
                let key = match batch.column_by_name("key") {
                    Some(_) => cell::text(batch, "key", row),
                    None => name.clone(),
                };
                let found = Found {
                    key,
                    batch: at,
                    row,
                };
                entities.insert(self.names.shown(name.as_deref()), found);
            }
        }
        Ok(Answer { result, entities })
    }

    /// The figures of each entity that the rule looks at, without those of its levels.
    pub fn samples(&self, answer: &Answer) -> BTreeMap<String, Sample> {
        let sample = |entity: &String| Sample {
            figures: answer.figures(&self.rule.bounds, entity),
            levels: Vec::new(),
        };
        let names = answer.entities.keys();
        names.map(|it| (it.clone(), sample(it))).collect()
    }

    /// Adds the figures of the rule's levels where the rule holds of any entity; those of a window
    /// longer than the rule's only where `long` says so.
    pub async fn add_levels(
        &self,
        session: &Session,
        answer: &Answer,
        samples: &mut BTreeMap<String, Sample>,
        long: bool,
    ) -> anyhow::Result<()> {
        let holds = |it: &Sample| self.rule.holds(it, HYSTERESIS_PCT) == Some(true);
        if self.rule.levels.is_empty() || !samples.values().any(holds) {
            return Ok(());
        }
        let until = answer.result.window.until;
        let hour = Beside::hour(session, &self.kind, until).await?;
        for (level, window) in self.rule.levels.iter().zip(&self.level_windows) {
            let asked = match window {
                Some(window) if long => Some(self.ask(session, &span(window, until)?).await?),
                _ => None,
            };
            for (entity, sample) in samples.iter_mut() {
                let mut figures = match (&asked, window) {
                    (Some(asked), _) => asked.figures(&level.bounds, entity),
                    (None, None) => answer.figures(&level.bounds, entity),
                    (None, Some(_)) => vec![None; level.bounds.len()],
                };
                let key = answer.entities.get(entity).and_then(|it| it.key.as_deref());
                for (figure, bound) in figures.iter_mut().zip(&level.bounds) {
                    if bound.figure == USD_PER_HOUR {
                        *figure = hour.figure(key, "expected");
                    }
                }
                sample.levels.push(figures);
            }
        }
        Ok(())
    }

    /// The entities of which there is an event within so many windows before the end of `window`.
    pub async fn heard_of(
        &self,
        session: &Session,
        window: &Window,
        windows: i32,
    ) -> anyhow::Result<BTreeSet<String>> {
        let long = Window {
            since: window.until - (window.until - window.since) * windows,
            ..window.clone()
        };
        let mut entities = BTreeSet::new();
        for name in &self.heard {
            let sql = format!(
                "SELECT DISTINCT {name} AS entity FROM attempts WHERE ts >= $since AND ts < $until"
            );
            for batch in ask(session, &sql, &long).await? {
                let names = (0..batch.num_rows()).map(|row| cell::text(&batch, "entity", row));
                entities.extend(names.map(|it| self.names.shown(it.as_deref())));
            }
        }
        Ok(entities)
    }
}

/// The time of that `length` up to `until`.
pub fn span(length: &str, until: DateTime<Utc>) -> anyhow::Result<Window> {
    Ok(Window::parse(
        Some(length),
        Some(&until.to_rfc3339()),
        Zone::utc(),
        until,
    )?)
}

fn length_ms(job: &Job, of: &str, text: &str) -> anyhow::Result<i64> {
    let length = duration(text).with_context(|| {
        let job = &job.name;
        format!("{of} {text} of job {job} is no time: write it as 5m, 24h or 7d")
    })?;
    Ok(length.num_milliseconds())
}

fn rule(job: &Job, alert: &AlertRule) -> anyhow::Result<Rule> {
    let severity = |word: &str| {
        Severity::of_word(word).with_context(|| {
            let job = &job.name;
            format!("severity {word} of job {job} is none of info, warning, error, critical")
        })
    };
    let levels = alert.levels.iter().map(|level| {
        Ok(Level {
            severity: severity(&level.severity)?,
            bounds: bounds(job, &level.thresholds)?,
        })
    });
    let hold = alert.hold.as_deref();
    Ok(Rule {
        name: alert.rule.clone(),
        severity: severity(&alert.severity)?,
        bounds: bounds(job, &alert.thresholds)?,
        levels: levels.collect::<anyhow::Result<_>>()?,
        for_ms: hold.map_or(Ok(0), |text| length_ms(job, "for", text))?,
    })
}

fn bounds(job: &Job, thresholds: &BTreeMap<String, String>) -> anyhow::Result<Vec<Bound>> {
    let bounds = thresholds.iter().map(|(name, limit)| {
        bound(name, limit).with_context(|| {
            format!("threshold {name} = {limit} of job {}: name it after a column, with _over, _min or _under at its end, and give a decimal number", job.name)
        })
    });
    bounds.collect()
}

fn bound(name: &str, limit: &str) -> Option<Bound> {
    let (figure, side) = threshold(name)?;
    Some(Bound {
        figure: figure.to_owned(),
        side,
        limit: parse_scaled(limit, SCALE).ok()?,
    })
}
