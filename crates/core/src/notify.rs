//! an alert's CloudEvent → a [`Notice`] → what a [`Service`] is asked → its [`Answer`] → what is
//! asked next, and what is remembered.
//!
//! A *notice* is a transition of an alert as a receiver has it; the alert topic carries it again
//! each minute while it fires. A *service* is whoever pages: PagerDuty, Alertmanager, a webhook.
//! It takes a transition once: the [`Queue`] holds each notice until the service has accepted or
//! refused it, those of one alert in their order, and knows the newest that was accepted of each
//! alert ([`Known`]), also after a restart.

pub mod alertmanager;
pub mod pagerduty;

mod answer;
mod known;
mod notice;
mod queue;
mod service;
#[cfg(test)]
mod tests;

pub use answer::{Answer, WAIT_MS_MAX, backoff_ms};
pub use known::{AlertKey, KNOWN_BYTES_MAX, Known};
pub use notice::{EVENT_TYPE, HEARTBEAT_TYPE, NoAlert, Notice};
pub use queue::{Outcome, Place, Position, Queue, QueueLimits};
pub use service::{Request, Service};
