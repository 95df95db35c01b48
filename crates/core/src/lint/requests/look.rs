//! one request, its attempts placed → what its operations show.

use std::collections::BTreeMap;

use super::Request;
use super::kept::Kept;
use crate::batch::SourceId;
use crate::lint::{Example, Tally};
use crate::operation::{Attempt, Place, place};

/// What the operations of one service show.
#[derive(Debug, Default)]
pub struct Operations {
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

/// One request, its attempts placed.
pub struct Look<'a> {
    request: &'a Request,
    sources: &'a [SourceId],
    places: Vec<Place>,
    /// Rows by operation, without those that a later line replaced.
    operations: BTreeMap<i64, Vec<usize>>,
}

impl<'a> Look<'a> {
    pub fn new(request: &'a Request, sources: &'a [SourceId], layers: &'a [String]) -> Self {
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

    pub fn tell(&self, one_layer: bool, out: &mut Operations) {
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
