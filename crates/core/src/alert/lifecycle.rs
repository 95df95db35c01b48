//! Samples at a tick and the committed transitions → the next transitions.

use std::collections::{BTreeMap, BTreeSet};

use super::{EndsReason, HYSTERESIS_PCT, Rule, Sample, State, Transition, dedup_key};

/// What is known at an instant of event time.
#[derive(Clone, Copy, Debug)]
pub struct Tick<'a> {
    /// The instant, ms.
    pub at_ms: i64,
    /// Each entity's sample.
    pub samples: &'a BTreeMap<String, Sample>,
    /// Entities without a sample of which there are events in the window: nothing is left of what
    /// the rule looks at.
    pub idle: &'a BTreeSet<String>,
    /// Entities without a sample that were heard of within three windows.
    pub heard_of: &'a BTreeSet<String>,
}

/// Where every alert stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alerts {
    /// The last transition under each `dedup_key`.
    last: BTreeMap<String, Transition>,
    /// Since when the bounds hold of what does not fire yet, ms, by rule and entity. It is in no
    /// transition: after a restart the ticks begin `for` earlier.
    pending: BTreeMap<(String, String), i64>,
}

impl Alerts {
    /// Takes a committed transition in. Repetitions, and older ones after newer ones, do no harm.
    pub fn apply(&mut self, transition: Transition) {
        let newest = self
            .last
            .get(&transition.dedup_key)
            .map_or(0, |last| last.number);
        if transition.number > newest {
            self.pending
                .remove(&(transition.rule.clone(), transition.entity.clone()));
            self.last.insert(transition.dedup_key.clone(), transition);
        }
    }

    /// What fires.
    pub fn firing(&self) -> impl Iterator<Item = &Transition> {
        self.last
            .values()
            .filter(|last| last.state == State::Firing)
    }

    /// What changes at `tick` under `rule`, sorted by entity. Nothing has changed before it is
    /// applied, but for how long bounds hold.
    pub fn decide(&mut self, rule: &Rule, tick: &Tick<'_>) -> Vec<Transition> {
        let mut out = Vec::new();
        for (entity, sample) in tick.samples {
            let key = dedup_key(&rule.name, entity);
            match self.open(&key).cloned() {
                Some(open) => match rule.holds(sample, HYSTERESIS_PCT) {
                    Some(false) => out.push(ended(&open, EndsReason::Recovered, tick.at_ms)),
                    Some(true) => out.extend(changed(&open, rule, sample, tick.at_ms)),
                    None => {}
                },
                None => out.extend(self.begins(rule, tick.at_ms, entity, key, sample)),
            }
        }
        // Of what has no sample the bounds do not hold, and nobody waits for `for`.
        self.pending
            .retain(|(of, entity), _| *of != rule.name || tick.samples.contains_key(entity));
        let without = self
            .firing()
            .filter(|open| open.rule == rule.name && !tick.samples.contains_key(&open.entity));
        out.extend(without.filter_map(|open| {
            let reason = match tick.idle.contains(&open.entity) {
                true => EndsReason::Recovered,
                false if tick.heard_of.contains(&open.entity) => return None,
                false => EndsReason::NoData,
            };
            Some(ended(open, reason, tick.at_ms))
        }));
        out.sort_by(|a, b| a.entity.cmp(&b.entity));
        out
    }

    /// Ends what fires under a rule that is none of `rules`.
    pub fn end_removed(&self, rules: &[&str], at_ms: i64) -> Vec<Transition> {
        let removed = self
            .firing()
            .filter(|open| !rules.contains(&open.rule.as_str()));
        removed
            .map(|open| ended(open, EndsReason::RuleRemoved, at_ms))
            .collect()
    }

    fn open(&self, key: &str) -> Option<&Transition> {
        self.last
            .get(key)
            .filter(|last| last.state == State::Firing)
    }

    fn begins(
        &mut self,
        rule: &Rule,
        at_ms: i64,
        entity: &str,
        dedup_key: String,
        sample: &Sample,
    ) -> Option<Transition> {
        let place = (rule.name.clone(), entity.to_owned());
        match rule.holds(sample, 100) {
            // Withheld: it neither begins to hold nor stops.
            None => return None,
            Some(false) => {
                self.pending.remove(&place);
                return None;
            }
            Some(true) => {}
        }
        let starts_at_ms = *self.pending.entry(place).or_insert(at_ms);
        if at_ms - starts_at_ms < rule.for_ms {
            return None;
        }
        let number = self.last.get(&dedup_key).map_or(0, |last| last.number) + 1;
        Some(Transition {
            dedup_key,
            number,
            rule: rule.name.clone(),
            entity: entity.to_owned(),
            state: State::Firing,
            severity: rule.severity(sample, None),
            ends_reason: None,
            starts_at_ms,
            at_ms,
        })
    }
}

/// It fires on, more or less severely.
fn changed(open: &Transition, rule: &Rule, sample: &Sample, at_ms: i64) -> Option<Transition> {
    let severity = rule.severity(sample, Some(open.severity));
    (severity != open.severity).then(|| Transition {
        number: open.number + 1,
        severity,
        at_ms,
        ..open.clone()
    })
}

fn ended(open: &Transition, reason: EndsReason, at_ms: i64) -> Transition {
    Transition {
        number: open.number + 1,
        state: State::Resolved,
        ends_reason: Some(reason),
        at_ms,
        ..open.clone()
    }
}
