//! records of files or of a topic → batches → what is wrong with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use retrytoll_core::batch::{EventBatch, SourceId};
use retrytoll_core::decode::{Decoder, Record};
use retrytoll_core::derive::{Tables, derive};
use retrytoll_core::lint::{Lint, Report};

use super::of_letter;
use crate::dead_letter::DeadLetter;
use crate::pipeline::SourceRecord;

/// Attempts kept to see operations: those of the default `--events`, about 30 MB.
const ATTEMPTS_MAX: usize = 100_000;

/// Records on their way to a report; one source after the other.
pub struct Events {
    source: SourceId,
    decoder: Decoder,
    tables: Arc<Tables>,
    batches: BTreeMap<i32, EventBatch>,
    lint: Lint,
    nulls: u64,
}

/// What was found, and what is beside it.
pub struct Looked {
    pub report: Report,
    /// Records without content, and blank lines.
    pub nulls: u64,
}

impl Events {
    #[must_use]
    pub fn new(tables: Arc<Tables>) -> Self {
        Self {
            source: SourceId("".into()),
            decoder: Decoder::new(tables.settings.decisions.clone()),
            lint: Lint::new(tables.settings.clone(), ATTEMPTS_MAX),
            tables,
            batches: BTreeMap::new(),
            nulls: 0,
        }
    }

    /// The records that follow are of this source.
    pub fn begin(&mut self, source: &str) {
        self.close();
        self.source = SourceId(source.into());
    }

    pub fn record(&mut self, record: &SourceRecord<'_>) {
        let Some(payload) = record.payload else {
            self.nulls += 1;
            return;
        };
        let event = Record {
            offset: record.offset,
            index: 0,
            timestamp_ms: record.timestamp_ms,
            payload,
        };
        let source = &self.source;
        let batch = self
            .batches
            .entry(record.partition)
            .or_insert_with(|| EventBatch::new(source.clone(), record.partition));
        match self.decoder.decode(&event, batch) {
            Ok(()) if batch.is_full() => self.close(),
            Ok(()) => {}
            Err(bad) => {
                let letter = DeadLetter::new(&self.source, record, bad, false);
                let (service, example) = of_letter(&self.source, &letter);
                self.lint.bad(bad, service, example);
            }
        }
    }

    /// Hands every batch on.
    fn close(&mut self) {
        for batch in std::mem::take(&mut self.batches).into_values() {
            let derived = derive(&batch, &self.decoder.dictionary, &self.tables);
            self.lint.batch(&batch, &self.decoder.dictionary, &derived);
        }
        self.decoder.forget_words();
    }

    /// What was found.
    #[must_use]
    pub fn finish(mut self) -> Looked {
        self.close();
        Looked {
            report: self.lint.finish(&self.decoder.counts),
            nulls: self.nulls,
        }
    }
}
