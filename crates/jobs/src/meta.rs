//! `jobs.toml` → what each job means: [`Meta`] by the job's name.
//!
//! A mistake in one entry leaves the others as they are.

use std::collections::BTreeMap;

use retrytoll_core::alert::Side;
use serde::Deserialize;
use toml::Spanned;

use crate::error::{JobError, Place};

/// What a job means and how it may be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Meta {
    /// A few words.
    pub title: String,
    /// One line.
    pub meaning: String,
    /// Of its main figure.
    pub unit: String,
    /// `attempts` or `operations`.
    pub counts: String,
    /// How often `run` asks it, such as `5m`; `None`: by hand only.
    pub schedule: Option<String>,
    /// What to do about what it shows, in one sentence.
    pub action: Option<String>,
    /// The columns of its table, in order; empty: all. Other formats always hold all.
    pub shown: Vec<String>,
    /// How far before the window its query looks, such as `31d`; `None`: as far as an operation
    /// may reach.
    pub lookback: Option<String>,
    /// What the query is given beside the window, by name.
    pub parameters: BTreeMap<String, Parameter>,
    /// When it alerts.
    pub alert: Option<AlertRule>,
}

/// A value that a query is given.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// In a few words.
    #[serde(default)]
    pub meaning: String,
    /// Its value where the user gives none; its type is the parameter's.
    pub default: Value,
    /// The only values it takes; empty: any.
    #[serde(default)]
    pub one_of: Vec<String>,
}

/// A parameter's value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A whole number.
    Integer(i64),
    /// Text.
    Text(String),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl Parameter {
    /// The value that `text` is for this parameter.
    ///
    /// # Errors
    /// [`JobError::BadParameter`] where it is none.
    pub fn value(&self, job: &str, name: &str, text: &str) -> Result<Value, JobError> {
        let bad = |expected: String| JobError::BadParameter {
            job: job.into(),
            name: name.into(),
            value: text.into(),
            expected,
        };
        if !self.one_of.is_empty() && !self.one_of.iter().any(|it| it == text) {
            return Err(bad(format!("one of {}", self.one_of.join(", "))));
        }
        match self.default {
            Value::Text(_) => Ok(Value::Text(text.into())),
            Value::Integer(_) => text
                .parse()
                .map(Value::Integer)
                .map_err(|_| bad("a whole number".into())),
        }
    }
}

/// When a job's row is an alert, and of what kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertRule {
    /// The rule's name: the first part of `dedup_key`.
    pub rule: String,
    /// `critical`, `error`, `warning` or `info`.
    pub severity: String,
    /// What a row is about, such as `service`: the value of parameter `by`, where the job has one.
    pub entity: String,
    /// The column that names it; by default `key` where the job has a parameter `by`, else
    /// `entity`.
    #[serde(default)]
    pub column: Option<String>,
    /// What names an entity in the view `attempts`, SQL; by default the column `entity`. An entity
    /// that is in none of these any more is gone.
    #[serde(default)]
    pub heard: Vec<String>,
    /// The window it looks at, such as `24h`.
    pub window: String,
    /// How long the bounds must hold, such as `5m`; not at all by default.
    #[serde(default, rename = "for")]
    pub hold: Option<String>,
    /// The bound that its summary tells.
    #[serde(default)]
    pub headline: Option<String>,
    /// A whole-number parameter without which the rule is off: its value is 0 until it is set.
    #[serde(default)]
    pub needs: Option<String>,
    /// Each bound by name, an exact decimal.
    #[serde(default)]
    pub thresholds: BTreeMap<String, String>,
    /// What makes it more severe while it fires.
    #[serde(default)]
    pub levels: Vec<AlertLevel>,
}

/// The column that a threshold is of, and where it must lie: `share_pct_over` and the like, by the
/// end of the name. `None` for another end.
#[must_use]
pub fn threshold(name: &str) -> Option<(&str, Side)> {
    let ends = [
        ("_over", Side::Over),
        ("_min", Side::AtLeast),
        ("_under", Side::Under),
    ];
    ends.into_iter()
        .find_map(|(end, side)| Some((name.strip_suffix(end)?, side)))
}

/// When an alert is more severe than its rule says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertLevel {
    /// `critical` or `error`.
    pub severity: String,
    /// The window that it looks at; the rule's by default.
    #[serde(default)]
    pub window: Option<String>,
    /// Each bound by name, as the rule's; `usd_per_hour` is the redundant cost of the last hour.
    pub thresholds: BTreeMap<String, String>,
}

/// The entries of a `jobs.toml`, and what is wrong in it.
pub fn parse(file: &str, text: &str) -> (BTreeMap<String, Meta>, Vec<JobError>) {
    let wrong = |error: &toml::de::Error, start: usize| {
        let at = error.span().map_or(start, |span| span.start);
        let line = text
            .get(..at)
            .map(|before| before.matches('\n').count() as u64 + 1);
        let place = Place::file(file).at(line, None);
        JobError::Sql {
            place,
            reason: error.message().trim().replace('\n', ", "),
        }
    };
    let entries: BTreeMap<String, Spanned<toml::Value>> = match toml::from_str(text) {
        Ok(entries) => entries,
        Err(error) => return (BTreeMap::new(), vec![wrong(&error, 0)]),
    };
    let (mut metas, mut errors) = (BTreeMap::new(), Vec::new());
    for (name, entry) in entries {
        let start = entry.span().start;
        match entry.into_inner().try_into::<Meta>() {
            Ok(meta) => {
                metas.insert(name, meta);
            }
            Err(mut error) => {
                error.set_input(None);
                let JobError::Sql { place, reason } = wrong(&error, start) else {
                    continue;
                };
                errors.push(JobError::Sql {
                    place,
                    reason: format!("job {name}: {reason}"),
                });
            }
        }
    }
    (metas, errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        parse("jobs.toml", text)
            .1
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn one_bad_entry_stops_no_other() {
        let text =
            "[good]\ntitle = 'Good'\n\n[bad]\ntitle = 'Bad'\ncolour = 'red'\n\n[also_good]\n";
        let (metas, wrong) = parse("jobs.toml", text);
        assert_eq!(metas.keys().collect::<Vec<_>>(), ["also_good", "good"]);
        let wrong = wrong.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(wrong.len(), 1);
        assert!(
            wrong[0].starts_with("jobs.toml:4: job bad: unknown field `colour`"),
            "{wrong:?}"
        );
    }

    #[test]
    fn a_text_that_is_no_toml_names_its_line() {
        let wrong = errors("[a]\ntitle = 'x'\n[b\n");
        assert!(
            wrong.len() == 1 && wrong[0].starts_with("jobs.toml:3: "),
            "{wrong:?}"
        );
        assert!(errors("").is_empty());
    }

    #[test]
    fn a_parameter_takes_what_its_default_is() {
        let of = |default: &str| {
            let text = format!("[j.parameters.p]\ndefault = {default}\n");
            let (metas, wrong) = parse("jobs.toml", &text);
            assert!(wrong.is_empty(), "{wrong:?}");
            metas["j"].parameters["p"].clone()
        };
        let check = |parameter: &Parameter, text: &str, expected: &str| {
            let found = parameter.value("j", "p", text);
            assert_eq!(
                found.map_or_else(|e| e.to_string(), |v| format!("{v:?}")),
                expected
            );
        };
        check(&of("80"), "90", "Integer(90)");
        check(
            &of("80"),
            "x",
            "parameter p of job j is x: give a whole number",
        );
        check(&of("'a'"), "90", "Text(\"90\")");
        let choice = of("'a'\none_of = ['a', 'b']");
        check(&choice, "b", "Text(\"b\")");
        check(&choice, "c", "parameter p of job j is c: give one of a, b");
    }
}
