//! events of a service, and what its operations show → its findings.

mod operations;

use std::collections::HashMap;

use super::coverage::Covered;
use super::finding::{Counted, Finding, Severity};
use super::requests::Operations;
use super::row::Row;
use super::signs::Signs;
use super::units::Units;
use super::{Coverage, Tally};
use crate::derive::SourceSettings;
use crate::field::{Int, Word};

/// Services that are told apart; what comes after is one.
const SERVICES_MAX: usize = 200;
/// In place of what is not told apart any more.
const OTHERS: &str = "(others)";
/// From so many on, what all of them show is no accident.
const MANY: u64 = 20;

/// The services by name.
#[derive(Debug, Default)]
pub(super) struct Services {
    all: Vec<Service>,
    by_name: HashMap<String, usize>,
}

impl Services {
    /// The place of a service, in the order in which they came.
    pub fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.by_name.get(name) {
            return *place;
        }
        let name = match self.all.len() < SERVICES_MAX {
            true => name,
            false => OTHERS,
        };
        let all = &mut self.all;
        *self.by_name.entry(name.to_owned()).or_insert_with(|| {
            all.push(Service {
                name: name.to_owned(),
                ..Service::default()
            });
            all.len() - 1
        })
    }

    pub fn at(&mut self, place: usize) -> &mut Service {
        &mut self.all[place]
    }

    pub fn all(&self) -> &[Service] {
        &self.all
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }
}

/// What the events of one service show.
#[derive(Debug, Default)]
pub(super) struct Service {
    name: String,
    attempts: Tally,
    successes: u64,
    /// Attempts whose money is counted.
    counted: u64,
    /// Attempts that say of which layer they are.
    layered: u64,
    smallest: Option<i64>,
    signs: Signs,
    covered: Covered,
    units: Units,
}

impl Service {
    pub fn see(&mut self, row: &Row<'_>) {
        self.attempts.add(|| row.example());
        self.successes += u64::from(row.word(Word::Decision) == "success");
        self.counted += u64::from(row.derived.counted[row.number]);
        self.layered += u64::from(!row.word(Word::Layer).is_empty());
        if let Some(number) = row.int(Int::Attempt) {
            self.smallest = Some(self.smallest.map_or(number, |it| it.min(number)));
        }
        self.signs.see(row);
        self.covered.see(row);
        self.units.see(row);
    }

    pub fn covered(&self) -> Coverage {
        self.covered.row(&self.name, self.attempts.count)
    }

    pub fn findings(&self, settings: &SourceSettings, operations: &Operations) -> Vec<Finding> {
        let name = &self.name;
        let base = settings.attempt_base_by_service.get(name);
        let base = *base.unwrap_or(&settings.attempt_base);
        let mut found = Vec::new();
        found.extend(self.numbers(base));
        found.extend(self.first_attempts(base, operations));
        found.extend(self.successes());
        found.extend(self.layer(settings));
        found.extend(self.signs.findings(name, self.attempts.count));
        let has_time = !self.signs.has_no_time();
        found.extend(self.covered.findings(name, has_time));
        found.extend(self.units.findings(name));
        found.extend(operations::findings(name, operations));
        found
    }

    /// The service counts from another number than is configured.
    fn numbers(&self, base: i64) -> Option<Finding> {
        let smallest = self.smallest.filter(|smallest| *smallest != base)?;
        let effect = match smallest > base {
            true => "every first attempt is taken for a retry",
            false => "the first retry of an operation is not taken for one",
        };
        let what =
            format!("the smallest attempt number is {smallest}, attempt_base is {base}: {effect}");
        let mend = match (smallest, self.name.as_str()) {
            (2.., _) => "log every attempt, from the first on".to_owned(),
            (_, "" | OTHERS) => format!("set source.attempt_base = {smallest}"),
            (_, name) => format!(
                "set attempt_base = {smallest} under [source.services.{}], where its callers \
                 count from {smallest}",
                key(name)
            ),
        };
        let all = &self.attempts;
        let found = Finding::of(&self.name, weight(all.count), "attempt_base", what, mend);
        Some(found.counted(all, all.count, Counted::Attempts))
    }

    /// Its figures are withheld: most operations lack their first attempt.
    fn first_attempts(&self, base: i64, operations: &Operations) -> Option<Finding> {
        let (without, all) = (&operations.without_base, operations.operations);
        if self.smallest != Some(base) || without.count * 2 <= all {
            return None;
        }
        let what = format!(
            "most operations lack the attempt with the number {base}, so figures are withheld"
        );
        let mend = "log every attempt, the first of each operation too, with numbers from \
                    attempt_base up";
        let found = Finding::of(&self.name, weight(all), "no_first_attempt", what, mend);
        Some(found.counted(without, all, Counted::Operations))
    }

    fn successes(&self) -> Option<Finding> {
        let all = &self.attempts;
        let what = "no success is logged, so the retry-cost share is withheld";
        let mend = "log every attempt when it ends, successes too, with their usage";
        let found = Finding::of(&self.name, weight(all.count), "no_success", what, mend);
        let found = found.counted(all, all.count, Counted::Attempts);
        (self.successes == 0).then_some(found)
    }

    /// The layer that counts is none of its own: meant so where another service logs that layer,
    /// never where it logs none.
    fn layer(&self, settings: &SourceSettings) -> Option<Finding> {
        let layer = settings
            .count_layer
            .as_ref()
            .filter(|_| self.counted == 0)?;
        let all = &self.attempts;
        let what = format!("no attempt is of the layer {layer}, so no money of it is counted");
        let mend = "log layer (app, sdk or gateway), or set source.count_layer to one that it logs";
        let severity = match self.layered {
            0 => Severity::Error,
            _ => Severity::Warning,
        };
        let found = Finding::of(&self.name, severity, "nothing_counted", what, mend);
        Some(found.counted(all, all.count, Counted::Attempts))
    }
}

/// A few may be chance, or the head of a topic that is gone.
fn weight(count: u64) -> Severity {
    match count >= MANY {
        true => Severity::Error,
        false => Severity::Warning,
    }
}

/// A name as a key of TOML.
fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match name.chars().all(is_bare) {
        true => name.to_owned(),
        false => format!("{name:?}"),
    }
}
