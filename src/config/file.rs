//! `retrytoll.toml` → entries with their lines.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistake::Mistake;
use super::raw::{Origin, RawConfig, Typed};
use super::template::COMMAND;

/// The most bytes of a configuration file; a real one has a few thousand.
const BYTES_MAX: u64 = 1 << 20;

/// Sets every key of the file. A file that is not TOML sets none.
pub fn read(path: &Path, raw: &mut RawConfig, mistakes: &mut Vec<Mistake>) {
    let size = std::fs::metadata(path).map_or(0, |meta| meta.len());
    if size > BYTES_MAX {
        let problem = format!("has {size} bytes, above {BYTES_MAX}: not a configuration");
        return mistakes.push(whole(path, problem, "name another file with --config"));
    }
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            let hint = format!("name another file with --config, or make one with `{COMMAND}`");
            return mistakes.push(whole(path, format!("can't be read: {error}"), &hint));
        }
    };
    read_text(path, &text, raw, mistakes);
}

/// A mistake of the file as a whole.
fn whole(path: &Path, problem: String, hint: &str) -> Mistake {
    Mistake {
        origin: Some(Origin::File {
            path: path.to_owned(),
            line: 0,
        }),
        key: String::new(),
        value: None,
        problem,
        hint: hint.to_owned(),
    }
}

/// Sets every key of the file's text. Text that is not TOML sets none.
pub(super) fn read_text(path: &Path, text: &str, raw: &mut RawConfig, mistakes: &mut Vec<Mistake>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut file = File {
        path,
        text,
        raw,
        mistakes,
    };
    let mut before = None;
    for error in &errors {
        let origin = Some(file.origin(&error.span().unwrap_or(0..0)));
        // What follows on the same line is mostly the same mistake.
        if origin != before {
            let problem = format!("not TOML: {}", error.message());
            let mistake = whole(path, problem, "correct the line; see https://toml.io");
            file.mistakes.push(Mistake {
                origin: origin.clone(),
                ..mistake
            });
        }
        before = origin;
    }
    if errors.is_empty() {
        file.table("", table.get_ref());
    }
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
    raw: &'a mut RawConfig,
    mistakes: &'a mut Vec<Mistake>,
}

impl File<'_> {
    fn origin(&self, span: &Range<usize>) -> Origin {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        Origin::File {
            path: self.path.to_owned(),
            line,
        }
    }

    /// Tables are walked down; what is no table is a key with its whole path, so that
    /// `linger.ms = 5` and `"linger.ms" = 5` under `[kafka.properties]` are the same.
    fn table(&mut self, path: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let dot = if path.is_empty() { "" } else { "." };
            let dotted = format!("{path}{dot}{}", name.get_ref());
            match value.get_ref() {
                DeValue::Table(inner) => self.table(&dotted, inner),
                _ => self.value(&dotted, &name.span(), value),
            }
        }
    }

    fn value(&mut self, dotted: &str, at: &Range<usize>, value: &Spanned<DeValue<'_>>) {
        let origin = self.origin(at);
        let typed = match value.get_ref() {
            DeValue::Array(items) => {
                let words: Option<Vec<String>> = items
                    .iter()
                    .map(|item| item.get_ref().as_str().map(str::to_owned))
                    .collect();
                words.map(Typed::Many)
            }
            one => scalar(one).map(Typed::One),
        };
        let mistake = match typed {
            Some(typed) => self.raw.set(dotted, typed, origin),
            None => Some(Mistake {
                origin: Some(origin),
                key: dotted.to_owned(),
                value: None,
                problem: "is a list of something else than text".into(),
                hint: "write a list of quoted words, as [\"a\", \"b\"]".into(),
            }),
        };
        self.mistakes.extend(mistake);
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(yes) => Some(yes.to_string()),
        DeValue::Datetime(time) => Some(time.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => None,
    }
}
