//! `retrytoll demo`: made-up traffic through the whole pipeline, with nothing to install.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use chrono::DateTime;
use retrytoll_jobs::{Catalog, Format, Limits, Session, Style, Toll, Window, Zone, render};
use tokio::runtime::Runtime;

use super::run::{Instance, alerting, pipeline};
use crate::cli::World;
use crate::clock::{Stopwatch, now_ms};
use crate::config::raw::{Flag, RawConfig, Sources};
use crate::config::{Config, Mistakes, Need};
use crate::demo::{EmbeddedBroker, Kind, Plan, Produced, alerts, generate};
use crate::exit::{Exit, Stop};
use crate::lake;
use crate::report::headline::toll_line;

const HOUR_MS: i64 = 3_600_000;
/// About 22 MB of events: the embedded broker keeps 5 MiB in each of 8 partitions.
const OPERATIONS: u32 = 30_000;

/// Watch the whole pipeline at work, with nothing to install
///
/// A day of made-up traffic, with an incident in it, goes through an embedded broker and the real
/// pipeline into a lake of your own; then the reports show what its retries cost, and the alert
/// topic what whoever is on call would have been told.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// The seed of the traffic: the same seed gives the same figures
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// How many operations to make up; more than 50,000 would not fit the embedded broker
    #[arg(long, default_value_t = OPERATIONS, value_parser = clap::value_parser!(u32).range(100..=50_000))]
    operations: u32,
    /// Where to put the lake; without it demo-lake, or demo-lake-2 and so on where that is there
    #[arg(long, value_name = "PATH")]
    lake: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &DemoArgs, world: &mut World) -> anyhow::Result<Exit> {
    let watch = Stopwatch::start();
    let root = lake_folder(args.lake.as_deref(), &world.folder)?;
    let span_ms = 24 * HOUR_MS;
    let start_ms = now_ms().div_euclid(HOUR_MS) * HOUR_MS - span_ms;
    let plan = Plan {
        seed: args.seed,
        operations: args.operations,
        start_ms,
        span_ms,
    };

    let err = &mut world.err;
    write!(err, "making up a day of traffic (seed {}) ... ", args.seed)?;
    err.flush()?;
    let records = generate(plan);
    std::fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
    let truth = root.join("truth.jsonl");
    write_truth(&truth, &records)?;
    let count = |kind| records.iter().filter(|record| record.kind == kind).count();
    writeln!(
        err,
        "{} attempts of {} operations, {} sent twice, {} cut in half",
        count(Kind::Event),
        args.operations,
        count(Kind::Duplicate),
        count(Kind::Malformed)
    )?;

    write!(err, "sending them to an embedded Kafka broker ... ")?;
    err.flush()?;
    let broker = EmbeddedBroker::start()?;
    broker.produce(&records)?;
    writeln!(err, "{} records on 8 partitions", records.len())?;

    write!(err, "reading, pricing, writing Parquet, committing ... ")?;
    err.flush()?;
    let config = config(&broker.bootstrap(), &root)?;
    let Some(kafka) = config.kafka.clone() else {
        bail!("the demo has no topic")
    };
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let stop = AtomicBool::new(false);
    let instance = Instance {
        until_end: true,
        ..Instance::default()
    };
    let (read, written) = pipeline(&config, &kafka, &runtime, &stop, &instance)?;
    writeln!(
        err,
        "{} rows, {} duplicates left out, {} dead letters, {:.1} s",
        written.rows,
        read.duplicates,
        read.dead_letters,
        watch.elapsed().as_secs_f64()
    )?;
    write!(err, "looking at the alert rules over the day ... ")?;
    err.flush()?;
    let sent = runtime.block_on(alerting(&config, &kafka)?.run_to_end())?;
    let messages = broker.read_all(&kafka.alert_topic)?;
    let seconds = watch.elapsed().as_secs_f64();
    writeln!(err, "{} sent, {seconds:.1} s", sent.len())?;
    err.flush()?;
    reports(&root, plan, &runtime, world)?;
    show_alerts(&kafka.alert_topic, &messages, world)?;
    next_steps(&root, &truth, world)?;
    Ok(Exit::Fine)
}

fn lake_folder(given: Option<&Path>, folder: &Path) -> anyhow::Result<PathBuf> {
    let is_free = |path: &Path| {
        !path.exists()
            || path
                .read_dir()
                .is_ok_and(|mut entries| entries.next().is_none())
    };
    if let Some(path) = given {
        if !is_free(path) {
            let message = format!("{} is not empty", path.display());
            bail!(Stop::usage(
                message,
                "name another folder with --lake: a demo begins anew"
            ));
        }
        return Ok(path.to_owned());
    }
    let names = std::iter::once("demo-lake".to_owned());
    let names = names.chain((2..1_000).map(|number| format!("demo-lake-{number}")));
    match names
        .map(|name| folder.join(name))
        .find(|path| is_free(path))
    {
        Some(path) => Ok(path),
        None => bail!(Stop::usage(
            "there are a thousand demo lakes here",
            "remove some"
        )),
    }
}

fn write_truth(path: &Path, records: &[Produced]) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for record in records {
            writeln!(file, "{}", record.truth())?;
        }
        file.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// The configuration that a user would write for this broker.
fn config(bootstrap: &str, root: &Path) -> anyhow::Result<Config> {
    let flag = |key: &str, value: String| Flag {
        typed: "demo".into(),
        key: key.into(),
        value,
    };
    let flags = [
        flag("kafka.bootstrap", bootstrap.to_owned()),
        flag("kafka.topic", "llm-retries".to_owned()),
        flag("lake.path", root.display().to_string()),
    ];
    let sources = Sources {
        file: Some(Path::new("/dev/null")),
        folder: root,
        env: &[],
        flags: &flags,
    };
    let (raw, mut mistakes) = RawConfig::read(&sources);
    let (config, more) = Config::of(&raw, Need::Kafka);
    mistakes.extend(more);
    Ok(Mistakes(mistakes).none_or(config)?)
}

/// The share against its threshold, and what the retries were.
fn reports(root: &Path, plan: Plan, runtime: &Runtime, world: &mut World) -> anyhow::Result<()> {
    let instant = |ms| DateTime::from_timestamp_millis(ms).unwrap_or_default();
    let window = Window {
        since: instant(plan.start_ms),
        // The last operations of the day end a little after it.
        until: instant(plan.start_ms + plan.span_ms + HOUR_MS),
        zone: Zone::utc(),
    };
    let style = Style {
        width: None,
        color: world.colour(world.out_is_terminal),
    };
    let catalog = Catalog::embedded();
    let url = lake::url_of(&root.canonicalize()?)?;
    let session = runtime.block_on(Session::open(&url, None, Limits::default()))?;
    let answer = |name: &str, given: BTreeMap<String, String>| {
        let job = catalog.get(name)?;
        runtime.block_on(session.run_job(&job, &window, &given))
    };
    if let Some(toll) = Toll::of(&answer("toll", BTreeMap::new())?.batches) {
        writeln!(world.out, "\n{}", toll_line(toll))?;
    }
    for (name, by) in [
        ("retry_cost_share", "service"),
        ("retries", "class"),
        ("repeated_billing", "service"),
        ("retry_rescue", "all"),
    ] {
        let result = answer(name, BTreeMap::from([("by".to_owned(), by.to_owned())]))?;
        let mut text = Vec::new();
        render::report(&mut text, &result, Format::Table, style)?;
        writeln!(world.out)?;
        world.out.write_all(&text)?;
    }
    Ok(())
}

fn show_alerts(topic: &str, messages: &[String], world: &mut World) -> anyhow::Result<()> {
    let out = &mut world.out;
    if messages.is_empty() {
        writeln!(out, "\nNo alert rule was met: the topic {topic} is empty.")?;
        return Ok(());
    }
    writeln!(out, "\nAlerts, read back from the topic {topic}:\n")?;
    write!(out, "{}", alerts::text(messages).trim_end_matches('\n'))?;
    writeln!(out)?;
    Ok(())
}

fn next_steps(root: &Path, truth: &Path, world: &mut World) -> anyhow::Result<()> {
    let out = &mut world.out;
    let lake = root.display();
    writeln!(
        out,
        "\nThe lake is in {lake}: Parquet, and a Delta log beside it."
    )?;
    writeln!(out, "What was made up is in {}.", truth.display())?;
    writeln!(out, "\nTry next:")?;
    writeln!(out, "  retrytoll report --lake {lake} --since 26h")?;
    writeln!(
        out,
        "  retrytoll report repeated_billing --by operation --lake {lake} --since 26h"
    )?;
    writeln!(
        out,
        "  retrytoll sql \"SELECT service, count(*) AS attempts FROM attempts GROUP BY service\" \
         --lake {lake}"
    )?;
    writeln!(out, "  retrytoll alerts --lake {lake} --since 26h")?;
    Ok(())
}
