//! records → [`decode`] → [`batch`] → [`step`] and [`derive`] → rows: the pure middle of retrytoll.
//!
//! No clock, no I/O, no async, no Arrow. Facts come in by the batch, orders go out. The words are
//! those of the event: a *request* has *operations*, an operation has *attempts*, an attempt is
//! one *event*.

pub mod alert;
pub mod batch;
pub mod bill;
pub mod class;
pub mod column;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
pub mod decode;
pub mod derive;
pub mod dictionary;
pub mod field;
pub mod forgotten;
pub mod lint;
pub mod money;
pub mod notify;
pub mod operation;
pub mod profile;
pub mod prompt;
pub mod said;
pub mod secret;
pub mod seen;
pub mod silence;
pub mod step;
pub mod timestamp;
