//! One module a command: its arguments and what it does. Results go to the world's `out`.

pub mod alerts;
pub mod check;
pub mod demo;
pub mod hash;
pub mod ingest;
pub mod init;
pub mod lint;
pub mod maintain;
pub mod report;
pub mod run;
pub mod sql;
