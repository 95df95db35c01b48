//! `retrytoll ingest FILE…`: files or stdin → the lake, each event once.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use retrytoll_core::batch::SourceId;
use retrytoll_core::derive::Tables;
use retrytoll_core::step::Progress;
use retrytoll_lake::Clock;
use tokio::runtime::Runtime;

use crate::alerts::{AlertOutlet, Alerting, AlertingSettings};
use crate::cli::{Settings, World};
use crate::clock::{Stopwatch, now_ms};
use crate::config::{Config, Need};
use crate::exit::{Exit, Stop};
use crate::files::{FileSource, Lines, identify, open};
use crate::lake;
use crate::maintenance::Maintenance;
use crate::outlet::DeadLetterOutlet;
use crate::pipeline::{
    Fact, FileMark, Order, ReadCounts, Reader, SourceRecord, Stage, Starts, Term, WriteSummary,
    bounded,
};
use crate::profile::Profiles;

/// In place of a consumer group, in commits and as the source of alerts.
pub const GROUP: &str = "ingest";

/// Read files of retry-decision events into the lake
///
/// JSON lines, plain or compressed by gzip or zstd; "-" is stdin. A file that was read before goes
/// on where it ended, so that each event is there once, however often it is read.
#[derive(Debug, clap::Args)]
pub struct IngestArgs {
    /// Files to read, in this order; "-" is stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The source's name, in place of one made of the file's first record; stdin needs one
    /// (source.name)
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Append lines that are no events to this file (dead_letters.file)
    #[arg(long, value_name = "FILE")]
    dead_letters: Option<PathBuf>,
    /// Look at the alert rules for the time of the new events, and append alerts to this file;
    /// "-" is stdout [default: no alerts]
    #[arg(long, value_name = "FILE")]
    alerts: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// What all files came to.
#[derive(Default)]
struct Total {
    files: u64,
    rows: u64,
    /// Not written, of tenants that were forgotten.
    forgotten: u64,
    duplicates: u64,
    dead_letters: u64,
    /// Sent; `None` where nobody asked.
    alerts: Option<usize>,
}

/// Runs the command.
pub fn run(args: &IngestArgs, world: &mut World) -> anyhow::Result<Exit> {
    let config = args.settings.load(None, Need::Lake, world)?;
    let given = args.source.clone().or_else(|| config.source_name.clone());
    if given.is_some() && args.files.len() > 1 {
        let message = "one name can't stand for several files";
        bail!(Stop::usage(
            message,
            "leave --source away, or read one file at a time"
        ));
    }
    let root = lake::local_root(&config)?;
    let letters = args
        .dead_letters
        .clone()
        .or_else(|| config.dead_letters.file.clone());
    let letters = letters.unwrap_or_else(|| root.join("dead-letters.jsonl"));
    let ingest = Ingest {
        tables: lake::tables(&config)?,
        runtime: Runtime::new().context("cannot start the runtime")?,
        clock: Clock::new(now_ms),
        config,
        root,
        letters,
    };
    let watch = Stopwatch::start();
    let bar = progress_bar(&args.files, world.err_is_terminal);
    let mut total = Total::default();
    let mut alerting = ingest.alerting(args.alerts.as_deref())?;
    for path in &args.files {
        bar.set_message(path.display().to_string());
        ingest.file(path, given.as_deref(), &bar, &mut total)?;
    }
    bar.finish_and_clear();
    // Before the alert rules: their ticks look at the profiles.
    ingest.profile();
    if let Some(alerting) = &mut alerting {
        let sent = ingest.runtime.block_on(alerting.run_to_end())?;
        total.alerts = Some(sent.len());
    }
    ingest.tidy();
    tell(&ingest, &total, watch.elapsed().as_secs_f64(), world)?;
    Ok(Exit::Fine)
}

struct Ingest {
    config: Config,
    root: PathBuf,
    letters: PathBuf,
    tables: Arc<Tables>,
    runtime: Runtime,
    clock: Clock,
}

impl Ingest {
    fn file(
        &self,
        path: &Path,
        given: Option<&str>,
        bar: &ProgressBar,
        total: &mut Total,
    ) -> anyhow::Result<()> {
        let table = self
            .runtime
            .block_on(lake::open_attempts(&self.root, &self.clock))?;
        let writer = self
            .runtime
            .block_on(lake::open_writer(table, GROUP, &self.clock))?;
        let known = writer.state().positions();
        let Some(file) = identify(path, given, &known)? else {
            tracing::info!(path = %path.display(), "nothing in it");
            return Ok(());
        };
        let source = SourceId(file.name.as_str().into());
        let (outlet, inlet) = bounded(self.config.limits.batches_bytes);
        let (orders, ordered) = sync_channel(64);
        let mut settings = lake::write_settings(&self.config, source.clone(), &self.tables);
        settings.restarts = false;
        let stage = Stage::new(
            settings,
            writer,
            self.root.join(lake::ATTEMPTS),
            FileStarts,
            DeadLetterOutlet::file(&self.letters)?,
            self.clock.clone(),
            self.runtime.handle().clone(),
            orders,
        );
        let limits = lake::read_limits(&self.config);
        let mut reader = Reader::new(source, Arc::clone(&self.tables), limits, outlet);
        let (read, written) = std::thread::scope(|scope| {
            let writing = scope.spawn(move || stage.run(&inlet));
            let read = read_file(&file, &known, &mut reader, &ordered, bar);
            // A reader that failed must not leave the other waiting.
            let counts = reader.counts;
            drop(reader);
            let written = writing
                .join()
                .map_err(|_| anyhow::anyhow!("the writing stage broke"));
            (read.map(|()| counts), written)
        });
        let written = written??;
        total.add(read?, written);
        Ok(())
    }

    /// The alerts of this lake, where they are asked for; it notes where the lake stands now.
    fn alerting(&self, to: Option<&Path>) -> anyhow::Result<Option<Alerting>> {
        let outlet = match to {
            None => return Ok(None),
            Some(path) if path == Path::new("-") => AlertOutlet::Stdout,
            Some(path) => AlertOutlet::file(path)?,
        };
        let settings = AlertingSettings::of(&self.config, GROUP, self.root.clone())?;
        let mut alerting = Alerting::new(settings, outlet, self.clock.clone())?;
        self.runtime.block_on(alerting.begin())?;
        Ok(Some(alerting))
    }

    /// A lake without a topic has no leader that would make its profiles.
    fn profile(&self) {
        let limits = lake::query_limits(&self.config);
        let mut profiles = Profiles::new(self.root.clone(), GROUP, self.clock.clone(), limits);
        self.runtime.block_on(profiles.make_to_end());
    }

    /// A lake without a topic has no leader that would tidy it; all rows are there without it.
    fn tidy(&self) {
        let root = self.root.clone();
        let mut maintenance = Maintenance::new(root, GROUP, self.clock.clone(), &self.config);
        let tidied = self.runtime.block_on(async {
            maintenance.compact().await?;
            maintenance.keep_log().await
        });
        if let Err(error) = tidied {
            tracing::warn!(
                error = format!("{error:#}"),
                "the lake was not tidied this time"
            );
        }
    }
}

/// A file starts at its first line, and no line of it goes away.
struct FileStarts;

impl Starts for FileStarts {
    fn first(&self, _: i32, _: bool) -> anyhow::Result<i64> {
        Ok(0)
    }

    fn checked(&self, _: i32, position: Progress) -> anyhow::Result<Progress> {
        Ok(position)
    }
}

/// Reads a file to its end.
fn read_file(
    file: &FileSource,
    known: &std::collections::BTreeMap<retrytoll_lake::SourcePartition, retrytoll_lake::Position>,
    reader: &mut Reader,
    orders: &Receiver<Order>,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    let term = Term {
        number: 0,
        partitions: vec![0],
    };
    reader.outlet.send_blocking(Fact::Assigned(term), || {})?;
    let from = loop {
        match orders.recv() {
            Ok(Order::Read { positions, .. }) => match positions.first() {
                Some((_, progress)) => break *progress,
                None => bail!("the lake told no position"),
            },
            // The writing stage tells why.
            Ok(Order::Stop) | Err(_) => return Ok(()),
            Ok(_) => {}
        }
    };
    reader.begin(0, from);
    let partition = retrytoll_lake::SourcePartition::new(file.name.as_str(), 0);
    let digest = known.get(&partition).and_then(|position| position.digest);
    let mut lines =
        open(&file.path).with_context(|| format!("cannot read {}", file.path.display()))?;
    read_lines(&mut lines, from, digest, reader, bar)
        .with_context(|| format!("while reading {}", file.path.display()))?;
    let now_ms = now_ms();
    reader.reached_end(0, 0, now_ms);
    reader.silent_ms = now_ms;
    reader.outlet.wait(|| {})?;
    reader.close_all(now_ms)?;
    reader.outlet.wait(|| {})?;
    reader.outlet.send_blocking(Fact::End, || {})?;
    Ok(())
}

fn read_lines(
    lines: &mut Lines,
    from: Progress,
    digest: Option<i64>,
    reader: &mut Reader,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    let mut at_known = from.next == 0 || digest.is_none();
    let mut bytes = 0;
    let mut now = now_ms();
    while let Some(line) = lines.next_line()? {
        let number = line.number;
        bytes += line.bytes.len() as u64 + 1;
        if number % 1_024 == 0 {
            bar.inc(bytes);
            bytes = 0;
            now = now_ms();
        }
        // It is left for next time.
        if line.is_cut() {
            break;
        }
        if number >= from.low {
            reader.outlet.wait(|| {})?;
            reader.file = Some(FileMark {
                digest: line.digest,
                done: false,
            });
            let payload = (!line.is_blank()).then_some(line.bytes);
            reader.record(
                &SourceRecord {
                    partition: 0,
                    offset: number,
                    timestamp_ms: None,
                    payload,
                },
                now,
            )?;
        }
        if !at_known && number + 1 == from.next {
            at_known = true;
            if digest != Some(line.digest) {
                bail!(
                    "its first {} lines are not those that were read before; give it another \
                     name with --source NAME",
                    from.next
                );
            }
        }
    }
    if !at_known {
        bail!(
            "it ends before the {} lines that were read already; give it another name with \
             --source NAME",
            from.next
        );
    }
    if let Some(mark) = &mut reader.file {
        mark.done = true;
    }
    Ok(())
}

impl Total {
    fn add(&mut self, read: ReadCounts, written: WriteSummary) {
        self.files += 1;
        self.rows += written.rows;
        self.forgotten += written.forgotten;
        self.duplicates += read.duplicates;
        self.dead_letters += read.dead_letters;
    }
}

fn progress_bar(files: &[PathBuf], is_terminal: bool) -> ProgressBar {
    if !is_terminal {
        return ProgressBar::hidden();
    }
    let length = |path: &PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
    let bar = ProgressBar::new(files.iter().map(length).sum());
    let style = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {msg}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

fn tell(ingest: &Ingest, total: &Total, seconds: f64, world: &mut World) -> anyhow::Result<()> {
    let err = &mut world.err;
    writeln!(
        err,
        "{} new attempts from {} in {seconds:.1} s; {} duplicates, {} dead letters",
        total.rows,
        if total.files == 1 {
            "1 file".to_owned()
        } else {
            format!("{} files", total.files)
        },
        total.duplicates,
        total.dead_letters,
    )?;
    if total.forgotten > 0 {
        let forgotten = total.forgotten;
        writeln!(
            err,
            "{forgotten} attempts left out: their tenant was forgotten"
        )?;
    }
    if total.dead_letters > 0 {
        writeln!(err, "dead letters: {}", ingest.letters.display())?;
    }
    if let Some(alerts) = total.alerts {
        writeln!(err, "alerts sent: {alerts}")?;
    }
    writeln!(err, "lake: {}", ingest.root.display())?;
    writeln!(
        err,
        "next: retrytoll report --lake {}",
        ingest.root.display()
    )?;
    Ok(())
}

/// As `retrytoll ingest FILE --lake ROOT` does it, for tests that need a lake.
#[cfg(test)]
pub fn ingest_for_test(file: &Path, root: &Path) {
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Ingest {
        #[command(flatten)]
        args: IngestArgs,
    }

    let mut world = World {
        env: Vec::new(),
        folder: root.parent().unwrap().to_owned(),
        input: Box::new(std::io::empty()),
        out: Box::new(std::io::sink()),
        err: Box::new(std::io::sink()),
        out_is_terminal: false,
        err_is_terminal: false,
    };
    let words = ["ingest".as_ref(), file.as_os_str()];
    let words = words
        .into_iter()
        .chain(["--lake".as_ref(), root.as_os_str()]);
    run(&Ingest::parse_from(words).args, &mut world).unwrap();
}
