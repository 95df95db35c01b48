//! `retrytoll.toml` < `RETRYTOLL_*` < flags → [`RawConfig`] (what was typed) → [`Config`] (what is
//! usable).
//!
//! A *key* is one line of [`table::KEYS`], the only place that knows its name, kind, bounds,
//! default and meaning: reading, checking, `init` and `check --show` all go by it. An *open
//! table* ([`table::OPEN`]) has names of the user's own. An *origin* is where a value came from.
//! All *mistakes* are told at once, never the first alone.

#[cfg(any(test, feature = "contract"))]
pub mod contract;
pub mod flags;
pub mod kafka;
pub mod key;
pub mod mistake;
pub mod raw;
pub mod secret;
pub mod show;
pub mod table;
pub mod template;
pub mod units;
pub mod usable;

mod file;
mod nearest;

pub use flags::{KeyFlags, Settings, TopicFlags};
pub use kafka::{Kafka, Start};
pub use mistake::{Mistake, Mistakes};
pub use raw::{Origin, RawConfig};
pub use usable::{Config, Need};

/// The file that is read where none is named.
pub const FILE: &str = "retrytoll.toml";
