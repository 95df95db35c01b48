//! seed → interleaving of records, rebalances, crashes and faults → real writers on a simulated
//! store → every entry judged.
//!
//! What is searched is the program's own code: `Writer`, `settle`, `replay` and positions of this
//! crate, `PartitionState` and `step` of core. What stands around them, and reads Kafka and writes
//! Parquet in the program, is small and written again here ([`reader`], [`stage`],
//! [`maintainer`]). One thread, one clock, one source of luck: a **step** is one look of one stage
//! at its work, one request served, one moment passed, one fault. The same seed runs the same way.
//!
//! The words: the [`world`] is what outlives processes; a [`process`] is one life of an instance;
//! the [`audit`] judges each entry as it lands; a [`mutant`] is a worker broken on purpose.
//!
//! `RETRYTOLL_SIM_SEED=n` runs one seed and tells its steps, `RETRYTOLL_SIM_SEEDS=n` so many.
//! What comes to an end only when everything hangs does so after a bounded number of calm rounds.

mod audit;
mod group;
mod log;
mod maintainer;
mod mutant;
mod plan;
mod process;
mod reader;
mod run;
mod stage;
mod store;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use arrow::datatypes::{DataType, Field, Schema};
use url::Url;

use self::mutant::Mutant;
use self::run::{Run, run};
use self::world::Seen;
use super::{MINUTE_MS, NOW_MS, RETRY};
use crate::{SourcePartition, TableSpec};

const DAY_MS: i64 = 24 * 60 * MINUTE_MS;
const SOURCE: &str = "c1/calls";
/// Seeds of a usual test run.
const SEEDS: u64 = 2_000;
/// Seeds of the long tier.
const SEEDS_LONG: u64 = 50_000;
/// Steps that are told of a seed that broke.
const TOLD_MAX: usize = 160;
/// Seeds within which every mutant is to be found out.
const SEEDS_OF_A_MUTANT: u64 = 400;

/// What must come to pass in a usual test run, or it looks at too little.
const RARE: [&str; 13] = [
    "a base that was cleaned up",
    "a commit whose answer was lost",
    "a dead letter refused",
    "a fence",
    "a flush too old",
    "a log that could not be read",
    "a process that was fenced three times",
    "a put that landed after its sender was gone or gave up on it",
    "a store that did not answer",
    "an answer to an earlier term",
    "files compacted",
    "files vacuumed",
    "revoked with rows in the flush",
];

fn p(partition: i32) -> SourcePartition {
    SourcePartition::new(SOURCE, partition)
}

fn partition_of(partition: &SourcePartition) -> i32 {
    partition.partition
}

fn url() -> Url {
    Url::parse("memory:///").unwrap()
}

fn spec() -> TableSpec {
    let columns = Schema::new(vec![Field::new("source_offset", DataType::Int64, false)]);
    TableSpec {
        columns: Arc::new(columns),
        by_date: false,
        schema_major: 1,
    }
}

/// Runs one seed; a panic breaks it like anything else.
fn outcome(seed: u64, mutant: Option<Mutant>, is_told: bool) -> Run {
    catch_unwind(AssertUnwindSafe(|| run(seed, mutant, is_told))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
        let why = format!("a panic: {}", text.unwrap_or_default());
        Run {
            steps: 0,
            entries: 0,
            broken: Some((0, why)),
            seen: Seen::new(),
            told: Vec::new(),
        }
    })
}

/// Runs seeds one by one; at the first that breaks, tells its last steps and fails.
fn check(seeds: impl Iterator<Item = u64>) -> Seen {
    #[expect(
        clippy::disallowed_methods,
        reason = "how fast it is, is told and not judged"
    )]
    let began = Instant::now();
    let (mut count, mut steps, mut entries) = (0_u64, 0, 0);
    let mut seen = Seen::new();
    for seed in seeds {
        let done = outcome(seed, None, false);
        if let Some((step, why)) = done.broken {
            let told = outcome(seed, None, true).told;
            let last = told[told.len().saturating_sub(TOLD_MAX)..].join("\n");
            panic!(
                "{last}\nseed {seed} broke in step {step}: {why}\nagain: RETRYTOLL_SIM_SEED={seed}"
            );
        }
        count += 1;
        steps += done.steps;
        entries += done.entries;
        for (what, often) in done.seen {
            *seen.entry(what).or_default() += often;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{count} seeds, {steps} steps, {entries} commits in {seconds:.1} s: {:.0} steps/s",
        steps as f64 / seconds
    );
    println!("{seen:#?}");
    seen
}

fn setting(name: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "a test has no configuration")]
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: give a whole number")),
    )
}

/// Seeds that broke something once, a line each with what it was.
fn kept() -> impl Iterator<Item = u64> {
    let lines = include_str!("kept_seeds.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn every_interleaving_writes_each_row_once() {
    if let Some(seed) = setting("RETRYTOLL_SIM_SEED") {
        println!("{}", outcome(seed, None, true).told.join("\n"));
        check([seed].into_iter());
        return;
    }
    if let Some(seeds) = setting("RETRYTOLL_SIM_SEEDS") {
        check(kept().chain(0..seeds));
        return;
    }
    let seen = check(kept().chain(0..SEEDS));
    let missing: Vec<_> = RARE.iter().filter(|it| !seen.contains_key(*it)).collect();
    assert!(missing.is_empty(), "never came to pass: {missing:?}");
}

#[test]
#[ignore = "long: minutes"]
fn many_more_interleavings() {
    let many = setting("RETRYTOLL_SIM_SEEDS").unwrap_or(SEEDS_LONG);
    check(SEEDS..SEEDS + many);
}

/// A simulation that finds nothing may look at nothing.
#[test]
fn broken_workers_are_found_out() {
    let mut unseen = Vec::new();
    for mutant in Mutant::ALL {
        let found = (0..SEEDS_OF_A_MUTANT).find_map(|seed| {
            let (step, why) = outcome(seed, Some(mutant), false).broken?;
            Some(format!("seed {seed}, step {step}: {why}"))
        });
        match found {
            Some(how) => println!("{mutant:?}: {how}"),
            None => unseen.push(mutant),
        }
    }
    assert!(
        unseen.is_empty(),
        "not found in {SEEDS_OF_A_MUTANT} seeds: {unseen:?}"
    );
}

#[test]
fn a_seed_runs_the_same_way_each_time() {
    for seed in 0..20 {
        let (once, again) = (outcome(seed, None, true), outcome(seed, None, true));
        assert_eq!(
            (once.steps, once.told),
            (again.steps, again.told),
            "seed {seed}"
        );
    }
}
