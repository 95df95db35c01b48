//! The first events of `run` → one log line for each finding, once.

use retrytoll_core::batch::{EventBatch, SourceId};
use retrytoll_core::decode::{Bad, DecodeCounts};
use retrytoll_core::derive::{Derived, Tables};
use retrytoll_core::dictionary::Dictionary;
use retrytoll_core::lint::{Finding, Lint, Report, Severity};

use super::{Origin, of_letter, place};
use crate::dead_letter::DeadLetter;

/// So many records are looked at, to the end of their batch.
const RECORDS_MAX: u64 = 10_000;
/// After so long it is told what came until then, ms.
const WAIT_MS_MAX: i64 = 30_000;
/// Findings that are logged; `retrytoll lint` tells them all.
const FINDINGS_MAX: usize = 20;

/// Looks along while the pipeline reads. It is gone once it has told.
#[derive(Debug)]
pub struct FirstLook {
    lint: Lint,
    until_ms: i64,
}

impl FirstLook {
    #[must_use]
    pub fn new(tables: &Tables, now_ms: i64) -> Self {
        let attempts_max = usize::try_from(RECORDS_MAX).unwrap_or(usize::MAX);
        Self {
            lint: Lint::new(tables.settings.clone(), attempts_max),
            until_ms: now_ms.saturating_add(WAIT_MS_MAX),
        }
    }

    pub fn batch(&mut self, batch: &EventBatch, words: &Dictionary, derived: &Derived) {
        if self.lint.seen() < RECORDS_MAX {
            self.lint.batch(batch, words, derived);
        }
    }

    pub fn bad(&mut self, bad: Bad, source: &SourceId, letter: &DeadLetter) {
        if self.lint.seen() < RECORDS_MAX {
            let (service, example) = of_letter(source, letter);
            self.lint.bad(bad, service, example);
        }
    }

    /// Enough was seen, or enough time has passed.
    #[must_use]
    pub fn is_due(&self, now_ms: i64) -> bool {
        let seen = self.lint.seen();
        seen >= RECORDS_MAX || seen > 0 && now_ms >= self.until_ms
    }

    /// Logs what was found; `counts` are those of the decoder.
    pub fn tell(self, counts: &DecodeCounts) {
        let report = self.lint.finish(counts);
        if report.events + report.bad > 0 {
            log(&report);
        }
    }
}

fn log(report: &Report) {
    let [errors, warnings, info] = Severity::ALL.map(|it| report.count(it));
    tracing::info!(
        events = report.events,
        dead_letters = report.bad,
        errors,
        warnings,
        info,
        "first look at the events; `retrytoll lint` tells more"
    );
    let grave = |it: &&Finding| it.severity != Severity::Info;
    for found in report.findings.iter().filter(grave).take(FINDINGS_MAX) {
        let example = found.examples.first();
        tracing::warn!(
            severity = found.severity.name(),
            rule = found.rule,
            service = found.service.as_deref().unwrap_or_default(),
            what = found.what,
            count = found.count,
            of = found.of,
            counted = found.counted.name(),
            request_id = example.map_or("", |it| it.request_id.as_str()),
            place = example.map(|it| place(it, Origin::Topic)),
            mend = found.mend,
            "finding"
        );
    }
}

#[cfg(test)]
mod tests {
    use retrytoll_core::decode::Reason;

    use super::*;
    use crate::pipeline::SourceRecord;

    #[test]
    fn it_is_due_after_a_time_or_enough_records() {
        let source = SourceId("cluster/topic".into());
        let bad = Bad {
            reason: Reason::InvalidJson,
            field: None,
            at: None,
        };
        let see = |look: &mut FirstLook, offset: i64| {
            let record = SourceRecord {
                partition: 0,
                offset,
                timestamp_ms: None,
                payload: Some(b"{"),
            };
            look.bad(bad, &source, &DeadLetter::new(&source, &record, bad, false));
        };
        let mut look = FirstLook::new(&Tables::built_in(), 1_000);
        assert!(!look.is_due(1_000_000), "nothing has come");
        see(&mut look, 0);
        assert_eq!([30_999, 31_000].map(|now| look.is_due(now)), [false, true]);
        for offset in 1..9_999 {
            see(&mut look, offset);
        }
        assert!(!look.is_due(1_000));
        see(&mut look, 9_999);
        assert!(look.is_due(1_000));
        // No more are counted than are told.
        see(&mut look, 10_000);
        assert_eq!(look.lint.seen(), 10_000);
    }
}
