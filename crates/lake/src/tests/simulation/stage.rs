//! [`Fact`] → file → dead letters acknowledged → commit → [`Order`]: one process's writing stage.
//!
//! Stands for `src/pipeline/write.rs` (`Stage::work`, `take`, `claim`, `revoke`, `is_due`,
//! `flush`, `fenced`) and `src/pipeline/pending.rs` of the program, around the real `Writer`.
//! A fact, a dead letter, and the end of a file are steps of their own, so that a process may die
//! between any two of them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::task::Poll;

use futures::future::poll_fn;
use retrytoll_core::step::Progress;

use super::mutant::Mutant;
use super::plan::Plan;
use super::reader::{Between, Fact, Order, Term};
use super::store::Gate;
use super::world::{Outside, Row};
use super::{RETRY, p, partition_of, spec, url};
use crate::{Clock, DataFile, Flush, LakeError, Member, Position, SourcePartition, Table, Writer};
use crate::{RetryLimits, WriterLimits};

const FENCES_MAX: usize = 3;
const FENCE_WINDOW_MS: i64 = 60_000;

/// Why a process ended before its time.
#[derive(Debug)]
pub enum Ended {
    Lake(LakeError),
    Letters,
    Fenced,
}

impl From<LakeError> for Ended {
    fn from(error: LakeError) -> Self {
        Self::Lake(error)
    }
}

/// What a process is to its stages.
#[derive(Clone)]
pub struct Env {
    pub outside: Outside,
    pub process: usize,
    pub name: String,
    pub clock: Clock,
    pub between: Rc<RefCell<Between>>,
    pub leading: Rc<Cell<bool>>,
    pub mutant: Option<Mutant>,
    pub plan: Rc<Plan>,
}

impl Env {
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Waits for the scheduler's next look at this process.
    pub async fn turn(&self) {
        let mut is_over = false;
        poll_fn(|_| match std::mem::replace(&mut is_over, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    pub async fn table(&self) -> Result<Table, LakeError> {
        let gate = Gate {
            outside: self.outside.clone(),
            process: Some(self.process),
        };
        Table::open_on(
            std::sync::Arc::new(gate),
            &url(),
            spec(),
            &self.clock,
            RETRY,
        )
        .await
    }

    pub async fn writer(&self, name: String, retry: RetryLimits) -> Result<Writer, LakeError> {
        let member = Member {
            group: "g".into(),
            name,
        };
        let limits = WriterLimits {
            retry,
            ..WriterLimits::default()
        };
        Writer::open(self.table().await?, member, self.clock.clone(), limits).await
    }
}

/// What the flush at hand holds.
#[derive(Clone, Default)]
struct Pending {
    began_ms: Option<i64>,
    rows: Vec<Row>,
    letters: Vec<(i32, i64)>,
    positions: BTreeMap<SourcePartition, Progress>,
    with_rows: BTreeSet<SourcePartition>,
    behind: BTreeSet<SourcePartition>,
}

impl Pending {
    fn stands_at_end(&mut self, partition: &SourcePartition, at_end: bool) {
        if at_end {
            self.behind.remove(partition);
        } else {
            self.behind.insert(partition.clone());
        }
    }
}

pub struct Stage {
    env: Env,
    writer: Writer,
    pending: Pending,
    committed_ms: i64,
    void: bool,
    fences_ms: Vec<i64>,
    files: u32,
}

/// The writing stage of a process, from its start until it ends.
pub async fn run(env: Env) -> Result<(), Ended> {
    // The broken one takes the first failure for the last.
    let deadline_ms = if env.is(Mutant::CommitsAgain) {
        0
    } else {
        RETRY.deadline_ms
    };
    let retry = RetryLimits {
        deadline_ms,
        ..RETRY
    };
    let writer = env.writer(env.name.clone(), retry).await?;
    let committed_ms = env.clock.now_ms();
    let mut stage = Stage {
        env,
        writer,
        pending: Pending::default(),
        committed_ms,
        void: false,
        fences_ms: Vec::new(),
        files: 0,
    };
    stage.work().await
}

impl Stage {
    async fn work(&mut self) -> Result<(), Ended> {
        loop {
            self.env.turn().await;
            let fact = self.env.between.borrow_mut().facts.pop_front();
            let ended = matches!(fact, Some(Fact::End));
            let mut result = match fact {
                Some(fact) => self.take(fact).await,
                None => Ok(()),
            };
            if result.is_ok() && (ended || self.is_due()) {
                result = self.flush().await;
            }
            match result {
                Err(Ended::Lake(error)) if may_restart(&error) => self.fenced(&error)?,
                other => other?,
            }
            if ended {
                return Ok(());
            }
        }
    }

    async fn take(&mut self, fact: Fact) -> Result<(), Ended> {
        match fact {
            Fact::Restarted(term) => {
                self.void = false;
                self.claim(&term).await?;
            }
            _ if self.void => {}
            Fact::Assigned(term) => {
                self.flush().await?;
                self.claim(&term).await?;
            }
            Fact::Revoked(partitions) => self.revoke(&partitions).await?,
            Fact::Rows {
                partition,
                rows,
                progress,
                caught_up,
            } => {
                let partition = p(partition);
                self.pending.began_ms.get_or_insert(self.env.clock.now_ms());
                self.pending.stands_at_end(&partition, caught_up);
                self.pending.rows.extend(rows);
                self.pending.with_rows.insert(partition.clone());
                self.pending.positions.insert(partition, progress);
            }
            Fact::Moved {
                partition,
                progress,
                at_end,
            } => {
                if at_end {
                    self.pending.stands_at_end(&p(partition), true);
                }
                self.pending.positions.insert(p(partition), progress);
            }
            Fact::Bad { partition, offset } => {
                self.pending.began_ms.get_or_insert(self.env.clock.now_ms());
                self.pending.letters.push((partition, offset));
            }
            Fact::End => {}
        }
        Ok(())
    }

    /// Tells the audit what this process owns as it believes.
    fn tell_belief(&self, with_rows: &BTreeSet<SourcePartition>) {
        let owned = self.writer.owned().union(with_rows).cloned().collect();
        self.env
            .outside
            .enter()
            .audit
            .believes(&self.env.name, owned);
    }

    async fn claim(&mut self, term: &Term) -> Result<(), Ended> {
        let known = self.writer.state().positions();
        let start = |number: &i32| {
            let partition = p(*number);
            let start = known.get(&partition).copied();
            (partition, start.unwrap_or_else(|| Position::start(0)))
        };
        let starts: BTreeMap<_, _> = term.partitions.iter().map(start).collect();
        self.tell_belief(&BTreeSet::new());
        let claimed = self.writer.claim(&starts).await?;
        let mut claimed: BTreeMap<_, _> = claimed
            .into_iter()
            .map(|(it, at)| (it, at.position))
            .collect();
        if self.env.is(Mutant::BelievesItsBase) {
            claimed = starts;
        }
        let read = claimed.into_iter().map(|(partition, at)| {
            let progress = Progress {
                next: at.next,
                low: at.low,
                low_clock_ms: at.low_clock_ms,
                clock_ms: at.clock_ms,
            };
            (partition_of(&partition), progress)
        });
        let positions = read.collect();
        self.committed_ms = self.env.clock.now_ms();
        self.look_who_leads();
        self.order(Order::Read {
            term: term.number,
            positions,
        });
        Ok(())
    }

    async fn revoke(&mut self, numbers: &[i32]) -> Result<(), Ended> {
        let partitions: Vec<_> = numbers.iter().map(|number| p(*number)).collect();
        let has_rows = partitions
            .iter()
            .any(|it| self.pending.with_rows.contains(it));
        if has_rows && !self.env.is(Mutant::ForgetsRevoked) {
            self.env
                .outside
                .enter()
                .saw("revoked with rows in the flush");
            self.writer.begin_flush(&self.pending.with_rows)?;
        }
        self.writer.revoke(&partitions);
        self.look_who_leads();
        for partition in &partitions {
            self.pending.behind.remove(partition);
            let forgets = self.env.is(Mutant::ForgetsRevoked);
            if forgets || !self.pending.with_rows.contains(partition) {
                self.pending.positions.remove(partition);
            }
        }
        if has_rows { self.flush().await } else { Ok(()) }
    }

    fn look_who_leads(&self) {
        let known = self.writer.state().positions();
        let least = known.keys().next();
        let leads = least.is_some_and(|it| self.writer.owned().contains(it));
        self.env.leading.set(leads);
    }

    fn is_due(&self) -> bool {
        if self.void {
            return false;
        }
        let (now_ms, plan) = (self.env.clock.now_ms(), &self.env.plan);
        let positions = !self.pending.positions.is_empty()
            && now_ms - self.committed_ms >= plan.position_interval_ms;
        match self.pending.began_ms {
            Some(began_ms) => {
                let interval = match self.pending.behind.is_empty() {
                    true => plan.interval_ms,
                    false => plan.interval_behind_ms,
                };
                now_ms - began_ms >= interval || self.pending.rows.len() >= plan.flush_rows
            }
            None => positions,
        }
    }

    /// Dead letters, then rows and positions in one commit. Without rows, positions alone.
    async fn flush(&mut self) -> Result<(), Ended> {
        if self.void || self.pending.began_ms.is_none() && self.pending.positions.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        self.tell_belief(&pending.with_rows);
        let letters_last = self.env.is(Mutant::LettersAfterCommit);
        if !letters_last {
            self.deliver(&pending.letters).await?;
        }
        if self.env.is(Mutant::PositionsBeforeRows) {
            let flush = self.flush_of(&pending, Vec::new());
            self.writer.flush(&flush).await?;
        }
        let file = self.file(&pending);
        if !self.env.is(Mutant::FileAfterCommit) {
            self.write(&file, &pending).await;
        }
        let flush = self.flush_of(&pending, file.iter().cloned().collect());
        let mut result = self.writer.flush(&flush).await;
        if self.env.is(Mutant::CommitsAgain) && matches!(result, Err(LakeError::Unavailable { .. }))
        {
            let again = flush.positions.clone();
            self.writer.claim(&again).await?;
            result = self.writer.flush(&flush).await;
        }
        if self.env.is(Mutant::KeepsAfterFence) && result.is_err() {
            self.pending = pending.clone();
        }
        result?;
        if letters_last {
            self.deliver(&pending.letters).await?;
        }
        if self.env.is(Mutant::FileAfterCommit) {
            self.write(&file, &pending).await;
        }
        self.committed_ms = self.env.clock.now_ms();
        self.look_who_leads();
        Ok(())
    }

    fn flush_of(&self, pending: &Pending, files: Vec<DataFile>) -> Flush {
        let positions = pending.positions.iter().map(|(partition, at)| {
            let position = Position {
                low: at.low,
                low_clock_ms: at.low_clock_ms,
                clock_ms: at.clock_ms,
                ..Position::start(at.next)
            };
            (partition.clone(), position)
        });
        let began_ms = pending.began_ms.unwrap_or_else(|| self.env.clock.now_ms());
        Flush {
            began_ms,
            files,
            positions: positions.collect(),
        }
    }

    fn file(&mut self, pending: &Pending) -> Option<DataFile> {
        if pending.rows.is_empty() {
            return None;
        }
        self.files += 1;
        Some(DataFile {
            path: format!("{}-{}.parquet", self.env.name, self.files),
            size: 1,
            rows: pending.rows.len() as u64,
            ..DataFile::default()
        })
    }

    async fn write(&self, file: &Option<DataFile>, pending: &Pending) {
        self.env.turn().await;
        if let Some(file) = file {
            self.env
                .outside
                .enter()
                .write_file(&file.path, pending.rows.clone());
        }
    }

    async fn deliver(&mut self, letters: &[(i32, i64)]) -> Result<(), Ended> {
        for &(partition, offset) in letters {
            self.env.turn().await;
            let mut world = self.env.outside.enter();
            if world.chance(self.env.plan.refused_letter) && !world.is_calm {
                world.saw("a dead letter refused");
                return Err(Ended::Letters);
            }
            world.audit.acknowledge(partition, offset);
        }
        Ok(())
    }

    /// Another writer holds what we thought ours: drop everything, begin again at a claim.
    fn fenced(&mut self, error: &LakeError) -> Result<(), Ended> {
        let now_ms = self.env.clock.now_ms();
        self.fences_ms.retain(|at| now_ms - at < FENCE_WINDOW_MS);
        self.fences_ms.push(now_ms);
        let mut world = self.env.outside.enter();
        let name = &self.env.name;
        world.tell(|| format!("{name} begins anew: {error}"));
        world.saw(match error {
            LakeError::FlushTooOld { .. } => "a flush too old",
            LakeError::BaseLost { .. } => "a base that was cleaned up",
            _ => "a fence",
        });
        drop(world);
        if self.fences_ms.len() >= FENCES_MAX {
            return Err(Ended::Fenced);
        }
        self.writer.abandon_flush();
        self.env.leading.set(false);
        if !self.env.is(Mutant::KeepsAfterFence) {
            self.pending = Pending::default();
        }
        self.void = true;
        self.order(Order::Restart);
        Ok(())
    }

    fn order(&self, order: Order) {
        self.env.between.borrow_mut().orders.push_back(order);
    }
}

/// Reading again from the lake's positions mends these; all else ends the process.
fn may_restart(error: &LakeError) -> bool {
    matches!(
        error,
        LakeError::Fenced(_) | LakeError::FlushTooOld { .. } | LakeError::BaseLost { .. }
    )
}
