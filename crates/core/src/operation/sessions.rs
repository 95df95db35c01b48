//! attempts by start → operations: lists of rows.

use std::collections::HashMap;

use super::{ATTEMPTS_MAX, Attempt, WINDOW_US_MAX};

/// An operation, or a piece of one that was cut.
#[derive(Debug)]
pub struct Operation {
    /// From 1.
    pub seq: i64,
    /// By start.
    pub rows: Vec<usize>,
    /// It is a piece of an operation that was cut for its length.
    pub overlong: bool,
}

/// The last attempt of a prompt, within the session.
struct Chain {
    last: usize,
    /// Where retries of this prompt belong; `None` where no operation began with it.
    operation: Option<usize>,
}

/// Splits the attempts of a request.
///
/// A *session* ends where an event comes past every deadline so far. Within it an attempt that may
/// be a first one begins the next operation when its prompt is new to the session, or when the
/// attempt of its prompt before it had ended the operation by then. A retry belongs to the
/// operation of its own prompt; without one, to the latest.
pub fn operations(attempts: &[Attempt<'_>], order: &[usize]) -> Vec<Operation> {
    let mut found: Vec<Operation> = Vec::new();
    let mut chains: HashMap<Option<&[u8]>, Chain> = HashMap::new();
    let mut deadline_us = i64::MIN;
    let mut seq = 0;
    for &row in order {
        let it = &attempts[row];
        let past_gap = found.is_empty() || it.end_us() > deadline_us;
        if past_gap {
            chains.clear();
        }
        let before = chains.get(&it.prompt);
        let is_next = before.is_none_or(|chain| {
            let last = &attempts[chain.last];
            last.decision.ends() && last.end_us() <= it.began_us()
        });
        let opens = past_gap || it.may_open() && is_next;
        let latest = found.len().saturating_sub(1);
        let mut operation = before.and_then(|chain| chain.operation).unwrap_or(latest);
        if opens {
            seq += 1;
            operation = begin(&mut found, seq, false);
        } else if is_full(attempts, &found[operation], it) {
            let cut = &mut found[operation];
            cut.overlong = true;
            let seq = cut.seq;
            operation = begin(&mut found, seq, true);
        }
        found[operation].rows.push(row);
        let chain = chains.entry(it.prompt).or_insert(Chain {
            last: row,
            operation: None,
        });
        chain.last = row;
        if opens || chain.operation.is_some() {
            chain.operation = Some(operation);
        }
        deadline_us = deadline_us.max(it.deadline_us());
    }
    found
}

fn begin(found: &mut Vec<Operation>, seq: i64, overlong: bool) -> usize {
    found.push(Operation {
        seq,
        rows: Vec::new(),
        overlong,
    });
    found.len() - 1
}

fn is_full(attempts: &[Attempt<'_>], operation: &Operation, next: &Attempt<'_>) -> bool {
    let first_us = operation
        .rows
        .first()
        .map_or(i64::MAX, |&row| attempts[row].began_us());
    operation.rows.len() >= ATTEMPTS_MAX
        || next.began_us().saturating_sub(first_us) >= WINDOW_US_MAX
}
