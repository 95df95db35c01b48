//! What is kept of an attempt ↔ the attempt as operations are defined over it.

use xxhash_rust::xxh3::xxh3_64;

use crate::batch::SourceId;
use crate::class::ErrorClass;
use crate::field::{Bool, Hash, Int, Text, Word};
use crate::lint::row::Row;
use crate::operation::{Attempt, Billed, Decision, Usage};

/// A longer id is kept as its hash: it is only compared.
const ID_BYTES_MAX: usize = 64;

/// What of an attempt decides where it belongs, without borrowing.
#[derive(Debug)]
pub struct Kept {
    pub identity: u128,
    pub source: usize,
    pub partition: i32,
    pub index: i32,
    pub offset: i64,
    started_us: Option<i64>,
    ended_us: Option<i64>,
    pub number: Option<i64>,
    pub above_base: Option<bool>,
    pub layer: usize,
    prompt: Option<[u8; 32]>,
    pub last_line: bool,
    counted: bool,
    decision: Decision,
    next_retry_us: i64,
    timeout_us: Option<i64>,
    class: ErrorClass,
    cache_hit: bool,
    usage: Option<Usage>,
    output_tokens: Option<i64>,
    server_id: Option<Box<str>>,
}

impl Kept {
    pub fn of(row: &Row<'_>, source: usize, layer: usize) -> Self {
        let us = |int| row.int(int).map(|ms: i64| ms.saturating_mul(1_000));
        let truth = |bool| row.batch.bool(bool, row.number);
        let prompts = &row.batch.hashes[Hash::Prompt as usize];
        let kind = prompts.kinds.get(row.number).copied().unwrap_or(0);
        let output_tokens = row.int(Int::OutputTokens);
        let usage = row.has_usage().then(|| Usage {
            input: row.int(Int::InputTokens),
            cached: row.int(Int::CachedInputTokens),
            output: output_tokens,
        });
        let server_id = row.text(Text::ServerRequestId);
        Self {
            identity: row.batch.identities[row.number],
            source,
            partition: row.batch.partition,
            index: row.batch.indexes[row.number],
            offset: row.batch.offsets[row.number],
            started_us: row.started_us(),
            ended_us: row.ended_us(),
            number: row.int(Int::Attempt),
            above_base: row.derived.is_retry.get(row.number),
            layer,
            prompt: (kind != 0).then(|| prompts.values[row.number]),
            last_line: truth(Bool::Final) != Some(false),
            counted: row.derived.counted[row.number],
            decision: Decision::of_word(row.word(Word::Decision)).unwrap_or(Decision::GoesOn),
            next_retry_us: us(Int::NextRetryMs).unwrap_or(0),
            timeout_us: us(Int::TimeoutMs),
            class: row.class(),
            cache_hit: row.is_cached(),
            usage,
            output_tokens,
            server_id: (!server_id.is_empty()).then(|| short(server_id)),
        }
    }

    pub fn attempt<'a>(&'a self, sources: &'a [SourceId], layers: &'a [String]) -> Attempt<'a> {
        Attempt {
            lineage: (
                &sources[self.source].0,
                self.partition,
                self.offset,
                self.index,
            ),
            started_us: self.started_us,
            ended_us: self.ended_us,
            number: self.number,
            above_base: self.above_base,
            layer: layers[self.layer].as_bytes(),
            prompt: self.prompt.as_ref().map(<[u8; 32]>::as_slice),
            last_line: self.last_line,
            counted: self.counted,
            decision: self.decision,
            next_retry_us: self.next_retry_us,
            timeout_us: self.timeout_us,
            may_have_answer: matches!(self.class, ErrorClass::Read | ErrorClass::Stream),
            was_cancelled: self.class == ErrorClass::Cancelled,
            cache_hit: self.cache_hit,
            // Lint asks where attempts belong, not what they cost.
            billed: Billed::No,
            usage: self.usage,
            output_tokens: self.output_tokens,
            server_id: self.server_id.as_deref(),
        }
    }
}

fn short(id: &str) -> Box<str> {
    match id.len() {
        ..=ID_BYTES_MAX => id.into(),
        _ => format!("{:016x}", xxh3_64(id.as_bytes())).into(),
    }
}
