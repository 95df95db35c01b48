//! events → whole requests → what their operations show, by the definition of operations.
//!
//! Past the cap one of every two requests is let go, by a bit of its hash, and so on: those that
//! stay are whole, however many events come.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64;

use super::row::Row;
use super::{Example, Tally};
use crate::batch::SourceId;
use crate::class::ErrorClass;
use crate::derive::SourceSettings;
use crate::dictionary::HashedMap;
use crate::field::{Bool, Hash, Int, Text, Word};
use crate::operation::{ATTEMPTS_MAX, Attempt, Decision, Place, Usage, place};

/// A longer id is kept as its hash: it is only compared.
const ID_BYTES_MAX: usize = 64;
/// Layers that are told apart; what comes after is one.
const LAYERS_MAX: usize = 64;
/// One of so many requests is the least that is kept.
const ONE_IN_MAX: u64 = 1 << 40;

/// Requests with their attempts.
#[derive(Debug)]
pub(super) struct Requests {
    by_hash: HashedMap<Request>,
    attempts: usize,
    attempts_max: usize,
    one_in: u64,
    sources: Vec<SourceId>,
    layers: Vec<String>,
}

#[derive(Debug)]
struct Request {
    service: usize,
    id: String,
    attempts: Vec<Kept>,
}

/// What of an attempt decides where it belongs, without borrowing.
#[derive(Debug)]
struct Kept {
    identity: u128,
    source: usize,
    partition: i32,
    index: i32,
    offset: i64,
    started_us: Option<i64>,
    ended_us: Option<i64>,
    number: Option<i64>,
    above_base: Option<bool>,
    layer: usize,
    prompt: Option<[u8; 32]>,
    last_line: bool,
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

/// What the operations of one service show.
#[derive(Debug, Default)]
pub(super) struct Operations {
    pub requests: u64,
    pub operations: u64,
    /// Operations of more than one attempt.
    pub retried: u64,
    /// Attempts that were placed.
    pub attempts: u64,
    /// Operations without an attempt of the base number.
    pub without_base: Tally,
    /// Requests of more than one operation.
    pub several: Tally,
    /// Operations that lie on more than one partition.
    pub torn: Tally,
    /// Requests of which two layers tell the same attempt number.
    pub two_layers: Tally,
    /// Successes that another one repeats, within one layer.
    pub double_logged: Tally,
    /// Lines that a later line of the same attempt replaced, and that did not say so.
    pub growing: Tally,
}

impl Requests {
    pub fn new(attempts_max: usize) -> Self {
        Self {
            by_hash: HashedMap::default(),
            attempts: 0,
            // The largest request must find room.
            attempts_max: attempts_max.max(ATTEMPTS_MAX),
            one_in: 1,
            sources: Vec::new(),
            layers: Vec::new(),
        }
    }

    /// The number of a source.
    pub fn source(&mut self, source: &SourceId) -> usize {
        let known = self.sources.iter().position(|it| it == source);
        known.unwrap_or_else(|| {
            self.sources.push(source.clone());
            self.sources.len() - 1
        })
    }

    pub fn len(&self) -> u64 {
        self.by_hash.len() as u64
    }

    pub fn one_in(&self) -> u64 {
        self.one_in
    }

    pub fn see(&mut self, row: &Row<'_>, service: usize, source: usize) {
        let hash = row.batch.requests[row.number];
        if !is_kept(hash, self.one_in) {
            return;
        }
        let layer = self.layer(row.word(Word::Layer));
        let request = self.by_hash.entry(hash).or_insert_with(|| Request {
            service,
            id: row.example().request_id,
            attempts: Vec::new(),
        });
        let kept = Kept::of(row, source, layer);
        // An event that comes again on its partition is no row.
        let is_known = |it: &Kept| {
            let place = (it.source, it.partition);
            it.identity == kept.identity && place == (kept.source, kept.partition)
        };
        if request.attempts.len() < ATTEMPTS_MAX && !request.attempts.iter().any(is_known) {
            request.attempts.push(kept);
            self.attempts += 1;
        }
        while self.attempts > self.attempts_max && self.one_in < ONE_IN_MAX {
            self.thin();
        }
    }

    fn thin(&mut self) {
        self.one_in *= 2;
        self.by_hash.retain(|hash, _| is_kept(*hash, self.one_in));
        let left = self.by_hash.values().map(|it| it.attempts.len());
        self.attempts = left.sum();
    }

    fn layer(&mut self, layer: &str) -> usize {
        if let Some(known) = self.layers.iter().position(|it| it == layer) {
            return known;
        }
        if self.layers.len() < LAYERS_MAX {
            self.layers.push(layer.to_owned());
        }
        self.layers.len() - 1
    }

    /// What the operations show, by service.
    pub fn operations(self, services: usize, settings: &SourceSettings) -> Vec<Operations> {
        let mut found: Vec<Operations> = Vec::new();
        found.resize_with(services, Operations::default);
        let Self {
            by_hash,
            sources,
            layers,
            ..
        } = self;
        let mut requests: Vec<Request> = by_hash.into_values().collect();
        // The same examples each time.
        let first = |it: &Request| {
            let kept = it.attempts.first();
            kept.map(|it| (it.source, it.partition, it.offset, it.index))
        };
        requests.sort_by_key(first);
        let one_layer = settings.count_layer.is_some();
        for request in requests {
            let look = Look::new(&request, &sources, &layers);
            if let Some(operations) = found.get_mut(request.service) {
                look.tell(one_layer, operations);
            }
        }
        found
    }
}

/// The low bits are the map's.
fn is_kept(hash: u128, one_in: u64) -> bool {
    (hash >> 64) as u64 & (one_in - 1) == 0
}

impl Kept {
    fn of(row: &Row<'_>, source: usize, layer: usize) -> Self {
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

    fn attempt<'a>(&'a self, sources: &'a [SourceId], layers: &'a [String]) -> Attempt<'a> {
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

/// One request, its attempts placed.
struct Look<'a> {
    request: &'a Request,
    sources: &'a [SourceId],
    places: Vec<Place>,
    /// Rows by operation, without those that a later line replaced.
    operations: BTreeMap<i64, Vec<usize>>,
}

impl<'a> Look<'a> {
    fn new(request: &'a Request, sources: &'a [SourceId], layers: &'a [String]) -> Self {
        let attempt = |it: &'a Kept| it.attempt(sources, layers);
        let attempts: Vec<Attempt<'_>> = request.attempts.iter().map(attempt).collect();
        let places = place(&attempts, None);
        let mut operations: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for (row, place) in places.iter().enumerate() {
            if !place.superseded {
                operations.entry(place.op_seq).or_default().push(row);
            }
        }
        Self {
            request,
            sources,
            places,
            operations,
        }
    }

    fn example(&self, row: usize) -> Example {
        let kept = &self.request.attempts[row];
        let source = self.sources[kept.source].clone();
        Example::new(&self.request.id, source, kept.partition, kept.offset)
    }

    fn tell(&self, one_layer: bool, out: &mut Operations) {
        out.requests += 1;
        out.attempts += self.places.len() as u64;
        out.operations += self.operations.len() as u64;
        let mut firsts = self.operations.values().filter_map(|rows| rows.first());
        if let (Some(_), Some(second)) = (firsts.next(), firsts.next()) {
            out.several.add(|| self.example(*second));
        }
        for rows in self.operations.values() {
            self.tell_operation(rows, out);
        }
        let two_layers = (!one_layer).then(|| self.two_layers()).flatten();
        if let Some(rows) = two_layers {
            out.two_layers.add_both(rows.map(|row| self.example(row)));
        }
        for (row, place) in self.places.iter().enumerate() {
            if place.superseded && self.request.attempts[row].last_line {
                out.growing.add(|| self.example(row));
            }
            if place.double_logged && two_layers.is_none() {
                out.double_logged.add(|| self.example(row));
            }
        }
    }

    fn tell_operation(&self, rows: &[usize], out: &mut Operations) {
        let kept = |row: &usize| &self.request.attempts[*row];
        out.retried += u64::from(rows.len() > 1);
        if !rows.iter().any(|row| kept(row).above_base == Some(false)) {
            out.without_base.add(|| self.example(rows[0]));
        }
        let first = kept(&rows[0]);
        let is_apart = |it: &Kept| it.source == first.source && it.partition != first.partition;
        if let Some(apart) = rows.iter().find(|row| is_apart(kept(row))) {
            out.torn
                .add_both([rows[0], *apart].map(|row| self.example(row)));
        }
    }

    /// Two lines of one attempt number, from two layers.
    fn two_layers(&self) -> Option<[usize; 2]> {
        let mut layer_of: BTreeMap<i64, usize> = BTreeMap::new();
        for (row, kept) in self.request.attempts.iter().enumerate() {
            let Some(number) = kept.number else { continue };
            let first = *layer_of.entry(number).or_insert(row);
            if self.request.attempts[first].layer != kept.layer {
                return Some([first, row]);
            }
        }
        None
    }
}
