//! What is wrong, where, how often, and the mend.

use super::{Example, Tally};

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
