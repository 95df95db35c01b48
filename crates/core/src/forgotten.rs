//! Tenants that were forgotten → which rows may not be written any more.
//!
//! What is kept of a tenant is a hash of its name, and up to when it was forgotten: rows from
//! before then stay away however often their events are read again, later ones are new business.

use std::collections::{BTreeMap, HashMap};

use sha2::{Digest as _, Sha256};

use crate::batch::EventBatch;
use crate::derive::Derived;
use crate::dictionary::Words;
use crate::field::Word;

/// Bytes of a name's hash that are kept.
const KEY_BYTES: usize = 16;

/// What a tenant is known by once its name is gone: 32 hex digits of the SHA-256 of
/// `tenant=<name>`. It proves that a name is the one, and guesses can be tried against it.
///
/// ```
/// use retrytoll_core::forgotten::key_of;
/// assert_eq!(key_of("acme").len(), 32);
/// assert_ne!(key_of("acme"), key_of("Acme"));
/// ```
#[must_use]
pub fn key_of(tenant: &str) -> String {
    let hash = Sha256::new()
        .chain_update("tenant=")
        .chain_update(tenant)
        .finalize();
    let digits = hash[..KEY_BYTES].iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

/// Every tenant that was forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// By key: rows from before this are forgotten, µs since 1970.
    until_us: BTreeMap<String, i64>,
}

impl Forgotten {
    /// Adds a tenant by its key, forgotten up to `until_us` (exclusive), or further.
    pub fn add(&mut self, key: String, until_us: i64) {
        let until = self.until_us.entry(key).or_insert(until_us);
        *until = until_us.max(*until);
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.until_us.is_empty()
    }

    /// Up to when a tenant is forgotten, µs (exclusive); `None` where it is not.
    #[must_use]
    pub fn until_us(&self, tenant: &str) -> Option<i64> {
        match self.until_us.is_empty() || tenant.is_empty() {
            true => None,
            false => self.until_us.get(&key_of(tenant)).copied(),
        }
    }

    /// Takes from `keep`, rows of the batch to write, those that are forgotten; returns how many.
    /// A row without a time is: nothing shows that it is newer.
    pub fn take_from(
        &self,
        keep: &mut Vec<u32>,
        batch: &EventBatch,
        words: &Words,
        derived: &Derived,
    ) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let before = keep.len();
        let mut known: HashMap<u32, Option<i64>> = HashMap::new();
        keep.retain(|&row| {
            let row = row as usize;
            let id = batch.word(Word::Tenant, row);
            let until = *known
                .entry(id)
                .or_insert_with(|| self.until_us(words.get(id)));
            until.is_none_or(|until| derived.ts_us.get(row).is_some_and(|ts| ts >= until))
        });
        (before - keep.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::SourceId;
    use crate::decode::{Decoder, Record};
    use crate::derive::{Tables, derive};

    /// 2026-09-01T00:00:00Z.
    const NOON_MS: i64 = 1_788_220_800_000;

    #[test]
    fn the_key_is_the_sha_256_of_the_name_with_its_dimension() {
        // printf 'tenant=acme' | sha256sum | cut -c1-32
        assert_eq!(key_of("acme"), "181d02af0439c1be790b3d40389fc501");
    }

    #[test]
    fn further_is_kept() {
        let mut forgotten = Forgotten::default();
        for until in [5, 9, 7] {
            forgotten.add(key_of("acme"), until);
        }
        assert_eq!(forgotten.until_us("acme"), Some(9));
        assert_eq!(forgotten.until_us("other"), None);
        assert_eq!(forgotten.until_us(""), None);
    }

    #[test]
    fn only_older_rows_of_the_tenant_go() {
        let mut decoder = Decoder::new(Default::default());
        let mut batch = EventBatch::new(SourceId("c/t".into()), 0);
        let times = [
            (r#""tenant":"acme","#, NOON_MS - 1, false),
            (r#""tenant":"acme","#, NOON_MS, true),
            (r#""tenant":"other","#, NOON_MS - 1, true),
            ("", NOON_MS - 1, true),
        ];
        for (at, (tenant, ts, _)) in times.iter().enumerate() {
            let payload = format!(
                r#"{{"request_id":"r{at}","attempt":0,"model":"m","decision":"success",{tenant}"ts":{ts}}}"#
            );
            let record = Record {
                offset: at as i64,
                index: 0,
                timestamp_ms: None,
                payload: payload.as_bytes(),
            };
            decoder.decode(&record, &mut batch).unwrap();
        }
        let derived = derive(&batch, &decoder.dictionary, &Tables::built_in());
        let mut forgotten = Forgotten::default();
        let all: Vec<u32> = (0..4).collect();
        let mut keep = all.clone();
        let words = decoder.dictionary.share();
        assert_eq!(forgotten.take_from(&mut keep, &batch, &words, &derived), 0);
        assert_eq!(keep, all);
        forgotten.add(key_of("acme"), NOON_MS * 1_000);
        assert_eq!(forgotten.take_from(&mut keep, &batch, &words, &derived), 1);
        let expected = all.iter().filter(|at| times[**at as usize].2);
        assert_eq!(keep, expected.copied().collect::<Vec<_>>());
    }
}
