//! alert topic, or the table `alerts` → [`Feed`] → [`Queue`] → [`Desk`]: a line on stdout, or a POST.
//!
//! What is sent, when, and what is remembered is decided by the pure [`retrytoll_core::notify`]. A
//! *notice* is one transition of an alert; a *desk* is where notices go, one after the other.
//!
//! [`Queue`]: retrytoll_core::notify::Queue

mod desk;
mod feed;
mod line;
mod post;

pub use desk::{Desk, follow, send_all};
pub use feed::{Feed, TableFeed, notices, standing};
pub use line::Form;
pub use post::Target;
