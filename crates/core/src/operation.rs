//! all attempts of one request → its operations, and what each attempt is in them.
//!
//! A *request* is a (`service`, `request_id`); an *operation* is one run of decisions under it
//! (MONEY.md, section 2). This is the definition, over rows in any order from any partition: what
//! was late, torn over partitions or numbered oddly comes out right here. Every attempt belongs
//! to exactly one operation, and adds its money there once.
//!
//! Times are microseconds since 1970. Attempts are taken by the time they began.

mod order;
mod roles;
mod sessions;
#[cfg(test)]
mod tests;

/// Time that a next attempt may take beside its own wait and time-out, µs.
pub const LATENESS_US: i64 = 60_000_000;
/// The time-out of an attempt that tells none, µs: the SDKs' own default.
pub const TIMEOUT_US: i64 = 600_000_000;
/// How long after an ending decision an attempt still belongs to the operation, µs.
pub const GAP_US: i64 = 20 * 60_000_000;
/// An operation is cut when it lasts longer, µs.
pub const WINDOW_US_MAX: i64 = 2 * 3_600_000_000;
/// An operation is cut when it has more attempts.
pub const ATTEMPTS_MAX: usize = 1_000;

/// What of an attempt decides where it belongs. Text is compared, never read.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Source, partition, offset and place within the record: the last word on the order.
    pub lineage: (&'a str, i32, i64, i32),
    pub started_us: Option<i64>,
    pub ended_us: Option<i64>,
    /// Its number as logged; `None` in formats without.
    pub number: Option<i64>,
    /// The stored `is_retry`; `None` without a number.
    pub above_base: Option<bool>,
    pub layer: &'a [u8],
    pub prompt: Option<&'a [u8]>,
    /// `false`: more lines of this attempt follow.
    pub last_line: bool,
    /// The stored `counted`.
    pub counted: bool,
    pub decision: Decision,
    pub next_retry_us: i64,
    pub timeout_us: Option<i64>,
    /// Its class is `read` or `stream`: an answer may exist that nobody saw.
    pub may_have_answer: bool,
    /// Its class is `cancelled`.
    pub was_cancelled: bool,
    pub cache_hit: bool,
    pub billed: Billed,
    /// Its tokens are the provider's own: evidence `usage`.
    pub usage: Option<Usage>,
    pub output_tokens: Option<i64>,
    pub server_id: Option<&'a str>,
}

/// Whether the provider billed an attempt, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Billed {
    Yes,
    /// Unknown, and more likely than not.
    Likely,
    No,
}

/// What the caller did after an attempt, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    GoesOn,
    Success,
    Cancelled,
    /// Any other ending decision.
    Ends,
}

impl Decision {
    /// Of a decision's word; `None` for one that is not known, which is taken as going on.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        match word {
            "retry" | "retry_limited" | "fallback" => Some(Self::GoesOn),
            "success" => Some(Self::Success),
            "cancelled" => Some(Self::Cancelled),
            "give_up" | "no_retry" | "ask_user" | "budget_exhausted" => Some(Self::Ends),
            _ => None,
        }
    }

    /// Whether an operation ends with it.
    #[must_use]
    pub fn ends(self) -> bool {
        self != Self::GoesOn
    }
}

/// Tokens that the provider counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub input: Option<i64>,
    pub cached: Option<i64>,
    pub output: Option<i64>,
}

/// How an operation came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Delivered,
    /// Surely nothing.
    Failed,
    /// There may be a result that nobody has.
    TimedOut,
    Cancelled,
    /// No ending decision came.
    Abandoned,
}

/// What an attempt was in its operation; the first that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Cached,
    Delivered,
    Cancelled,
    Hedge,
    Repeat,
    Undelivered,
}

impl Outcome {
    /// Its word, as the column has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Abandoned => "abandoned",
        }
    }
}

impl Role {
    /// Its word, as the column has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Cached => "cached",
            Self::Delivered => "delivered",
            Self::Cancelled => "cancelled",
            Self::Hedge => "hedge",
            Self::Repeat => "repeat",
            Self::Undelivered => "undelivered",
        }
    }
}

/// Where an attempt stands in its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// A later line of the same attempt is there; nothing else of this is meant.
    pub superseded: bool,
    /// As stored, but for what was logged twice.
    pub counted: bool,
    /// It tells an answer that another counted row tells.
    pub double_logged: bool,
    /// The operation was cut for its length.
    pub overlong: bool,
    /// The row of the operation's first attempt, by its place in what was given.
    pub first: usize,
    /// The operation's number under its request, from 1; pieces of an overlong one share it.
    pub op_seq: i64,
    /// The attempt's place in its operation, from 0.
    pub op_place: i64,
    /// How many attempts the operation has.
    pub op_attempts: i64,
    /// How many of them are retries; a hedge is none.
    pub op_retries: i64,
    /// How many of them were billed, hedges and cancelled ones left out; 0 while it is open.
    pub op_billed: i64,
    /// How many of those left may well have been billed.
    pub op_likely_billed: i64,
    /// When the last of them ended, µs.
    pub op_ended_us: Option<i64>,
    /// It is the one that ended last.
    pub is_last: bool,
    /// It is not the first of its operation.
    pub is_retry: bool,
    pub is_hedge: bool,
    /// `None` while the operation is open.
    pub outcome: Option<Outcome>,
    /// `None` while the operation is open.
    pub role: Option<Role>,
    /// The provider's tokens of another attempt, for an estimate of this one.
    pub sibling: Option<Usage>,
}

/// Places every attempt of one request, in the order given. `mark_us` is the completeness mark:
/// what waits for nothing before it is closed; `None` where everything is complete.
#[must_use]
pub fn place(attempts: &[Attempt<'_>], mark_us: Option<i64>) -> Vec<Place> {
    let mut places = vec![Place::LONE; attempts.len()];
    let order = order::by_start(attempts);
    let order = order::without_superseded(attempts, order, &mut places);
    for operation in sessions::operations(attempts, &order) {
        roles::assign(attempts, &operation, mark_us, &mut places);
    }
    places
}

impl Place {
    const LONE: Self = Self {
        superseded: false,
        counted: false,
        double_logged: false,
        overlong: false,
        first: 0,
        op_seq: 1,
        op_place: 0,
        op_attempts: 1,
        op_retries: 0,
        op_billed: 0,
        op_likely_billed: 0,
        op_ended_us: None,
        is_last: true,
        is_retry: false,
        is_hedge: false,
        outcome: None,
        role: None,
        sibling: None,
    };
}

impl Attempt<'_> {
    /// When it began; where no start is known, when it ended.
    fn began_us(&self) -> i64 {
        self.started_us.or(self.ended_us).unwrap_or(0)
    }

    fn end_us(&self) -> i64 {
        self.ended_us.or(self.started_us).unwrap_or(0)
    }

    /// Until when an attempt that ends by then belongs to the same operation.
    fn deadline_us(&self) -> i64 {
        let wait = match self.decision.ends() {
            true => GAP_US,
            false => {
                let next = self.timeout_us.unwrap_or(TIMEOUT_US);
                self.next_retry_us
                    .saturating_add(next)
                    .saturating_add(LATENESS_US)
            }
        };
        self.end_us().saturating_add(wait)
    }

    /// It may be the first of an operation: it has the base number, or none.
    fn may_open(&self) -> bool {
        self.above_base != Some(true)
    }
}
