//! The newest transition of each alert that a service has accepted ↔ a text beside an offset.
//!
//! Kafka keeps a text with each committed offset, by default of 4,096 bytes at most. An alert
//! takes 24 of them: 6 bytes of its key's SHA-256 and 6 of the time at which the transition was
//! decided, in hex. Where more are known than fit, those go that were heard of longest ago: what
//! fires is heard of each minute, and what is forgotten is sent once more after a restart.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The most bytes of the text.
pub const KNOWN_BYTES_MAX: usize = 4_000;
/// Which form the text has.
const FORM: &str = "1:";
const DIGITS: usize = 12;
/// 48 bits hold ms for 8,000 years.
const MS_MAX: i64 = (1 << 48) - 1;

/// By which an alert is known: 48 bits of its `dedup_key`'s hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AlertKey(u64);

impl AlertKey {
    /// Of a `dedup_key`.
    #[must_use]
    pub fn of(dedup_key: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(dedup_key).into();
        let bytes = digest[..6].iter();
        Self(bytes.fold(0, |key, byte| key << 8 | u64::from(*byte)))
    }
}

/// When the newest accepted transition of each alert was decided, ms of event time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known(pub(super) BTreeMap<AlertKey, i64>);

impl Known {
    /// Reads a text; one of another form says nothing.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let entries = text.strip_prefix(FORM).unwrap_or_default().as_bytes();
        let number = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).ok()?;
            u64::from_str_radix(digits, 16).ok()
        };
        let read = entries.chunks(2 * DIGITS).filter_map(|entry| {
            let (key, ms) = entry.split_at_checked(DIGITS)?;
            Some((AlertKey(number(key)?), i64::try_from(number(ms)?).ok()?))
        });
        Self(read.collect())
    }

    /// The text of alerts, those that must stay first.
    pub(super) fn text(alerts: impl IntoIterator<Item = (AlertKey, i64)>) -> String {
        let mut text = FORM.to_owned();
        for (AlertKey(key), ms) in alerts {
            if text.len() + 2 * DIGITS > KNOWN_BYTES_MAX {
                break;
            }
            let ms = ms.clamp(0, MS_MAX);
            // Writing to a text does not fail.
            let _ = write!(text, "{key:012x}{ms:012x}");
        }
        text
    }
}
