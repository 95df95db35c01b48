//! `retrytoll check`: configuration, broker and lake → every mistake at once.

mod broker;
mod lake;

use std::io::Write;

use crate::cli::World;
use crate::config::show::show;
use crate::config::{Config, Mistake, Need, RawConfig, Settings, TopicFlags};
use crate::exit::Exit;

/// Check the configuration, the broker and the lake: every mistake at once
///
/// Exit code 2 where the configuration is wrong, 1 where the broker or the lake is.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Only print each key with its value and where it came from; secrets are not shown
    #[arg(long)]
    show: bool,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    topic: TopicFlags,
}

/// How one thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Fine,
    /// There is nothing to check.
    Skipped,
    Wrong,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    state: State,
    what: &'static str,
    text: String,
    /// What to do, where it is wrong.
    hint: String,
}

impl Finding {
    fn fine(what: &'static str, text: impl Into<String>) -> Self {
        Self {
            state: State::Fine,
            what,
            text: text.into(),
            hint: String::new(),
        }
    }

    fn skipped(what: &'static str, text: impl Into<String>) -> Self {
        Self {
            state: State::Skipped,
            ..Self::fine(what, text)
        }
    }

    fn wrong(what: &'static str, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            state: State::Wrong,
            hint: hint.into(),
            ..Self::fine(what, text)
        }
    }
}

/// Looks at everything and prints what it found.
///
/// # Errors
/// The answer can't be printed.
pub fn run(args: &CheckArgs, world: &mut World) -> anyhow::Result<Exit> {
    let (raw, mut mistakes) = args.settings.read(Some(&args.topic), world);
    let (config, more) = Config::of(&raw, Need::Lake);
    mistakes.extend(more);
    if args.show {
        print_values(&raw, world.out.as_mut())?;
        print_findings(&of_configuration(&raw, &mistakes), world.err.as_mut())?;
        return Ok(if mistakes.is_empty() {
            Exit::Fine
        } else {
            Exit::Usage
        });
    }
    print_findings(&of_configuration(&raw, &mistakes), world.out.as_mut())?;
    // A mistake elsewhere must not hide what is wrong with the broker or the lake: what is usable
    // is looked at in any case.
    let mut findings = match &config.kafka {
        Some(kafka) => {
            let has_budget = config.alerts.retries_per_hour > 0;
            broker::look(kafka, has_budget, broker::ANSWER_TIMEOUT)
        }
        None => vec![Finding::skipped(
            "broker",
            "kafka.bootstrap and kafka.topic are not set",
        )],
    };
    findings.extend(lake::look(&config));
    print_findings(&findings, world.out.as_mut())?;
    let wrong = findings.iter().any(|finding| finding.state == State::Wrong);
    Ok(match (mistakes.is_empty(), wrong) {
        (false, _) => Exit::Usage,
        (true, true) => Exit::Failed,
        (true, false) => Exit::Fine,
    })
}

fn of_configuration(raw: &RawConfig, mistakes: &[Mistake]) -> Vec<Finding> {
    let wrong = |mistake: &Mistake| {
        Finding::wrong("configuration", mistake.to_string(), mistake.hint.clone())
    };
    if !mistakes.is_empty() {
        return mistakes.iter().map(wrong).collect();
    }
    let file = match &raw.file {
        Some(path) => path.display().to_string(),
        None => "no file (`retrytoll init` makes one)".into(),
    };
    let count = raw.count();
    let plural = if count == 1 { "" } else { "s" };
    vec![Finding::fine(
        "configuration",
        format!("{file}: {count} value{plural} set"),
    )]
}

fn print_values(raw: &RawConfig, out: &mut dyn Write) -> std::io::Result<()> {
    let shown = show(raw);
    let width = |of: fn(&crate::config::show::Shown) -> usize, most| {
        shown
            .iter()
            .map(of)
            .filter(|width| *width <= most)
            .max()
            .unwrap_or(0)
    };
    let (keys, values) = (
        width(|line| line.key.len(), 40),
        width(|line| line.value.len(), 32),
    );
    for line in &shown {
        writeln!(
            out,
            "{:keys$} = {:values$}  # {}",
            line.key, line.value, line.origin
        )?;
    }
    Ok(())
}

fn print_findings(findings: &[Finding], out: &mut dyn Write) -> std::io::Result<()> {
    for Finding {
        state,
        what,
        text,
        hint,
    } in findings
    {
        let word = match state {
            State::Fine => "ok",
            State::Skipped => "skipped",
            State::Wrong => "wrong",
        };
        writeln!(out, "{word:<7}  {what:<13}  {text}")?;
        if !hint.is_empty() {
            writeln!(out, "{:24} hint: {hint}", "")?;
        }
    }
    out.flush()
}
