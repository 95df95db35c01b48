//! The table of keys → a commented `retrytoll.toml`.

use super::key::{Key, Kind, Preset};
use super::raw::RawConfig;
use super::table::{KEYS, OPEN, Open, SECTIONS};

/// The command that writes the file.
pub const COMMAND: &str = "retrytoll init";

const HEAD: &str = "\
retrytoll.toml: every key, with what it means. A line that begins with # and a key is at its \
default, or an example where there is none: remove the # to set it.";
const HEAD_MORE: &str = "\
Before the file goes the environment (RETRYTOLL_KAFKA_TOPIC for kafka.topic), and before that \
the flags (--set kafka.topic=llm-retries). Durations have units (250ms, 5s, 10m, 1h30m, 7d), and \
so have sizes (48MB, 4MiB). Check it with `retrytoll check`.";

/// The most characters of a comment's line.
const WIDTH: usize = 92;

/// The file's text. What was typed stands in it as a value, all else as a comment; secrets never.
#[must_use]
pub fn text(raw: &RawConfig) -> String {
    let mut out = String::new();
    comment(&mut out, HEAD);
    out.push_str("#\n");
    comment(&mut out, HEAD_MORE);
    for (section, about) in SECTIONS {
        out.push('\n');
        comment(&mut out, about);
        out.push_str(&format!("[{section}]\n"));
        for (place, key) in KEYS.iter().enumerate() {
            if key.section == *section {
                describe(&mut out, key);
                line(
                    &mut out,
                    key,
                    raw.at(place).map(|entry| entry.typed.to_string()),
                );
            }
        }
        let inside = |open: &&Open| open.prefix.split('.').next() == Some(section);
        for open in OPEN.iter().filter(inside) {
            open_table(&mut out, open, raw);
        }
    }
    out
}

fn describe(out: &mut String, key: &Key) {
    let default = match key.preset {
        Preset::Follows { rule, .. } => format!("Default: {rule}."),
        Preset::Is("") => "Default: none.".into(),
        Preset::Is(_) | Preset::Unset { .. } => String::new(),
    };
    let parts = [key.about, &default, &key.allowed()];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    comment(out, &parts.join(" "));
}

/// The key and its value; commented out where nobody typed one, absent for a secret.
fn line(out: &mut String, key: &Key, typed: Option<String>) {
    if key.kind == Kind::Secret {
        return;
    }
    let Some(typed) = typed else {
        return out.push_str(&format!("#{} = {}\n", key.name, key.sample()));
    };
    let value = match key.kind {
        Kind::Words(_) => {
            let words = typed
                .split(',')
                .map(str::trim)
                .filter(|word| !word.is_empty());
            format!("[{}]", words.map(quoted).collect::<Vec<_>>().join(", "))
        }
        Kind::Count { .. } => typed,
        Kind::Switch => matches!(typed.as_str(), "on" | "true").to_string(),
        _ => quoted(&typed),
    };
    out.push_str(&format!("{} = {value}\n", key.name));
}

fn open_table(out: &mut String, open: &Open, raw: &RawConfig) {
    let (header, example) = open.example;
    out.push('\n');
    comment(out, open.about);
    let typed: Vec<_> = raw.open(open.prefix).iter().collect();
    if typed.is_empty() {
        return out.push_str(&format!("#{header}\n#{example}\n"));
    }
    for (name, entry) in typed {
        let suffix = open.suffix;
        let value = quoted(&entry.typed.to_string());
        let last = open.prefix.split('.').next_back().unwrap_or_default();
        out.push_str(&format!("{last}.{}{suffix} = {value}\n", quoted(name)));
    }
}

/// A TOML string: TOML's escapes are JSON's, but for a few control characters nobody types.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn comment(out: &mut String, text: &str) {
    let mut width = 0;
    for word in text.split_whitespace() {
        if width > 0 && width + 1 + word.len() > WIDTH {
            out.push('\n');
            width = 0;
        }
        out.push_str(if width == 0 { "# " } else { " " });
        out.push_str(word);
        width += word.len() + 1;
    }
    out.push('\n');
}
