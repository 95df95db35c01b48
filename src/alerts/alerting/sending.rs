//! What was decided, and what fires → sent, acknowledged, marked.

use std::sync::Arc;

use anyhow::Context as _;
use retrytoll_lake::Point;

use super::{Alerting, RESEND_MS, Sent};
use crate::alerts::event::{Letter, letter, source};
use crate::alerts::inhibit::inhibitor;
use crate::alerts::outbox::Outbox;
use crate::alerts::row::{Key, Row};

/// Alerts that are sent at a tick; what is left goes with the next one.
const SENT_A_TICK_MAX: usize = 20;

impl Alerting {
    /// Sends what was decided and marks it; then what fires, each minute again.
    pub(super) async fn send_due(&mut self, outbox: &mut Outbox) -> anyhow::Result<Vec<Sent>> {
        self.occasion_ms = Some(self.clock.now_ms());
        let inhibited = inhibited(outbox);
        outbox.mark_inhibited(&inhibited).await?;
        let unsent = outbox.unsent();
        let more = unsent.len().saturating_sub(SENT_A_TICK_MAX);
        let due = unsent.into_iter().take(SENT_A_TICK_MAX).collect::<Vec<_>>();
        let (keys, letters) = self.letters(&due, more)?;
        let of = |row: &&Row| (row.transition.rule.clone(), row.transition.state.word());
        let first = due.iter().map(of).collect::<Vec<_>>();
        let mut sent = self.send(outbox, &keys, letters, false).await?;
        for (rule, state) in first {
            self.metrics.tasks.sent(&rule, state);
        }
        outbox.mark_sent(&keys).await?;

        // Read after the sends above, which it must not be before.
        let again = |row: &&Row| {
            let last = self.sent_ms.get(&row.transition.dedup_key).copied();
            last.is_none_or(|last| self.clock.since_ms(last) >= RESEND_MS)
                && inhibitor(row, outbox.all_firing()).is_none()
        };
        let mut due = outbox.firing().filter(again).collect::<Vec<_>>();
        due.sort_by_key(|row| self.sent_ms.get(&row.transition.dedup_key).copied());
        due.truncate(SENT_A_TICK_MAX - keys.len());
        let (keys, letters) = self.letters(&due, 0)?;
        sent.extend(self.send(outbox, &keys, letters, true).await?);
        self.sent_ms.retain(|key, _| outbox.is_firing(key));
        Ok(sent)
    }

    fn letters(&self, rows: &[&Row], more: usize) -> anyhow::Result<(Vec<Key>, Vec<Letter>)> {
        let source = source(&self.settings.group);
        let (mut keys, mut letters) = (Vec::new(), Vec::new());
        for (at, row) in rows.iter().enumerate() {
            let more = if at + 1 == rows.len() { more } else { 0 };
            letters.push(letter(row, &source, more)?);
            keys.push(row.key());
        }
        Ok((keys, letters))
    }

    async fn send(
        &mut self,
        outbox: &mut Outbox,
        keys: &[Key],
        letters: Vec<Letter>,
        again: bool,
    ) -> anyhow::Result<Vec<Sent>> {
        if letters.is_empty() {
            return Ok(Vec::new());
        }
        outbox.fence().await?;
        let outlet = Arc::clone(&self.outlet);
        let letters = tokio::task::spawn_blocking(move || outlet.send(&letters).map(|()| letters));
        let letters = letters.await.context("the sender broke")?;
        if letters.is_err() {
            self.metrics.tasks.send_failed();
        }
        let letters = letters?;
        Point::AlertSent.pass();
        let now_ms = self.clock.now_ms();
        let ids = keys.iter().map(|(key, number)| {
            self.sent_ms.insert(key.clone(), now_ms);
            retrytoll_core::alert::transition_id(key, *number)
        });
        let sent = letters.into_iter().zip(ids);
        Ok(sent
            .map(|(it, id)| Sent {
                dedup_key: it.key,
                id,
                again,
                body: it.body,
            })
            .collect())
    }
}

/// What is to be sent and follows from an alert that fires, with that one's `dedup_key`.
fn inhibited(outbox: &Outbox) -> Vec<(Key, String)> {
    let unsent = outbox.unsent().into_iter();
    let with_parent =
        unsent.filter_map(|row| Some((row.key(), inhibitor(row, outbox.all_firing())?)));
    with_parent.collect()
}
