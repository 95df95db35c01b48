//! records → decode, derive → [`retrytoll_core::lint`] → text, JSON, or log lines.
//!
//! [`Events`] are those of `retrytoll lint`, from files or a topic; a [`FirstLook`] goes along with
//! the first events of `run`. Nothing is written but what was found.

mod document;
mod events;
mod first_look;
mod show;

pub use document::json;
pub use events::{Events, Looked};
pub use first_look::FirstLook;
pub use show::{Origin, place, text};

use retrytoll_core::batch::SourceId;
use retrytoll_core::lint::Example;

use crate::dead_letter::DeadLetter;

/// The service of a record that is no event, and the record as an example, as far as its dead
/// letter tells them.
fn of_letter<'a>(source: &SourceId, letter: &'a DeadLetter) -> (&'a str, Example) {
    let field = |name: &str| letter.body["fields"][name].as_str().unwrap_or_default();
    let source = source.clone();
    let example = Example::new(field("request_id"), source, letter.partition, letter.offset);
    (field("service"), example)
}
