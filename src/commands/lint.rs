//! `retrytoll lint [FILE…]`: files, or the newest of the topic → what is wrong with the events.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use retrytoll_core::derive::Tables;
use retrytoll_core::lint::Severity;
use retrytoll_jobs::Format;

use crate::cli::{Settings, TopicFlags, World};
use crate::config::{Config, Need};
use crate::exit::{Exit, Stop};
use crate::files::open;
use crate::kafka::read_newest;
use crate::lake;
use crate::lint::{Events, Looked, Origin, json, text};
use crate::pipeline::SourceRecord;
use crate::report::output::style;

/// Look at your events and tell what is wrong with them, each with the mend
///
/// Reads files, as `ingest` does, or without any the newest events of the topic. No consumer group
/// is joined, nothing is committed, and nothing is written. Errors: events are lost, or figures are
/// wrong. Warnings: figures are withheld, or less sure than they could be.
#[derive(Debug, clap::Args)]
pub struct LintArgs {
    /// Files to look at; "-" is stdin [default: the topic]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Of the topic, so many of its newest records at most, over all partitions
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 100_000,
        conflicts_with = "files"
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// table or json
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = format)]
    format: Format,
    /// Exit with 3 where there is a finding as grave as this: error, or warning (errors too)
    #[arg(long, value_name = "SEVERITY", value_parser = severity)]
    fail_over: Option<Severity>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    topic: TopicFlags,
}

fn format(text: &str) -> Result<Format, String> {
    let found = [Format::Table, Format::Json]
        .into_iter()
        .find(|format| format.name() == text);
    found.ok_or_else(|| "give table or json".to_owned())
}

fn severity(text: &str) -> Result<Severity, String> {
    let found = [Severity::Error, Severity::Warning]
        .into_iter()
        .find(|severity| severity.name() == text);
    found.ok_or_else(|| "give error or warning".to_owned())
}

/// Runs the command.
///
/// # Errors
/// A wrong flag or configuration, a file or a topic that can't be read.
pub fn run(args: &LintArgs, world: &mut World) -> anyhow::Result<Exit> {
    let of_files = !args.files.is_empty();
    if of_files && (args.topic.topic.is_some() || args.topic.bootstrap.is_some()) {
        let hint = "leave the files away to look at the topic, or --bootstrap and --topic";
        return Err(Stop::usage("files and a topic were named", hint).into());
    }
    let (topic, need) = match of_files {
        true => (None, Need::Lake),
        false => (Some(&args.topic), Need::Kafka),
    };
    let config = args.settings.load(topic, need, world)?;
    let tables = lake::tables(&config)?;
    let (looked, name, origin) = match of_files {
        true => (
            of_all(&args.files, &world.folder, tables)?,
            names(&args.files),
            Origin::Files,
        ),
        false => {
            let (looked, name) = of_topic(&config, args.events, tables)?;
            (looked, name, Origin::Topic)
        }
    };
    if args.format == Format::Json {
        let answer = serde_json::to_string_pretty(&json(&looked, &name, origin))?;
        writeln!(world.out, "{answer}")?;
    } else {
        let style = style(None, world);
        text(world.out.as_mut(), &looked, &name, origin, style)?;
    }
    judge(args.fail_over, &looked, world)
}

fn names(files: &[PathBuf]) -> String {
    match files {
        [one] if one == Path::new("-") => "stdin".to_owned(),
        [one] => one.display().to_string(),
        many => format!("{} files", many.len()),
    }
}

fn of_all(files: &[PathBuf], folder: &Path, tables: Arc<Tables>) -> anyhow::Result<Looked> {
    let mut events = Events::new(tables);
    for path in files {
        let shown = path.display().to_string();
        let place = match path == Path::new("-") {
            true => path.clone(),
            false => folder.join(path),
        };
        let failed = || format!("cannot read {shown}");
        let mut lines = open(&place).with_context(failed)?;
        events.begin(&shown);
        while let Some(line) = lines.next_line().with_context(failed)? {
            if line.is_cut() {
                break;
            }
            events.record(&SourceRecord {
                partition: 0,
                offset: line.number,
                timestamp_ms: None,
                payload: (!line.is_blank()).then_some(line.bytes),
            });
        }
    }
    Ok(events.finish())
}

fn of_topic(
    config: &Config,
    events_max: u64,
    tables: Arc<Tables>,
) -> anyhow::Result<(Looked, String)> {
    let kafka = config.kafka.as_ref();
    let kafka = kafka.ok_or_else(|| Stop::usage("no topic is configured", "name a file"))?;
    let mut newest = read_newest(kafka, config, events_max)?;
    let mut events = Events::new(tables);
    events.begin(&newest.source);
    newest.each(|record| events.record(record))?;
    let plural = if newest.partitions == 1 { "" } else { "s" };
    let name = format!(
        "the newest of {} ({} partition{plural})",
        kafka.topic, newest.partitions
    );
    Ok((events.finish(), name))
}

fn judge(limit: Option<Severity>, looked: &Looked, world: &mut World) -> anyhow::Result<Exit> {
    let Some(limit) = limit else {
        return Ok(Exit::Fine);
    };
    let report = &looked.report;
    let (errors, warnings) = (
        report.count(Severity::Error),
        report.count(Severity::Warning),
    );
    let (exit, met) = match report.reaches(limit) {
        true => (Exit::GateNotMet, "gate not met"),
        false => (Exit::Fine, "gate met"),
    };
    writeln!(world.err, "{met}: errors {errors}, warnings {warnings}")?;
    Ok(exit)
}
