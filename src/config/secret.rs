//! The environment, or a file that a key names → a text that is never shown.

use std::fmt;
use std::path::Path;

use super::usable::Values;

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(super) String);

impl Secret {
    /// The text, for whom it is meant.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(hidden)")
    }
}

/// A secret from the environment, else from its file, without the line's end.
pub(super) fn of(values: &mut Values<'_>, key: &str) -> Option<String> {
    if let Some(text) = values.text(key) {
        return Some(text);
    }
    let file_key = format!("{key}_file");
    let path = values.text(&file_key)?;
    match read(&path) {
        Ok(Secret(text)) => Some(text),
        Err(problem) => {
            let hint = "put the secret into it, and nothing else";
            values.wrong_of(&[file_key.as_str()], &problem, hint);
            None
        }
    }
}

/// The secret that is all of a file but its line's end.
///
/// # Errors
/// What is wrong with the file, as the end of a sentence about it.
pub fn read(path: impl AsRef<Path>) -> Result<Secret, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("can't be read: {error}"))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        Err("is an empty file".into())
    } else {
        Ok(Secret(text.into()))
    }
}
