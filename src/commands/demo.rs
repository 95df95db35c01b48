//! `retrytoll demo`: made-up traffic through the whole pipeline, with nothing to install.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use chrono::DateTime;
use retrytoll_jobs::{Style, Window, Zone};
use tokio::runtime::Runtime;

use super::run::{Instance, alerting, pipeline};
use crate::cli::World;
use crate::clock::{Stopwatch, now_ms};
use crate::config::raw::{Flag, RawConfig, Sources};
use crate::config::{Config, Mistakes, Need};
use crate::demo::sections::Shown;
use crate::demo::{EmbeddedBroker, Kind, Plan, Produced, alerts, generate};
use crate::exit::{Exit, Stop};
use crate::lake;
use crate::report::open::limits;

const HOUR_MS: i64 = 3_600_000;
/// After the last operation has started, some go on, and some are sent again.
const TAIL_MS: i64 = HOUR_MS;
/// Columns of the demo's text.
const WIDTH: usize = 100;
/// About 24 MB of events: the embedded broker keeps 5 MiB in each of 8 partitions.
const OPERATIONS: u32 = 30_000;

/// Watch the whole pipeline at work, with nothing to install
///
/// A day of made-up traffic, with an incident in it, goes through an embedded broker and the real
/// pipeline into a lake of your own; then the reports show what its retries cost: who retries,
/// what was billed more than once and by which evidence, what each retry rescues, a prompt that was
/// sent again and again, and from the alert topic what whoever is on call would have been told.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// The seed of the traffic: the same seed gives the same figures
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// How many operations to make up; more than 36,000 might not fit the embedded broker
    #[arg(long, default_value_t = OPERATIONS, value_parser = clap::value_parser!(u32).range(100..=36_000))]
    operations: u32,
    /// Where to put the lake; without it demo-lake, or demo-lake-2 and so on where that is there
    #[arg(long, value_name = "PATH")]
    lake: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &DemoArgs, world: &mut World) -> anyhow::Result<Exit> {
    let watch = Stopwatch::start();
    let root = lake_folder(args.lake.as_deref(), &world.folder)?;
    let plan = plan(args);
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
    let stop = Arc::new(AtomicBool::new(false));
    let instance = Instance {
        until_end: true,
        ..Instance::default()
    };
    let (read, written) = pipeline(&config, &kafka, &runtime, &stop, &instance)?;
    all_came_back(
        records.len(),
        written.rows + read.duplicates + read.dead_letters,
    )?;
    writeln!(
        err,
        "{} rows, {} duplicates left out, {} dead letters, {:.1} s",
        written.rows,
        read.duplicates,
        read.dead_letters,
        watch.elapsed().as_secs_f64()
    )?;
    // The embedded broker ends with this process, so nothing follows what was read of it: everything
    // is complete, and the alert rules are looked at up to the last event.
    runtime.block_on(lake::retire(&root.canonicalize()?, &kafka.group, |_| true))?;
    write!(err, "looking at the alert rules over the day ... ")?;
    err.flush()?;
    let sent = runtime.block_on(alerting(&config, &kafka, &instance)?.run_to_end())?;
    let messages = broker.read_all(&kafka.alert_topic)?;
    let seconds = watch.elapsed().as_secs_f64();
    writeln!(err, "{} sent, {seconds:.1} s", sent.len())?;
    err.flush()?;
    let flags = sections(&root, &config, plan, &runtime, world)?;
    show_alerts(&kafka.alert_topic, &messages, &flags, world)?;
    next_steps(&root, &truth, &flags, world)?;
    Ok(Exit::Fine)
}

/// A day, all of it in the past: the pipeline's clocks follow no time that is to come.
fn plan(args: &DemoArgs) -> Plan {
    let span_ms = 24 * HOUR_MS;
    Plan {
        seed: args.seed,
        operations: args.operations,
        start_ms: now_ms().div_euclid(HOUR_MS) * HOUR_MS - span_ms - TAIL_MS,
        span_ms,
    }
}

/// The embedded broker drops what it has no room for, and says nothing.
fn all_came_back(sent: usize, came: u64) -> anyhow::Result<()> {
    if sent as u64 != came {
        let message = format!("the embedded broker gave back {came} of {sent} records");
        bail!(Stop::usage(message, "make up fewer with --operations"));
    }
    Ok(())
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

/// What the lake says; gives what a command needs to ask about the same.
fn sections(
    lake: &Path,
    config: &Config,
    plan: Plan,
    runtime: &Runtime,
    world: &mut World,
) -> anyhow::Result<String> {
    let style = Style {
        width: Some(WIDTH),
        color: world.colour(world.out_is_terminal),
    };
    let shown = Shown::open(lake, window(plan), runtime, limits(config), style)?;
    let out = world.out.as_mut();
    shown.headline(out)?;
    shown.shares(out)?;
    shown.repeated(out)?;
    shown.rescue(out)?;
    shown.chain(out)?;
    Ok(shown.flags().to_owned())
}

fn window(plan: Plan) -> Window {
    let instant = |ms| DateTime::from_timestamp_millis(ms).unwrap_or_default();
    Window {
        since: instant(plan.start_ms),
        until: instant(plan.start_ms + plan.span_ms + TAIL_MS),
        zone: Zone::utc(),
    }
}

fn show_alerts(
    topic: &str,
    messages: &[String],
    flags: &str,
    world: &mut World,
) -> anyhow::Result<()> {
    let out = &mut world.out;
    writeln!(out, "\nAlerts")?;
    if messages.is_empty() {
        writeln!(out, "No alert rule was met: the topic {topic} is empty.")?;
        return Ok(());
    }
    writeln!(
        out,
        "What whoever is on call would have got, read back from the topic {topic}.\n"
    )?;
    write!(
        out,
        "{}",
        alerts::text(messages, WIDTH).trim_end_matches('\n')
    )?;
    writeln!(out, "\n  more: retrytoll alerts {flags}")?;
    Ok(())
}

fn next_steps(root: &Path, truth: &Path, flags: &str, world: &mut World) -> anyhow::Result<()> {
    let out = &mut world.out;
    let lake = root.display();
    writeln!(
        out,
        "\nThe lake is in {lake}: Parquet, and a Delta log beside it. All that was sent is in it."
    )?;
    writeln!(out, "What was made up is in {}.", truth.display())?;
    writeln!(out, "\nTry next:")?;
    writeln!(out, "  retrytoll report {flags}")?;
    writeln!(out, "  retrytoll report redundant_cost --by class {flags}")?;
    writeln!(
        out,
        "  retrytoll sql \"SELECT role, count(*) AS attempts FROM attempts GROUP BY role\" --lake {lake}"
    )?;
    Ok(())
}
