//! Rule, entity and number → the names by which receivers tell alerts apart.

use sha2::{Digest as _, Sha256};

/// PagerDuty's limit of a `dedup_key`.
pub const DEDUP_KEY_BYTES_MAX: usize = 255;
/// Hex digits at the end of a key that was cut.
const TAIL_DIGITS: usize = 32;

/// `rule/entity`; one that is too long keeps its beginning, and a hash of all of it.
///
/// ```
/// use retrytoll_core::alert::dedup_key;
/// assert_eq!(dedup_key("retry_share", "checkout"), "retry_share/checkout");
/// ```
#[must_use]
pub fn dedup_key(rule: &str, entity: &str) -> String {
    let whole = format!("{rule}/{entity}");
    if whole.len() <= DEDUP_KEY_BYTES_MAX {
        return whole;
    }
    let mut end = DEDUP_KEY_BYTES_MAX - TAIL_DIGITS - 1;
    while !whole.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}~{}", &whole[..end], &hex_sha256(&whole)[..TAIL_DIGITS])
}

/// The id of a transition: SHA-256 of `dedup_key`, a line feed, and the number in decimal.
#[must_use]
pub fn transition_id(dedup_key: &str, number: i64) -> String {
    hex_sha256(&format!("{dedup_key}\n{number}"))
}

fn hex_sha256(text: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(text).into();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
