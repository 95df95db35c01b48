//! Any text, variables and flags are a configuration within its bounds, or mistakes that each name
//! their key and what to do.

use std::path::Path;

use super::key::Kind;
use super::raw::{Entry, Flag, Typed};
use super::table::KEYS;
use super::{Config, Mistake, Need, Origin, RawConfig, file};

/// Checks a file and, each behind ASCII's record separator, variables and flags as `NAME=VALUE`;
/// says whether they are a configuration.
///
/// # Panics
/// A promise of [`RawConfig`] or of [`Config`] is broken.
pub fn check(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let (mut raw, mut mistakes) = (RawConfig::default(), Vec::new());
    let mut parts = text.split('\u{1e}');
    let text = parts.next().unwrap_or_default();
    file::read_text(Path::new(super::FILE), text, &mut raw, &mut mistakes);
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        if name.starts_with("RETRYTOLL_") {
            mistakes.extend(raw.set_env(name, value));
        } else {
            let flag = Flag {
                typed: "--set".into(),
                key: name.into(),
                value: value.into(),
            };
            mistakes.extend(raw.set_flags(&[flag]));
        }
    }
    mistakes.iter().for_each(is_told);
    comes_back(&raw);

    let (config, more) = Config::of(&raw, Need::Lake);
    more.iter().for_each(is_told);
    let (again, same) = Config::of(&raw, Need::Lake);
    assert_eq!(more, same);
    assert_eq!(
        (config.kafka, config.limits, config.alerts, config.jobs),
        (again.kafka, again.limits, again.alerts, again.jobs)
    );
    if !more.is_empty() {
        return false;
    }
    assert!(config.flush.interval <= config.flush.interval_behind);
    assert!(again.limits.all_bytes() > 0 && !config.lake.is_empty());
    mistakes.is_empty()
}

fn is_told(mistake: &Mistake) {
    let told = mistake.to_string();
    assert!(
        !mistake.problem.is_empty() && !mistake.hint.is_empty(),
        "{told}"
    );
    assert!(
        told.contains(&mistake.key) && told.ends_with(&mistake.problem),
        "{told}"
    );
    // Text that is no TOML has a line and no key; `--set =x` has an empty one.
    let has_place = match &mistake.origin {
        Some(Origin::File { line, .. }) => *line > 0,
        other => other.is_some(),
    };
    assert!(!mistake.key.is_empty() || has_place, "{told}");
}

/// What was typed, written as a file, is typed there again. (Secrets may not stand in a file.)
fn comes_back(raw: &RawConfig) {
    let open = || {
        KEYS.iter()
            .enumerate()
            .filter(|(_, key)| key.kind != Kind::Secret)
    };
    let lines = open().filter_map(|(place, key)| Some(line(&key.dotted(), raw.at(place)?)));
    let file: String = lines.collect();
    let (mut again, mut mistakes) = (RawConfig::default(), Vec::new());
    file::read_text(Path::new(super::FILE), &file, &mut again, &mut mistakes);
    assert!(mistakes.is_empty(), "{mistakes:?}: {file}");
    for (place, key) in open() {
        let typed = |raw: &RawConfig| raw.at(place).map(|entry| entry.typed.clone());
        assert_eq!(typed(&again), typed(raw), "{}", key.dotted());
    }
}

fn line(dotted: &str, entry: &Entry) -> String {
    let value = match &entry.typed {
        Typed::One(text) => toml::Value::from(text.as_str()),
        Typed::Many(words) => toml::Value::from(words.clone()),
    };
    format!("{dotted} = {value}\n")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/config");
        let mut good = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            good += usize::from(super::check(&std::fs::read(path).unwrap()));
        }
        assert!(good >= 5, "{good} good");
    }
}
