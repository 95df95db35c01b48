//! events of a service → which of the fields that figures need they have.

use super::finding::{Counted, Finding};
use super::row::Row;
use super::{Coverage, Tally, Wanted};

/// Under this a figure that needs the field is no figure any more: MONEY's bound of usage
/// coverage, and taken for the other fields, too.
const COVERED_PCT_MIN: u64 = 80;

/// Of one service, by place in [`Wanted::ALL`].
#[derive(Debug, Default)]
pub(super) struct Covered {
    asked: [u64; Wanted::COUNT],
    missing: [Tally; Wanted::COUNT],
}

impl Covered {
    pub fn see(&mut self, row: &Row<'_>) {
        for (place, wanted) in Wanted::ALL.into_iter().enumerate() {
            if let Some(is_there) = wanted.is_there(row) {
                self.asked[place] += 1;
                if !is_there {
                    self.missing[place].add(|| row.example());
                }
            }
        }
    }

    /// Of a service that has no time at all, which is told elsewhere, `ts` is not missed again.
    pub fn findings(&self, service: &str, has_time: bool) -> impl Iterator<Item = Finding> {
        let each = Wanted::ALL.into_iter().enumerate();
        each.filter_map(move |(place, wanted)| {
            let (asked, missing) = (self.asked[place], &self.missing[place]);
            let has = asked - missing.count;
            // Of none asked, none is missing.
            let is_covered = has * 100 >= asked * COVERED_PCT_MIN;
            let is_told = wanted == Wanted::Ts && !has_time;
            let text = || {
                let pct = has * 100 / asked;
                let (name, of) = (wanted.name(), wanted.asked_of());
                format!("{name} on {pct} % of {of}: {}", wanted.suffers())
            };
            let mend = || wanted.mend().to_owned();
            (!is_covered && !is_told).then(|| {
                Finding::of(service, wanted.severity(), "coverage", text(), mend()).counted(
                    missing,
                    asked,
                    Counted::Attempts,
                )
            })
        })
    }

    pub fn row(&self, service: &str, attempts: u64) -> Coverage {
        let mut fields = [(0, 0); Wanted::COUNT];
        for (place, field) in fields.iter_mut().enumerate() {
            let asked = self.asked[place];
            *field = (asked - self.missing[place].count, asked);
        }
        Coverage {
            service: service.to_owned(),
            attempts,
            fields,
        }
    }
}
