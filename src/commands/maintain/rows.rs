//! What changes rows that are there: a time is repriced, a tenant forgotten.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use chrono::DateTime;
use retrytoll_core::money::Usd;
use retrytoll_jobs::{Window, Zone};
use retrytoll_lake::Clock;

use crate::clock::now_ms;
use crate::config::Config;
use crate::exit::Stop;
use crate::lake;
use crate::maintenance::forget;
use crate::maintenance::reprice;
use crate::report::open::stop;

/// From when to when.
#[derive(Debug, clap::Args)]
pub struct Span {
    /// Where it begins, inclusive: 7d, 24h (before its end), a date such as 2026-11-01, or RFC 3339
    #[arg(long, value_name = "TIME")]
    since: String,
    /// Where it ends, exclusive: the same forms [default: now]
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// The zone in which dates are meant: Europe/Berlin, +08:00
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
}

impl Span {
    fn window(&self) -> anyhow::Result<Window> {
        let now = DateTime::from_timestamp_millis(now_ms()).context("the clock is out of range")?;
        let zone = Zone::parse(&self.tz).map_err(stop)?;
        Window::parse(Some(&self.since), self.until.as_deref(), zone, now).map_err(stop)
    }
}

/// The name in `tenant=NAME`.
pub fn tenant(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some(("tenant", "other")) => Err(
            "`other` is also what the rollup calls tenants that it put together; \
             a tenant of that name can't be forgotten"
                .to_owned(),
        ),
        Some(("tenant", name)) if !name.is_empty() => Ok(name.to_owned()),
        Some(("tenant", _)) => Err("the name is missing: tenant=NAME".to_owned()),
        _ => Err("only a tenant can be forgotten: tenant=NAME".to_owned()),
    }
}

pub async fn reprice(
    root: &Path,
    config: &Config,
    span: &Span,
    dry_run: bool,
) -> anyhow::Result<String> {
    let window = span.window()?;
    let clock = Clock::new(now_ms);
    let done = reprice::reprice(root, config, &window, &clock, dry_run).await?;
    let (change, versions) = (done.edited.change, &done.versions);
    if change.changed == 0 {
        return Ok(format!(
            "nothing to change from {window}: prices {}, policy {}",
            versions.prices, versions.policy
        ));
    }
    let line = |name: &str, (before, after): (i128, i128)| {
        format!("{name:15} {} -> {} dollars\n", Usd(before), Usd(after))
    };
    let mut said = format!(
        "{} attempts {} by prices {}, policy {}\n",
        change.changed,
        if dry_run {
            "would be judged anew"
        } else {
            "judged anew"
        },
        versions.prices,
        versions.policy,
    );
    said += &line("cost_confirmed", change.confirmed);
    said += &line("cost_ceiling", change.ceiling);
    let (before, after) = change.unpriced;
    said += &format!("no ceiling      {before} -> {after} attempts");
    if let Some(receipt) = done.receipt {
        said += &format!("\nreceipt: {}", receipt.display());
    }
    Ok(said)
}

pub async fn forget(
    root: &Path,
    config: &Config,
    tenant: &str,
    at_once: bool,
) -> anyhow::Result<String> {
    if tenant.chars().any(char::is_control) {
        bail!(Stop::usage(
            "a tenant's name has no control characters",
            "give it as `SELECT DISTINCT tenant FROM attempts_raw` shows it"
        ));
    }
    let grace = if at_once {
        Duration::ZERO
    } else {
        lake::query_time(config)
    };
    let clock = Clock::new(now_ms);
    let done = forget::forget(root, tenant, grace, &clock).await?;
    let is_unknown = done.rows.values().all(|it| *it == 0) && done.swept.files == 0;
    let rows = done.rows.iter();
    let rows: Vec<_> = rows
        .map(|(table, rows)| format!("{rows} rows of {table}"))
        .collect();
    let mut said = format!(
        "forgotten: {}; {} files of {} bytes removed\n",
        rows.join(", "),
        done.swept.files,
        done.swept.bytes
    );
    if done.alerts > 0 {
        said += &format!("{} rows of alerts name it, and stay\n", done.alerts);
    }
    if is_unknown {
        said +=
            "no file had a row of it: `SELECT DISTINCT tenant FROM attempts_raw` shows the names\n";
    }
    said += &format!("receipt: {}", done.receipt.display());
    Ok(said)
}
