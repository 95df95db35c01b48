//! What is wrong, where, how often, and the mend.

use super::{BadKind, Example, Tally};
use crate::decode::Reason;

/// How grave a finding is; the gravest is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Events are lost, or figures are wrong.
    Error,
    /// Figures are withheld, or less sure than they could be.
    Warning,
    /// Worth knowing.
    Info,
}

impl Severity {
    /// Every one, the gravest first.
    pub const ALL: [Self; 3] = [Self::Error, Self::Warning, Self::Info];

    /// Its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// What a finding counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Attempts,
    Operations,
    Requests,
    Records,
    /// Members of JSON objects.
    Members,
}

impl Counted {
    /// Its word, in the plural.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Operations => "operations",
            Self::Requests => "requests",
            Self::Records => "records",
            Self::Members => "members",
        }
    }
}

/// One thing that is wrong with the events of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// The finding's short name, for machines.
    pub rule: &'static str,
    /// `None` where it is not of one service, or of events without one.
    pub service: Option<String>,
    /// What is wrong, in one sentence.
    pub what: String,
    /// How many show it.
    pub count: u64,
    /// How many were looked at; `None` where that is not known.
    pub of: Option<u64>,
    pub counted: Counted,
    /// The first few.
    pub examples: Vec<Example>,
    /// What to do, in one sentence.
    pub mend: String,
}

impl Finding {
    pub(super) fn of(
        service: &str,
        severity: Severity,
        rule: &'static str,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            rule,
            service: (!service.is_empty()).then(|| service.to_owned()),
            what: what.into(),
            count: 0,
            of: None,
            counted: Counted::Attempts,
            examples: Vec::new(),
            mend: mend.into(),
        }
    }

    pub(super) fn counted(self, tally: &Tally, of: u64, counted: Counted) -> Self {
        Self {
            count: tally.count,
            of: Some(of),
            counted,
            examples: tally.examples.clone(),
            ..self
        }
    }

    /// The gravest first, then what is seen most; the rest only makes it the same each time.
    pub(super) fn order(&self) -> impl Ord {
        let most = std::cmp::Reverse(self.count);
        let name = (self.rule, self.service.clone(), self.what.clone());
        (self.severity, most, name)
    }
}

impl BadKind {
    pub(super) fn finding(&self) -> Finding {
        let field = self.field.map(|field| field.name());
        let what = match (self.reason, field) {
            (Reason::MissingField, Some(field)) => {
                format!("{field} is required and missing, so the record is a dead letter")
            }
            (Reason::InvalidField, Some(field)) => {
                format!("{field} is required and has an impossible value: a dead letter")
            }
            (reason, _) => format!("no event ({}): a dead letter", reason.name()),
        };
        let mend = match self.reason {
            Reason::MissingField | Reason::InvalidField => format!(
                "log {} on every attempt, as schemas/retry-decision.v1.json has it",
                field.unwrap_or("every required field")
            ),
            Reason::TooLarge => "log no prompts and no answers: an event is about 500 bytes".into(),
            Reason::TrailingData => "log one event a record, and one a line in files".into(),
            Reason::DuplicateKey => "write each member of the object once".into(),
            _ => "write one JSON object in UTF-8 a record".into(),
        };
        let rule = "dead_letter";
        let mut found = Finding::of(&self.service, Severity::Error, rule, what, mend);
        found.count = self.tally.count;
        found.counted = Counted::Records;
        found.examples.clone_from(&self.tally.examples);
        found
    }
}

/// Members that the event has no field for: a name may be written wrongly.
pub(super) fn unknown_members(count: u64) -> Option<Finding> {
    let what = "members have names that the event does not know, and are ignored";
    let mend = "rename those that mean a field of schemas/retry-decision.v1.json, leave the rest";
    (count > 0).then(|| Finding {
        count,
        counted: Counted::Members,
        ..Finding::of("", Severity::Info, "unknown_members", what, mend)
    })
}
