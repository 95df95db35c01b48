//! What the reading stage has counted → families of records and values.

use std::fmt::Result;

use retrytoll_core::decode::Reason;
use retrytoll_core::field::Field;

use crate::metrics::page::Page;
use crate::pipeline::ReadFacts;

/// What became of the records that were read.
pub fn records(page: &mut Page, read: &ReadFacts) -> Result {
    let counts = &read.counts;
    for (name, help, value) in [
        (
            "retrytoll_records",
            "Records read from the topic, those read again after a restart included.",
            counts.records,
        ),
        (
            "retrytoll_attempts",
            "Events read that are rows of attempts. After a refused commit they are read and counted again.",
            counts.rows,
        ),
        (
            "retrytoll_duplicates",
            "Events read that were seen within dedupe.horizon, and are no rows.",
            counts.duplicates,
        ),
        (
            "retrytoll_replayed",
            "Events read again only to know duplicates of them, after a restart.",
            counts.replayed,
        ),
        (
            "retrytoll_nulls",
            "Records read that have no value.",
            counts.nulls,
        ),
    ] {
        page.counter((name, help), value)?;
    }
    let by_reason = Reason::ALL.iter().zip(counts.dead_letters_by_reason);
    page.counters(
        (
            "retrytoll_dead_letters",
            "Records read that are no events, by what is wrong with them.",
        ),
        by_reason.map(|(reason, count)| ([("reason", reason.name())], count)),
    )
}

/// What was wrong or odd with values of events.
pub fn values(page: &mut Page, read: &ReadFacts) -> Result {
    let decoded = &read.decoded;
    let by_field = Field::ALL.iter().zip(decoded.invalid);
    page.counters(
        (
            "retrytoll_invalid_values",
            "Impossible values of optional fields, taken for null, by field.",
        ),
        by_field.map(|(field, count)| ([("field", field.name())], count)),
    )?;
    for (name, help, value) in [
        (
            "retrytoll_unknown_fields",
            "Members of events that the event has no field for.",
            decoded.unknown_fields,
        ),
        (
            "retrytoll_replaced_secrets",
            "Values replaced because they looked like credentials.",
            decoded.secrets,
        ),
        (
            "retrytoll_future_events",
            "Events whose record's time lies over two minutes ahead of our clock.",
            read.counts.from_the_future,
        ),
        (
            "retrytoll_seen_evicted",
            "Events forgotten before dedupe.horizon, since limits.seen is full.",
            read.counts.seen_evicted,
        ),
    ] {
        page.counter((name, help), value)?;
    }
    Ok(())
}
