//! Completeness mark → tick → SQL job → transitions → outbox, committed → alert topic → marked.
//!
//! A *watch* is a job whose rows are looked at under a rule ([`watch`]). What changes at a tick
//! is decided by the pure [`retrytoll_core::alert`], committed to the *outbox*, the table `alerts`
//! ([`outbox`]), then sent as a CloudEvent ([`event`]), then marked as sent. So a crash anywhere
//! loses no alert and sends a repetition under the same id. One instance does all this: the owner
//! of the least (source, partition) that the lake knows.
//!
//! Beside it each instance tells how it does itself ([`pulse`]), and an alert over a budget goes to
//! a control topic as well ([`breaker`]).

mod alerting;
mod beside;
mod breaker;
pub mod cell;
mod data;
mod event;
pub mod extent;
mod inhibit;
mod name;
mod outbox;
mod pulse;
mod row;
mod stored;
#[cfg(test)]
mod tests;
mod watch;

pub use alerting::{Alerting, AlertingSettings, Sent};
pub use event::{AlertOutlet, letter, source};
pub use pulse::Pulse;
pub use row::Row;
pub use stored::{Stored, rows_that_name};

/// The folder of the table with the alerts, below the lake's root.
pub const ALERTS: &str = "alerts";
