//! figures of entities, tick by tick, and the alerts so far → transitions.
//!
//! A *rule* says which figures of an *entity*, such as a service, make an alert. At a *tick*, an
//! instant of event time, each entity has a *sample*: the figures as they are then. What changes
//! is a [`Transition`], firing or resolved, with a number of its own under the alert's
//! `dedup_key`. The shell commits it, and only then is it so ([`Alerts::apply`]): the alerts after
//! a restart are those that the committed transitions make, in any order.

mod id;
mod lifecycle;
mod schedule;
#[cfg(test)]
mod tests;

pub use id::{DEDUP_KEY_BYTES_MAX, dedup_key, transition_id};
pub use lifecycle::{Alerts, Tick};
pub use schedule::{BEHIND_MS_MAX, COARSE_MS, HOUR_MS, is_due, next_tick};

/// How urgent an alert is, in PagerDuty's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    Info,
    Warning,
    Error,
    Critical,
}

/// Whether an alert is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    Firing,
    Resolved,
}

/// Why an alert ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndsReason {
    /// A figure fell below 90 % of its bound.
    Recovered,
    /// Nothing was heard of the entity for three windows.
    NoData,
    /// The rule is off, or gone.
    RuleRemoved,
}

/// Gives an enum its words, as they stand in alerts and in the lake.
macro_rules! words {
    ($name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $name {
            /// Its word.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// What a word stands for.
            #[must_use]
            pub fn of_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

words!(Severity { Info = "info", Warning = "warning", Error = "error", Critical = "critical" });
words!(State { Firing = "firing", Resolved = "resolved" });
words!(EndsReason { Recovered = "recovered", NoData = "no_data", RuleRemoved = "rule_removed" });

/// On which side of a bound a figure must lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Above it.
    Over,
    /// At it or above.
    AtLeast,
    /// Below it.
    Under,
}

/// A bound of one figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The figure's name, such as `share_pct`.
    pub figure: String,
    /// Where the figure must lie.
    pub side: Side,
    /// Times 10^12, as are the figures.
    pub limit: i128,
}

/// An open alert holds while its figures are beyond this much of their bounds, percent: one that
/// lies at its bound does not go on and off.
pub const HYSTERESIS_PCT: i128 = 90;

/// When an entity's figures are an alert: all bounds hold, for so long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The first part of `dedup_key`.
    pub name: String,
    pub severity: Severity,
    pub bounds: Vec<Bound>,
    /// What makes it more severe while it fires.
    pub levels: Vec<Level>,
    /// How long they must hold before it fires, ms of event time.
    pub for_ms: i64,
}

/// Bounds under which an alert is more severe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    pub severity: Severity,
    pub bounds: Vec<Bound>,
}

/// The figures of an entity at a tick, times 10^12, in the order of the bounds. One that is `None`
/// is withheld: it starts no alert and ends none, and no level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub figures: Vec<Option<i128>>,
    /// Those of each level of the rule; a level that is not there is withheld.
    pub levels: Vec<Vec<Option<i128>>>,
}

/// A change of an alert's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    pub dedup_key: String,
    /// From 1, one up with each transition of this `dedup_key`.
    pub number: i64,
    pub rule: String,
    pub entity: String,
    pub state: State,
    pub severity: Severity,
    /// `None` while it fires.
    pub ends_reason: Option<EndsReason>,
    /// When the bounds began to hold, event time, ms.
    pub starts_at_ms: i64,
    /// The tick, event time, ms.
    pub at_ms: i64,
}

impl Transition {
    /// Its id, the same whenever it is sent.
    #[must_use]
    pub fn id(&self) -> String {
        transition_id(&self.dedup_key, self.number)
    }
}

impl Rule {
    /// Whether every bound holds, at `pct` percent of its limit; `None` where a figure is withheld.
    #[must_use]
    pub fn holds(&self, sample: &Sample, pct: i128) -> Option<bool> {
        hold(&self.bounds, &sample.figures, pct)
    }

    /// How severe it is, that is as severe as `open` by now where it fires.
    #[must_use]
    pub fn severity(&self, sample: &Sample, open: Option<Severity>) -> Severity {
        let reached = self.levels.iter().enumerate().filter(|(at, level)| {
            let was = open.is_some_and(|open| open >= level.severity);
            let pct = if was { HYSTERESIS_PCT } else { 100 };
            let figures = sample.levels.get(*at);
            let held = figures.and_then(|figures| hold(&level.bounds, figures, pct));
            held.unwrap_or(was)
        });
        let reached = reached.map(|(_, level)| level.severity);
        reached.fold(self.severity, Severity::max)
    }
}

fn hold(bounds: &[Bound], figures: &[Option<i128>], pct: i128) -> Option<bool> {
    let mut all = true;
    for (at, bound) in bounds.iter().enumerate() {
        let figure = figures.get(at).copied().flatten()?;
        let (whole, eased) = (100, pct);
        all &= match bound.side {
            Side::Over => figure.saturating_mul(whole) > bound.limit.saturating_mul(eased),
            Side::AtLeast => figure.saturating_mul(whole) >= bound.limit.saturating_mul(eased),
            Side::Under => figure.saturating_mul(eased) < bound.limit.saturating_mul(whole),
        };
    }
    Some(all)
}
