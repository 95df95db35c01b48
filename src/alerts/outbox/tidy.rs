//! Small files of the table `alerts` → one, and old entries of its log → a checkpoint.
//!
//! A transition is two files, or three. Merged, it is one row: that of its greatest revision.

use std::collections::BTreeMap;

use anyhow::Context as _;
use retrytoll_lake::maintain::{VacuumLimits, keep_log, vacuum};
use retrytoll_lake::table::{CHECKPOINT_COMMITS, LOG_KEPT_MS};
use retrytoll_lake::{Replaced, Replacement, replay};

use super::super::row::{Key, Row, keep_newest};
use super::super::stored::read_file;
use super::{Outbox, write_file};

/// Fewer small files are no burden.
const FILES_MIN: usize = 64;
/// As many are merged at once: all their rows are in memory then, and alerts wait.
const FILES_MAX: usize = 256;
/// A file of this size, bytes, is small no more.
const SMALL_MAX: i64 = 4 << 20;

impl Outbox {
    /// Keeps the table small, where there were many commits. What fails is told, and due again.
    ///
    /// # Errors
    /// The leader's place is lost with it: this outbox is to be dropped.
    pub async fn tidy_due(&mut self) -> anyhow::Result<()> {
        let version = self.writer.state().version;
        if self.tidied > 0 && version - self.tidied < CHECKPOINT_COMMITS {
            return Ok(());
        }
        let done = self.tidy().await;
        self.tidied = self.writer.state().version;
        match done {
            Err(error) if self.writer.is_leader() => {
                tracing::warn!(version, %error, "the table alerts was not tidied");
                Ok(())
            }
            done => done,
        }
    }

    async fn tidy(&mut self) -> anyhow::Result<()> {
        let (head, now_ms) = (self.writer.state().version, self.clock.now_ms());
        keep_log(self.writer.table(), head, now_ms, LOG_KEPT_MS).await?;
        if self.merge().await? {
            vacuum(&mut self.writer, VacuumLimits::default(), now_ms, false).await?;
        }
        Ok(())
    }

    /// Merges the oldest small files, if there are many; whether it did.
    async fn merge(&mut self) -> anyhow::Result<bool> {
        let (began_ms, planned_at) = (self.clock.now_ms(), self.writer.state().version);
        let live = replay::load_files(self.writer.table(), planned_at)
            .await?
            .live;
        let small = live.into_values().filter(|it| it.size < SMALL_MAX);
        let mut small = small.collect::<Vec<_>>();
        if small.len() < FILES_MIN {
            return Ok(false);
        }
        small.sort_by_key(|it| it.modification_time);
        small.truncate(FILES_MAX);
        let mut newest: BTreeMap<Key, Row> = BTreeMap::new();
        for add in &small {
            for row in read_file(&self.folder.join(&add.path))? {
                keep_newest(&mut newest, row);
            }
        }
        let rows: Vec<Row> = newest.into_values().collect();
        let file = write_file(&self.folder, &rows).context("cannot write a file of alerts")?;
        let merged = Replacement {
            operation: "OPTIMIZE",
            began_ms,
            planned_at,
            removes: small,
            adds: vec![file],
            data_change: true,
            ..Replacement::default()
        };
        let done = self.writer.replace(&merged).await?;
        Ok(matches!(done, Replaced::Committed(_)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use retrytoll_core::alert::{Severity, State, Transition};
    use retrytoll_lake::Clock;
    use tokio::runtime::Runtime;

    use super::super::super::ALERTS;
    use super::*;

    fn transition(number: i64) -> (Transition, String) {
        let state = match number % 2 {
            1 => State::Firing,
            _ => State::Resolved,
        };
        let transition = Transition {
            dedup_key: "retry_share/a".into(),
            number,
            rule: "retry_share".into(),
            entity: "a".into(),
            state,
            severity: Severity::Warning,
            ends_reason: None,
            starts_at_ms: number,
            at_ms: number,
        };
        (transition, format!("{{\"n\":{number}}}"))
    }

    async fn open(root: &Path) -> Outbox {
        Outbox::open(root, "g", &Clock::new(|| 0)).await.unwrap()
    }

    /// Of each live file, what its rows are.
    async fn files(outbox: &Outbox) -> Vec<Vec<Row>> {
        let version = outbox.writer.state().version;
        let live = replay::load_files(outbox.writer.table(), version).await;
        let paths = live.unwrap().live.into_keys();
        let rows = paths.map(|it| read_file(&outbox.folder.join(it)).unwrap());
        rows.collect()
    }

    fn newest(files: &[Vec<Row>]) -> BTreeMap<Key, Row> {
        let mut newest = BTreeMap::new();
        for row in files.concat() {
            keep_newest(&mut newest, row);
        }
        newest
    }

    #[test]
    fn many_files_become_one_and_say_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let mut outbox = open(folder.path()).await;
            for number in 1..=33 {
                if number == 32 {
                    assert!(!outbox.merge().await.unwrap(), "62 are few");
                }
                outbox.decide(vec![transition(number)]).await.unwrap();
                if number < 33 {
                    let key = ("retry_share/a".to_owned(), number);
                    outbox.mark_sent(&[key]).await.unwrap();
                }
            }
            let before = files(&outbox).await;
            assert_eq!(before.len(), 65);
            outbox.tidy_due().await.unwrap();
            let after = files(&outbox).await;
            assert_eq!(after.len(), 1);
            assert_eq!(after[0].len(), 33, "one row of each transition");
            assert_eq!(newest(&after), newest(&before));

            // Whoever leads next finds the same.
            let known = |it: &Outbox| (it.unsent.clone(), it.firing.clone(), it.decided_ms);
            let mut next = open(folder.path()).await;
            assert_eq!(known(&next), known(&outbox));
            assert_eq!(next.unsent.len(), 1);
            next.decide(vec![transition(34)]).await.unwrap();
            assert!(!next.merge().await.unwrap());
        });
        // What was merged stays for a while: old versions can be read.
        let kept = std::fs::read_dir(folder.path().join(ALERTS)).unwrap();
        assert!(kept.count() > 65);
    }

    /// Who tidies without the leader's place finds out, and does not go on beside the next leader.
    #[test]
    fn a_former_leader_ends_with_its_tidying() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let mut old = open(folder.path()).await;
            for number in 1..=64 {
                old.decide(vec![transition(number)]).await.unwrap();
            }
            let mut new = open(folder.path()).await;
            old.tidy_due().await.unwrap_err();
            new.tidy_due().await.unwrap();
            assert_eq!(files(&new).await.len(), 1);
            new.decide(vec![transition(65)]).await.unwrap();
        });
    }
}
