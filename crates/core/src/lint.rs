//! batches, bad records → [`Lint`] → [`Report`]: what is wrong with the events, each with its mend.
//!
//! A *sign* is what one event shows by itself; a *vote* is what it says of the unit of a time; a
//! *wanted* field is one that a figure needs; a *request* is kept whole, to see its operations.
//! A *finding* is one of these for one service, with its *mend*: one sentence that says what to do.
//! Memory is bounded: few services, few examples, and, past a cap, one of every so many requests.

mod bad;
mod coverage;
mod finding;
mod requests;
mod row;
mod service;
mod signs;
mod units;
mod wanted;

use crate::batch::{EventBatch, SourceId};
use crate::decode::{Bad, DecodeCounts};
use crate::derive::{Derived, SourceSettings};
use crate::dictionary::Dictionary;

use bad::BadRecords;
pub use finding::{Counted, Finding, Severity};
use requests::Requests;
use row::Row;
use service::Services;
pub use wanted::Wanted;

/// Examples that a finding names.
pub const EXAMPLES_MAX: usize = 3;
/// Bytes of a `request_id` that an example shows; more of it is cut, with an ellipsis.
const EXAMPLE_BYTES_MAX: usize = 256;

/// One event that a finding is about, and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Empty where it is not known.
    pub request_id: String,
    pub source: SourceId,
    pub partition: i32,
    pub offset: i64,
}

/// How often something was seen, and the first few times.
#[derive(Clone, Debug, Default)]
struct Tally {
    count: u64,
    examples: Vec<Example>,
}

impl Tally {
    fn add(&mut self, example: impl FnOnce() -> Example) {
        self.count += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(example());
        }
    }

    /// One more, which two events show together.
    fn add_both(&mut self, examples: [Example; 2]) {
        self.count += 1;
        if self.examples.len() + 2 <= EXAMPLES_MAX {
            self.examples.extend(examples);
        }
    }
}

impl Example {
    /// An example of a request; a very long id is cut.
    #[must_use]
    pub fn new(request_id: &str, source: SourceId, partition: i32, offset: i64) -> Self {
        let mut id = request_id.to_owned();
        if id.len() > EXAMPLE_BYTES_MAX {
            id.truncate(id.floor_char_boundary(EXAMPLE_BYTES_MAX));
            id.push('…');
        }
        Self {
            request_id: id,
            source,
            partition,
            offset,
        }
    }
}

/// Gathers what events show, batch by batch.
#[derive(Debug)]
pub struct Lint {
    settings: SourceSettings,
    services: Services,
    requests: Requests,
    events: u64,
    bad: BadRecords,
}

/// What was looked at, and what was found.
#[derive(Clone, Debug)]
pub struct Report {
    pub events: u64,
    /// Records that are no events.
    pub bad: u64,
    /// Requests whose operations were looked at.
    pub requests: u64,
    /// Of so many requests one was kept, by its hash, to see its operations; 1 is all.
    pub one_request_in: u64,
    /// The gravest first, then what is seen most.
    pub findings: Vec<Finding>,
    /// A row a service, in the order of their names.
    pub coverage: Vec<Coverage>,
}

/// Which fields the attempts of one service have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Empty for events without a service.
    pub service: String,
    pub attempts: u64,
    /// By place in [`Wanted::ALL`]: attempts that have it, of those that should.
    pub fields: [(u64, u64); Wanted::COUNT],
}

impl Lint {
    /// Nothing seen yet. `settings` are those by which the batches were derived; `attempts_max` is
    /// how many attempts are kept to see the operations of their requests (about 300 bytes each).
    #[must_use]
    pub fn new(settings: SourceSettings, attempts_max: usize) -> Self {
        Self {
            settings,
            services: Services::default(),
            requests: Requests::new(attempts_max),
            events: 0,
            bad: BadRecords::default(),
        }
    }

    /// Takes a batch in, with its words and what was derived of it.
    pub fn batch(&mut self, batch: &EventBatch, words: &Dictionary, derived: &Derived) {
        let source = self.requests.source(&batch.source);
        for number in 0..batch.len() {
            let row = Row {
                batch,
                words,
                derived,
                number,
            };
            self.events += 1;
            let service = self.services.place(row.service());
            self.services.at(service).see(&row);
            self.requests.see(&row, service, source);
        }
    }

    /// Takes in a record that is no event. `service` is empty where it can't be told.
    pub fn bad(&mut self, bad: Bad, service: &str, example: Example) {
        self.bad.see(bad, service, example);
    }

    /// Events and bad records taken in so far.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.events + self.bad.seen()
    }

    /// What was found. `counts` are those of the decoder that made the batches.
    #[must_use]
    pub fn finish(self, counts: &DecodeCounts) -> Report {
        let settings = &self.settings;
        let mut findings: Vec<Finding> = Vec::new();
        findings.extend(self.bad.findings());
        findings.extend(bad::unknown_members(counts.unknown_fields));
        let (bad, requests) = (self.bad.seen(), self.requests.len());
        let one_request_in = self.requests.one_in();
        let operations = self.requests.operations(self.services.len(), settings);
        for (service, operations) in self.services.all().iter().zip(operations) {
            findings.extend(service.findings(settings, &operations));
        }
        findings.sort_by(|one, other| one.order().cmp(&other.order()));
        let mut coverage: Vec<Coverage> =
            self.services.all().iter().map(|it| it.covered()).collect();
        coverage.sort_by(|one, other| one.service.cmp(&other.service));
        Report {
            events: self.events,
            bad,
            requests,
            one_request_in,
            findings,
            coverage,
        }
    }
}

impl Report {
    /// How many findings are as grave as this.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        let is = |it: &&Finding| it.severity == severity;
        self.findings.iter().filter(is).count()
    }

    /// Whether a finding is as grave as this, or graver.
    #[must_use]
    pub fn reaches(&self, severity: Severity) -> bool {
        self.findings.iter().any(|it| it.severity <= severity)
    }
}

#[cfg(test)]
mod tests;
