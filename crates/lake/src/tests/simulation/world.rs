//! What lies outside of every process: the time, the broker's logs, the object store, and what
//! has been committed, sent and seen there. Processes come and go, this stays.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use object_store::path::Path;

use super::audit::Audit;
use super::log::Logs;
use super::plan::Plan;
use super::store::Store;
use crate::Clock;

/// Partition, offset, place within the record.
pub type Row = (i32, i64, i32);

/// Rare events, counted.
pub type Seen = BTreeMap<&'static str, u64>;

pub struct World {
    pub luck: fastrand::Rng,
    pub logs: Logs,
    pub store: Store,
    /// The rows of every data file that was written to its end, by path.
    pub files: BTreeMap<String, Vec<Row>>,
    pub audit: Audit,
    /// Nothing goes wrong any more.
    pub is_calm: bool,
    /// How often something rare came to pass.
    pub seen: Seen,
    now: Arc<AtomicI64>,
    /// The steps, where they are wanted.
    told: Option<Vec<String>>,
}

impl World {
    /// Tells a step, where steps are told.
    pub fn tell(&mut self, what: impl FnOnce() -> String) {
        let now_ms = self.now_ms() - super::NOW_MS;
        if let Some(told) = &mut self.told {
            told.push(format!("{now_ms:>9} ms  {}", what()));
        }
    }

    pub fn now_ms(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }

    pub fn pass(&mut self, ms: i64) {
        self.now.fetch_add(ms, Ordering::Relaxed);
    }

    /// The steps, told one a line.
    pub fn told(&self) -> Vec<String> {
        self.told.clone().unwrap_or_default()
    }

    /// Counts what a run must not go without.
    pub fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// True in `percent` of all cases.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.luck.u32(0..100) < percent
    }

    /// One more file is there, whole.
    pub fn write_file(&mut self, path: &str, rows: Vec<Row>) {
        self.tell(|| format!("file {path} has {} rows", rows.len()));
        self.files.insert(path.to_owned(), rows);
        self.store
            .insert(Path::from(path), Bytes::from_static(b"1"), self.now_ms());
    }
}

/// The world, shared by everything in it. Whoever enters leaves before anyone else enters:
/// nothing is awaited inside.
#[derive(Clone)]
pub struct Outside(Arc<Mutex<World>>);

impl Outside {
    pub fn new(seed: u64, plan: &Plan, is_told: bool) -> Self {
        let world = World {
            luck: fastrand::Rng::with_seed(seed ^ 0x5eed),
            logs: Logs::new(plan),
            store: Store::new(plan),
            files: BTreeMap::new(),
            audit: Audit::default(),
            is_calm: false,
            seen: Seen::new(),
            now: Arc::new(AtomicI64::new(super::NOW_MS)),
            told: is_told.then(Vec::new),
        };
        Self(Arc::new(Mutex::new(world)))
    }

    pub fn enter(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    /// A clock that is wrong by so much.
    pub fn clock(&self, skew_ms: i64) -> Clock {
        let now = self.enter().now.clone();
        Clock::new(move || now.load(Ordering::Relaxed) + skew_ms)
    }
}
