//! The fields that figures need: of which events each is asked, what suffers, and the mend.

use super::finding::Severity;
use super::row::Row;
use crate::batch::EventBatch;
use crate::field::{Hash, Int, Text, Time, Word};

/// A field that a figure needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Usage,
    MaxTokens,
    PromptHash,
    Ts,
    ElapsedMs,
    Provider,
    NextRetryMs,
    TimeoutMs,
    ServerRequestId,
}

impl Wanted {
    /// Every one, in the order of [`super::Coverage::fields`].
    pub const ALL: [Self; 9] = [
        Self::Usage,
        Self::MaxTokens,
        Self::PromptHash,
        Self::Ts,
        Self::ElapsedMs,
        Self::Provider,
        Self::NextRetryMs,
        Self::TimeoutMs,
        Self::ServerRequestId,
    ];
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The field's name; `usage` stands for the provider's tokens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::MaxTokens => "max_tokens",
            Self::PromptHash => "prompt_hash",
            Self::Ts => "ts",
            Self::ElapsedMs => "elapsed_ms",
            Self::Provider => "provider",
            Self::NextRetryMs => "next_retry_ms",
            Self::TimeoutMs => "timeout_ms",
            Self::ServerRequestId => "server_request_id",
        }
    }

    /// Whether an event has it; `None` where it need not.
    pub(super) fn is_there(self, row: &Row<'_>) -> Option<bool> {
        let called = (!row.is_cached()).then_some(());
        let answered = row.is_answer().then_some(());
        match self {
            Self::Usage => answered.map(|()| row.has_usage()),
            Self::MaxTokens => called.map(|()| row.int(Int::MaxTokens).is_some()),
            Self::PromptHash => Some(has_prompt(row.batch, row.number)),
            Self::Ts => Some(row.time(Time::Ts).is_some()),
            Self::ElapsedMs => Some(row.int(Int::ElapsedMs).is_some()),
            // A router's model names its provider.
            Self::Provider => {
                Some(!row.word(Word::Provider).is_empty() || row.word(Word::Model).contains('/'))
            }
            Self::NextRetryMs => {
                let waits = matches!(row.word(Word::Decision), "retry" | "retry_limited");
                waits.then(|| row.int(Int::NextRetryMs).is_some())
            }
            Self::TimeoutMs => called.map(|()| row.int(Int::TimeoutMs).is_some()),
            Self::ServerRequestId => {
                answered.map(|()| !row.batch.text(Text::ServerRequestId, row.number).is_empty())
            }
        }
    }

    /// Of which attempts it is asked.
    pub(super) const fn asked_of(self) -> &'static str {
        match self {
            Self::Usage | Self::ServerRequestId => "answers",
            Self::MaxTokens | Self::TimeoutMs => "calls",
            Self::PromptHash | Self::Ts | Self::ElapsedMs | Self::Provider => "attempts",
            Self::NextRetryMs => "attempts that are retried",
        }
    }

    pub(super) const fn severity(self) -> Severity {
        match self {
            Self::Usage | Self::MaxTokens | Self::PromptHash | Self::Ts => Severity::Warning,
            _ => Severity::Info,
        }
    }

    /// The figure that suffers where it is missing.
    pub(super) const fn suffers(self) -> &'static str {
        match self {
            Self::Usage => "under 80 % the retry-cost share is withheld",
            Self::MaxTokens => {
                "an attempt without usage has no ceiling, and no estimate of its own"
            }
            Self::PromptHash => {
                "resends are not seen, nor the operations of one request told apart"
            }
            Self::Ts => {
                "the record's time stands for it, and two attempts alike may be taken for one"
            }
            Self::ElapsedMs => "no start is known, so hedges and false time-outs are not seen",
            Self::Provider => {
                "what this provider bills for failures is not applied, nor its own price"
            }
            Self::NextRetryMs => {
                "an operation that waits long is taken for two, and Retry-After is not checked"
            }
            Self::TimeoutMs => "an operation waits 600 s for its next attempt in place of it",
            Self::ServerRequestId => {
                "a bill can't be joined by id, and two answers alike are taken for one"
            }
        }
    }

    pub(super) const fn mend(self) -> &'static str {
        match self {
            Self::Usage => {
                "log input_tokens and output_tokens as the provider returns them (asked for in streams)"
            }
            Self::MaxTokens => "log max_tokens, the limit that was asked for",
            Self::PromptHash => {
                "log the hash of the operation's first prompt on every attempt (`retrytoll hash`)"
            }
            Self::Ts => "log ts, the end of the attempt, as RFC 3339 with its zone",
            Self::ElapsedMs => "log elapsed_ms, what the attempt took, in ms",
            Self::Provider => "log provider, as openai, anthropic, gemini, azure, bedrock",
            Self::NextRetryMs => "log next_retry_ms, the wait before the next attempt, in ms",
            Self::TimeoutMs => "log timeout_ms, the attempt's whole time-out, in ms",
            Self::ServerRequestId => {
                "log server_request_id, the id that the provider's answer carries"
            }
        }
    }
}

fn has_prompt(batch: &EventBatch, row: usize) -> bool {
    let kinds = &batch.hashes[Hash::Prompt as usize].kinds;
    kinds.get(row).is_some_and(|kind| *kind != 0)
}
