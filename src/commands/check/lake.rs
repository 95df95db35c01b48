//! The lake's root → whether it can be written, and whether the tables in it are ours.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use retrytoll_lake::Clock;
use tokio::runtime::Builder;

use super::Finding;
use crate::clock::now_ms;
use crate::config::Config;
use crate::lake::{ATTEMPTS, open_attempts};

/// A file that is made and removed again to see whether the lake can be written.
const PROBE: &str = ".retrytoll-check";

/// The lake's root and its table of events. Nothing is left behind.
pub(super) fn look(config: &Config) -> Vec<Finding> {
    let root = match local(&config.lake) {
        Ok(root) => root,
        Err(finding) => return vec![finding],
    };
    let mut findings = vec![folder(&root)];
    if root.join(ATTEMPTS).join("_delta_log").is_dir() {
        findings.push(attempts(&root));
    }
    findings
}

/// The root on local disk.
fn local(place: &str) -> Result<PathBuf, Finding> {
    match place.strip_prefix("file://") {
        Some(path) => Ok(path.into()),
        None if place.contains("://") => {
            let text = format!("{place} is an object store, and is not written to yet");
            Err(Finding::wrong(
                "lake",
                text,
                "set lake.path to a local folder",
            ))
        }
        None => Ok(place.into()),
    }
}

/// Whether the root, or the folder in which it would be made, can be written.
fn folder(root: &Path) -> Finding {
    let shown = root.display();
    let there = root
        .ancestors()
        .find(|path| path.exists() || path.as_os_str().is_empty());
    let parent = there.unwrap_or(root);
    let begun = if parent == root {
        ""
    } else {
        ", not there yet, can be made"
    };
    let probe = parent.join(PROBE);
    match OpenOptions::new().write(true).create_new(true).open(&probe) {
        Ok(file) => {
            drop(file);
            match std::fs::remove_file(&probe) {
                Ok(()) => Finding::fine("lake", format!("{shown}: can be written{begun}")),
                Err(error) => wrong(shown, &format!("can't remove a file: {error}")),
            }
        }
        // Another check is at it, or one was killed: it could be written then.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Finding::fine("lake", format!("{shown}: can be written{begun}"))
        }
        Err(error) => wrong(shown, &format!("can't be written: {error}")),
    }
}

fn wrong(shown: std::path::Display<'_>, why: &str) -> Finding {
    let hint = "set lake.path to a folder that this user can write";
    Finding::wrong("lake", format!("{shown}: {why}"), hint)
}

/// Whether the table of events is ours, and of a schema that this release knows.
fn attempts(root: &Path) -> Finding {
    let shown = root.join(ATTEMPTS).display().to_string();
    let wrong = |error: anyhow::Error| {
        let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
        let hint = "use the release that wrote it, or another lake.path";
        Finding::wrong("lake", format!("{shown}: {}", causes.join(": ")), hint)
    };
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return wrong(error.into()),
    };
    let state = runtime.block_on(async {
        let root = root.canonicalize()?;
        let table = open_attempts(&root, &Clock::new(now_ms)).await?;
        anyhow::Ok(table.check().await?)
    });
    match state {
        Ok(state) => {
            let count = state.positions().len();
            let plural = if count == 1 { "" } else { "s" };
            let version = state.version;
            Finding::fine(
                "lake",
                format!("{shown}: version {version}, {count} partition{plural} known"),
            )
        }
        Err(error) => wrong(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::check::State;
    use crate::config::raw::{Flag, RawConfig};
    use crate::config::{Config, Need};

    fn found(lake: &str) -> Vec<(State, String)> {
        let flag = Flag {
            typed: "--lake".into(),
            key: "lake.path".into(),
            value: lake.into(),
        };
        let mut raw = RawConfig::default();
        assert_eq!(raw.set_flags(&[flag]), []);
        let found = look(&Config::of(&raw, Need::Lake).0);
        found
            .into_iter()
            .map(|finding| (finding.state, finding.text))
            .collect()
    }

    #[test]
    fn a_folder_is_tried_and_left_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().display().to_string();
        assert_eq!(
            found(&path),
            [(State::Fine, format!("{path}: can be written"))]
        );
        let deep = format!("{path}/a/b");
        let text = format!("{deep}: can be written, not there yet, can be made");
        assert_eq!(found(&deep), [(State::Fine, text)]);
        assert_eq!(std::fs::read_dir(&path).expect("readable").count(), 0);
    }

    #[test]
    fn what_is_no_folder_can_not_be_written() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = format!("{}/lake", file.path().display());
        let found = found(&path);
        assert_eq!(found[0].0, State::Wrong, "{found:?}");
    }

    #[test]
    fn the_table_of_events_is_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("there");
        let path = root.display().to_string();
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let table = runtime.block_on(open_attempts(&root, &Clock::new(now_ms)));
        drop(table.expect("made"));
        let text = format!("{path}/attempts: version 0, 0 partitions known");
        assert_eq!(found(&path)[1..], [(State::Fine, text)]);

        // Another program's table: the same without our property.
        let entry = root.join("attempts/_delta_log/00000000000000000000.json");
        let log = std::fs::read_to_string(&entry).expect("the first entry");
        let foreign = log.replace("retrytoll.schema.major", "other.schema.major");
        assert_ne!(log, foreign);
        std::fs::write(&entry, foreign).expect("written");
        let found = found(&path);
        assert_eq!(found[1].0, State::Wrong, "{found:?}");
        assert!(
            found[1]
                .1
                .contains("has no property retrytoll.schema.major"),
            "{found:?}"
        );
    }
}
