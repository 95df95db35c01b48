//! One life of an instance: its two stages and its maintenance, from its start to its end.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::group::Group;
use super::maintainer;
use super::mutant::Mutant;
use super::plan::Plan;
use super::reader::{Between, Reader};
use super::stage::{self, Ended, Env};
use super::world::Outside;

pub struct Process {
    pub number: usize,
    pub name: String,
    /// It is not run, and does not know.
    pub is_frozen: bool,
    /// It was asked to stop.
    pub stops: bool,
    reader: Reader,
    env: Env,
    stage: Pin<Box<dyn Future<Output = Result<(), Ended>>>>,
    maintenance: Pin<Box<dyn Future<Output = ()>>>,
}

fn poll<T>(future: &mut Pin<Box<dyn Future<Output = T>>>) -> Poll<T> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

impl Process {
    pub fn start(
        number: usize,
        slot: usize,
        outside: &Outside,
        plan: &Rc<Plan>,
        mutant: Option<Mutant>,
    ) -> Self {
        let skew_ms = outside.enter().luck.i64(-10_000..10_000);
        let env = Env {
            outside: outside.clone(),
            process: number,
            name: format!("w{slot}.{number}"),
            clock: outside.clock(skew_ms),
            between: Rc::new(RefCell::new(Between::default())),
            leading: Rc::new(Cell::new(false)),
            mutant,
            plan: plan.clone(),
        };
        Self {
            number,
            name: env.name.clone(),
            is_frozen: false,
            stops: false,
            reader: Reader::new(plan, env.between.clone(), mutant, env.clock.now_ms()),
            stage: Box::pin(stage::run(env.clone())),
            maintenance: Box::pin(maintainer::run(env.clone())),
            env,
        }
    }

    pub fn read(&mut self, group: &mut Group) {
        let mut world = self.env.outside.enter();
        if group.is_stray(self.number) && (world.is_calm || world.chance(self.env.plan.finds_out)) {
            world.tell(|| format!("{} finds that it was thrown out", self.name));
            group.find_back(self.number, self.reader.assigned());
        }
        let told = group.poll(self.number);
        if !told.is_empty() {
            world.tell(|| format!("{} hears {told:?}", self.name));
        }
        let now_ms = self.env.clock.now_ms();
        self.reader.round(told, self.stops, now_ms, &mut world);
    }

    pub fn write(&mut self) -> Poll<Result<(), Ended>> {
        poll(&mut self.stage)
    }

    pub fn maintain(&mut self) {
        let _ = poll(&mut self.maintenance);
    }

    /// What it has still to do.
    pub fn unrest(&self) -> Option<String> {
        let between = self.env.between.borrow();
        if !between.facts.is_empty() || !between.orders.is_empty() {
            return Some(format!(
                "waiting: {:?}, {:?}",
                between.facts, between.orders
            ));
        }
        self.reader.unrest(&self.env.outside.enter())
    }
}
