//! attempts → their order in time, and which lines a later line replaced.

use super::{Attempt, Place};

/// Rows by the time they began. Ties: number, end, lineage.
pub fn by_start(attempts: &[Attempt<'_>]) -> Vec<usize> {
    let mut order = (0..attempts.len()).collect::<Vec<_>>();
    order.sort_by_key(|&row| {
        let it = &attempts[row];
        (it.began_us(), it.number, it.end_us(), it.lineage)
    });
    order
}

/// Takes out the lines that a later line of the same attempt replaced, and marks them: lines that
/// say more follow, and lines of one start whose usage grew.
pub fn without_superseded(
    attempts: &[Attempt<'_>],
    order: Vec<usize>,
    places: &mut [Place],
) -> Vec<usize> {
    let mut lines = order.clone();
    lines.retain(|&row| attempts[row].number.is_some());
    let line = |row: usize| {
        let it = &attempts[row];
        (it.number, it.layer, it.prompt)
    };
    lines.sort_by_key(|&row| {
        let it = &attempts[row];
        let when = (it.began_us(), it.end_us(), it.output_tokens, it.lineage);
        (line(row), when)
    });
    for pair in lines.windows(2) {
        let [earlier, later] = [pair[0], pair[1]];
        places[earlier].superseded =
            line(earlier) == line(later) && is_replaced(&attempts[earlier], &attempts[later]);
    }
    let mut order = order;
    order.retain(|&row| !places[row].superseded);
    order
}

fn is_replaced(line: &Attempt<'_>, next: &Attempt<'_>) -> bool {
    if !line.last_line {
        return next.end_us() <= line.deadline_us();
    }
    let one_start = line.started_us.is_some() && line.started_us == next.started_us;
    let grew = next.output_tokens.unwrap_or(0) >= line.output_tokens.unwrap_or(0);
    // Two answers with ids of their own are two calls.
    let one_answer = match (line.server_id, next.server_id) {
        (Some(line), Some(next)) => line == next,
        _ => true,
    };
    one_start && grew && one_answer
}
