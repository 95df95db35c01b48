//! Command line → one command, run in its world → exit code.
//!
//! To add a command: a variant of [`Command`] and its arm in [`dispatch`], and its name in
//! [`GROUPS`], which orders the help.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Read, Write};
use std::path::PathBuf;

use clap::builder::StyledStr;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::commands::{alerts, check, demo, hash, ingest, init, lint, maintain, report, run, sql};
pub use crate::config::{Settings, TopicFlags};
use crate::exit::{Exit, tell};
use crate::logging::{self, Look};

/// What a command touches of the machine.
pub struct World {
    /// The environment, names and values.
    pub env: Vec<(String, String)>,
    /// Where the program was started; empty for the current folder.
    pub folder: PathBuf,
    pub input: Box<dyn Read>,
    /// Results.
    pub out: Box<dyn Write>,
    /// All else.
    pub err: Box<dyn Write>,
    pub out_is_terminal: bool,
    pub err_is_terminal: bool,
}

impl World {
    /// The process's own.
    #[must_use]
    pub fn real() -> Self {
        let text = |text: OsString| text.to_string_lossy().into_owned();
        Self {
            env: std::env::vars_os()
                .map(|(name, value)| (text(name), text(value)))
                .collect(),
            folder: PathBuf::new(),
            input: Box::new(std::io::stdin()),
            out: Box::new(std::io::stdout()),
            err: Box::new(std::io::stderr()),
            out_is_terminal: std::io::stdout().is_terminal(),
            err_is_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// The value of a variable; an empty one is not set.
    #[must_use]
    pub fn var(&self, name: &str) -> Option<&str> {
        let found = self
            .env
            .iter()
            .find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    /// Whether to colour what goes to a terminal.
    #[must_use]
    pub fn colour(&self, terminal: bool) -> bool {
        terminal && self.var("NO_COLOR").is_none() && self.var("TERM") != Some("dumb")
    }
}

const ABOUT: &str = "\
What LLM retries really cost. retrytoll reads the retry-decision events that callers and gateways \
log, and answers with evidence: which calls were paid for more than once, by whom, for how much, \
and what share of the spend retries cause.";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "retrytoll", version, about = ABOUT, disable_help_subcommand = true)]
#[command(max_term_width = 100)]
struct Cli {
    /// What to log to stderr: error, warn, info, debug, trace, or by target as
    /// "warn,retrytoll=debug" [env: RETRYTOLL_LOG]
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Everywhere")]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    Run(run::RunArgs),
    Ingest(ingest::IngestArgs),
    Report(report::ReportArgs),
    Sql(sql::SqlArgs),
    Alerts(alerts::AlertsArgs),
    Init(init::InitArgs),
    Check(check::CheckArgs),
    Lint(lint::LintArgs),
    Hash(hash::HashArgs),
    Maintain(maintain::MaintainArgs),
}

/// The groups of the help, in order. A name without a command is left out.
const GROUPS: &[(&str, &[&str])] = &[
    ("Run", &["demo", "run", "ingest"]),
    ("Ask", &["report", "sql", "alerts", "recommend", "whatif"]),
    ("Bill", &["import-bill", "reconcile"]),
    ("Test your policy", &["mock-provider", "loadtest"]),
    ("Keep", &["init", "check", "lint", "hash", "maintain"]),
];

const AFTER: &str = "\
Results go to stdout, all else to stderr.
Exit codes: 0 fine, 1 failed, 2 usage or configuration, 3 a gate not met.
Configuration: retrytoll.toml, before it RETRYTOLL_* variables, before them flags.";

/// Parses the arguments (the first is the program's name) and runs the command.
pub fn run(args: impl IntoIterator<Item = OsString>, mut world: World) -> Exit {
    run_in(args, &mut world)
}

fn run_in(args: impl IntoIterator<Item = OsString>, world: &mut World) -> Exit {
    let parsed = command().try_get_matches_from(args);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return show_usage(&error, world),
    };
    let done = dispatch(cli, world).and_then(|exit| {
        world.out.flush()?;
        Ok(exit)
    });
    done.unwrap_or_else(|error| tell(&error, world.err.as_mut()))
}

fn dispatch(cli: Cli, world: &mut World) -> anyhow::Result<Exit> {
    start_logging(&cli, world)?;
    match cli.command {
        Command::Demo(args) => demo::run(&args, world),
        Command::Run(args) => run::run(&args, world),
        Command::Ingest(args) => ingest::run(&args, world),
        Command::Report(args) => report::run(&args, world),
        Command::Sql(args) => sql::run(&args, world),
        Command::Alerts(args) => alerts::run(&args, world),
        Command::Init(args) => init::run(&args, world),
        Command::Check(args) => check::run(&args, world),
        Command::Lint(args) => lint::run(&args, world),
        Command::Hash(args) => hash::run(&args, world),
        Command::Maintain(args) => maintain::run(&args, world),
    }
}

/// Commands that go on for long tell what they do; the others only what is wrong. The Delta
/// library would tell of every file list that a tick reads.
fn level(command: &Command) -> &'static str {
    match command {
        Command::Run(_) => "info,buoyant_kernel=warn",
        _ => "warn",
    }
}

fn start_logging(cli: &Cli, world: &World) -> anyhow::Result<()> {
    let words = cli.log.as_deref().or(world.var("RETRYTOLL_LOG"));
    let filter = logging::filter(words.unwrap_or(level(&cli.command)))?;
    let look = match world.err_is_terminal {
        true => Look::Text {
            colour: world.colour(true),
        },
        false => Look::Json,
    };
    logging::start(filter, look);
    Ok(())
}

/// Help goes to stdout and is fine; a wrong command line goes to stderr.
fn show_usage(error: &clap::Error, world: &mut World) -> Exit {
    let (exit, terminal) = match error.exit_code() {
        0 => (Exit::Fine, world.out_is_terminal),
        _ => (Exit::Usage, world.err_is_terminal),
    };
    let text = show(&error.render(), world.colour(terminal));
    let out = if exit == Exit::Fine {
        &mut world.out
    } else {
        &mut world.err
    };
    // Who closed the pipe has read enough.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    exit
}

fn show(text: &StyledStr, colour: bool) -> String {
    if colour {
        text.ansi().to_string()
    } else {
        text.to_string()
    }
}

/// The command line with its commands in groups, which clap can't do by itself.
fn command() -> clap::Command {
    let command = Cli::command();
    let width = command
        .get_subcommands()
        .map(|each| each.get_name().len())
        .max()
        .unwrap_or(0);
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        let there: Vec<_> = names
            .iter()
            .filter_map(|name| command.find_subcommand(name))
            .collect();
        if !there.is_empty() {
            groups.push_str(&format!("\x1b[1m\x1b[4m{heading}:\x1b[0m\n"));
        }
        for each in there {
            let about = each
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            groups.push_str(&format!(
                "  \x1b[1m{:width$}\x1b[0m  {about}\n",
                each.get_name()
            ));
        }
    }
    let template =
        format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}\n{{options}}{{after-help}}");
    command.help_template(template).after_help(AFTER)
}

#[cfg(test)]
pub(crate) mod tests;
