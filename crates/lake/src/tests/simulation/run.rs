//! seed → steps, one of them at a time, until the plan is through → calm → everything is there.

use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use tokio::runtime::Runtime;

use super::group::Group;
use super::mutant::Mutant;
use super::plan::Plan;
use super::process::Process;
use super::stage::Ended;
use super::store::Gate;
use super::world::{Outside, Seen};
use super::{DAY_MS, MINUTE_MS, NOW_MS, RETRY, p, spec, url};
use crate::maintain::{VacuumLimits, checkpoint, clean_log, vacuum};
use crate::replay::load_files;
use crate::table::LOG_KEPT_MS;
use crate::{LakeError, Member, Table, Writer, WriterLimits};

/// Rounds within which all must be quiet once nothing goes wrong any more.
const CALM_ROUNDS_MAX: u32 = 3_000;

/// How a run ended.
pub struct Run {
    pub steps: u64,
    pub entries: u64,
    /// Which step broke what.
    pub broken: Option<(u64, String)>,
    pub seen: Seen,
    pub told: Vec<String>,
}

#[derive(Clone, Copy)]
enum Step {
    Append,
    Read,
    Write,
    Maintain,
    Serve,
    Pass,
    Assign,
    Revoke,
    ThrowOut,
    Crash,
    Freeze,
    Stop,
    KeepLog,
}

struct Simulation {
    outside: Outside,
    plan: Rc<Plan>,
    mutant: Option<Mutant>,
    group: Group,
    slots: Vec<Option<Process>>,
    lives: usize,
    steps: u64,
}

/// Runs one seed. The same seed runs the same way.
pub fn run(seed: u64, mutant: Option<Mutant>, is_told: bool) -> Run {
    let plan = Rc::new(Plan::of(seed));
    let outside = Outside::new(seed, &plan, is_told);
    outside.enter().tell(|| format!("{plan:?}"));
    let mut simulation = Simulation {
        group: Group::new(plan.partitions),
        slots: (0..plan.slots).map(|_| None).collect(),
        outside,
        plan,
        mutant,
        lives: 0,
        steps: 0,
    };
    let broken = simulation.work().err().map(|why| (simulation.steps, why));
    let world = simulation.outside.enter();
    Run {
        steps: simulation.steps,
        entries: world.audit.entries,
        broken,
        seen: world.seen.clone(),
        told: world.told(),
    }
}

impl Simulation {
    fn work(&mut self) -> Result<(), String> {
        for number in 0..self.plan.steps {
            let step = match self.plan.keep_log {
                Some(at) if at == number => Step::KeepLog,
                _ => self.next(),
            };
            self.step(step)?;
        }
        self.calm_down()?;
        self.look_again()
    }

    fn next(&mut self) -> Step {
        let plan = &self.plan;
        let weights = [
            (plan.append, Step::Append),
            (plan.read, Step::Read),
            (plan.write, Step::Write),
            (plan.maintain, Step::Maintain),
            (plan.serve, Step::Serve),
            (plan.time, Step::Pass),
            (plan.assign, Step::Assign),
            (plan.revoke, Step::Revoke),
            (plan.kick, Step::ThrowOut),
            (plan.crash, Step::Crash),
            (plan.freeze, Step::Freeze),
            (plan.stop, Step::Stop),
        ];
        let sum = weights.iter().map(|(weight, _)| weight).sum();
        let mut at = self.outside.enter().luck.u32(0..sum);
        for (weight, step) in weights {
            if at < weight {
                return step;
            }
            at -= weight;
        }
        Step::Pass
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        self.steps += 1;
        let slot = self.outside.enter().luck.usize(0..self.slots.len());
        match step {
            Step::Append => self.append(),
            Step::Read => self.read(slot),
            Step::Write => self.write(slot)?,
            Step::Maintain => self.maintain(slot),
            Step::Serve => self.outside.enter().serve(),
            Step::Pass => self.pass(),
            Step::Assign => self.group.assign(&mut self.outside.enter().luck),
            Step::Revoke => self.group.revoke_one(&mut self.outside.enter().luck),
            Step::ThrowOut => self.throw_out(),
            Step::Crash => self.crash(slot),
            Step::Freeze => self.freeze(slot),
            Step::Stop => {
                if let Some(process) = &mut self.slots[slot] {
                    process.stops = true;
                }
            }
            Step::KeepLog => self.keep_log()?,
        }
        match self.outside.enter().audit.broken.take() {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    fn append(&mut self) {
        let mut world = self.outside.enter();
        let now_ms = world.now_ms();
        for _ in 0..world.luck.u32(1..6) {
            if world.logs.left == 0 {
                return;
            }
            let world = &mut *world;
            let (partition, offset) = world.logs.append(&mut world.luck, now_ms);
            let record = world.logs.record(partition, offset).clone();
            world.tell(|| {
                format!(
                    "{partition}@{offset} is {:?} at {:?}",
                    record.content,
                    record.ms.map(|ms| ms - NOW_MS)
                )
            });
        }
    }

    /// The process in a slot, if it runs; an empty one gets a new process.
    fn awake(&mut self, slot: usize) -> Option<&mut Process> {
        if self.slots[slot].is_none() {
            let process = Process::start(self.lives, slot, &self.outside, &self.plan, self.mutant);
            self.outside
                .enter()
                .tell(|| format!("{} starts", process.name));
            self.group.join(self.lives);
            self.lives += 1;
            self.slots[slot] = Some(process);
        }
        self.slots[slot].as_mut().filter(|it| !it.is_frozen)
    }

    fn read(&mut self, slot: usize) {
        if self.awake(slot).is_some()
            && let Some(process) = &mut self.slots[slot]
        {
            process.read(&mut self.group);
        }
    }

    fn maintain(&mut self, slot: usize) {
        if let Some(process) = self.awake(slot) {
            process.maintain();
        }
    }

    fn write(&mut self, slot: usize) -> Result<(), String> {
        let Some(process) = self.awake(slot) else {
            return Ok(());
        };
        let Poll::Ready(ended) = process.write() else {
            return Ok(());
        };
        let (name, number) = (process.name.clone(), process.number);
        let mut world = self.outside.enter();
        world.tell(|| format!("{name} ends: {ended:?}"));
        let says_goodbye = world.is_calm || world.chance(50);
        world.orphan(number);
        drop(world);
        if says_goodbye {
            self.group.leave(number);
        }
        self.slots[slot] = None;
        let saw = match ended {
            Ok(()) => "a process that stopped in order",
            Err(Ended::Letters) => return Ok(()),
            Err(Ended::Fenced) => "a process that was fenced three times",
            Err(Ended::Lake(LakeError::Unavailable { .. })) => "a store that did not answer",
            // A checkpoint that the store does not hand over is told as bad data.
            Err(Ended::Lake(
                LakeError::Store { .. } | LakeError::Delta { .. } | LakeError::Data { .. },
            )) => "a log that could not be read",
            Err(Ended::Lake(error)) => return Err(format!("{name} ends: {error}")),
        };
        self.outside.enter().saw(saw);
        Ok(())
    }

    /// Mostly a moment, at times so long that something is too old.
    fn pass(&mut self) {
        let mut world = self.outside.enter();
        let leaps = world.chance(self.plan.leap);
        let ms = match (leaps, world.luck.u32(0..4)) {
            (false, _) => world.luck.i64(0..1_500),
            (true, 0) => 70_000,
            (true, 1) => 11 * MINUTE_MS,
            (true, 2) => 61 * MINUTE_MS,
            (true, _) => 20_000,
        };
        world.pass(ms);
        world.tell(|| format!("{ms} ms pass"));
    }

    fn throw_out(&mut self) {
        let mut world = self.outside.enter();
        if let Some(process) = self.group.throw_out(&mut world.luck) {
            world.tell(|| format!("process {process} is thrown out"));
        }
    }

    /// A week and a day pass, in which every request got its answer. A checkpoint is written, the
    /// entries before it are cleaned up, and so are files that nothing needs. Some sleep through it.
    fn keep_log(&mut self) -> Result<(), String> {
        let mut world = self.outside.enter();
        for process in self.slots.iter_mut().flatten() {
            process.is_frozen |= world.chance(50);
        }
        world.settle_all();
        world.pass(8 * DAY_MS);
        let now_ms = world.now_ms();
        drop(world);
        let kept = runtime().block_on(async {
            let table = self.table().await?;
            let head = table.check().await?.version;
            checkpoint(&table, head).await?;
            let removed = clean_log(&table, head, now_ms - LOG_KEPT_MS).await?;
            let member = Member {
                group: "g".into(),
                name: "keeper".into(),
            };
            let clock = self.outside.clock(0);
            let mut writer = Writer::open(table, member, clock, WriterLimits::default()).await?;
            writer.claim_leader().await?;
            let files = vacuum(&mut writer, VacuumLimits::default(), now_ms, false)
                .await?
                .files;
            Ok::<_, LakeError>((removed, files.len()))
        });
        let (removed, files) = kept.map_err(|error| format!("log clean-up: {error}"))?;
        let mut world = self.outside.enter();
        world.tell(|| format!("a checkpoint, {removed} entries and {files} files removed"));
        if files > 0 {
            world.saw("files vacuumed");
        }
        if removed > 0 {
            world.saw("entries cleaned up");
        }
        Ok(())
    }

    /// The table, served at once.
    async fn table(&self) -> Result<Table, LakeError> {
        let gate = Gate {
            outside: self.outside.clone(),
            process: None,
        };
        let clock = self.outside.clock(0);
        Table::open_on(Arc::new(gate), &url(), spec(), &clock, RETRY).await
    }

    /// Killed: its stages are gone, what it has sent is not, and the group waits for it.
    fn crash(&mut self, slot: usize) {
        if let Some(process) = self.slots[slot].take() {
            let mut world = self.outside.enter();
            world.tell(|| format!("{} is killed", process.name));
            world.orphan(process.number);
        }
    }

    fn freeze(&mut self, slot: usize) {
        if let Some(process) = &mut self.slots[slot] {
            process.is_frozen = !process.is_frozen;
            let (name, is_frozen) = (&process.name, process.is_frozen);
            self.outside
                .enter()
                .tell(|| format!("{name} frozen: {is_frozen}"));
        }
    }

    /// Nothing goes wrong any more: everyone wakes, and everything gets where it belongs.
    fn calm_down(&mut self) -> Result<(), String> {
        let mut world = self.outside.enter();
        world.tell(|| "calm".to_owned());
        world.is_calm = true;
        world.store.heal();
        drop(world);
        for process in self.slots.iter_mut().flatten() {
            process.is_frozen = false;
        }
        for round in 0..CALM_ROUNDS_MAX {
            if self.unrest().is_none() {
                return Ok(());
            }
            let living: Vec<usize> = self.slots.iter().flatten().map(|it| it.number).collect();
            self.group.bury_all_but(&living);
            for slot in 0..self.slots.len() {
                self.read(slot);
                self.write(slot)?;
                if round % 8 == 0 {
                    self.maintain(slot);
                }
            }
            let mut world = self.outside.enter();
            world.serve();
            self.group.assign(&mut world.luck);
            world.pass(100);
            drop(world);
            self.step(Step::Write)?;
        }
        let why = self.unrest().unwrap_or_default();
        Err(format!(
            "it is not quiet after {CALM_ROUNDS_MAX} rounds of calm: {why}"
        ))
    }

    /// What is still to be done; `None` when all is quiet.
    fn unrest(&self) -> Option<String> {
        for process in self.slots.iter().flatten() {
            if let Some(why) = process.unrest() {
                return Some(format!("{}: {why}", process.name));
            }
        }
        if let Some(why) = self.group.unrest() {
            return Some(why);
        }
        let world = self.outside.enter();
        if !world.store.is_idle() {
            return Some("a request is in flight".to_owned());
        }
        (0..self.plan.partitions).find_map(|partition| {
            let next = world.audit.position(partition).map_or(0, |it| it.next);
            let end = world.logs.end(partition);
            (next < end).then(|| format!("partition {partition} stands at {next} of {end}"))
        })
    }

    /// What a reader of the table finds is what was judged, entry by entry.
    fn look_again(&self) -> Result<(), String> {
        let found = runtime().block_on(async {
            let table = self.table().await?;
            let state = table.check().await?;
            let files = load_files(&table, state.version).await?;
            Ok::<_, LakeError>((state, files))
        });
        let (state, files) = found.map_err(|error| format!("the table at the end: {error}"))?;
        let world = self.outside.enter();
        let audit = &world.audit;
        if let Some(why) = &audit.broken {
            return Err(why.clone());
        }
        if !files.live.keys().eq(audit.live_files.iter()) {
            return Err(format!(
                "a reader finds {:?}, not {:?}",
                files.live.keys(),
                audit.live_files
            ));
        }
        if state.positions() != audit.positions() {
            return Err(format!(
                "a reader finds {:?}, not {:?}",
                state.positions(),
                audit.positions()
            ));
        }
        for partition in 0..self.plan.partitions {
            let wanted =
                (0..world.logs.end(partition)).flat_map(|it| world.logs.wanted(partition, it));
            let wanted: Vec<_> = wanted.collect();
            let mut rows: Vec<_> = files
                .live
                .keys()
                .flat_map(|it| &world.files[it])
                .copied()
                .collect();
            rows.retain(|row| row.0 == partition);
            rows.sort_unstable();
            if rows != wanted {
                return Err(format!(
                    "{} has the rows {rows:?}, not {wanted:?}",
                    p(partition)
                ));
            }
        }
        Ok(())
    }
}

/// For what the Delta crate runs on threads of its own: nothing else goes on meanwhile.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}
