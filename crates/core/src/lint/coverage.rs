//! events of a service → which of the fields that figures need they have.

use super::finding::{Counted, Finding, Severity};
use super::row::Row;
use super::{Coverage, Tally};
use crate::batch::EventBatch;
use crate::field::{Hash, Int, Text, Time, Word};

/// Under this a figure that needs the field is no figure any more: MONEY's bound of usage
/// coverage, and taken for the other fields, too.
const COVERED_PCT_MIN: u64 = 80;

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
    /// Every one, in the order of [`Coverage::fields`].
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
    fn is_there(self, row: &Row<'_>) -> Option<bool> {
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
    const fn asked_of(self) -> &'static str {
        match self {
            Self::Usage | Self::ServerRequestId => "answers",
            Self::MaxTokens | Self::TimeoutMs => "calls",
            Self::PromptHash | Self::Ts | Self::ElapsedMs | Self::Provider => "attempts",
            Self::NextRetryMs => "attempts that are retried",
        }
    }

    const fn severity(self) -> Severity {
        match self {
            Self::Usage | Self::MaxTokens | Self::PromptHash | Self::Ts => Severity::Warning,
            _ => Severity::Info,
        }
    }

    /// The figure that suffers where it is missing.
    const fn suffers(self) -> &'static str {
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

    const fn mend(self) -> &'static str {
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

/// Of one service, by place in [`Wanted::ALL`].
#[derive(Debug, Default)]
pub(super) struct Covered {
    asked: [u64; Wanted::COUNT],
    missing: [Tally; Wanted::COUNT],
}

impl Covered {
    pub fn see(&mut self, row: &Row<'_>) {
        for (place, wanted) in Wanted::ALL.into_iter().enumerate() {
            if let Some(is_there) = wanted.is_there(row) {
                self.asked[place] += 1;
                if !is_there {
                    self.missing[place].add(|| row.example());
                }
            }
        }
    }

    /// Of a service that has no time at all, which is told elsewhere, `ts` is not missed again.
    pub fn findings(&self, service: &str, has_time: bool) -> impl Iterator<Item = Finding> {
        let each = Wanted::ALL.into_iter().enumerate();
        each.filter_map(move |(place, wanted)| {
            let (asked, missing) = (self.asked[place], &self.missing[place]);
            let has = asked - missing.count;
            // Of none asked, none is missing.
            let is_covered = has * 100 >= asked * COVERED_PCT_MIN;
            let is_told = wanted == Wanted::Ts && !has_time;
            let text = || {
                let pct = has * 100 / asked;
                let (name, of) = (wanted.name(), wanted.asked_of());
                format!("{name} on {pct} % of {of}: {}", wanted.suffers())
            };
            let mend = || wanted.mend().to_owned();
            (!is_covered && !is_told).then(|| {
                Finding::of(service, wanted.severity(), "coverage", text(), mend()).counted(
                    missing,
                    asked,
                    Counted::Attempts,
                )
            })
        })
    }

    pub fn row(&self, service: &str, attempts: u64) -> Coverage {
        let mut fields = [(0, 0); Wanted::COUNT];
        for (place, field) in fields.iter_mut().enumerate() {
            let asked = self.asked[place];
            *field = (asked - self.missing[place].count, asked);
        }
        Coverage {
            service: service.to_owned(),
            attempts,
            fields,
        }
    }
}
