//! Tenants that were forgotten, as the log of `attempts` states them.
//!
//! `retrytoll/forget/tenant/<key>` says up to when, ms since 1970: from the commit that states it on,
//! no writer commits older rows of that tenant. Whoever owns a partition is fenced by it, and reads
//! again with the list. `retrytoll/forgot/tenant/<key>` says the same once no file has such rows.

use std::collections::{BTreeMap, HashMap};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{cast, filter_record_batch, not};
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use retrytoll_core::forgotten::Forgotten;

use crate::edit::{Change, EditRows};
use crate::error::{Cause, LakeError};
use crate::position::FORGET_PREFIX;
use crate::writer::{Committed, Writer};

const TENANT: &str = "tenant/";
const FORGOT_PREFIX: &str = "retrytoll/forgot/";

/// Every tenant that was forgotten, among a table's `txn` values.
#[must_use]
pub fn forgotten(txns: &BTreeMap<String, i64>) -> Forgotten {
    of_keys(keys(txns))
}

/// Those of them whose rows may still lie in files.
#[must_use]
pub fn unfinished(txns: &BTreeMap<String, i64>) -> BTreeMap<String, i64> {
    let finished = |key: &str| txns.get(&format!("{FORGOT_PREFIX}{TENANT}{key}")).copied();
    keys(txns)
        .filter(|(key, until_ms)| finished(key) < Some(*until_ms))
        .map(|(key, until_ms)| (key.to_owned(), until_ms))
        .collect()
}

/// Tenants by key, and up to when they are forgotten, ms.
#[must_use]
pub fn of_keys<'a>(keys: impl IntoIterator<Item = (&'a str, i64)>) -> Forgotten {
    let mut all = Forgotten::default();
    for (key, until_ms) in keys {
        all.add(key.to_owned(), until_ms.saturating_mul(1_000));
    }
    all
}

fn keys(txns: &BTreeMap<String, i64>) -> impl Iterator<Item = (&str, i64)> {
    txns.iter().filter_map(|(app_id, until_ms)| {
        let key = app_id.strip_prefix(FORGET_PREFIX)?.strip_prefix(TENANT)?;
        Some((key, *until_ms))
    })
}

impl Writer {
    /// States that rows of a tenant, by its key, from before `until_ms` are forgotten. Every writer
    /// that owns a partition is fenced by it.
    ///
    /// # Errors
    /// As [`Writer::flush`].
    pub async fn forget(&mut self, key: &str, until_ms: i64) -> Result<Committed, LakeError> {
        let app_id = format!("{FORGET_PREFIX}{TENANT}{key}");
        self.catch_up().await?;
        // What was forgotten stays so, whatever the clock of this machine says.
        let before = self.state().txns.get(&app_id).copied();
        let until_ms = before.map_or(until_ms, |it| it.max(until_ms));
        self.state_txns("FORGET", vec![(app_id, until_ms)]).await
    }

    /// States that no file has rows of this tenant from before `until_ms`.
    ///
    /// # Errors
    /// As [`Writer::flush`].
    pub async fn forgot(&mut self, key: &str, until_ms: i64) -> Result<Committed, LakeError> {
        let app_id = format!("{FORGOT_PREFIX}{TENANT}{key}");
        self.state_txns("FORGOT", vec![(app_id, until_ms)]).await
    }
}

/// Takes the rows of tenants that were forgotten out of a table with a column `tenant`.
#[derive(Clone, Debug)]
pub struct ForgetRows {
    /// Who, and up to when.
    pub forgotten: Forgotten,
    /// `tenant`, and the column with a row's time.
    pub columns: [&'static str; 2],
}

impl EditRows for ForgetRows {
    fn looks_at(&self) -> &[&'static str] {
        &self.columns
    }

    fn concerns(&self, rows: &RecordBatch) -> Result<bool, Cause> {
        Ok(self.goes(rows)?.true_count() > 0)
    }

    fn edit(&self, rows: &RecordBatch) -> Result<(RecordBatch, Change), Cause> {
        let goes = self.goes(rows)?;
        let change = Change {
            removed: goes.true_count() as u64,
            ..Change::default()
        };
        Ok((filter_record_batch(rows, &not(&goes)?)?, change))
    }
}

impl ForgetRows {
    fn goes(&self, rows: &RecordBatch) -> Result<BooleanArray, Cause> {
        let [tenants, times] = self.columns.map(|name| rows.column_by_name(name));
        let (tenants, times) = tenants.zip(times).ok_or("a column is missing")?;
        let tenants = cast(tenants, &DataType::Utf8)?;
        let times: ArrayRef = cast(times, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
        let (tenants, times) = (
            tenants.as_string::<i32>(),
            times.as_primitive::<TimestampMicrosecondType>(),
        );
        let mut known: HashMap<&str, Option<i64>> = HashMap::new();
        let goes = (0..rows.num_rows()).map(|row| {
            if tenants.is_null(row) {
                return false;
            }
            let tenant = tenants.value(row);
            let until = *known
                .entry(tenant)
                .or_insert_with(|| self.forgotten.until_us(tenant));
            // As when it was written: without a time nothing shows that it is newer.
            until.is_some_and(|until| times.is_null(row) || times.value(row) < until)
        });
        Ok(goes.map(Some).collect())
    }
}

#[cfg(test)]
mod tests {
    use retrytoll_core::forgotten::key_of;

    use super::*;
    use crate::position::Owner;

    #[test]
    fn the_list_comes_back_from_the_log() {
        let (acme, other) = (key_of("acme"), key_of("other"));
        let txns = BTreeMap::from([
            (format!("retrytoll/forget/tenant/{acme}"), 7),
            (format!("retrytoll/forget/tenant/{other}"), 9),
            (format!("retrytoll/forgot/tenant/{other}"), 9),
            ("retrytoll/next/0/forget/tenant/x".to_owned(), 5),
        ]);
        let all = forgotten(&txns);
        assert_eq!(all.until_us("acme"), Some(7_000));
        assert_eq!(all.until_us("other"), Some(9_000));
        assert_eq!(all.until_us("x"), None);
        assert_eq!(unfinished(&txns), BTreeMap::from([(acme, 7)]));
        // Forgotten again, up to later.
        let mut again = txns;
        again.insert(format!("retrytoll/forget/tenant/{other}"), 10);
        assert_eq!(unfinished(&again).get(&other), Some(&10));
    }

    #[test]
    fn the_list_is_owned_by_all_who_write_and_the_end_of_it_by_nobody() {
        let owner = |app_id| Owner::of_app_id(app_id);
        assert_eq!(owner("retrytoll/forget/tenant/0a"), Some(Owner::Forgotten));
        assert_eq!(owner("retrytoll/forgot/tenant/0a"), None);
    }
}
