//! A span of time → its attempts by today's prices, policy and settings, in one commit.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use retrytoll_core::money::Usd;
use retrytoll_core::timestamp;
use retrytoll_jobs::Window;
use retrytoll_lake::Clock;
use retrytoll_lake::edit::{Change, EditPlan, Edited, edit};
use retrytoll_lake::encode::{Restate, Versions};
use serde_json::{Value, json};

use super::{layout, receipt};
use crate::config::Config;
use crate::lake;

/// What a span says by today's tables.
#[derive(Debug)]
pub struct Repriced {
    /// What was changed, or would be.
    pub edited: Edited,
    /// The names of the tables.
    pub versions: Versions,
    /// Where it is recorded; `None` where nothing was changed.
    pub receipt: Option<PathBuf>,
}

/// Says anew what prices, policy and settings decide of the attempts of a window; with `dry_run` it
/// only says what that would change.
///
/// # Errors
/// A price or policy file that can't be used; as [`edit`]. Nothing was changed then.
pub async fn reprice(
    root: &Path,
    config: &Config,
    window: &Window,
    clock: &Clock,
    dry_run: bool,
) -> anyhow::Result<Repriced> {
    let tables = lake::tables(config)?;
    let versions = lake::versions(&tables);
    let rows = Restate {
        tables,
        versions: versions.clone(),
        since_us: window.since.timestamp_micros(),
        until_us: window.until.timestamp_micros(),
    };
    let plan = EditPlan {
        operation: "UPDATE",
        layout: layout(),
        meets_new_rows: true,
        files_max: usize::MAX,
        dry_run,
    };
    let record = |edited: &Edited| recorded(window, &versions, edited);
    let table = lake::open_attempts(root, clock).await?;
    let mut writer = lake::open_writer(table, super::BY_HAND, clock).await?;
    let edited = edit(&mut writer, &plan, &rows, &record).await?;
    let receipt = match &edited.commit {
        Some(commit) => {
            let mut receipt = record(&edited);
            receipt["version"] = json!(commit.version);
            receipt["commit_id"] = json!(commit.commit_id);
            let now_ms = clock.now_ms();
            receipt["at"] = json!(timestamp::text(now_ms * 1_000));
            Some(receipt::write(root, "reprice", now_ms, &receipt)?)
        }
        None => None,
    };
    Ok(Repriced {
        edited,
        versions,
        receipt,
    })
}

fn recorded(window: &Window, versions: &Versions, edited: &Edited) -> Value {
    let Change {
        changed,
        confirmed,
        ceiling,
        unpriced,
        ..
    } = edited.change;
    let time = |at: DateTime<Utc>| timestamp::text(at.timestamp_micros());
    let pair = |(before, after): (i128, i128)| json!({"before": Usd(before).to_string(), "after": Usd(after).to_string()});
    json!({
        "what": "reprice",
        "since": time(window.since),
        "until": time(window.until),
        "price_version": versions.prices,
        "policy_version": versions.policy,
        "attempts_changed": changed,
        "cost_confirmed_usd": pair(confirmed),
        "cost_ceiling_usd": pair(ceiling),
        "attempts_without_ceiling": {"before": unpriced.0, "after": unpriced.1},
        "files": {"removed": edited.files_in, "added": edited.files_out},
    })
}
