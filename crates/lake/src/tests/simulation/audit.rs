//! An entry that has landed → is the log still right?
//!
//! Judged from the log alone, without asking any writer what it believes: who **holds** what is
//! the author of the last claim. An entry is judged when it lands, by what is true at that moment.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::log::{Content, Logs};
use super::world::Row;
use super::{p, partition_of};
use crate::log::Entry;
use crate::{Mark, Owner, Position, SourcePartition, completeness_mark};

#[derive(Default)]
pub struct Audit {
    /// What is wrong, first of all.
    pub broken: Option<String>,
    /// Entries that have landed.
    pub entries: u64,
    txns: BTreeMap<String, i64>,
    holders: BTreeMap<Owner, String>,
    pub live_files: BTreeSet<String>,
    live_rows: BTreeSet<Row>,
    /// Dead letters that were acknowledged: partition and offset.
    letters: BTreeSet<(i32, i64)>,
    /// What each author owns as it believes, told before it commits: every entry has to name all
    /// of it, and may not land when another holds any.
    believed: BTreeMap<String, BTreeSet<SourcePartition>>,
}

impl Audit {
    pub fn fail(&mut self, why: String) {
        self.broken.get_or_insert(why);
    }

    pub fn acknowledge(&mut self, partition: i32, offset: i64) {
        self.letters.insert((partition, offset));
    }

    pub fn believes(&mut self, author: &str, owned: BTreeSet<SourcePartition>) {
        self.believed.insert(author.to_owned(), owned);
    }

    pub fn position(&self, partition: i32) -> Option<Position> {
        Position::of(&self.txns, &p(partition))
    }

    pub fn positions(&self) -> BTreeMap<SourcePartition, Position> {
        crate::position::positions(&self.txns)
    }

    /// Takes an entry in; gives what to tell of it.
    pub fn landed(
        &mut self,
        version: u64,
        bytes: &Bytes,
        files: &BTreeMap<String, Vec<Row>>,
        logs: &Logs,
    ) -> String {
        let entry = match Entry::parse(version, bytes) {
            Ok(entry) => entry,
            Err(error) => {
                self.fail(error.to_string());
                return format!("version {version} is cut");
            }
        };
        if let Err(why) = self.judge(&entry, files, logs) {
            self.fail(format!("version {version}: {why}"));
        }
        told(&entry)
    }

    fn judge(
        &mut self,
        entry: &Entry,
        files: &BTreeMap<String, Vec<Row>>,
        logs: &Logs,
    ) -> Result<(), String> {
        if entry.version != self.entries {
            return Err(format!(
                "it leaves a hole, {} entries are there",
                self.entries
            ));
        }
        self.entries += 1;
        let before = self.positions();
        self.judge_author(entry, &before)?;
        self.txns.extend(entry.txns.iter().cloned());
        let after = self.positions();
        judge_marks(&before, &after)?;
        self.judge_rows(entry, &before, &after, files)?;
        for (partition, at) in &after {
            let from = before.get(partition).map_or(0, |it| it.next);
            self.judge_move(partition_of(partition), from, *at, logs)?;
        }
        Ok(())
    }

    /// Who may say this? Only claims take over; whatever else is named must be the author's, and
    /// nothing that the author owns may have gone to another or be left out.
    fn judge_author(
        &mut self,
        entry: &Entry,
        before: &BTreeMap<SourcePartition, Position>,
    ) -> Result<(), String> {
        let author = entry.by.member.clone().unwrap_or_default();
        let operation = entry.by.operation.as_deref().unwrap_or_default();
        let named: BTreeSet<Owner> = entry.owners().collect();
        // A claim states its partitions in full, all others by `next` alone.
        let claimed = |owner: &Owner| match owner {
            Owner::Leader => operation == "CLAIM LEADER",
            Owner::Forgotten => false,
            Owner::Partition(partition) => {
                let low = partition.app_id("low");
                operation == "CLAIM" && entry.txns.iter().any(|(app_id, _)| *app_id == low)
            }
        };
        for owner in &named {
            if claimed(owner) {
                if let Owner::Partition(partition) = owner
                    && let Some(stands) = before.get(partition)
                    && stands
                        .to_txns(partition)
                        .iter()
                        .any(|txn| !entry.txns.contains(txn))
                {
                    return Err(format!("the claim of {partition} states another position"));
                }
                self.holders.insert(owner.clone(), author.clone());
            } else if self.holders.get(owner) != Some(&author) {
                let holder = self.holders.get(owner);
                return Err(format!("{author} names {owner}, which {holder:?} holds"));
            }
        }
        for partition in self.believed.get(&author).into_iter().flatten() {
            let owner = Owner::Partition(partition.clone());
            if !named.contains(&owner) {
                return Err(format!("{author} owns {partition} and does not name it"));
            }
        }
        Ok(())
    }

    /// Every row is there once, below `next`, and in a file that is whole.
    fn judge_rows(
        &mut self,
        entry: &Entry,
        before: &BTreeMap<SourcePartition, Position>,
        after: &BTreeMap<SourcePartition, Position>,
        files: &BTreeMap<String, Vec<Row>>,
    ) -> Result<(), String> {
        let mut moved = BTreeSet::new();
        for remove in &entry.removes {
            if !self.live_files.remove(&remove.path) {
                return Err(format!("it removes {}, which is not there", remove.path));
            }
            for row in &files[&remove.path] {
                self.live_rows.remove(row);
                moved.insert(*row);
            }
        }
        for add in &entry.adds {
            let Some(rows) = files.get(&add.path) else {
                return Err(format!("it adds {}, which is not written", add.path));
            };
            self.live_files.insert(add.path.clone());
            for row in rows {
                if !self.live_rows.insert(*row) {
                    return Err(format!("row {row:?} is there twice"));
                }
                if !add.data_change {
                    if !moved.remove(row) {
                        return Err(format!("row {row:?} was not in what it replaces"));
                    }
                    continue;
                }
                let partition = p(row.0);
                let next = |of: &BTreeMap<_, Position>| of.get(&partition).map_or(0, |it| it.next);
                if row.1 < next(before) || row.1 >= next(after) {
                    let (from, to) = (next(before), next(after));
                    return Err(format!("row {row:?} is not within {from}..{to}"));
                }
            }
        }
        match moved.first() {
            Some(row) => Err(format!("row {row:?} is gone")),
            None => Ok(()),
        }
    }

    /// What `next` passes is dealt with: written where the oracle wants it, acknowledged where it
    /// is bad.
    fn judge_move(
        &self,
        partition: i32,
        from: i64,
        at: Position,
        logs: &Logs,
    ) -> Result<(), String> {
        let end = logs.end(partition);
        if at.next > end || at.low > at.next {
            return Err(format!(
                "{partition} stands at {at:?}, its log ends at {end}"
            ));
        }
        for offset in from..at.next {
            let rows = self
                .live_rows
                .range((partition, offset, 0)..(partition, offset + 1, 0));
            let rows: Vec<Row> = rows.copied().collect();
            let wanted = logs.wanted(partition, offset);
            if rows != wanted {
                return Err(format!(
                    "`next` of {partition} goes to {}: of offset {offset} there are {rows:?}, not {wanted:?}",
                    at.next
                ));
            }
            let is_bad = matches!(logs.record(partition, offset).content, Content::Bad);
            if is_bad && !self.letters.contains(&(partition, offset)) {
                return Err(format!(
                    "`next` of {partition} goes to {}: the dead letter of offset {offset} was not acknowledged",
                    at.next
                ));
            }
        }
        Ok(())
    }
}

/// Nothing of a position moves back, nor does the completeness mark of what was known.
fn judge_marks(
    before: &BTreeMap<SourcePartition, Position>,
    after: &BTreeMap<SourcePartition, Position>,
) -> Result<(), String> {
    let mut known = after.clone();
    known.retain(|partition, _| before.contains_key(partition));
    for (partition, then) in before {
        let now = known[partition];
        let is_back = now.next < then.next
            || now.low < then.low
            || now.low_clock_ms < then.low_clock_ms
            || now.clock_ms < then.clock_ms;
        if is_back {
            return Err(format!("{partition} goes back from {then:?} to {now:?}"));
        }
    }
    match (completeness_mark(before), completeness_mark(&known)) {
        (Mark::Before(then), Mark::Before(now)) if now < then => {
            Err(format!("the mark goes back from {then} to {now}"))
        }
        (Mark::Before(then), Mark::Nothing) => Err(format!("the mark {then} is gone")),
        _ => Ok(()),
    }
}

fn told(entry: &Entry) -> String {
    let next = entry.txns.iter().filter_map(|(app_id, value)| {
        let rest = app_id.strip_prefix("retrytoll/next/")?;
        Some(format!("{}→{value}", rest.split('/').next()?))
    });
    let next: Vec<String> = next.collect();
    let adds: Vec<&str> = entry.adds.iter().map(|it| it.path.as_str()).collect();
    let removes: Vec<&str> = entry.removes.iter().map(|it| it.path.as_str()).collect();
    format!(
        "version {}: {} by {}, next {}, adds {adds:?}, removes {removes:?}",
        entry.version,
        entry.by.operation.as_deref().unwrap_or_default(),
        entry.by.member.as_deref().unwrap_or("nobody"),
        next.join(" "),
    )
}
