//! Which source a file is: by its first record, its number among files that begin alike, and the
//! digest of what was read of it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use retrytoll_lake::{Position, SourcePartition};
use xxhash_rust::xxh3::xxh3_64;

use super::lines::{Lines, open};

/// A file, and the name it has in the lake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSource {
    pub path: PathBuf,
    pub name: String,
}

/// Why a file can't be told from others.
#[derive(Debug, thiserror::Error)]
pub enum IdentifyError {
    #[error("cannot read {path}")]
    Read {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("stdin has no name to be known by again; give one with --source NAME")]
    Stdin,
    #[error(
        "{path} has {lines} lines, but {next} lines of a file that begins alike were read already: \
         it is cut, or another file; give it a name with --source NAME"
    )]
    Shorter { path: String, lines: i64, next: i64 },
    #[error(
        "{path} is not the file that was read as `{name}` before: its first {next} lines differ; \
         give it another name with --source NAME"
    )]
    Differs {
        path: String,
        name: String,
        next: i64,
    },
}

/// Finds a file's source. `given` is the user's name for it; `known` is what the lake holds.
/// `None` is an empty file.
pub fn identify(
    path: &Path,
    given: Option<&str>,
    known: &BTreeMap<SourcePartition, Position>,
) -> Result<Option<FileSource>, IdentifyError> {
    let named = |name: String| {
        Some(FileSource {
            path: path.to_owned(),
            name,
        })
    };
    let is_stdin = path.as_os_str() == "-";
    if let Some(given) = given {
        // A pipe can be read once only: its digest is checked while it is read.
        if !is_stdin && let Some(position) = position_of(known, given) {
            let digests = digests_at(path, &[position.next])?;
            check_given(path, given, position, &digests)?;
        }
        return Ok(named(given.to_owned()));
    }
    if is_stdin {
        return Err(IdentifyError::Stdin);
    }
    let failed = |source| IdentifyError::Read {
        path: path.display().to_string(),
        source,
    };
    let mut lines = open(path).map_err(failed)?;
    let Some(first) = first_record(&mut lines).map_err(failed)? else {
        return Ok(None);
    };
    let base = format!("file:{first:016x}");
    numbered(path, &base, known).map(named)
}

fn check_given(
    path: &Path,
    name: &str,
    position: &Position,
    digests: &Digests,
) -> Result<(), IdentifyError> {
    let path = path.display().to_string();
    let next = position.next;
    match digests.at.get(&next) {
        None if next > digests.lines => Err(IdentifyError::Shorter {
            path,
            lines: digests.lines,
            next,
        }),
        Some(digest) if position.digest.is_some_and(|known| known != *digest) => {
            Err(IdentifyError::Differs {
                path,
                name: name.to_owned(),
                next,
            })
        }
        _ => Ok(()),
    }
}

/// Among files that begin alike: the one that was read before, else the next number.
fn numbered(
    path: &Path,
    base: &str,
    known: &BTreeMap<SourcePartition, Position>,
) -> Result<String, IdentifyError> {
    let mut alike = Vec::new();
    let mut name = base.to_owned();
    while let Some(position) = position_of(known, &name) {
        alike.push((name, position));
        name = format!("{base}#{}", alike.len() + 1);
    }
    if alike.is_empty() {
        return Ok(name);
    }
    let nexts: Vec<i64> = alike.iter().map(|(_, position)| position.next).collect();
    let digests = digests_at(path, &nexts)?;
    let is_same = |position: &Position| {
        position.next == 0 || digests.at.get(&position.next).copied() == position.digest
    };
    if let Some((name, _)) = alike.iter().find(|(_, position)| is_same(position)) {
        return Ok(name.clone());
    }
    let longer = alike
        .iter()
        .map(|(_, position)| position.next)
        .find(|next| *next > digests.lines);
    match longer {
        Some(next) => Err(IdentifyError::Shorter {
            path: path.display().to_string(),
            lines: digests.lines,
            next,
        }),
        None => Ok(name),
    }
}

fn position_of<'a>(
    known: &'a BTreeMap<SourcePartition, Position>,
    name: &str,
) -> Option<&'a Position> {
    known.get(&SourcePartition::new(name, 0))
}

/// The hash of the first line that is not blank.
fn first_record(lines: &mut Lines) -> io::Result<Option<u64>> {
    while let Some(line) = lines.next_line()? {
        if !line.bytes.trim_ascii().is_empty() {
            return Ok(Some(xxh3_64(line.bytes.trim_ascii())));
        }
    }
    Ok(None)
}

/// Digests after so many lines, as far as the file goes.
struct Digests {
    lines: i64,
    at: BTreeMap<i64, i64>,
}

fn digests_at(path: &Path, nexts: &[i64]) -> Result<Digests, IdentifyError> {
    let failed = |source| IdentifyError::Read {
        path: path.display().to_string(),
        source,
    };
    let mut lines = open(path).map_err(failed)?;
    let last = nexts.iter().copied().max().unwrap_or(0);
    let mut digests = Digests {
        lines: 0,
        at: BTreeMap::new(),
    };
    while digests.lines < last {
        let Some(line) = lines.next_line().map_err(failed)? else {
            break;
        };
        digests.lines = line.number + 1;
        if nexts.contains(&digests.lines) {
            digests.at.insert(digests.lines, line.digest);
        }
    }
    Ok(digests)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn digest(path: &Path, next: i64) -> i64 {
        digests_at(path, &[next]).unwrap().at[&next]
    }

    fn known(name: &str, path: &Path, next: i64) -> BTreeMap<SourcePartition, Position> {
        let digest = Some(digest(path, next));
        let position = Position {
            next,
            digest,
            ..Position::start(0)
        };
        BTreeMap::from([(SourcePartition::new(name, 0), position)])
    }

    #[test]
    fn a_file_that_grew_is_the_same_source() {
        let folder = tempfile::tempdir().unwrap();
        let before = file(folder.path(), "a", "one\ntwo\n");
        let name = identify(&before, None, &BTreeMap::new())
            .unwrap()
            .unwrap()
            .name;
        let lake = known(&name, &before, 2);
        let grown = file(folder.path(), "b", "one\ntwo\nthree\n");
        assert_eq!(identify(&grown, None, &lake).unwrap().unwrap().name, name);
        assert_eq!(identify(&before, None, &lake).unwrap().unwrap().name, name);
    }

    #[test]
    fn files_that_begin_alike_are_numbered() {
        let folder = tempfile::tempdir().unwrap();
        let first = file(folder.path(), "a", "one\ntwo\n");
        let name = identify(&first, None, &BTreeMap::new())
            .unwrap()
            .unwrap()
            .name;
        let mut lake = known(&name, &first, 2);
        let other = file(folder.path(), "b", "one\nother\n");
        let second = identify(&other, None, &lake).unwrap().unwrap().name;
        assert_eq!(second, format!("{name}#2"));
        lake.extend(known(&second, &other, 2));
        assert_eq!(identify(&other, None, &lake).unwrap().unwrap().name, second);
        assert_eq!(identify(&first, None, &lake).unwrap().unwrap().name, name);
        let third = file(folder.path(), "c", "one\nthird\n");
        assert_eq!(
            identify(&third, None, &lake).unwrap().unwrap().name,
            format!("{name}#3")
        );
    }

    #[test]
    fn a_shorter_file_is_refused_until_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let long = file(folder.path(), "a", "one\ntwo\nthree\n");
        let name = identify(&long, None, &BTreeMap::new())
            .unwrap()
            .unwrap()
            .name;
        let lake = known(&name, &long, 3);
        let short = file(folder.path(), "b", "one\ntwo\n");
        let error = identify(&short, None, &lake).unwrap_err();
        assert!(
            matches!(
                error,
                IdentifyError::Shorter {
                    lines: 2,
                    next: 3,
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(
            identify(&short, Some("mine"), &lake).unwrap().unwrap().name,
            "mine"
        );
    }

    #[test]
    fn a_name_stays_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let first = file(folder.path(), "a", "one\ntwo\n");
        let lake = known("mine", &first, 2);
        assert!(identify(&first, Some("mine"), &lake).is_ok());
        let other = file(folder.path(), "b", "uno\ndue\n");
        let error = identify(&other, Some("mine"), &lake).unwrap_err();
        assert!(matches!(error, IdentifyError::Differs { .. }), "{error}");
    }

    #[test]
    fn stdin_needs_a_name() {
        let error = identify(Path::new("-"), None, &BTreeMap::new()).unwrap_err();
        assert!(matches!(error, IdentifyError::Stdin));
    }
}
