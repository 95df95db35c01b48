//! `retrytoll report [JOB]`: a job's answer about a window, or the headline.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use retrytoll_jobs::render::{footer, report};
use retrytoll_jobs::{Catalog, Format, JobResult, Share, Toll};

use crate::cli::World;
use crate::exit::{Exit, Stop};
use crate::report::args::{AskArgs, name_value};
use crate::report::gate::Gate;
use crate::report::headline;
use crate::report::open::{Asked, Usual, open, stop};
use crate::report::output::{deliver, style};

/// The job of which the headline and the gate are.
const SHARE: &str = "retry_cost_share";
/// The job of the headline's first line.
const TOLL: &str = "toll";

/// Ask a job about a window of time; without one: the toll, month to date, and the list of jobs
///
/// Start with repeated_billing, retry_rescue and redundant_cost; `retrytoll report` lists them all.
/// A job of your own is a file NAME.sql in the folder of --sql-dir.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// The job's name
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// What a row is, for jobs that have a choice: service, model, tenant, hour …
    #[arg(long, value_name = "DIMENSION")]
    by: Option<String>,
    /// Another parameter of the job, as coverage_pct_min=90; may be repeated
    #[arg(short, long = "param", value_name = "NAME=VALUE", value_parser = name_value)]
    params: Vec<(String, String)>,
    /// Exit with 3 where the retry-cost share of the whole window is over this percentage; a share
    /// that is withheld is not over, which is said
    #[arg(long, value_name = "PCT", value_parser = Gate::parse)]
    fail_over: Option<Gate>,
    /// A folder with jobs of your own (jobs.sql_dir)
    #[arg(long, value_name = "FOLDER")]
    sql_dir: Option<PathBuf>,
    #[command(flatten)]
    ask: AskArgs,
}

/// Runs the command.
///
/// # Errors
/// A wrong flag or configuration, no lake, a job that fails.
pub fn run(args: &ReportArgs, world: &mut World) -> anyhow::Result<Exit> {
    if args.fail_over.is_some() && args.job.as_deref().is_some_and(|job| job != SHARE) {
        let hint = format!("use it with `retrytoll report {SHARE}`");
        return Err(Stop::usage("--fail-over is for the retry-cost share", hint).into());
    }
    let usual = if args.job.is_some() {
        Usual::Day
    } else {
        Usual::MonthToDate
    };
    let asked = open(&args.ask, usual, world)?;
    let catalog = catalog(args, &asked, world)?;
    match &args.job {
        Some(name) => one_job(args, name, &asked, &catalog, world),
        None => all_jobs(args, &asked, &catalog, world),
    }
}

fn catalog(args: &ReportArgs, asked: &Asked, world: &mut World) -> anyhow::Result<Catalog> {
    let mut catalog = Catalog::embedded();
    if let Some(folder) = args.sql_dir.as_ref().or(asked.config.jobs.sql_dir.as_ref()) {
        for wrong in catalog.overlay(folder).map_err(stop)? {
            writeln!(world.err, "warning: {wrong}; this job is left out")?;
        }
    }
    Ok(catalog)
}

impl Asked {
    /// A job's answer with the counts that stand beside it.
    fn answer(
        &self,
        catalog: &Catalog,
        name: &str,
        given: &BTreeMap<String, String>,
    ) -> anyhow::Result<JobResult> {
        let job = catalog.get(name).map_err(stop)?;
        let answer = async {
            let mut result = self.session.run_job(&job, &self.window, given).await?;
            result.facts = Some(self.session.facts(&self.window).await?);
            Ok(result)
        };
        self.runtime.block_on(answer).map_err(stop)
    }

    /// The share of the whole window, one row. A user's own job of that name has no say here.
    fn whole(&self, params: &[(String, String)]) -> anyhow::Result<JobResult> {
        let by = ("by".to_owned(), "all".to_owned());
        let given = params.iter().cloned().chain([by]).collect();
        self.answer(&Catalog::embedded(), SHARE, &given)
    }
}

fn one_job(
    args: &ReportArgs,
    name: &str,
    asked: &Asked,
    catalog: &Catalog,
    world: &mut World,
) -> anyhow::Result<Exit> {
    let by = args.by.iter().map(|by| ("by".to_owned(), by.clone()));
    let given = args.params.iter().cloned().chain(by).collect();
    let result = asked.answer(catalog, name, &given)?;
    let file = args.ask.output.as_deref();
    let style = style(file, world);
    deliver(file, world.out.as_mut(), |out| {
        Ok(report(out, &result, args.ask.format, style)?)
    })?;
    if matches!(args.ask.format, Format::Csv | Format::Parquet) {
        for line in footer(&result) {
            writeln!(world.err, "{line}")?;
        }
    }
    judge(args, || asked.whole(&args.params), world)
}

fn all_jobs(
    args: &ReportArgs,
    asked: &Asked,
    catalog: &Catalog,
    world: &mut World,
) -> anyhow::Result<Exit> {
    if args.by.is_some() || !args.params.is_empty() {
        let hint = format!("name a job, as `retrytoll report {SHARE} --by model`");
        return Err(Stop::usage("--by and --param are for one job", hint).into());
    }
    // A job of the user's own may ask for a column that is not there: better known now.
    for job in catalog.jobs() {
        if let Err(wrong) = asked
            .runtime
            .block_on(asked.session.check_job(job, &asked.window))
        {
            writeln!(world.err, "warning: job {}: {wrong}", job.name)?;
        }
    }
    let whole = asked.whole(&[])?;
    let file = args.ask.output.as_deref();
    let style = style(file, world);
    if args.ask.format == Format::Table {
        let own = Catalog::embedded();
        let services = asked.answer(&own, SHARE, &BTreeMap::new())?;
        let toll = Toll::of(&asked.answer(&own, TOLL, &BTreeMap::new())?.batches);
        deliver(file, world.out.as_mut(), |out| {
            headline::write(out, toll, &whole, &services, catalog, style)
        })?;
    } else {
        deliver(file, world.out.as_mut(), |out| {
            Ok(report(out, &whole, args.ask.format, style)?)
        })?;
    }
    judge(args, || Ok(whole), world)
}

fn judge(
    args: &ReportArgs,
    whole: impl FnOnce() -> anyhow::Result<JobResult>,
    world: &mut World,
) -> anyhow::Result<Exit> {
    let Some(gate) = args.fail_over else {
        return Ok(Exit::Fine);
    };
    let (exit, why) = gate.judge(Share::of(&whole()?.batches).first());
    writeln!(world.err, "{why}")?;
    Ok(exit)
}
