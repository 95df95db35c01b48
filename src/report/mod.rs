//! Flags → a lake at one version and a window → an answer, on stdout or in a file.
//!
//! What `report` and `sql` have in common. The *window* is a half-open span of event time, the
//! *headline* the share of the whole window with its services, the *gate* what `--fail-over`
//! asks.

pub mod args;
pub mod gate;
pub mod headline;
pub mod open;
pub mod output;

#[cfg(test)]
mod tests;
