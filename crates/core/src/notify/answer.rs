//! The status of an answer → accepted, refused, or later, and how much later.

use super::Service;

/// The longest that a service can make us wait, ms.
pub const WAIT_MS_MAX: i64 = 3_600_000;
/// The first wait after a failure, ms, and the longest; each is twice the one before.
const BACKOFF_MS: i64 = 1_000;
const BACKOFF_MS_MAX: i64 = 60_000;

/// What a service says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    /// Asking the same again is of no use.
    Refused,
    /// It may be accepted later.
    Later {
        /// How long the service wants not to be asked at all, ms.
        hold_ms: Option<i64>,
    },
}

impl Answer {
    /// By status; `hold_ms` is what `Retry-After` says.
    #[must_use]
    pub fn of(service: &Service, status: u16, hold_ms: Option<i64>) -> Self {
        match status {
            _ if service.is_accepted(status) => Self::Accepted,
            429 | 500..=599 => Self::Later {
                hold_ms: hold_ms.map(|ms| ms.clamp(0, WAIT_MS_MAX)),
            },
            _ => Self::Refused,
        }
    }
}

/// How long to wait after so many failures in a row, from 1, ms: 1 s, 2 s, 4 s up to 60 s, and up
/// to a second more by `luck`, any number, so that several senders do not come at once.
///
/// ```
/// use retrytoll_core::notify::backoff_ms;
/// assert_eq!([1, 2, 3, 7, 99].map(|tries| backoff_ms(tries, 0)), [1_000, 2_000, 4_000, 60_000, 60_000]);
/// assert_eq!(backoff_ms(1, 1_999), 1_999);
/// ```
#[must_use]
pub fn backoff_ms(tries: u32, luck: u64) -> i64 {
    let doubled = BACKOFF_MS << tries.saturating_sub(1).min(16);
    doubled.min(BACKOFF_MS_MAX) + (luck % 1_000) as i64
}
