//! The workspace keeps its shape: source text and `cargo tree` → what is too long, misplaced or
//! impure. Words: the *body* of a file is what stands before its tests; *ours* is Rust source under
//! `src` and `crates/*/src`.

#![expect(
    clippy::expect_used,
    reason = "a test that can't look fails, and says at what"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const BODY_LINES_MAX: usize = 500;
const BODY_LINES_MEDIAN_MAX: usize = 150;
const FUNCTION_LINES_MAX: usize = 70;

/// A name that says nothing of what is inside collects what belongs elsewhere.
const NAMES_REFUSED: [&str; 6] = ["utils", "util", "common", "helpers", "types", "misc"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn is_test_file(path: &Path) -> bool {
    let inside = path
        .strip_prefix(root())
        .expect("our files lie in the workspace");
    let words: Vec<_> = inside.iter().map(|part| part.to_string_lossy()).collect();
    words
        .iter()
        .any(|word| word == "tests" || word == "tests.rs" || word.ends_with("_tests.rs"))
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("a readable folder entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Our source files without test files, with their text.
fn ours() -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    for folder in [
        "src",
        "crates/core/src",
        "crates/lake/src",
        "crates/jobs/src",
    ] {
        rust_files(&root().join(folder), &mut paths);
    }
    paths.retain(|path| !is_test_file(path));
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}

/// The text before an unindented `#[cfg(test)]` that opens the tests (not one that merely names
/// their file: `mod tests;` may stand anywhere and has no lines).
fn body(text: &str) -> &str {
    let mut start = 0;
    while let Some(at) = text[start..].find("#[cfg(test)]\n") {
        let mark = start + at;
        let next = text[mark..].lines().nth(1).unwrap_or("");
        if (mark == 0 || text[..mark].ends_with('\n')) && next.ends_with('{') {
            return &text[..mark];
        }
        start = mark + 1;
    }
    text
}

/// `(name, first line, lines)` of each function, by rustfmt's layout: a function ends at the first
/// line that is a closing brace at the indentation of its `fn`.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let indent = &line[..line.len() - line.trim_start().len()];
        let head = lines[start..]
            .iter()
            .position(|l| l.ends_with(['{', ';', '}']));
        let Some(head) = head else { continue };
        if !lines[start + head].ends_with('{') {
            continue; // a declaration, or a function of one line
        }
        let close = format!("{indent}}}");
        let end = lines[start..].iter().position(|l| *l == close);
        found.push((
            name,
            start + 1,
            end.map_or(lines.len() - start, |end| end + 1),
        ));
    }
    found
}

/// The name where the line opens a function: qualifiers, then `fn name`.
fn function_name(line: &str) -> Option<String> {
    let mut words = line.trim_start().split(' ');
    loop {
        match words.next()? {
            "fn" => break,
            "pub" | "const" | "async" | "unsafe" | "extern" | "\"C\"" => {}
            word if word.starts_with("pub(") || word == "super)" => {}
            _ => return None,
        }
    }
    let name = words.next()?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (end > 0).then(|| name[..end].to_string())
}

#[test]
fn the_counters_count() {
    let text = "\
pub(crate) async fn outer(
    a: u8,
) -> u8 {
    fn inner() {
        let x = \"}\";
    }
    a
}
fn declared();
fn short() {}
#[cfg(test)]
mod elsewhere;
fn after() {
}
#[cfg(test)]
mod tests {
    fn hidden() {
    }
}
";
    let counted = functions(body(text));
    let right = [("outer", 1, 8), ("inner", 4, 3), ("after", 13, 2)];
    assert_eq!(
        counted,
        right.map(|(name, line, lines)| (name.to_string(), line, lines))
    );
    assert_eq!(body(text).lines().count(), 14);
}

#[test]
fn files_are_short() {
    let mut sizes: Vec<(usize, String)> = ours()
        .iter()
        .map(|(path, text)| (body(text).lines().count(), shown(path)))
        .collect();
    sizes.sort();
    assert!(
        sizes.len() > 3,
        "found only {} source files of ours",
        sizes.len()
    );
    let long: Vec<_> = sizes
        .iter()
        .filter(|(lines, _)| *lines > BODY_LINES_MAX)
        .collect();
    assert!(
        long.is_empty(),
        "over {BODY_LINES_MAX} lines before the tests: {long:?}: split them"
    );
    let (median, _) = sizes[sizes.len() / 2];
    assert!(
        median <= BODY_LINES_MEDIAN_MAX,
        "the median file has {median} lines, over {BODY_LINES_MEDIAN_MAX}: split the longest, {:?}",
        sizes.iter().rev().take(8).collect::<Vec<_>>()
    );
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for (path, text) in ours() {
        for (name, line, lines) in functions(body(&text)) {
            if lines > FUNCTION_LINES_MAX {
                long.push(format!("{}:{line} {name} has {lines} lines", shown(&path)));
            }
        }
    }
    assert!(
        long.is_empty(),
        "over {FUNCTION_LINES_MAX} lines: {long:#?}"
    );
}

#[test]
fn modules_are_named_for_what_they_hold() {
    for (path, _) in ours() {
        let folder = path.parent().and_then(Path::file_name);
        for name in [path.file_stem(), folder].into_iter().flatten() {
            let name = name.to_string_lossy();
            assert!(
                !NAMES_REFUSED.contains(&&*name),
                "{}: name the module for what it holds, not {name}",
                shown(&path)
            );
        }
    }
}

#[test]
fn crates_and_folder_modules_open_with_their_data_path() {
    for (path, text) in ours() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let opens =
            ["lib.rs", "main.rs", "mod.rs"].contains(&&*name) || path.with_extension("").is_dir();
        assert!(
            !opens || text.starts_with("//!"),
            "{}: open it with `//!`, the data path in one line and the words it uses",
            shown(&path)
        );
    }
}

/// Names of the packages that `package` builds with on this machine, itself left out.
fn dependencies(package: &str, depth: &str) -> Vec<String> {
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let output = Command::new(cargo)
        .args(["tree", "--offline", "--prefix", "none", "--edges", "normal"])
        .args(["--package", package, "--depth", depth])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "cargo tree for {package} failed: {error}"
    );
    let first_word = |line: &str| line.split(' ').next().unwrap_or_default().to_string();
    let mut names: Vec<String> = said.lines().skip(1).map(first_word).collect();
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    names
}

fn refuse(package: &str, depth: &str, what: &[&str], why: &str) {
    let names = dependencies(package, depth);
    let wrong: Vec<_> = names
        .iter()
        .filter(|name| {
            what.iter()
                .any(|w| *name == w || name.starts_with(&format!("{w}-")))
        })
        .collect();
    assert!(wrong.is_empty(), "{package} depends on {wrong:?}: {why}");
}

#[test]
fn core_is_pure() {
    let impure = [
        "arrow",
        "parquet",
        "datafusion",
        "deltalake",
        "object_store",
        "rdkafka",
        "tokio",
        "futures",
        "mio",
        "hyper",
        "reqwest",
        "chrono",
        "jiff",
        "time",
        "fastrand",
        "rand",
        "uuid",
        "tracing",
    ];
    refuse(
        "retrytoll-core",
        "999",
        &impure,
        "core is facts in, decisions out: no I/O, clock or luck",
    );
    assert!(
        dependencies("retrytoll-core", "1").contains(&"serde".to_string()),
        "cargo tree is empty"
    );
}

#[test]
fn core_reads_no_clock_environment_or_file() {
    let calls = [
        "SystemTime",
        "Instant::now",
        "std::env",
        "std::fs",
        "std::net",
        "std::thread",
    ];
    for (path, text) in ours() {
        if !path.starts_with(root().join("crates/core")) {
            continue;
        }
        for (number, line) in body(&text).lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let call = calls.iter().find(|call| code.contains(*call));
            assert!(
                call.is_none(),
                "{}:{}: {}: pass it in as an argument",
                shown(&path),
                number + 1,
                line.trim()
            );
        }
    }
}

#[test]
fn layers_point_one_way() {
    refuse(
        "retrytoll-lake",
        "1",
        &["retrytoll-jobs", "datafusion", "rdkafka", "clap"],
        "the lake stores, it does not ask",
    );
    refuse(
        "retrytoll-jobs",
        "1",
        &["rdkafka", "clap"],
        "jobs ask, the shell talks to the world",
    );
    refuse(
        "retrytoll",
        "1",
        &["datafusion"],
        "only crates/jobs names DataFusion's session",
    );
}

/// Two copies of these do not fit together: their types cross our crates' borders.
#[test]
fn one_copy_of_what_crosses_our_borders() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock is committed");
    for name in [
        "arrow-array",
        "parquet",
        "object_store",
        "datafusion",
        "deltalake-core",
    ] {
        let copies = lock.matches(&format!("\nname = \"{name}\"\n")).count();
        assert_eq!(
            copies, 1,
            "{name} stands {copies} times in Cargo.lock: use DataFusion's version"
        );
    }
}
