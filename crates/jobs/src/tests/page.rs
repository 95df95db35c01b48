//! The catalogue → one page for people, in Markdown: `sql/README.md`, kept current by a test.

use std::fmt::Write as _;

use retrytoll_core::alert::Side;

use crate::{AlertRule, Catalog, Job, Parameter, Value, threshold};

const HEAD: &str = "\
# The jobs

Each is one query in `jobs/`, and what it means stands in `jobs.toml`; this page is made from
both. `retrytoll report NAME` asks one, with `-p NAME=VALUE` for a parameter, or a flag where the
parameter has one (`--by`). What the words mean is said once, in the project's definitions of
operations and money; a column's unit is the end of its name. A job of your own is a file in
the folder that `jobs.sql_dir` names.
";

fn page(catalog: &Catalog) -> String {
    let mut out = HEAD.to_owned();
    out.push_str("\n| job | what it tells | counts |\n|---|---|---|\n");
    for job in catalog.jobs() {
        let meta = &job.meta;
        let _ = writeln!(
            out,
            "| [`{0}`](#{0}) | {1} | {2} |",
            job.name, meta.meaning, meta.counts
        );
    }
    for job in catalog.jobs() {
        section(&mut out, job);
    }
    out
}

fn section(out: &mut String, job: &Job) {
    let meta = &job.meta;
    let _ = writeln!(
        out,
        "\n## {}\n\n**{}.** {}",
        job.name, meta.title, meta.meaning
    );
    if let Some(action) = &meta.action {
        let _ = writeln!(out, "{action}");
    }
    let _ = writeln!(out, "\nUnit: {}; counted: {}.", meta.unit, meta.counts);
    let comment = comment(&job.sql);
    if !comment.is_empty() {
        let _ = writeln!(out, "\n{comment}");
    }
    if !meta.parameters.is_empty() {
        out.push_str("\n| parameter | default | meaning |\n|---|---|---|\n");
        for (name, parameter) in &meta.parameters {
            let _ = writeln!(
                out,
                "| `{name}` | {} | {} |",
                default(parameter),
                meaning(parameter)
            );
        }
    }
    if let Some(alert) = &meta.alert {
        let _ = writeln!(out, "\n{}", rule(alert));
    }
}

fn default(parameter: &Parameter) -> String {
    match &parameter.default {
        Value::Text(text) if text.is_empty() => "empty".to_owned(),
        value => format!("`{value}`"),
    }
}

fn meaning(parameter: &Parameter) -> String {
    if parameter.one_of.is_empty() {
        return parameter.meaning.clone();
    }
    let words = parameter.one_of.iter().map(|it| format!("`{it}`"));
    let words = words.collect::<Vec<_>>().join(", ");
    format!("{}: {words}", parameter.meaning)
}

/// The comment at the head of a query, paragraph by paragraph.
fn comment(sql: &str) -> String {
    let lines = sql.lines().map_while(|line| line.strip_prefix("--"));
    let mut out = String::new();
    for line in lines.map(str::trim) {
        match line {
            "" => out.push_str("\n\n"),
            _ if out.is_empty() || out.ends_with('\n') => out.push_str(line),
            _ => {
                out.push(' ');
                out.push_str(line);
            }
        }
    }
    out.trim().to_owned()
}

fn rule(alert: &AlertRule) -> String {
    let bounds = |thresholds: &std::collections::BTreeMap<String, String>| {
        let bounds = thresholds.iter().map(|(name, limit)| bound(name, limit));
        bounds.collect::<Vec<_>>().join(", ")
    };
    let mut text = format!(
        "Alert `{}`, {}: of a {} over {}, while {}.",
        alert.rule,
        alert.severity,
        alert.entity,
        alert.window,
        bounds(&alert.thresholds)
    );
    for level in &alert.levels {
        let window = level.window.as_ref().unwrap_or(&alert.window);
        let _ = write!(
            text,
            " {} over {window} while {}.",
            capital(&level.severity),
            bounds(&level.thresholds)
        );
    }
    if let Some(needed) = &alert.needs {
        let _ = write!(text, " Off until `alerts.{needed}` is set.");
    }
    text
}

fn bound(name: &str, limit: &str) -> String {
    let Some((figure, side)) = threshold(name) else {
        return format!("`{name}` {limit}");
    };
    let sign = match side {
        Side::Over => ">",
        Side::AtLeast => "≥",
        Side::Under => "<",
    };
    format!("`{figure}` {sign} {limit}")
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|it| it.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

/// `UPDATE_PAGE=1 cargo test --release --workspace the_page` writes it anew.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test has no configuration")]
fn the_page_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sql/README.md");
    let page = page(&Catalog::embedded());
    if std::env::var_os("UPDATE_PAGE").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == page,
        "sql/README.md is not what the jobs say: UPDATE_PAGE=1 writes it"
    );
}

#[test]
fn every_job_says_what_it_means_and_what_to_do() {
    for job in Catalog::embedded().jobs() {
        let meta = &job.meta;
        let texts = [&meta.title, &meta.meaning, &meta.unit, &meta.counts];
        assert!(texts.iter().all(|it| !it.is_empty()), "{}", job.name);
        assert!(
            meta.action.is_some() && !comment(&job.sql).is_empty(),
            "{}",
            job.name
        );
        for (name, parameter) in &meta.parameters {
            assert!(!parameter.meaning.is_empty(), "{} of {}", name, job.name);
        }
    }
}
