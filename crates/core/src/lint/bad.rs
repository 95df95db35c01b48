//! records that are no events, by kind → a finding for each.

use super::finding::{Counted, Finding, Severity};
use super::{Example, Tally};
use crate::decode::{Bad, Reason};
use crate::field::Field;

/// Kinds of bad records that are told apart; what comes after is put together.
const KINDS_MAX: usize = 100;

/// Bad records by kind.
#[derive(Debug, Default)]
pub(super) struct BadRecords(Vec<BadKind>);

/// Bad records of one reason, field and service.
#[derive(Debug)]
struct BadKind {
    reason: Reason,
    field: Option<Field>,
    service: String,
    tally: Tally,
}

impl BadRecords {
    pub fn see(&mut self, bad: Bad, service: &str, example: Example) {
        let is_full = self.0.len() >= KINDS_MAX;
        let service = if is_full { "" } else { service };
        let is = |it: &BadKind| {
            (it.reason, it.field) == (bad.reason, bad.field) && it.service == service
        };
        let place = self.0.iter().position(is).unwrap_or_else(|| {
            self.0.push(BadKind {
                reason: bad.reason,
                field: bad.field,
                service: service.to_owned(),
                tally: Tally::default(),
            });
            self.0.len() - 1
        });
        self.0[place].tally.add(|| example);
    }

    pub fn seen(&self) -> u64 {
        self.0.iter().map(|kind| kind.tally.count).sum()
    }

    pub fn findings(&self) -> impl Iterator<Item = Finding> {
        self.0.iter().map(BadKind::finding)
    }
}

impl BadKind {
    fn finding(&self) -> Finding {
        let field = self.field.map(|field| field.name());
        let what = match (self.reason, field) {
            (Reason::MissingField, Some(field)) => {
                format!("{field} is required and missing, so the record is a dead letter")
            }
            (Reason::InvalidField, Some(field)) => {
                format!("{field} is required and has an impossible value: a dead letter")
            }
            (reason, _) => format!("no event ({}): a dead letter", reason.name()),
        };
        let mend = match self.reason {
            Reason::MissingField | Reason::InvalidField => format!(
                "log {} on every attempt, as schemas/retry-decision.v1.json has it",
                field.unwrap_or("every required field")
            ),
            Reason::TooLarge => "log no prompts and no answers: an event is about 500 bytes".into(),
            Reason::TrailingData => "log one event a record, and one a line in files".into(),
            Reason::DuplicateKey => "write each member of the object once".into(),
            _ => "write one JSON object in UTF-8 a record".into(),
        };
        let rule = "dead_letter";
        let mut found = Finding::of(&self.service, Severity::Error, rule, what, mend);
        found.count = self.tally.count;
        found.counted = Counted::Records;
        found.examples.clone_from(&self.tally.examples);
        found
    }
}

/// Members that the event has no field for: a name may be written wrongly.
pub(super) fn unknown_members(count: u64) -> Option<Finding> {
    let what = "members have names that the event does not know, and are ignored";
    let mend = "rename those that mean a field of schemas/retry-decision.v1.json, leave the rest";
    (count > 0).then(|| Finding {
        count,
        counted: Counted::Members,
        ..Finding::of("", Severity::Info, "unknown_members", what, mend)
    })
}
