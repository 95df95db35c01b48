//! An entity's name → the name that an alert may tell.

use sha2::{Digest as _, Sha256};

/// An entity without a name.
const NAMELESS: &str = "(none)";

/// How entities of one kind are named.
pub struct Names {
    hidden: bool,
}

impl Names {
    /// Of the kind `service`, `provider/model` and the like; `heard` are the columns that may name
    /// one. All are hidden where any of them must not be named.
    pub fn of(kind: &str, heard: &[String], hide: &[String]) -> Self {
        let columns = kind.split('/').chain(heard.iter().map(String::as_str));
        Self {
            hidden: columns
                .into_iter()
                .any(|it| hide.iter().any(|hidden| hidden == it)),
        }
    }

    /// Whether they must not be named.
    pub fn hidden(&self) -> bool {
        self.hidden
    }

    /// As it may be told: hidden ones can be told apart, no more.
    pub fn shown(&self, name: Option<&str>) -> String {
        match name {
            Some(name) if self.hidden => {
                let digest: [u8; 32] = Sha256::digest(name).into();
                let digits = digest[..6].iter().map(|byte| format!("{byte:02x}"));
                format!("hidden-{}", digits.collect::<String>())
            }
            Some(name) => name.to_owned(),
            None => NAMELESS.to_owned(),
        }
    }
}
