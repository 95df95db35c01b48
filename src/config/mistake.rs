//! One thing that is wrong with the configuration, and all of them together.

use std::fmt;

use retrytoll_core::secret;

use super::raw::Origin;

/// What is wrong with one value, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// `None` where nothing was typed and something is missing.
    pub origin: Option<Origin>,
    /// The key, as `section.name`; empty where a file as a whole is wrong.
    pub key: String,
    /// The value as typed; `None` where there is none, and for secrets.
    pub value: Option<String>,
    /// What is wrong, with the bound and its reason.
    pub problem: String,
    /// What to do.
    pub hint: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(out, "{origin}: ")?;
        }
        out.write_str(&self.key)?;
        // A secret may stand where none is expected.
        let shown = |value: &&String| secret::replaced(value).is_none();
        if let Some(value) = self.value.as_ref().filter(shown) {
            write!(out, " = {value:?}")?;
        }
        let space = if self.key.is_empty() { "" } else { " " };
        write!(out, "{space}{}", self.problem)
    }
}

/// Every mistake that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl Mistakes {
    /// `value`, unless there is a mistake.
    ///
    /// # Errors
    /// All mistakes, if there are any.
    pub fn none_or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => out.write_str("the configuration has a mistake")?,
            count => write!(out, "the configuration has {count} mistakes")?,
        }
        for mistake in &self.0 {
            write!(out, "\n  {mistake}\n    hint: {}", mistake.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}
