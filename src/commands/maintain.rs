//! `retrytoll maintain …`: by hand what `run` does for the lake on its schedule, and what only a
//! person can decide.

mod rows;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use retrytoll_lake::Clock;
use tokio::runtime::Runtime;

use crate::cli::{Settings, World};
use crate::clock::now_ms;
use crate::config::{Config, Need};
use crate::exit::{Exit, Stop};
use crate::lake;
use crate::maintenance::{BY_HAND, Maintenance};

/// One round of compaction leaves what comes of it to the next; after so many there is nothing left
/// but what others add meanwhile.
const ROUNDS_MAX: usize = 8;

/// Look after the lake: its files, its log, and rows that are to be repriced, forgotten or expired
///
/// `run` and `ingest` compact and write checkpoints by themselves, `run` vacuums and expires (keys
/// of [maintain]). All are safe beside running instances and readers, and may be killed at any time:
/// the same command goes on.
#[derive(Debug, clap::Args)]
pub struct MaintainArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Make small files of attempts into fewer, sorted ones; the rows stay the same
    Compact {
        #[command(flatten)]
        settings: Settings,
    },
    /// Write a checkpoint of the log of attempts, and remove the entries that no reader needs
    Checkpoint {
        #[command(flatten)]
        settings: Settings,
    },
    /// Remove files of attempts that no readable version of the lake needs
    Vacuum {
        /// Only list them
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        settings: Settings,
    },
    /// Take attempts that are older than maintain.keep out of the lake
    ///
    /// By their date, and counted from the newest date in the lake, or from today where that is
    /// earlier. `vacuum` removes the files once no readable version needs them.
    Expire {
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        settings: Settings,
    },
    /// Judge the attempts of a time by the prices, the policy and the [source] settings of today
    ///
    /// In one commit, which records the figures before and after, as does a receipt in the lake's
    /// folder `receipts`. What was decided when an event was read stays: its time, and
    /// source.decisions.
    Reprice {
        #[command(flatten)]
        span: rows::Span,
        /// Only say what would change
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        settings: Settings,
    },
    /// Forget a tenant up to now, for good: `forget tenant=acme`
    ///
    /// Its rows go from attempts and rollup, then every file goes that held them, older versions
    /// with it. Events that are read again do not bring them back; later ones are new. A receipt in
    /// the lake's folder `receipts` says what went, and what is out of reach. The lake keeps a hash of
    /// the name.
    Forget {
        /// tenant=NAME, the name as it stands in attempts
        #[arg(value_name = "tenant=NAME", value_parser = rows::tenant)]
        who: String,
        /// Do not wait for queries that began before: they fail where their files go
        #[arg(long)]
        at_once: bool,
        #[command(flatten)]
        settings: Settings,
    },
    /// Say that nothing more comes from a source: the completeness mark, and with it alerts and
    /// the rollup, wait for it no more. What comes from it later is read all the same
    Retire {
        /// The source, as `SELECT DISTINCT source FROM attempts_raw` shows it
        source: String,
        #[command(flatten)]
        settings: Settings,
    },
}

impl What {
    fn settings(&self) -> &Settings {
        match self {
            Self::Compact { settings }
            | Self::Checkpoint { settings }
            | Self::Vacuum { settings, .. }
            | Self::Expire { settings, .. }
            | Self::Reprice { settings, .. }
            | Self::Forget { settings, .. }
            | Self::Retire { settings, .. } => settings,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// A wrong flag or configuration, no lake, an unknown source; the lake's.
pub fn run(args: &MaintainArgs, world: &mut World) -> anyhow::Result<Exit> {
    let config = args.what.settings().load(None, Need::Lake, world)?;
    let root = lake::local_root(&config)?;
    if !root.join(lake::ATTEMPTS).exists() {
        let message = format!("there is no lake in {}", root.display());
        return Err(Stop::usage(message, "name another with --lake").into());
    }
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let said = runtime.block_on(async {
        match &args.what {
            What::Compact { .. } => compact(&root, &config).await,
            What::Checkpoint { .. } => checkpoint(&root, &config).await,
            What::Vacuum { dry_run, .. } => vacuum(&root, &config, *dry_run).await,
            What::Retire { source, .. } => retire(&root, source).await,
            What::Expire { dry_run, .. } => expire(&root, &config, *dry_run).await,
            What::Reprice { span, dry_run, .. } => {
                rows::reprice(&root, &config, span, *dry_run).await
            }
            What::Forget { who, at_once, .. } => rows::forget(&root, &config, who, *at_once).await,
        }
    })?;
    writeln!(world.out, "{said}")?;
    Ok(Exit::Fine)
}

fn maintenance(root: &Path, config: &Config) -> Maintenance {
    Maintenance::new(root.to_owned(), BY_HAND, Clock::new(now_ms), config)
}

async fn compact(root: &Path, config: &Config) -> anyhow::Result<String> {
    let mut maintenance = maintenance(root, config);
    let (mut files_in, mut files_out) = (0, 0);
    for _ in 0..ROUNDS_MAX {
        let done = maintenance.compact().await?;
        if done.jobs == 0 {
            break;
        }
        files_in += done.files_in;
        files_out += done.files_out;
    }
    Ok(match files_in {
        0 => "nothing to compact".to_owned(),
        _ => format!("{files_in} files made into {files_out}"),
    })
}

async fn checkpoint(root: &Path, config: &Config) -> anyhow::Result<String> {
    let (version, removed) = maintenance(root, config).checkpoint().await?;
    Ok(format!(
        "checkpoint of version {version}; {removed} old entries removed"
    ))
}

async fn vacuum(root: &Path, config: &Config, dry_run: bool) -> anyhow::Result<String> {
    let gone = maintenance(root, config).vacuum(dry_run).await?;
    let mut said = String::new();
    if dry_run {
        for file in &gone.files {
            said.push_str(file);
            said.push('\n');
        }
    }
    let verb = if dry_run { "would be" } else { "were" };
    said.push_str(&format!(
        "{} files of {} bytes {verb} removed",
        gone.files.len(),
        gone.bytes
    ));
    Ok(said)
}

async fn expire(root: &Path, config: &Config, dry_run: bool) -> anyhow::Result<String> {
    let expired = maintenance(root, config).expire(dry_run).await?;
    let (files, before) = (expired.files.len(), expired.before);
    let verb = if dry_run { "would go" } else { "went" };
    Ok(match files {
        0 => format!("nothing to expire: no attempts from before {before}"),
        _ => format!("{files} files with attempts from before {before} {verb}"),
    })
}

async fn retire(root: &Path, source: &str) -> anyhow::Result<String> {
    let clock = Clock::new(now_ms);
    let table = lake::open_attempts(root, &clock).await?;
    let known = table.check().await?.positions();
    let sources: BTreeSet<_> = known.keys().map(|it| &*it.source).collect();
    if !sources.contains(source) {
        let message = format!("the lake knows no source {source:?}");
        let hint = match sources.is_empty() {
            true => "it knows none yet".to_owned(),
            false => {
                let names: Vec<_> = sources.into_iter().collect();
                format!("it knows {}", names.join(", "))
            }
        };
        return Err(Stop::usage(message, hint).into());
    }
    let partitions = lake::retire(root, BY_HAND, |it| it == source).await?;
    Ok(format!(
        "{source} is retired: its {partitions} partitions hold nothing back"
    ))
}
