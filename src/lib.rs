//! Kafka, files, terminals and clocks ↔ the pure middle and the lake: the shell of retrytoll.
//!
//! A *command* is one word of the command line ([`commands`]); its *world* is what it touches of
//! the machine ([`cli::World`]). It reads its [`config`] as a whole before it does anything.

pub mod alerts;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod config;
pub mod dead_letter;
pub mod demo;
pub mod exit;
pub mod files;
pub mod http;
pub mod kafka;
pub mod lake;
pub mod lint;
pub mod logging;
pub mod maintenance;
pub mod metrics;
pub mod notify;
pub mod outlet;
pub mod part;
pub mod pipeline;
pub mod profile;
pub mod report;
pub mod rollup;
pub mod told;
