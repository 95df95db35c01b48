//! The consumer group: which member was given which partition, and what each was told.
//!
//! A member that is frozen or gone keeps its partitions until it is thrown out; it hears of that,
//! if ever, when it polls again. Meanwhile others read what it believes to own.

use std::collections::{BTreeMap, BTreeSet};

/// What a rebalance says to a member.
#[derive(Clone, Debug)]
pub enum Told {
    Assigned(Vec<i32>),
    Revoked(Vec<i32>),
}

#[derive(Default)]
pub struct Group {
    /// Members, by process, with what they were told and did not take yet.
    members: BTreeMap<usize, Vec<Told>>,
    /// Thrown out, and not aware of it.
    strays: BTreeSet<usize>,
    owners: BTreeMap<i32, usize>,
    partitions: BTreeSet<i32>,
}

impl Group {
    pub fn new(partitions: i32) -> Self {
        let partitions = (0..partitions).collect();
        Self {
            partitions,
            ..Self::default()
        }
    }

    pub fn join(&mut self, process: usize) {
        self.members.insert(process, Vec::new());
    }

    /// A process says good-bye, or its connection breaks.
    pub fn leave(&mut self, process: usize) {
        self.members.remove(&process);
        self.strays.remove(&process);
        self.owners.retain(|_, it| *it != process);
    }

    /// Throws out who does not live any more.
    pub fn bury_all_but(&mut self, living: &[usize]) {
        self.members.retain(|it, _| living.contains(it));
        self.strays.retain(|it| living.contains(it));
        self.owners.retain(|_, it| living.contains(it));
    }

    /// Nothing was heard of some member for too long.
    pub fn throw_out(&mut self, luck: &mut fastrand::Rng) -> Option<usize> {
        let some: Vec<usize> = self.members.keys().copied().collect();
        let process = *some.get(luck.usize(0..some.len().max(1)))?;
        self.members.remove(&process);
        self.strays.insert(process);
        self.owners.retain(|_, it| *it != process);
        Some(process)
    }

    pub fn is_stray(&self, process: usize) -> bool {
        self.strays.contains(&process)
    }

    /// A stray hears of it, loses all that it believes to have, and joins again.
    pub fn find_back(&mut self, process: usize, believed: Vec<i32>) {
        if self.strays.remove(&process) {
            self.members.insert(process, vec![Told::Revoked(believed)]);
        }
    }

    /// What the process hears when it polls.
    pub fn poll(&mut self, process: usize) -> Vec<Told> {
        self.members
            .get_mut(&process)
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Takes a partition from its owner, who answers at once and learns of it with its next poll.
    pub fn revoke_one(&mut self, luck: &mut fastrand::Rng) {
        let some: Vec<i32> = self.owners.keys().copied().collect();
        let Some(partition) = some.get(luck.usize(0..some.len().max(1))) else {
            return;
        };
        if let Some(owner) = self.owners.remove(partition)
            && let Some(told) = self.members.get_mut(&owner)
        {
            told.push(Told::Revoked(vec![*partition]));
        }
    }

    /// Gives partitions that nobody has to some member.
    pub fn assign(&mut self, luck: &mut fastrand::Rng) {
        let some: Vec<usize> = self.members.keys().copied().collect();
        let Some(process) = some.get(luck.usize(0..some.len().max(1))) else {
            return;
        };
        let free = self
            .partitions
            .iter()
            .filter(|it| !self.owners.contains_key(it));
        let most = luck.usize(1..=4);
        let given: Vec<i32> = free.copied().take(most).collect();
        if given.is_empty() {
            return;
        }
        self.owners.extend(given.iter().map(|it| (*it, *process)));
        if let Some(told) = self.members.get_mut(process) {
            told.push(Told::Assigned(given));
        }
    }

    /// Who has not got what, or has not heard of it.
    pub fn unrest(&self) -> Option<String> {
        let (owners, strays) = (&self.owners, &self.strays);
        if owners.len() < self.partitions.len() || !strays.is_empty() {
            return Some(format!("the group: owners {owners:?}, strays {strays:?}"));
        }
        let told = self.members.iter().find(|(_, told)| !told.is_empty());
        told.map(|(member, told)| format!("process {member} has not heard {told:?}"))
    }
}
