//! `retrytoll sql QUERY`: one question in SQL about the tables of the lake.

use std::io::{Read as _, Write as _};

use anyhow::Context as _;
use futures::StreamExt as _;
use retrytoll_jobs::render::RowWriter;
use retrytoll_jobs::{JobError, Place};

use crate::cli::World;
use crate::exit::Exit;
use crate::report::args::AskArgs;
use crate::report::open::{Usual, open, stop};
use crate::report::output::{deliver, style};

/// Ask the lake in SQL
///
/// Tables: attempts (a row per attempt, with expected cost), operations, rollup (their sums by the
/// hour), attempts_raw (as written), alerts, profile (what attempts of a kind usually use). In a
/// query, $since and $until are the window's ends, and arrow_cast(ts, $zone_type) is a time in its
/// zone: retrytoll sql 'SELECT model, sum(cost_expected) FROM attempts WHERE ts >= $since GROUP BY
/// model' --since 7d. SELECT, WITH, EXPLAIN and SHOW only.
#[derive(Debug, clap::Args)]
pub struct SqlArgs {
    /// The query; "-" reads it from stdin
    #[arg(value_name = "QUERY")]
    query: String,
    #[command(flatten)]
    ask: AskArgs,
}

/// Runs the command. Rows are written as they come.
///
/// # Errors
/// A wrong flag, configuration or query; no lake.
pub fn run(args: &SqlArgs, world: &mut World) -> anyhow::Result<Exit> {
    let mut query = args.query.clone();
    if query == "-" {
        query.clear();
        world
            .input
            .read_to_string(&mut query)
            .context("cannot read the query from stdin")?;
    }
    let asked = open(&args.ask, Usual::Day, world)?;
    let (session, window) = (&asked.session, &asked.window);
    let file = args.ask.output.as_deref();
    let style = style(file, world);
    let rows = deliver(file, world.out.as_mut(), |out| {
        let written = async {
            let mut stream = session.query(&query, window).await?;
            let mut writer = RowWriter::new(out, stream.schema(), args.ask.format, style)?;
            while let Some(batch) = stream.next().await {
                let failed = |error| session.failed(&Place::file("query"), error);
                writer.write(&batch.map_err(failed)?)?;
            }
            writer.finish()
        };
        asked
            .runtime
            .block_on(written)
            .map_err(|error: JobError| stop(error))
    })?;
    let plural = if rows == 1 { "" } else { "s" };
    writeln!(
        world.err,
        "{rows} row{plural}; version {} of attempts",
        session.version()
    )?;
    Ok(Exit::Fine)
}
