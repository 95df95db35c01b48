//! an operation's rows → outcome, and each attempt's role, place and sibling.

use std::collections::HashMap;

use super::sessions::Operation;
use super::{Attempt, Billed, Decision, Outcome, Place, Role, Usage, WINDOW_US_MAX};

/// Starting this much before the previous attempt ended is no hedge yet, µs: clocks differ.
const HEDGE_US: i64 = 250_000;
/// Nor is less than this share of the time the previous attempt took.
const HEDGE_PARTS: i64 = 20;

/// Fills in the places of an operation's attempts.
///
/// What is not counted (another layer, a second line of the same answer) is context: it has an
/// order and an outcome of its own, and decides nothing of what is counted.
pub fn assign(
    attempts: &[Attempt<'_>],
    operation: &Operation,
    mark_us: Option<i64>,
    places: &mut [Place],
) {
    tell_doubles(attempts, &operation.rows, places);
    let counted = |row: &usize| places[*row].counted;
    let (counted, beside): (Vec<usize>, Vec<usize>) =
        operation.rows.iter().partition(|it| counted(it));
    let mut layers: Vec<&[u8]> = beside.iter().map(|&row| attempts[row].layer).collect();
    layers.sort_unstable();
    layers.dedup();
    let beside = layers.into_iter().map(|layer| {
        let of_layer = beside
            .iter()
            .copied()
            .filter(|&row| attempts[row].layer == layer);
        of_layer.collect::<Vec<_>>()
    });
    let first = operation.rows[0];
    for rows in std::iter::once(counted).chain(beside) {
        if !rows.is_empty() {
            let side = Side::of(attempts, rows, mark_us);
            side.assign(attempts, operation, first, places);
        }
    }
}

/// Of successes with the same number, prompt and exact usage, the first counts: two layers told
/// of one answer, or one of them twice. Answers with ids of their own are two.
fn tell_doubles(attempts: &[Attempt<'_>], rows: &[usize], places: &mut [Place]) {
    let mut told: HashMap<_, Vec<Option<&str>>> = HashMap::new();
    for &row in rows {
        let it = &attempts[row];
        let place = &mut places[row];
        place.counted = it.counted;
        let Some(usage) = it
            .usage
            .filter(|_| it.counted && it.decision == Decision::Success)
        else {
            continue;
        };
        let answer = (
            it.number,
            it.prompt,
            usage.input,
            usage.cached,
            usage.output,
        );
        let ids = told.entry(answer).or_default();
        let is_other =
            |id: &Option<&str>| id.is_some() && it.server_id.is_some() && *id != it.server_id;
        if ids.iter().all(is_other) {
            ids.push(it.server_id);
        } else {
            place.counted = false;
            place.double_logged = true;
        }
    }
}

/// Attempts of one operation that are told together, by start.
struct Side {
    rows: Vec<usize>,
    delivered: Option<usize>,
    outcome: Option<Outcome>,
}

impl Side {
    fn of(attempts: &[Attempt<'_>], rows: Vec<usize>, mark_us: Option<i64>) -> Self {
        let all = || rows.iter().map(|&row| &attempts[row]);
        let last_ending = all()
            .filter(|it| it.decision.ends())
            .max_by_key(|it| (it.end_us(), it.began_us(), it.lineage));
        let delivered = rows
            .iter()
            .copied()
            .filter(|&row| attempts[row].decision == Decision::Success)
            .min_by_key(|&row| {
                let it = &attempts[row];
                (it.end_us(), it.began_us(), it.lineage)
            });
        let is_whole = last_ending.is_some() && all().any(Attempt::may_open);
        let began_us = all().map(Attempt::began_us).min();
        let longest_us = began_us.map(|it| it.saturating_add(WINDOW_US_MAX));
        let deadline_us = all().map(Attempt::deadline_us).max().min(longest_us);
        let is_closed = is_whole || mark_us.is_none_or(|mark| deadline_us <= Some(mark));
        let outcome = match last_ending.map(|it| it.decision) {
            _ if delivered.is_some() => Outcome::Delivered,
            None => Outcome::Abandoned,
            Some(Decision::Cancelled) => Outcome::Cancelled,
            Some(_) if all().any(|it| it.may_have_answer) => Outcome::TimedOut,
            Some(_) => Outcome::Failed,
        };
        Self {
            delivered,
            outcome: is_closed.then_some(outcome),
            rows,
        }
    }

    fn assign(
        &self,
        attempts: &[Attempt<'_>],
        operation: &Operation,
        first: usize,
        places: &mut [Place],
    ) {
        let last = self.rows.iter().copied().max_by_key(|&row| {
            let it = &attempts[row];
            (it.end_us(), it.began_us(), it.lineage)
        });
        let ended_us = self.rows.iter().filter_map(|&row| attempts[row].ended_us);
        let ended_us = ended_us.max();
        let mut retries = 0;
        for (at, &row) in self.rows.iter().enumerate() {
            let it = &attempts[row];
            let before = at.checked_sub(1).map(|at| &attempts[self.rows[at]]);
            let after = self.rows.get(at + 1).map(|&row| &attempts[row]);
            let is_hedge = before.is_some_and(|before| overlaps(before, it));
            let was_hedged = after.is_some_and(|after| overlaps(it, after));
            let place = &mut places[row];
            place.overlong = operation.overlong;
            place.first = first;
            place.op_seq = operation.seq;
            place.op_place = at as i64;
            place.op_attempts = self.rows.len() as i64;
            place.is_retry = it.above_base == Some(true) || at > 0;
            place.is_hedge = is_hedge;
            retries += i64::from(place.is_retry && !is_hedge);
            place.is_last = last == Some(row);
            place.op_ended_us = ended_us;
            place.outcome = self.outcome;
            place.role = self
                .outcome
                .map(|outcome| self.role(row, it, outcome, is_hedge || was_hedged));
            place.sibling = self.sibling(attempts, at);
        }
        let billed = |as_told| {
            let counts = self
                .rows
                .iter()
                .filter(|&&row| attempts[row].billed == as_told && is_charged(&places[row]));
            counts.count() as i64
        };
        let (surely, likely) = (billed(Billed::Yes), billed(Billed::Likely));
        for &row in &self.rows {
            places[row].op_retries = retries;
            places[row].op_billed = surely;
            places[row].op_likely_billed = likely;
        }
    }

    fn role(&self, row: usize, it: &Attempt<'_>, outcome: Outcome, hedge: bool) -> Role {
        if it.cache_hit {
            Role::Cached
        } else if self.delivered == Some(row) {
            Role::Delivered
        } else if it.decision == Decision::Cancelled || it.was_cancelled {
            Role::Cancelled
        } else if hedge {
            Role::Hedge
        } else if outcome == Outcome::Delivered {
            Role::Repeat
        } else {
            Role::Undelivered
        }
    }

    /// The delivered attempt's usage, else that of the nearest by start; of two, the earlier.
    fn sibling(&self, attempts: &[Attempt<'_>], at: usize) -> Option<Usage> {
        let own = self.rows[at];
        let usage = |row: usize| attempts[row].usage.filter(|_| row != own);
        if let Some(usage) = self.delivered.and_then(usage) {
            return Some(usage);
        }
        let began_us = attempts[own].began_us();
        let others = self.rows.iter().filter_map(|&row| {
            let distance = attempts[row].began_us().abs_diff(began_us);
            Some((distance, usage(row)?))
        });
        others.min_by_key(|(distance, _)| *distance).map(|it| it.1)
    }
}

/// Whether billing it beside another is billing the operation repeatedly: a hedge was wanted, and so
/// was the end of what the user stopped.
fn is_charged(place: &Place) -> bool {
    let wanted = matches!(place.role, None | Some(Role::Hedge | Role::Cancelled));
    !place.is_hedge && !wanted
}

/// The next attempt began well before the one before it ended: it was no answer to its end.
fn overlaps(before: &Attempt<'_>, next: &Attempt<'_>) -> bool {
    let (Some(began), Some(ended), Some(next)) =
        (before.started_us, before.ended_us, next.started_us)
    else {
        return false;
    };
    ended.saturating_sub(next) > HEDGE_US.max(ended.saturating_sub(began) / HEDGE_PARTS)
}
