//! A job's query + one pinned version of a lake → rows → a report.
//!
//! A *job* is a SQL file with a meaning ([`Catalog`]). A [`Session`] holds the tables of one
//! lake at one version, and answers jobs and queries about a [`Window`], a half-open span of
//! event time. [`render`] shows the answer as table, JSON, CSV or Parquet. This crate alone
//! names DataFusion's SQL session.

mod ask;
mod catalog;
mod engine;
mod error;
mod facts;
mod hours;
mod meta;
mod open;
mod place;
mod pool;
mod profile;
pub mod render;
pub mod rollup;
mod session;
pub mod share;
mod time;
mod views;
mod window;

#[cfg(feature = "contract")]
pub use catalog::contract::check as check_job;
pub use catalog::{Catalog, Job};
pub use engine::{Limits, Usage};
pub use error::{JobError, Place};
pub use facts::Facts;
pub use hours::Span;
pub use meta::{AlertLevel, AlertRule, Meta, Parameter, Value, threshold};
pub use open::lake_url;
pub use render::{Format, Style};
pub use session::{CompleteThrough, JobResult, Session};
pub use share::{Band, Share, Toll};
pub use window::{Window, Zone, duration};

#[cfg(test)]
mod tests;
