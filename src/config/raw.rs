//! What the user typed: each key with its text and where it came from, not yet judged.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::key::Kind;
use super::mistake::Mistake;
use super::nearest::nearest;
use super::table::{KEYS, OPEN, RESERVED, find};
use super::{FILE, file};

/// A value as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    One(String),
    Many(Vec<String>),
}

impl fmt::Display for Typed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(text) => out.write_str(text),
            Self::Many(words) => out.write_str(&words.join(", ")),
        }
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file as it was named, and the line, from 1; line 0 is the file as a whole.
    File { path: PathBuf, line: usize },
    /// The variable's name.
    Env(String),
    /// The flag as it was typed.
    Flag(String),
}

impl Origin {
    /// A path that was typed here: from a file it begins at the file's folder.
    #[must_use]
    pub fn resolve(&self, path: &str) -> PathBuf {
        match self {
            Self::File { path: file, .. } => file
                .parent()
                .map_or_else(|| path.into(), |folder| folder.join(path)),
            Self::Env(_) | Self::Flag(_) => path.into(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line: 0 } => write!(out, "{}", path.display()),
            Self::File { path, line } => write!(out, "{}:{line}", path.display()),
            Self::Env(name) | Self::Flag(name) => out.write_str(name),
        }
    }
}

/// A typed value and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub typed: Typed,
    pub origin: Origin,
}

/// A flag that sets a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// As it was typed: `--topic`.
    pub typed: String,
    /// `section.name`.
    pub key: String,
    pub value: String,
}

/// Where values come from; a later one goes before an earlier one.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// The file that was named; without one, [`FILE`] in `folder`, if it is there.
    pub file: Option<&'a Path>,
    pub folder: &'a Path,
    /// Names and values of the environment.
    pub env: &'a [(String, String)],
    pub flags: &'a [Flag],
}

/// What was typed. A key that nobody set is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawConfig {
    /// In the order of [`KEYS`].
    keys: Vec<Option<Entry>>,
    /// In the order of [`OPEN`], by the user's own names.
    open: Vec<BTreeMap<String, Entry>>,
    /// The file that was read.
    pub file: Option<PathBuf>,
}

impl Default for RawConfig {
    fn default() -> Self {
        let open = vec![BTreeMap::new(); OPEN.len()];
        Self {
            keys: vec![None; KEYS.len()],
            open,
            file: None,
        }
    }
}

impl RawConfig {
    /// Everything that was typed, and what is no known key.
    #[must_use]
    pub fn read(sources: &Sources<'_>) -> (Self, Vec<Mistake>) {
        let (mut raw, mut mistakes) = (Self::default(), Vec::new());
        let usual = sources.folder.join(FILE);
        let path = sources
            .file
            .or_else(|| usual.is_file().then_some(usual.as_path()));
        if let Some(path) = path {
            raw.file = Some(path.to_owned());
            file::read(path, &mut raw, &mut mistakes);
        }
        for (name, value) in sources.env {
            mistakes.extend(raw.set_env(name, value));
        }
        mistakes.extend(raw.set_flags(sources.flags));
        (raw, mistakes)
    }

    /// Sets what flags say, over what was set before; the mistakes in it.
    pub fn set_flags(&mut self, flags: &[Flag]) -> Vec<Mistake> {
        let set = |flag: &Flag| {
            let typed = Typed::One(flag.value.clone());
            self.set(&flag.key, typed, Origin::Flag(flag.typed.clone()))
        };
        flags.iter().filter_map(set).collect()
    }

    /// What was typed for a key of the table.
    ///
    /// # Panics
    /// There is no such key.
    #[must_use]
    pub fn get(&self, dotted: &str) -> Option<&Entry> {
        self.at(find(dotted).unwrap_or_else(|| panic!("no key {dotted} in the table")))
    }

    /// What was typed for the key at this place of the table.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<&Entry> {
        self.keys[place].as_ref()
    }

    /// What was typed into an open table, by the user's own names.
    ///
    /// # Panics
    /// There is no such open table.
    #[must_use]
    pub fn open(&self, prefix: &str) -> &BTreeMap<String, Entry> {
        let place = OPEN.iter().position(|open| open.prefix == prefix);
        &self.open[place.unwrap_or_else(|| panic!("no open table {prefix}"))]
    }

    /// How many values were typed.
    #[must_use]
    pub fn count(&self) -> usize {
        self.keys.iter().flatten().count() + self.open.iter().map(BTreeMap::len).sum::<usize>()
    }

    /// Sets a key, over what was set before; the mistake where it can't be set.
    pub(super) fn set(&mut self, dotted: &str, typed: Typed, origin: Origin) -> Option<Mistake> {
        let wrong = |value, problem: &str, hint| {
            let (origin, key) = (Some(origin.clone()), dotted.to_owned());
            Some(Mistake {
                origin,
                key,
                value,
                problem: problem.into(),
                hint,
            })
        };
        if let Some(place) = find(dotted) {
            let key = &KEYS[place];
            if key.kind == Kind::Secret && !matches!(origin, Origin::Env(_)) {
                let hint = format!(
                    "put it into a file of its own and name that in {dotted}_file, or set {}",
                    key.env()
                );
                return wrong(None, "is a secret, and others can read it here", hint);
            }
            self.keys[place] = Some(Entry { typed, origin });
            return None;
        }
        for (open, entries) in OPEN.iter().zip(&mut self.open) {
            if let Some(name) = open.name_in(dotted) {
                entries.insert(name.to_owned(), Entry { typed, origin });
                return None;
            }
        }
        let known: Vec<String> = KEYS.iter().map(super::key::Key::dotted).collect();
        let hint = match nearest(dotted, known.iter().map(String::as_str)) {
            Some(name) => format!("did you mean {name}?"),
            None => "remove it, or see `retrytoll init -o -` for every key".into(),
        };
        // Its value may be a secret under a misspelt name.
        wrong(None, "is no known key", hint)
    }

    /// An empty variable is one that is not set.
    pub(super) fn set_env(&mut self, name: &str, value: &str) -> Option<Mistake> {
        if !name.starts_with("RETRYTOLL_") || RESERVED.contains(&name) || value.is_empty() {
            return None;
        }
        let origin = Origin::Env(name.to_owned());
        if let Some(key) = KEYS.iter().find(|key| key.env() == name) {
            return self.set(&key.dotted(), Typed::One(value.to_owned()), origin);
        }
        let known: Vec<String> = KEYS.iter().map(super::key::Key::env).collect();
        let known = known
            .iter()
            .map(String::as_str)
            .chain(RESERVED.iter().copied());
        let hint = match nearest(name, known) {
            Some(name) => format!("did you mean {name}?"),
            None => "unset it, or see `retrytoll init -o -` for every key".into(),
        };
        // Its value may be a secret under a misspelt name.
        let (key, problem) = ("the variable".to_owned(), "sets no known key".to_owned());
        Some(Mistake {
            origin: Some(origin),
            key,
            value: None,
            problem,
            hint,
        })
    }
}
