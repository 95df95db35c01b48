//! name of a JSON member → [`Field`]: every field of the event, once.
//!
//! The event's fields fall into a few shapes. A *word* is text of few distinct values (a model,
//! a tenant) and becomes a dictionary id; *text* is of many (an id); a *hash* becomes 32 bytes
//! and a kind. The order within a shape is the order of the columns.

/// Where a member of the event goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Word(Word),
    Text(Text),
    Hash(Hash),
    Int(Int),
    Bool(Bool),
    Money(Money),
    Time(Time),
    /// An object of at most [`LABELS_MAX`] pairs, kept as JSON text.
    Labels,
}

/// What an integer counts, and so which values are possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntKind {
    /// An attempt number: 0 to 2^31 - 1.
    Attempt,
    /// Tokens and other counts: 0 to [`COUNT_MAX`].
    Count,
    /// Milliseconds: 0 to [`MILLIS_MAX`]; a fraction is rounded to the nearest.
    Millis,
    /// An HTTP status: 100 to 599.
    Status,
}

/// The most pairs that `labels` may hold.
pub const LABELS_MAX: usize = 16;
/// No request has a billion billion tokens; a larger count is a mistake of the caller's.
pub const COUNT_MAX: i64 = 1_000_000_000_000;
/// A year, in ms: no attempt and no timeout is longer.
pub const MILLIS_MAX: i64 = 366 * 86_400_000;

macro_rules! shape {
    ($(#[$doc:meta])* $name:ident { $($variant:ident $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $($variant),+ }

        impl $name {
            /// Every one, in column order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The member's name in the event, and the column's.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }
    };
}

shape!(
    /// Text of few distinct values.
    Word {
        Model "model", ErrorType "error_type", Phase "phase", Decision "decision",
        Service "service", Layer "layer", Provider "provider",
        ModelRequested "model_requested", Scenario "scenario", CallType "call_type",
        ServiceTier "service_tier", Region "region", BillingMode "billing_mode",
        FinishReason "finish_reason", Reason "reason", UsageSource "usage_source",
        CostUnit "cost_unit", Tenant "tenant", Team "team", Project "project",
        Environment "environment", AppVersion "app_version", ApiKeyId "api_key_id",
    }
);

shape!(
    /// Text of many distinct values.
    Text {
        RequestId "request_id", ServerRequestId "server_request_id", EventId "event_id",
        ClientRequestId "client_request_id", ParentId "parent_id", TraceId "trace_id",
        IdempotencyKey "idempotency_key", UserHash "user_hash",
        ConversationId "conversation_id", Labels "labels",
    }
);

shape!(
    /// Hashes: 32 bytes and a kind.
    Hash { Prompt "prompt_hash", WirePrompt "wire_prompt_hash", System "system_hash" }
);

shape!(
    /// Integers.
    Int {
        Attempt "attempt", MaxTokens "max_tokens", ElapsedMs "elapsed_ms",
        NextRetryMs "next_retry_ms", DeadlineMs "deadline_ms", TtftMs "ttft_ms",
        PoolWaitMs "pool_wait_ms", N "n", ConnectTimeoutMs "connect_timeout_ms",
        WriteTimeoutMs "write_timeout_ms", ReadTimeoutMs "read_timeout_ms",
        PoolTimeoutMs "pool_timeout_ms", IdleTimeoutMs "idle_timeout_ms",
        TimeoutMs "timeout_ms", StatusCode "status_code", RetryAfterMs "retry_after_ms",
        MaxRetries "max_retries", SdkRetryCount "sdk_retry_count",
        InputTokens "input_tokens", CachedInputTokens "cached_input_tokens",
        CacheWriteTokens "cache_write_tokens", CacheWrite1hTokens "cache_write_1h_tokens",
        OutputTokens "output_tokens", ReasoningTokens "reasoning_tokens",
        ReceivedOutputTokens "received_output_tokens", Turn "turn",
    }
);

shape!(
    /// Booleans.
    Bool {
        Final "final", Stream "stream", StreamComplete "stream_complete",
        CacheHit "cache_hit",
    }
);

shape!(
    /// Money as the caller states it.
    Money { Cost "cost", EstimatedCost "estimated_cost" }
);

shape!(
    /// Instants.
    Time { Ts "ts", StartedAt "started_at" }
);

impl Int {
    /// Which values are possible.
    #[must_use]
    pub const fn kind(self) -> IntKind {
        match self {
            Self::Attempt => IntKind::Attempt,
            Self::StatusCode => IntKind::Status,
            Self::ElapsedMs
            | Self::NextRetryMs
            | Self::DeadlineMs
            | Self::TtftMs
            | Self::PoolWaitMs
            | Self::ConnectTimeoutMs
            | Self::WriteTimeoutMs
            | Self::ReadTimeoutMs
            | Self::PoolTimeoutMs
            | Self::IdleTimeoutMs
            | Self::TimeoutMs
            | Self::RetryAfterMs => IntKind::Millis,
            _ => IntKind::Count,
        }
    }

    /// Whether the column is 32 bits wide.
    #[must_use]
    pub const fn is_narrow(self) -> bool {
        matches!(self, Self::Attempt | Self::StatusCode)
    }
}

/// How many fields the event has.
pub const FIELD_COUNT: usize =
    Word::COUNT + Text::COUNT + Hash::COUNT + Int::COUNT + Bool::COUNT + Money::COUNT + Time::COUNT;

impl Field {
    /// Every field, in a fixed order; the place in it is [`Field::index`].
    pub const ALL: [Self; FIELD_COUNT] = all();

    /// The field of this name, if the event has one.
    ///
    /// ```
    /// use retrytoll_core::field::{Field, Int};
    /// assert_eq!(Field::of(b"max_tokens"), Some(Field::Int(Int::MaxTokens)));
    /// assert_eq!(Field::of(b"Max_Tokens"), None);
    /// ```
    #[must_use]
    pub fn of(name: &[u8]) -> Option<Self> {
        let mut slot = slot_of(name);
        loop {
            let at = SLOTS[slot];
            if at == 0 {
                return None;
            }
            let field = Self::ALL[at as usize - 1];
            if field.name().as_bytes() == name {
                return Some(field);
            }
            slot = (slot + 1) % SLOTS.len();
        }
    }

    /// The member's name in the event.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Word(it) => it.name(),
            Self::Text(it) => it.name(),
            Self::Hash(it) => it.name(),
            Self::Int(it) => it.name(),
            Self::Bool(it) => it.name(),
            Self::Money(it) => it.name(),
            Self::Time(it) => it.name(),
            Self::Labels => "labels",
        }
    }

    /// The place in [`Field::ALL`], below [`FIELD_COUNT`]: for counters by field.
    #[must_use]
    pub const fn index(self) -> usize {
        const TEXT: usize = Word::COUNT;
        const HASH: usize = TEXT + Text::COUNT;
        const INT: usize = HASH + Hash::COUNT;
        const BOOL: usize = INT + Int::COUNT;
        const MONEY: usize = BOOL + Bool::COUNT;
        const TIME: usize = MONEY + Money::COUNT;
        match self {
            Self::Word(it) => it as usize,
            Self::Text(it) => TEXT + it as usize,
            Self::Labels => TEXT + Text::Labels as usize,
            Self::Hash(it) => HASH + it as usize,
            Self::Int(it) => INT + it as usize,
            Self::Bool(it) => BOOL + it as usize,
            Self::Money(it) => MONEY + it as usize,
            Self::Time(it) => TIME + it as usize,
        }
    }
}

const fn all() -> [Field; FIELD_COUNT] {
    let mut out = [Field::Labels; FIELD_COUNT];
    let mut at = 0;
    macro_rules! add {
        ($shape:ident) => {
            let mut i = 0;
            while i < $shape::COUNT {
                out[at] = Field::$shape($shape::ALL[i]);
                at += 1;
                i += 1;
            }
        };
    }
    add!(Word);
    add!(Text);
    // The last text is `labels`, which is read in a way of its own.
    out[at - 1] = Field::Labels;
    add!(Hash);
    add!(Int);
    add!(Bool);
    add!(Money);
    add!(Time);
    assert!(at == FIELD_COUNT);
    out
}

/// Open addressing, four times as many slots as fields: place in [`Field::ALL`] + 1, 0 is free.
static SLOTS: [u8; 512] = slots();

const fn slots() -> [u8; 512] {
    let mut out = [0u8; 512];
    let mut i = 0;
    while i < FIELD_COUNT {
        let mut slot = slot_of(Field::ALL[i].name().as_bytes());
        while out[slot] != 0 {
            slot = (slot + 1) % 512;
        }
        out[slot] = (i + 1) as u8;
        i += 1;
    }
    out
}

/// Mixes the length, the first four and the last four bytes; names differ in those.
const fn slot_of(name: &[u8]) -> usize {
    let mut mixed = name.len() as u64;
    let mut i = 0;
    while i < 4 && i < name.len() {
        mixed = (mixed << 8) ^ (mixed >> 29) ^ name[i] as u64;
        i += 1;
    }
    let mut back = 0;
    while back < 4 && back < name.len() {
        mixed = (mixed << 7) ^ (mixed >> 31) ^ name[name.len() - 1 - back] as u64;
        back += 1;
    }
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_field_and_its_place() {
        for (place, field) in Field::ALL.into_iter().enumerate() {
            assert_eq!(Field::of(field.name().as_bytes()), Some(field));
            assert_eq!(field.index(), place, "{}", field.name());
        }
    }

    #[test]
    fn other_names_find_nothing() {
        for name in [
            "",
            "x",
            "model2",
            "mode",
            "MODEL",
            "input_token",
            "prompt",
            "\u{e9}",
        ] {
            assert_eq!(Field::of(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn probing_is_short() {
        // A full table would make an unknown name walk far; 80 names in 512 slots must not.
        let longest = SLOTS.split(|slot| *slot == 0).map(<[u8]>::len).max();
        assert!(
            longest <= Some(6),
            "longest run of taken slots: {longest:?}"
        );
    }
}
