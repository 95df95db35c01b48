//! The completeness mark → the ticks that are due, each: ask, decide, commit.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use retrytoll_core::alert::{
    BEHIND_MS_MAX, COARSE_MS, HOUR_MS, Side, Tick, Transition, is_due, next_tick,
};
use retrytoll_core::money::DOLLAR;
use retrytoll_jobs::Session;

use super::{Alerting, Sent};
use crate::alerts::cell::time_text;
use crate::alerts::data::{self, Evidence};
use crate::alerts::extent::{self, MINUTE_MS};
use crate::alerts::outbox::Outbox;
use crate::alerts::watch::{SILENT_WINDOWS, Watch};
use crate::clock::Stopwatch;
use crate::lake;

/// A tick that is decided later than this after its instant, ms, makes an alert `stale`.
const STALE_MS: i64 = 300_000;

/// Figures that count retries of a rule's window: none can be more than there are attempts.
const COUNTS_OF_RETRIES: [&str; 2] = ["retries", "retries_per_minute"];

/// A tick, the one before it, and how far the lake is complete; ms.
#[derive(Clone, Copy)]
struct Look {
    at_ms: i64,
    last_ms: i64,
    mark_ms: i64,
}

/// Minutes with an event, each with how many attempts may be retries.
struct Busy(BTreeMap<i64, i64>);

impl Busy {
    /// Whether an alert of this rule can begin: there was an event within three windows, and where
    /// the rule wants so many retries, there may be as many in its window.
    fn may_begin(&self, watch: &Watch, at_ms: i64) -> bool {
        let last = at_ms.div_euclid(MINUTE_MS);
        let since = |ms: i64| (at_ms - ms).div_euclid(MINUTE_MS);
        let long_ms = watch.window_ms * i64::from(SILENT_WINDOWS);
        if self.0.range(since(long_ms)..=last).next().is_none() {
            return false;
        }
        // The last whole minute may begin a minute before the window.
        let near = self.0.range(since(watch.window_ms + MINUTE_MS)..=last);
        let retries_max = near
            .map(|(_, count)| i128::from(*count) * DOLLAR)
            .sum::<i128>();
        watch.rule.bounds.iter().all(|bound| {
            let counts_retries = COUNTS_OF_RETRIES.contains(&bound.figure.as_str());
            bound.side != Side::AtLeast || !counts_retries || retries_max >= bound.limit
        })
    }
}

impl Alerting {
    /// Every tick after the last one, up to the mark, and what is to be sent after each.
    pub(super) async fn run_ticks(
        &mut self,
        outbox: &mut Outbox,
        mark_ms: i64,
    ) -> anyhow::Result<Vec<Sent>> {
        let tick_ms = self.settings.tick_ms;
        let for_ms = self.watches.iter().map(|watch| watch.rule.for_ms).max();
        // What held for a while before a restart begins to hold anew.
        let first = || mark_ms.div_euclid(tick_ms) * tick_ms - tick_ms - for_ms.unwrap_or(0);
        let last_ms = self.last_ms.unwrap_or_else(first);
        // What was decided at an instant is not asked again, and nothing before it.
        let mut last_ms = last_ms.max(outbox.decided_ms());
        let mut sent = Vec::new();
        if next_tick(last_ms, mark_ms, tick_ms).is_none() {
            return Ok(sent);
        }
        let url = lake::url_of(&self.settings.root)?;
        let session = Session::open(&url, None, self.settings.limits.clone()).await?;
        let busy = self.busy(&session, last_ms, mark_ms).await?;
        while let Some(at_ms) = next_tick(last_ms, mark_ms, tick_ms) {
            let look = Look {
                at_ms,
                last_ms,
                mark_ms,
            };
            self.tick(outbox, &session, look, busy.as_ref())
                .await
                .with_context(|| format!("the tick of {}", time_text(at_ms)))?;
            sent.extend(self.send_due(outbox).await?);
            last_ms = at_ms;
            self.last_ms = Some(at_ms);
        }
        Ok(sent)
    }

    /// The minutes with an event, where many ticks are due; `None` where asking for them is more
    /// work than it saves.
    async fn busy(
        &self,
        session: &Session,
        last_ms: i64,
        mark_ms: i64,
    ) -> anyhow::Result<Option<Busy>> {
        if mark_ms - last_ms <= COARSE_MS {
            return Ok(None);
        }
        let longest_ms = self.watches.iter().map(|it| it.window_ms).max();
        let reach_ms = longest_ms.unwrap_or(0) * i64::from(SILENT_WINDOWS) + HOUR_MS;
        let first_ms = last_ms.max(mark_ms - BEHIND_MS_MAX) - reach_ms;
        let minutes = extent::minutes(session, time(first_ms)?, time(mark_ms)?).await?;
        Ok(Some(Busy(minutes)))
    }

    /// Decides and commits what changes at an instant; without a change there is no commit. A rule
    /// whose job fails is told of, and looked at again at the next tick.
    async fn tick(
        &mut self,
        outbox: &mut Outbox,
        session: &Session,
        look: Look,
        busy: Option<&Busy>,
    ) -> anyhow::Result<()> {
        let rules = self
            .watches
            .iter()
            .map(|it| it.rule.name.as_str())
            .collect::<Vec<_>>();
        let removed = outbox.alerts.end_removed(&rules, look.at_ms);
        let config = &self.settings.alerts;
        let mut decided = removed
            .into_iter()
            .map(|it| {
                let kind = outbox.entity_kind(&it.dedup_key);
                let data = data::without_rule(&it, kind, config);
                (it, data)
            })
            .collect::<Vec<_>>();
        let mut done = Vec::new();
        for watch in &self.watches {
            if !self.is_worth(watch, outbox, look, busy) {
                continue;
            }
            let stopwatch = Stopwatch::start();
            let changes = self.changes(watch, outbox, session, look).await;
            let (rule, took) = (&watch.rule.name, stopwatch.elapsed());
            self.metrics.tasks.ran(rule, took, changes.is_err());
            done.push((rule.clone(), changes.map(|it| decided.extend(it))));
        }
        for (rule, done) in done {
            self.tell_rule(rule, done);
        }
        let transitions = decided.iter().map(|(it, _)| it.clone()).collect::<Vec<_>>();
        outbox.decide(decided).await?;
        for transition in transitions {
            let state = transition.state.word();
            self.metrics.tasks.decided(&transition.rule, state);
            tracing::info!(
                dedup_key = transition.dedup_key,
                id = transition.id(),
                state = transition.state.word(),
                severity = transition.severity.word(),
                at = time_text(look.at_ms),
                "alert"
            );
        }
        Ok(())
    }

    /// Tells of a rule that failed, and when it works again.
    fn tell_rule(&mut self, rule: String, done: anyhow::Result<()>) {
        let now_ms = self.clock.now_ms();
        let message = format!("the alert rule {rule}; it is looked at again at the next tick");
        let told = self.told_rules.entry(rule).or_default();
        told.tell("an alert rule", &message, done.as_ref().copied(), now_ms);
        if done.is_err() {
            self.health.rule_failed();
        }
    }

    /// Whether a rule is looked at: it is due, and something can have changed. Where nothing fires
    /// and there was no event for so long that nothing could, it is not asked.
    fn is_worth(&self, watch: &Watch, outbox: &Outbox, look: Look, busy: Option<&Busy>) -> bool {
        let tick_ms = self.settings.tick_ms;
        let every_ms = watch.every * tick_ms;
        let is_last = self.to_end && next_tick(look.at_ms, look.mark_ms, tick_ms).is_none();
        if !is_last
            && !is_due(
                every_ms,
                watch.window_ms,
                look.last_ms,
                look.at_ms,
                look.mark_ms,
            )
        {
            return false;
        }
        let Some(busy) = busy else { return true };
        let is_firing = || outbox.alerts.firing().any(|it| it.rule == watch.rule.name);
        busy.may_begin(watch, look.at_ms) || is_firing()
    }

    /// What changes under a rule, each with its data.
    async fn changes(
        &self,
        watch: &Watch,
        outbox: &mut Outbox,
        session: &Session,
        look: Look,
    ) -> anyhow::Result<Vec<(Transition, String)>> {
        let window = watch.window_to(time(look.at_ms)?)?;
        let answer = watch.ask(session, &window).await?;
        let mut samples = watch.samples(&answer);
        let of_rule = |it: &&Transition| it.rule == watch.rule.name;
        let firing = outbox.alerts.firing().filter(of_rule);
        let firing: BTreeSet<&str> = firing.map(|it| it.entity.as_str()).collect();
        let begins = samples.iter().any(|(entity, sample)| {
            !firing.contains(entity.as_str()) && watch.rule.holds(sample, 100) == Some(true)
        });
        // A level's window that is longer than the rule's own is looked at when an alert begins,
        // and then once an hour.
        let long = begins || is_due(HOUR_MS, 0, look.last_ms, look.at_ms, look.at_ms);
        watch
            .add_levels(session, &answer, &mut samples, long)
            .await?;
        let silent = firing.iter().any(|open| !samples.contains_key(*open));
        let (mut idle, mut heard_of) = (BTreeSet::new(), BTreeSet::new());
        if silent {
            idle = watch.heard_of(session, &window, 1).await?;
            heard_of = watch.heard_of(session, &window, SILENT_WINDOWS).await?;
        }
        let tick = Tick {
            at_ms: look.at_ms,
            samples: &samples,
            idle: &idle,
            heard_of: &heard_of,
        };
        let changes = outbox.alerts.decide(&watch.rule, &tick);
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let evidence = Evidence::gather(watch, session, &window).await?;
        let stale = self.clock.now_ms() - look.at_ms > STALE_MS;
        let config = &self.settings.alerts;
        let with_data = changes.into_iter().map(|it| {
            // Receivers know an alert by what it was when it began.
            let kind = outbox.entity_kind(&it.dedup_key);
            let kind = kind
                .as_deref()
                .unwrap_or_else(|| watch.kind_of(&answer, &it.entity));
            let data = data::of(&it, kind, watch, &answer, &evidence, config, stale);
            (it, data)
        });
        Ok(with_data.collect())
    }
}

fn time(ms: i64) -> anyhow::Result<DateTime<Utc>> {
    DateTime::from_timestamp_millis(ms).context("the mark is out of range")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use retrytoll_jobs::Catalog;

    use super::*;
    use crate::config::usable::Alerts;

    /// Three attempts in the last minute: no 50 retries, and well 50 percent of something.
    #[test]
    fn only_counts_are_bounded_by_the_attempts_there_are() {
        let catalog = Catalog::embedded();
        let storm = catalog.jobs().find(|job| job.name == "retry_storm");
        let at_ms = 1_000 * MINUTE_MS;
        let busy = Busy(BTreeMap::from([(999, 3)]));
        for (threshold, expected) in [
            ("retries_min", false),
            ("retries_per_minute_min", false),
            ("retries_pct_min", true),
            ("retries_over", true),
        ] {
            let mut job = storm.unwrap().as_ref().clone();
            let rule = job.meta.alert.as_mut().unwrap();
            rule.thresholds = BTreeMap::from([(threshold.to_owned(), "50".to_owned())]);
            let watch = Watch::new(&Arc::new(job), &Alerts::default());
            let watch = watch.unwrap().unwrap();
            assert_eq!(busy.may_begin(&watch, at_ms), expected, "{threshold}");
            // Three windows later nothing can begin.
            assert!(
                !busy.may_begin(&watch, at_ms + 4 * MINUTE_MS),
                "{threshold}"
            );
        }
    }
}
