//! SQL text → one statement that only asks, with every `$name` replaced by its value.
//!
//! Values are put into the syntax tree, not into the text: a value can never become SQL, and
//! the statement printed back is the SQL as run.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use chrono::{DateTime, Utc};
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr, Query, SetExpr, Spanned as _, Statement as SqlStatement, Value as SqlValue,
    visit_expressions_mut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::error::{JobError, Place};
use crate::meta::{Meta, Value};
use crate::window::Window;

/// What every query may be given.
pub const WINDOW_PARAMETERS: [&str; 3] = ["since", "until", "zone_type"];

/// The values of a query's parameters, by name.
pub type Values = BTreeMap<String, Expr>;

/// The values that a window gives.
#[must_use]
pub fn window_values(window: &Window) -> Values {
    let zone_type = format!("Timestamp(Microsecond, Some(\"{}\"))", window.zone.name());
    [
        ("since", instant(window.since)),
        ("until", instant(window.until)),
        ("zone_type", text(zone_type)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The values of `sql/views/hours.sql`: where the hour is cut that a window begins in, and how long an
/// hour is.
pub fn hour_values(cut: Option<DateTime<Utc>>, step_us: i64) -> Values {
    let cut = cut.map_or_else(|| sql("NULL"), instant);
    let step = sql(&format!("INTERVAL '{} minutes'", step_us / 60_000_000));
    [("since", cut), ("step", step)]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// A parameter's value as SQL.
#[must_use]
pub fn value(value: &Value) -> Expr {
    match value {
        Value::Integer(number) => Expr::value(SqlValue::Number(number.to_string(), false)),
        Value::Text(words) => text(words.clone()),
    }
}

fn text(text: String) -> Expr {
    Expr::value(SqlValue::SingleQuotedString(text))
}

/// A time of the columns' own type. A plain TIMESTAMP literal counts nanoseconds: every row
/// would be converted to them, which ends in 2262, and no file could be left out by its span.
fn instant(time: DateTime<Utc>) -> Expr {
    let time = time.format("%Y-%m-%dT%H:%M:%S%.6fZ");
    sql(&format!(
        "arrow_cast('{time}', 'Timestamp(Microsecond, Some(\"UTC\"))')"
    ))
}

fn sql(text: &str) -> Expr {
    #[expect(clippy::expect_used, reason = "its callers write SQL")]
    Parser::new(&GenericDialect {})
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_expr())
        .expect("an expression")
}

/// The one statement of `sql`, if it only asks.
///
/// # Errors
/// [`JobError::Sql`] with the line, [`JobError::NotAQuestion`].
pub fn parse(place: &Place, sql: &str) -> Result<Statement, JobError> {
    let mut statements = DFParser::parse_sql(sql).map_err(|error| JobError::query(place, error))?;
    let wrong = |reason: String| {
        Err(JobError::Sql {
            place: place.clone(),
            reason,
        })
    };
    if statements.len() > 1 {
        return wrong(format!(
            "there are {} statements: write one SELECT",
            statements.len()
        ));
    }
    let Some(statement) = statements.pop_front() else {
        return wrong("there is no statement: write one SELECT".into());
    };
    match would_change(&statement) {
        None => Ok(statement),
        Some(statement) => Err(JobError::NotAQuestion {
            place: place.at(Some(1), Some(1)),
            statement,
        }),
    }
}

/// The words of what does more than ask.
fn would_change(statement: &Statement) -> Option<String> {
    match statement {
        Statement::Explain(explain) => would_change(&explain.statement),
        Statement::Statement(statement) => sql_would_change(statement),
        other => Some(first_word(other)),
    }
}

fn sql_would_change(statement: &SqlStatement) -> Option<String> {
    match statement {
        SqlStatement::Explain { statement, .. } => sql_would_change(statement),
        SqlStatement::Query(query) => query_would_change(query),
        SqlStatement::ExplainTable { .. }
        | SqlStatement::ShowColumns { .. }
        | SqlStatement::ShowCreate { .. }
        | SqlStatement::ShowFunctions { .. }
        | SqlStatement::ShowTables { .. }
        | SqlStatement::ShowVariable { .. } => None,
        other => Some(first_word(other)),
    }
}

fn query_would_change(query: &Query) -> Option<String> {
    let tables = query.with.iter().flat_map(|with| &with.cte_tables);
    tables
        .map(|table| query_would_change(&table.query))
        .chain([body_would_change(&query.body)])
        .find_map(|words| words)
}

fn body_would_change(body: &SetExpr) -> Option<String> {
    match body {
        SetExpr::Select(select) => select.into.as_ref().map(|_| "SELECT INTO".into()),
        SetExpr::Query(query) => query_would_change(query),
        SetExpr::SetOperation { left, right, .. } => {
            body_would_change(left).or_else(|| body_would_change(right))
        }
        SetExpr::Values(_) | SetExpr::Table(_) => None,
        other => Some(first_word(other)),
    }
}

fn first_word(it: &impl ToString) -> String {
    let text = it.to_string();
    text.split_whitespace()
        .next()
        .unwrap_or_default()
        .to_uppercase()
}

/// Replaces every `$name` by its value, and tells which names stood there.
///
/// # Errors
/// [`JobError::Sql`] for a name that has none, with its line.
pub fn bind(
    place: &Place,
    statement: &mut Statement,
    values: &Values,
) -> Result<BTreeSet<String>, JobError> {
    let mut found_names = BTreeSet::new();
    let tree = match statement {
        Statement::Statement(tree) => tree,
        Statement::Explain(explain) => return bind(place, &mut explain.statement, values),
        _ => return Ok(found_names),
    };
    let bound = visit_expressions_mut(tree.as_mut(), |expr| {
        let Expr::Value(found) = &*expr else {
            return ControlFlow::Continue(());
        };
        let SqlValue::Placeholder(name) = &found.value else {
            return ControlFlow::Continue(());
        };
        let known = name
            .strip_prefix('$')
            .and_then(|name| values.get_key_value(name));
        match known {
            Some((name, value)) => {
                found_names.insert(name.clone());
                *expr = value.clone();
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break((name.clone(), expr.span().start)),
        }
    });
    let ControlFlow::Break((name, start)) = bound else {
        return Ok(found_names);
    };
    let known = values
        .keys()
        .map(|it| format!("${it}"))
        .collect::<Vec<_>>()
        .join(", ");
    Err(JobError::Sql {
        place: place.at(Some(start.line), Some(start.column)),
        reason: format!("no parameter is named {name}: use one of {known}"),
    })
}

/// Whether `sql` can be a job with this meaning, as far as can be told without its tables.
///
/// # Errors
/// As [`parse`] and [`bind`].
pub fn check(place: &Place, sql: &str, meta: &Meta) -> Result<(), JobError> {
    let mut statement = parse(place, sql)?;
    if !matches!(&statement, Statement::Statement(it) if matches!(**it, SqlStatement::Query(_))) {
        let reason = "a job is one SELECT: put EXPLAIN and SHOW to `retrytoll sql`".into();
        return Err(JobError::Sql {
            place: place.clone(),
            reason,
        });
    }
    let names = WINDOW_PARAMETERS
        .into_iter()
        .chain(meta.parameters.keys().map(String::as_str));
    let values = names
        .map(|name| (name.to_owned(), text(String::new())))
        .collect();
    bind(place, &mut statement, &values).map(drop)
}

/// The values for a job: its defaults, over which lie `given`.
///
/// # Errors
/// [`JobError::UnknownParameter`], [`JobError::BadParameter`].
pub fn job_values(
    job: &str,
    meta: &Meta,
    given: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Value>, JobError> {
    let known = meta.parameters.keys().collect::<BTreeSet<_>>();
    if let Some(name) = given.keys().find(|it| !known.contains(it)) {
        return Err(JobError::UnknownParameter {
            job: job.into(),
            name: name.clone(),
            known: meta.parameters.keys().cloned().collect(),
        });
    }
    let value = |(name, parameter): (&String, &crate::meta::Parameter)| {
        let value = match given.get(name) {
            Some(text) => parameter.value(job, name, text)?,
            None => parameter.default.clone(),
        };
        Ok((name.clone(), value))
    };
    meta.parameters.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(sql: &str) -> String {
        let place = Place::file("query");
        let values = [
            ("by", Value::Text("o'hara $until --".into())),
            ("n", Value::Integer(-5)),
        ]
        .map(|(name, it)| (name.to_owned(), value(&it)))
        .into();
        parse(&place, sql)
            .and_then(|mut statement| {
                bind(&place, &mut statement, &values)?;
                Ok(statement.to_string())
            })
            .unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn values_stay_values() {
        assert_eq!(
            asked("SELECT $by AS a FROM t WHERE x > $n"),
            "SELECT 'o''hara $until --' AS a FROM t WHERE x > -5"
        );
        assert_eq!(asked("EXPLAIN SELECT $n"), "EXPLAIN SELECT -5");
        assert_eq!(
            asked("WITH a AS (SELECT $n AS b) SELECT count(*) FILTER (WHERE b = $n) FROM a"),
            "WITH a AS (SELECT -5 AS b) SELECT count(*) FILTER (WHERE b = -5) FROM a"
        );
        assert_eq!(
            asked("SELECT 1\n WHERE $nn"),
            "query:2:8: no parameter is named $nn: use one of $by, $n"
        );
    }

    #[test]
    fn only_questions_pass() {
        for sql in [
            "SELECT 1",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "EXPLAIN ANALYZE SELECT 1",
            "SHOW TABLES",
            "SHOW COLUMNS FROM attempts",
            "DESCRIBE attempts",
            "SHOW CREATE TABLE attempts",
            "VALUES (1)",
            "(SELECT 1) UNION ALL VALUES (2)",
        ] {
            assert!(!asked(sql).starts_with("query"), "{sql}: {}", asked(sql));
        }
        for (sql, word) in [
            ("INSERT INTO attempts VALUES (1)", "INSERT"),
            ("DELETE FROM attempts", "DELETE"),
            ("UPDATE attempts SET cost = 0", "UPDATE"),
            ("DROP VIEW attempts", "DROP"),
            ("CREATE TABLE a AS SELECT 1", "CREATE"),
            (
                "CREATE EXTERNAL TABLE a STORED AS CSV LOCATION '/etc/passwd'",
                "CREATE",
            ),
            ("COPY attempts TO 'file.csv'", "COPY"),
            ("SET datafusion.execution.batch_size = 1", "SET"),
            ("EXPLAIN INSERT INTO attempts VALUES (1)", "INSERT"),
            ("EXPLAIN ANALYZE COPY attempts TO 'file.csv'", "COPY"),
            ("SELECT * INTO others FROM attempts", "SELECT INTO"),
            (
                "WITH a AS (SELECT 1 INTO b) SELECT 1 UNION SELECT 2",
                "SELECT INTO",
            ),
            ("SELECT 1 UNION SELECT 2 INTO b", "SELECT INTO"),
            ("WITH a AS (INSERT INTO b VALUES (1)) SELECT 1", "INSERT"),
            ("WITH a AS (SELECT 1) DELETE FROM attempts", "DELETE"),
            ("PREPARE a AS SELECT 1", "PREPARE"),
            ("RESET datafusion.execution.batch_size", "RESET"),
            ("CREATE FUNCTION a() RETURNS INT RETURN 1", "CREATE"),
            ("TRUNCATE TABLE attempts", "TRUNCATE"),
        ] {
            let refused = asked(sql);
            assert!(
                refused.starts_with(&format!("query:1:1: {word} would change")),
                "{refused}"
            );
        }
    }
}
