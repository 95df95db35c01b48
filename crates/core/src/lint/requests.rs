//! events → whole requests → what their operations show, by the definition of operations.
//!
//! Past the cap one of every two requests is let go, by a bit of its hash, and so on: those that
//! stay are whole, however many events come.

mod kept;
mod look;

use super::row::Row;
use crate::batch::SourceId;
use crate::derive::SourceSettings;
use crate::dictionary::HashedMap;
use crate::field::Word;
use crate::operation::ATTEMPTS_MAX;
use kept::Kept;
use look::Look;
pub(super) use look::Operations;

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
