//! seed → made-up traffic → an embedded broker → the real pipeline → reports and alerts:
//! `retrytoll demo`.
//!
//! The broker is librdkafka's mock cluster, in this process: it keeps 5 MiB per partition, so the
//! demo stays well below that. All else is what `run` does.

pub mod alerts;
mod broker;
mod day;
mod outcome;
pub mod sections;
mod traffic;

pub use broker::EmbeddedBroker;
pub use traffic::{Kind, Plan, Produced, generate};
