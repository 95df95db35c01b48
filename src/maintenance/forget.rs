//! A tenant that is to be forgotten → a lake without its rows, and a receipt.
//!
//! First the log says so: from then on no writer commits such rows, however often their events are
//! read again. Then the rows go from the live files of `attempts`, and, once the log of `rollup` says so,
//! too, from those of `rollup`: hours that were made of older attempts are refused. Last every file goes
//! that held them. Whatever ends a command in the middle, the same command goes on where it was, and so
//! does the leader, with its vacuum.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parquet::file::properties::WriterProperties;
use retrytoll_core::forgotten::{Forgotten, key_of};
use retrytoll_core::timestamp;
use retrytoll_jobs::rollup::ROLLUP;
use retrytoll_lake::compact::Layout;
use retrytoll_lake::edit::{EditPlan, Edited, edit};
use retrytoll_lake::forget::{ForgetRows, of_keys, unfinished};
use retrytoll_lake::sweep::{Swept, sweep};
use retrytoll_lake::{Clock, LakeError, Writer};
use serde_json::{Value, json};

use super::{BY_HAND, layout, receipt};
use crate::alerts::rows_that_name;
use crate::lake::{self, ATTEMPTS};
use crate::rollup;

/// Files of one commit: what a kill undoes is to be little.
const FILES_MAX: usize = 64;
const HOUR_MS: i64 = 3_600_000;

/// What was done about one tenant.
#[derive(Debug)]
pub struct Forgot {
    /// Rows that went, by table.
    pub rows: BTreeMap<&'static str, u64>,
    /// Files that went from the disk, in all tables.
    pub swept: Swept,
    /// Rows of `alerts` that name the tenant: they stay.
    pub alerts: u64,
    /// Where the receipt is.
    pub receipt: PathBuf,
}

/// Forgets a tenant up to now. Between taking its rows out and removing the files that held them it
/// waits for `grace`, so that queries that began before end in peace.
///
/// # Errors
/// As [`edit`] and [`sweep`]. What was done stays done, and no such row comes back.
pub async fn forget(
    root: &Path,
    tenant: &str,
    grace: Duration,
    clock: &Clock,
) -> anyhow::Result<Forgot> {
    let until_ms = clock.now_ms();
    let mut work = Forgetting::open(root, BY_HAND, clock, key_of(tenant), until_ms).await?;
    work.attempts.writer.forget(&work.key, until_ms).await?;
    work.take_out().await?;
    if !grace.is_zero() {
        tracing::info!(
            seconds = grace.as_secs(),
            "waiting for queries that began before"
        );
        tokio::time::sleep(grace).await;
    }
    let swept = work.sweep(i64::MAX).await?;
    let alerts = rows_that_name(root, clock, tenant).await?;
    let mut receipt = work.receipt(swept);
    receipt["alerts_that_name_it"] = json!(alerts);
    let receipt = receipt::write(root, "forget", until_ms, &receipt)?;
    work.done().await?;
    Ok(Forgot {
        rows: work.rows(),
        swept,
        alerts,
        receipt,
    })
}

/// Goes on with tenants whose rows may still lie in files, and whose command ended or should have by
/// now: takes out what is there, and removes the files that held it; those that were replaced less than
/// `grace` ago are for the next call.
///
/// # Errors
/// As [`forget`].
pub async fn finish(
    root: &Path,
    group: &str,
    grace: Duration,
    clock: &Clock,
) -> anyhow::Result<()> {
    let table = lake::open_attempts(root, clock).await?;
    let mut left = unfinished(&table.check().await?.txns);
    // A command waits as long itself.
    left.retain(|_, until_ms| clock.since_ms(*until_ms) >= 2 * lake::ms(grace));
    for (key, until_ms) in left {
        let mut work = Forgetting::open(root, group, clock, key, until_ms).await?;
        work.take_out().await?;
        let swept = work.sweep(clock.now_ms() - lake::ms(grace)).await?;
        if swept.later > 0 {
            continue;
        }
        let mut receipt = work.receipt(swept);
        receipt["finished_by"] = json!(group);
        receipt["removed_before"] = json!("rows as each commit DELETE of the tables' logs tells");
        receipt::write(root, "forget", until_ms, &receipt)?;
        work.done().await?;
        tracing::info!(key = work.key, files = swept.files, "a tenant is forgotten");
    }
    Ok(())
}

/// A table on the way.
struct Place {
    name: &'static str,
    writer: Writer,
    rows: ForgetRows,
    layout: Layout,
    removed: u64,
    rewritten: usize,
    version: Option<u64>,
}

/// A tenant on its way out.
struct Forgetting {
    key: String,
    until_ms: i64,
    began_ms: i64,
    attempts: Place,
    /// `None` where there is none by when the attempts are without such rows.
    rollup: Option<Place>,
    root: PathBuf,
    group: String,
    clock: Clock,
}

impl Place {
    fn of(
        name: &'static str,
        time: &'static str,
        writer: Writer,
        layout: Layout,
        forgotten: Forgotten,
    ) -> Self {
        Self {
            name,
            writer,
            rows: ForgetRows {
                forgotten,
                columns: ["tenant", time],
            },
            layout,
            removed: 0,
            rewritten: 0,
            version: None,
        }
    }

    async fn take_out(&mut self, key: &str) -> Result<(), LakeError> {
        let plan = EditPlan {
            operation: "DELETE",
            layout: self.layout.clone(),
            // Nobody adds such rows any more.
            meets_new_rows: false,
            files_max: FILES_MAX,
            dry_run: false,
        };
        let record = |edited: &Edited| json!({"what": "forget", "tenant_key": key, "rows_removed": edited.change.removed});
        let edited = edit(&mut self.writer, &plan, &self.rows, &record).await?;
        self.removed += edited.change.removed;
        self.rewritten += edited.files_in;
        self.version = edited.commit.map(|it| it.version).or(self.version);
        Ok(())
    }
}

impl Forgetting {
    async fn open(
        root: &Path,
        group: &str,
        clock: &Clock,
        key: String,
        until_ms: i64,
    ) -> anyhow::Result<Self> {
        let table = lake::open_attempts(root, clock).await?;
        let writer = lake::open_writer(table, group, clock).await?;
        let who = of_keys([(key.as_str(), until_ms)]);
        Ok(Self {
            attempts: Place::of(ATTEMPTS, "ts", writer, layout(), who),
            rollup: None,
            key,
            until_ms,
            began_ms: clock.now_ms(),
            root: root.to_owned(),
            group: group.to_owned(),
            clock: clock.clone(),
        })
    }

    async fn open_rollup(&mut self) -> anyhow::Result<()> {
        let folder = self.root.join(ROLLUP);
        if self.rollup.is_none() && folder.exists() {
            let table = lake::open_table(&folder, rollup::spec(), &self.clock).await?;
            let writer = lake::open_writer(table, &self.group, &self.clock).await?;
            let who = of_keys([(self.key.as_str(), whole_hours(self.until_ms))]);
            self.rollup = Some(Place::of(ROLLUP, "hour", writer, unsorted(), who));
        }
        Ok(())
    }

    fn places(&self) -> impl Iterator<Item = &Place> {
        std::iter::once(&self.attempts).chain(&self.rollup)
    }

    /// Takes the rows out of the live files, some files a commit.
    async fn take_out(&mut self) -> anyhow::Result<()> {
        self.attempts.take_out(&self.key).await?;
        // Not sooner: one that is made from now on is of attempts without such rows.
        self.open_rollup().await?;
        if let Some(rollup) = &mut self.rollup {
            rollup.writer.forget(&self.key, self.until_ms).await?;
            rollup.take_out(&self.key).await?;
        }
        Ok(())
    }

    /// Removes the files that held the rows, but those that were replaced since `until_ms`.
    async fn sweep(&mut self, until_ms: i64) -> anyhow::Result<Swept> {
        let mut all = Swept::default();
        for place in std::iter::once(&mut self.attempts).chain(&mut self.rollup) {
            let swept = sweep(&mut place.writer, &place.layout, &place.rows, until_ms).await?;
            all.files += swept.files;
            all.bytes += swept.bytes;
            all.later += swept.later;
            all.unread += swept.unread;
        }
        Ok(all)
    }

    async fn done(&mut self) -> Result<(), LakeError> {
        let done = self.attempts.writer.forgot(&self.key, self.until_ms).await;
        done.map(drop)
    }

    fn rows(&self) -> BTreeMap<&'static str, u64> {
        self.places().map(|it| (it.name, it.removed)).collect()
    }

    fn receipt(&self, swept: Swept) -> Value {
        let table = |it: &Place| {
            let told = json!({
                "rows_removed": it.removed,
                "files_rewritten": it.rewritten,
                "version": it.version,
            });
            (it.name.to_owned(), told)
        };
        let time = |ms: i64| timestamp::text(ms * 1_000);
        json!({
            "what": "forget",
            "tenant_key": self.key,
            "tenant_key_is": "the first 32 hex digits of the SHA-256 of tenant=<name>",
            "until": time(self.until_ms),
            "began": time(self.began_ms),
            "ended": time(self.clock.now_ms()),
            "tables": Value::Object(self.places().map(table).collect()),
            "files_removed_from_disk": swept.files,
            "bytes_removed_from_disk": swept.bytes,
            "unfinished_files": swept.unread,
            // Unknown where only the key is known.
            "alerts_that_name_it": null,
            "not_touched": [
                "the topics: events, dead letters and alerts stay as long as their retention says",
                "rows of the table alerts: they are what was sent, and to be sent",
                "the log of attempts, which names the least and greatest request_id of a file until clean-up",
                "dead letters in files, copies and backups",
            ],
        })
    }
}

/// Up to when rows of the rollup may go, ms. An hour in which the tenant comes back has rows of both:
/// it is not yet in the rollup when its tenant is forgotten, and made without them.
fn whole_hours(until_ms: i64) -> i64 {
    until_ms - until_ms.rem_euclid(HOUR_MS)
}

fn unsorted() -> Layout {
    Layout {
        sort_by: None,
        properties: WriterProperties::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_that_is_not_over_stays_in_the_rollup() {
        assert_eq!(whole_hours(5 * HOUR_MS + 30 * 60_000), 5 * HOUR_MS);
        assert_eq!(whole_hours(5 * HOUR_MS), 5 * HOUR_MS);
    }
}
