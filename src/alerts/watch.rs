//! A job with an alert rule, asked at an instant → a sample per entity.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use arrow::array::RecordBatch;
use chrono::{DateTime, Utc};
use futures::StreamExt as _;
use retrytoll_core::alert::{Bound, Rule, Sample, Severity, Side};
use retrytoll_core::money::{SCALE, parse_scaled};
use retrytoll_jobs::{Catalog, Job, JobResult, Place, Session, Window, Zone};
use sha2::{Digest as _, Sha256};

use super::cell;

/// An entity without a name.
const NAMELESS: &str = "(none)";
/// Windows without a word of an entity after which its alert ends.
const SILENT_WINDOWS: i32 = 3;

/// A rule and the job whose rows it looks at.
pub struct Watch {
    pub job: Arc<Job>,
    pub rule: Rule,
    /// What an entity is: a column of `attempts`, such as `service`.
    pub kind: String,
    /// The window it looks at, such as `24h`.
    pub window: String,
    /// Whether entities must not be named.
    pub hidden: bool,
}

/// What a job said at an instant.
pub struct Answer {
    pub result: JobResult,
    /// Each entity, as it may be named.
    pub entities: BTreeMap<String, Found>,
}

/// Where an entity stands in the answer.
pub struct Found {
    /// As it is in the lake.
    pub name: Option<String>,
    pub batch: usize,
    pub row: usize,
}

impl Watch {
    /// The watch of a job's rule.
    pub fn new(job: Arc<Job>, hide: &[String]) -> anyhow::Result<Self> {
        let Some(alert) = job.meta.alert.clone() else {
            bail!("job {} has no alert", job.name)
        };
        let severity = Severity::of_word(&alert.severity).with_context(|| {
            let (job, word) = (&job.name, &alert.severity);
            format!("severity {word} of job {job} is none of info, warning, error, critical")
        })?;
        let bounds = alert.thresholds.iter().map(|(name, limit)| {
            bound(name, limit).with_context(|| {
                format!("threshold {name} = {limit} of job {}: name it after a column, with _over or _min at its end, and give a decimal number", job.name)
            })
        });
        let bounds = bounds.collect::<anyhow::Result<Vec<_>>>()?;
        let known = |c: char| c.is_ascii_lowercase() || c == '_';
        if alert.entity.is_empty() || !alert.entity.chars().all(known) {
            bail!("entity {} of job {} is no column", alert.entity, job.name);
        }
        Ok(Self {
            hidden: hide.contains(&alert.entity),
            rule: Rule {
                name: alert.rule,
                severity,
                bounds,
                for_ms: 0,
            },
            kind: alert.entity,
            window: alert.window,
            job,
        })
    }

    /// The watches of the rules named.
    pub fn all(catalog: &Catalog, rules: &[&str], hide: &[String]) -> anyhow::Result<Vec<Self>> {
        let wanted = catalog.jobs().filter(|job| {
            job.meta
                .alert
                .as_ref()
                .is_some_and(|alert| rules.contains(&alert.rule.as_str()))
        });
        wanted.map(|job| Self::new(Arc::clone(job), hide)).collect()
    }

    /// The time it looks at, up to `at`.
    pub fn window_to(&self, at: DateTime<Utc>) -> anyhow::Result<Window> {
        span(&self.window, at)
    }

    /// What the job says of `window`.
    pub async fn ask(&self, session: &Session, window: &Window) -> anyhow::Result<Answer> {
        let by = self.job.meta.parameters.contains_key("by");
        let given = by
            .then(|| ("by".to_owned(), self.kind.clone()))
            .into_iter()
            .collect();
        let result = session.run_job(&self.job, window, &given).await?;
        let column = if by { "key" } else { self.kind.as_str() };
        let mut entities = BTreeMap::new();
        for (at, batch) in result.batches.iter().enumerate() {
            for row in 0..batch.num_rows() {
                let name = cell::text(batch, column, row);
                entities.insert(
                    self.shown(name.as_deref()),
                    Found {
                        name,
                        batch: at,
                        row,
                    },
                );
            }
        }
        Ok(Answer { result, entities })
    }

    /// The figures of each entity that the rule looks at.
    pub fn samples(&self, answer: &Answer) -> BTreeMap<String, Sample> {
        let sample = |found: &Found| {
            let batch = &answer.result.batches[found.batch];
            let of = |bound: &Bound| cell::figure(batch, &bound.figure, found.row);
            Sample {
                figures: self.rule.bounds.iter().map(of).collect(),
            }
        };
        answer
            .entities
            .iter()
            .map(|(name, found)| (name.clone(), sample(found)))
            .collect()
    }

    /// The entities of which there is an event within so many windows before the end of `window`.
    pub async fn heard_of(
        &self,
        session: &Session,
        window: &Window,
    ) -> anyhow::Result<BTreeSet<String>> {
        let since = window.until - (window.until - window.since) * SILENT_WINDOWS;
        let long = Window {
            since,
            ..window.clone()
        };
        let kind = &self.kind;
        let sql = format!(
            "SELECT DISTINCT {kind} AS entity FROM attempts WHERE ts >= $since AND ts < $until"
        );
        let batches = ask(session, &sql, &long).await?;
        let rows = batches.iter().flat_map(|batch| {
            (0..batch.num_rows()).map(|row| self.shown(cell::text(batch, "entity", row).as_deref()))
        });
        Ok(rows.collect())
    }

    /// An entity's name as it may be told: hidden ones can be told apart, no more.
    fn shown(&self, name: Option<&str>) -> String {
        match name {
            Some(name) if self.hidden => {
                let digest: [u8; 32] = Sha256::digest(name).into();
                let digits = digest[..6].iter().map(|byte| format!("{byte:02x}"));
                format!("hidden-{}", digits.collect::<String>())
            }
            Some(name) => name.to_owned(),
            None => NAMELESS.to_owned(),
        }
    }
}

/// The rows of a query of ours.
pub async fn ask(
    session: &Session,
    sql: &str,
    window: &Window,
) -> anyhow::Result<Vec<RecordBatch>> {
    let mut stream = session.query(sql, window).await?;
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await {
        batches.push(batch.map_err(|error| session.failed(&Place::file("alerts"), error))?);
    }
    Ok(batches)
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

fn bound(name: &str, limit: &str) -> Option<Bound> {
    let (figure, side) = match (name.strip_suffix("_over"), name.strip_suffix("_min")) {
        (Some(figure), _) => (figure, Side::Over),
        (_, Some(figure)) => (figure, Side::AtLeast),
        _ => return None,
    };
    let limit = parse_scaled(limit, SCALE).ok()?;
    Some(Bound {
        figure: figure.to_owned(),
        side,
        limit,
    })
}
