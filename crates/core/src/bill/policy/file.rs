//! a policy file's text → its rows and defaults, or every mistake in it at once.

use toml::{Table, Value};

use super::{BillingState, Chance, Row, Verdict};
use crate::class::ErrorClass;
use crate::money::parse_scaled;

/// What a policy file says.
#[derive(Debug, Default)]
pub(super) struct PolicyFile {
    pub defaults: Vec<(ErrorClass, Verdict)>,
    pub rows: Vec<Row>,
}

/// Reads a file; mistakes are added to `mistakes`, each with the file's `name`, where it is, its
/// value and what is wanted.
pub(super) fn read(text: &str, name: &str, mistakes: &mut Vec<String>) -> PolicyFile {
    let mut file = PolicyFile::default();
    let table: Table = match text.parse() {
        Ok(table) => table,
        Err(error) => {
            // Its own text quotes the line, whatever stands there.
            let start = error.span().map_or(0, |span| span.start);
            let before = text.bytes().take(start);
            let line = before.filter(|byte| *byte == b'\n').count() + 1;
            mistakes.push(format!("{name}:{line}: {}", error.message()));
            return file;
        }
    };
    for (key, value) in &table {
        match (key.as_str(), value) {
            ("default", Value::Table(classes)) => {
                for (class, value) in classes {
                    let place = format!("{name}: `default.{class}`");
                    let read = default_of(class, value, &place, mistakes);
                    file.defaults.extend(read);
                }
            }
            ("row", Value::Array(rows)) => {
                for (number, value) in rows.iter().enumerate() {
                    let place = format!("{name}: row {}", number + 1);
                    file.rows.extend(row_of(value, &place, mistakes));
                }
            }
            _ => mistakes.push(format!(
                "{name}: `{key}` is none of its parts; these are the table [default] and [[row]]"
            )),
        }
    }
    file
}

fn default_of(
    class: &str,
    value: &Value,
    place: &str,
    mistakes: &mut Vec<String>,
) -> Option<(ErrorClass, Verdict)> {
    let mut reader = Reader::new(value, place, mistakes)?;
    let named = class_of(class);
    if named.is_none() {
        reader.wrong("is no error class", &classes());
    }
    let verdict = reader.verdict();
    reader.finish(&["state", "p_billed"]);
    Some((named?, verdict?))
}

fn row_of(value: &Value, place: &str, mistakes: &mut Vec<String>) -> Option<Row> {
    let mut reader = Reader::new(value, place, mistakes)?;
    let verdict = reader.verdict();
    let provider = reader.words("provider");
    let upstream = reader.words("upstream");
    let finish = reader.words("finish");
    let status = reader.list("status", "HTTP statuses from 100 to 599", |value| {
        let status = value.as_integer();
        status.filter(|status| (100..600).contains(status))
    });
    let class = reader.list("class", &classes(), |value| class_of(value.as_str()?));
    let stream = reader.flag("stream");
    let empty = reader.flag("empty");
    let stops_on_disconnect = reader.flag("stops_on_disconnect").unwrap_or(false);
    for key in ["source", "date"] {
        if reader
            .table
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or("")
            .is_empty()
        {
            reader.wrong(
                &format!("has no `{key}`"),
                "text that says where it stands and when",
            );
        }
    }
    const CONDITIONS: [&str; 7] = [
        "provider", "upstream", "status", "class", "finish", "stream", "empty",
    ];
    if !CONDITIONS.iter().any(|key| reader.table.contains_key(*key)) {
        reader.wrong(
            "names no condition, and would fit every attempt",
            &CONDITIONS.join(", "),
        );
    }
    reader.finish(
        &[
            &CONDITIONS[..],
            &["state", "p_billed", "stops_on_disconnect", "source", "date"],
        ]
        .concat(),
    );
    let verdict = Verdict {
        stops_on_disconnect,
        ..verdict?
    };
    Some(Row {
        provider,
        upstream,
        finish,
        status,
        class,
        stream,
        empty,
        verdict,
    })
}

/// One table of the file, and where its mistakes go.
struct Reader<'a> {
    table: &'a Table,
    place: &'a str,
    mistakes: &'a mut Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(value: &'a Value, place: &'a str, mistakes: &'a mut Vec<String>) -> Option<Self> {
        match value {
            Value::Table(table) => Some(Self {
                table,
                place,
                mistakes,
            }),
            other => {
                mistakes.push(format!("{place} is {other}; a table is wanted"));
                None
            }
        }
    }

    fn wrong(&mut self, what: &str, wanted: &str) {
        self.mistakes
            .push(format!("{} {what}; wanted: {wanted}", self.place));
    }

    fn wrong_value(&mut self, key: &str, value: &Value, wanted: &str) {
        self.mistakes.push(format!(
            "{}: `{key}` is {value}; wanted: {wanted}",
            self.place
        ));
    }

    /// Looks at what was not asked for.
    fn finish(mut self, known: &[&str]) {
        for key in self.table.keys() {
            if !known.contains(&key.as_str()) {
                self.wrong(&format!("has an unknown key `{key}`"), &known.join(", "));
            }
        }
    }

    /// One value or a list of them; none where the key is absent.
    fn list<T>(&mut self, key: &str, wanted: &str, read: impl Fn(&Value) -> Option<T>) -> Vec<T> {
        let values = match self.table.get(key) {
            None => &[][..],
            Some(Value::Array(values)) if !values.is_empty() => values,
            Some(value) => std::slice::from_ref(value),
        };
        let mut out = Vec::with_capacity(values.len());
        for value in values {
            match read(value) {
                Some(it) => out.push(it),
                None => self.wrong_value(key, value, wanted),
            }
        }
        out
    }

    fn words(&mut self, key: &str) -> Vec<String> {
        self.list(key, "a list of words", |value| {
            let word = value.as_str().filter(|word| !word.is_empty());
            word.map(str::to_owned)
        })
    }

    fn flag(&mut self, key: &str) -> Option<bool> {
        let value = self.table.get(key)?;
        if value.as_bool().is_none() {
            self.wrong_value(key, value, "true or false");
        }
        value.as_bool()
    }

    /// `state` and `p_billed`, which must agree.
    fn verdict(&mut self) -> Option<Verdict> {
        let states = BillingState::NAMES;
        let state = self.table.get("state").map(|value| {
            let state = value.as_str().and_then(state_of);
            if state.is_none() {
                self.wrong_value("state", value, &states.join(", "));
            }
            state
        });
        if state.is_none() {
            self.wrong("has no `state`", &states.join(", "));
        }
        let wanted = match state.flatten() {
            Some(BillingState::Billed) => "\"1\", as it is billed",
            Some(BillingState::Unbilled) => "\"0\", as it is unbilled",
            _ => "a number from \"0\" to \"1\" with at most 4 digits after the point",
        };
        let Some(value) = self.table.get("p_billed") else {
            self.wrong("has no `p_billed`", wanted);
            return None;
        };
        let text = match value {
            Value::String(text) => text.clone(),
            number => number.to_string(),
        };
        let chance = parse_scaled(&text, 4).ok();
        let chance = chance.and_then(|it| u16::try_from(it).ok()).map(Chance);
        let fits = |chance: &Chance| match state.flatten() {
            Some(BillingState::Billed) => *chance == Chance::SURE,
            Some(BillingState::Unbilled) => *chance == Chance::NEVER,
            _ => *chance <= Chance::SURE,
        };
        let chance = chance.filter(fits);
        if chance.is_none() {
            self.wrong_value("p_billed", value, wanted);
        }
        Some(Verdict {
            state: state.flatten()?,
            p_billed: chance?,
            stops_on_disconnect: false,
        })
    }
}

fn state_of(word: &str) -> Option<BillingState> {
    use BillingState::{Billed, Unbilled, Unknown};
    [Billed, Unbilled, Unknown]
        .into_iter()
        .find(|state| BillingState::NAMES[*state as usize] == word)
}

fn class_of(word: &str) -> Option<ErrorClass> {
    let mut all = ErrorClass::ALL.into_iter();
    all.find(|class| class.name() == word)
}

fn classes() -> String {
    format!("one of {}", ErrorClass::NAMES.join(", "))
}
