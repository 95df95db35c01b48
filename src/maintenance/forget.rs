//! A tenant that is to be forgotten → a lake without its rows, and a receipt.
//!
//! First the log says so: from then on no writer commits such rows, however often their events are
//! read again. Then the rows go from the live files of `attempts` and `rollup`, and last every file
//! goes that held them. Whatever ends a command in the middle, the same command goes on where it was,
//! and so does the leader, with its vacuum.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parquet::file::properties::WriterProperties;
use retrytoll_core::forgotten::{Forgotten, key_of};
use retrytoll_core::timestamp;
use retrytoll_jobs::rollup::ROLLUP;
use retrytoll_lake::compact::Layout;
use retrytoll_lake::edit::{EditPlan, Swept, edit, sweep};
use retrytoll_lake::forget::{ForgetRows, of_keys, unfinished};
use retrytoll_lake::{Clock, Writer};
use serde_json::{Value, json};

use super::{BY_HAND, layout, receipt};
use crate::alerts::rows_that_name;
use crate::lake::{self, ATTEMPTS};
use crate::rollup;

/// Files of one commit: its first one must not be an hour old, and what a kill undoes is to be little.
const FILES_MAX: usize = 64;
const HOUR_MS: i64 = 3_600_000;
/// The column of `rollup` with a row's time.
const HOUR: &str = "hour";

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
    let began_ms = clock.now_ms();
    let key = key_of(tenant);
    let keys = BTreeMap::from([(key.clone(), began_ms)]);
    let mut work = Forgetting::open(root, BY_HAND, clock, &keys).await?;
    work.attempts.writer.forget(&key, began_ms).await?;
    work.take_out().await?;
    if !grace.is_zero() {
        tracing::info!(
            seconds = grace.as_secs(),
            "waiting for queries that began before"
        );
        tokio::time::sleep(grace).await;
        // What was made of older versions meanwhile, such as hours of the rollup.
        work.take_out().await?;
    }
    let swept = work.sweep(began_ms).await?;
    let alerts = rows_that_name(root, clock, tenant).await?;
    work.attempts.writer.forgot(&keys).await?;
    let rows = work.rows();
    let time = |ms: i64| timestamp::text(ms * 1_000);
    let receipt = json!({
        "what": "forget",
        "tenant_key": key,
        "tenant_key_is": "the first 32 hex digits of the SHA-256 of tenant=<name>",
        "until": time(began_ms),
        "began": time(began_ms),
        "ended": time(clock.now_ms()),
        "tables": work.told(),
        "files_removed_from_disk": swept.files,
        "bytes_removed_from_disk": swept.bytes,
        "unfinished_files_left_to_vacuum": swept.unread,
        "alerts_that_name_it": alerts,
        "not_touched": [
            "the topics: events, dead letters and alerts stay as long as their retention says",
            "rows of the table alerts: they are what was sent, and to be sent",
            "the log of attempts, which names the least and greatest request_id of a file until clean-up",
            "dead letters in files, copies and backups",
        ],
    });
    let receipt = receipt::write(root, "forget", began_ms, &receipt)?;
    Ok(Forgot {
        rows,
        swept,
        alerts,
        receipt,
    })
}

/// Goes on with tenants whose rows may still lie in files, and whose command ended or should have by
/// now: takes out what is there, and where nothing was, by the next call, removes the files that held
/// them.
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
    let mut keys = unfinished(&table.check().await?.txns);
    // A command waits as long itself.
    keys.retain(|_, until_ms| clock.since_ms(*until_ms) >= 2 * lake::ms(grace));
    if keys.is_empty() {
        return Ok(());
    }
    let mut work = Forgetting::open(root, group, clock, &keys).await?;
    work.take_out().await?;
    let rows = work.rows();
    if rows.values().all(|it| *it == 0) {
        let since_ms = keys.values().copied().max().unwrap_or(i64::MAX);
        let swept = work.sweep(since_ms).await?;
        work.attempts.writer.forgot(&keys).await?;
        tracing::info!(tenants = keys.len(), files = swept.files, "forgotten");
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

struct Forgetting {
    attempts: Place,
    /// `None` where there is no rollup.
    rollup: Option<Place>,
}

impl Place {
    fn of(
        name: &'static str,
        time: &'static str,
        writer: Writer,
        layout: Layout,
        keys: &BTreeMap<String, i64>,
    ) -> Self {
        Self {
            name,
            writer,
            rows: ForgetRows {
                forgotten: up_to(keys, time),
                columns: ["tenant", time],
            },
            layout,
            removed: 0,
            rewritten: 0,
            version: None,
        }
    }
}

impl Forgetting {
    async fn open(
        root: &Path,
        group: &str,
        clock: &Clock,
        keys: &BTreeMap<String, i64>,
    ) -> anyhow::Result<Self> {
        let table = lake::open_attempts(root, clock).await?;
        let writer = lake::open_writer(table, group, clock).await?;
        let attempts = Place::of(ATTEMPTS, "ts", writer, layout(), keys);
        let folder = root.join(ROLLUP);
        let rollup = if folder.exists() {
            let table = lake::open_table(&folder, rollup::spec(), clock).await?;
            let writer = lake::open_writer(table, group, clock).await?;
            Some(Place::of(ROLLUP, HOUR, writer, unsorted(), keys))
        } else {
            None
        };
        Ok(Self { attempts, rollup })
    }

    fn places(&self) -> impl Iterator<Item = &Place> {
        std::iter::once(&self.attempts).chain(&self.rollup)
    }

    fn places_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        std::iter::once(&mut self.attempts).chain(&mut self.rollup)
    }

    /// Takes the rows out of the live files, some files a commit.
    async fn take_out(&mut self) -> anyhow::Result<()> {
        for place in self.places_mut() {
            let plan = EditPlan {
                operation: "DELETE",
                layout: place.layout.clone(),
                // Nobody adds such rows any more.
                meets_new_rows: false,
                files_max: FILES_MAX,
                dry_run: false,
            };
            loop {
                let edited = edit(&mut place.writer, &plan, &place.rows, &|_| Value::Null).await?;
                place.removed += edited.change.removed;
                place.rewritten += edited.files_in;
                let commit = edited.commit.map(|it| it.version);
                place.version = commit.or(place.version);
                if !edited.more {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn sweep(&mut self, since_ms: i64) -> anyhow::Result<Swept> {
        let mut all = Swept::default();
        for place in self.places_mut() {
            let swept = sweep(&mut place.writer, &place.layout, &place.rows, since_ms).await?;
            all.files += swept.files;
            all.bytes += swept.bytes;
            all.unread += swept.unread;
        }
        Ok(all)
    }

    fn rows(&self) -> BTreeMap<&'static str, u64> {
        self.places().map(|it| (it.name, it.removed)).collect()
    }

    /// As receipts have it.
    fn told(&self) -> Value {
        let place = |it: &Place| {
            let told = json!({
                "rows_removed": it.removed,
                "files_rewritten": it.rewritten,
                "version": it.version,
            });
            (it.name.to_owned(), told)
        };
        Value::Object(self.places().map(place).collect())
    }
}

/// Who is forgotten, up to when rows may go. An hour in which the tenant comes back has rows of both:
/// it is not yet in the rollup when its tenant is forgotten, and made without them.
fn up_to(keys: &BTreeMap<String, i64>, time: &str) -> Forgotten {
    let whole = |at: i64| match time {
        HOUR => at - at.rem_euclid(HOUR_MS),
        _ => at,
    };
    of_keys(keys.iter().map(|(key, at)| (key.as_str(), whole(*at))))
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
        let keys = BTreeMap::from([(key_of("acme"), 5 * HOUR_MS + 30 * 60_000)]);
        let until = |time| up_to(&keys, time).until_us("acme");
        assert_eq!(until("ts"), Some((5 * HOUR_MS + 30 * 60_000) * 1_000));
        assert_eq!(until("hour"), Some(5 * HOUR_MS * 1_000));
    }
}
