//! Any text is a policy whose every verdict agrees with itself, or mistakes that are told with
//! their place.

use toml::{Table, Value};

use super::*;

const NAME: &str = "policy file";

/// Checks one file; says whether it is a policy.
///
/// # Panics
/// A promise of [`Policy`] is broken.
pub fn check(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let mut mistakes = Vec::new();
    let file = file::read(text, NAME, &mut mistakes);
    for mistake in &mistakes {
        let told = mistake
            .strip_prefix(NAME)
            .and_then(|it| it.strip_prefix(':'));
        assert!(told.is_some_and(|it| it.len() > 2), "{mistake:?}");
    }
    let table = text.parse::<Table>();
    let Ok(table) = table else {
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        return false;
    };
    let rows = table
        .get("row")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    let defaults = table.get("default").and_then(Value::as_table);
    let defaults = defaults.map_or(0, Table::len);
    // Nothing is dropped in silence.
    assert!(file.rows.len() <= rows && file.defaults.len() <= defaults);
    if mistakes.is_empty() {
        assert_eq!((file.rows.len(), file.defaults.len()), (rows, defaults));
    }
    let is_good = mistakes.is_empty();
    let mut default = [None; ErrorClass::NAMES.len()];
    for (class, verdict) in file.defaults {
        agrees(&verdict);
        assert_eq!(default[class as usize].replace(verdict), None, "{class:?}");
    }
    for row in &file.rows {
        agrees(&row.verdict);
        assert!(row.status.iter().all(|it| (100..600).contains(it)));
    }
    let policy = Policy {
        rows: file.rows,
        default,
        version: String::new(),
    };
    decides(&policy);
    is_good
}

fn agrees(verdict: &Verdict) {
    let chance = verdict.p_billed;
    let fits = match verdict.state {
        BillingState::Billed => chance == Chance::SURE,
        BillingState::Unbilled => chance == Chance::NEVER,
        BillingState::Unknown => chance <= Chance::SURE,
    };
    assert!(fits, "{verdict:?}");
}

/// Facts made of a row's own conditions are decided by it, or by one before it.
fn decides(policy: &Policy) {
    for class in ErrorClass::ALL {
        let facts = PolicyFacts {
            provider: "",
            model: "",
            class,
            status: None,
            finish_reason: "",
            stream: None,
            empty: false,
        };
        agrees(&policy.decide(&facts));
    }
    for (place, row) in policy.rows.iter().enumerate() {
        // A name with a slash in it is no upstream: the model's name is cut there.
        if !row.upstream.is_empty() || row.provider.iter().any(|it| it.contains('/')) {
            continue;
        }
        let first = |words: &'_ [String]| words.first().cloned().unwrap_or_default();
        let (provider, finish) = (first(&row.provider), first(&row.finish));
        let facts = PolicyFacts {
            provider: &provider,
            model: "m",
            class: row.class.first().copied().unwrap_or(ErrorClass::Read),
            status: row.status.first().copied(),
            finish_reason: &finish,
            stream: row.stream,
            empty: row.empty.unwrap_or(false),
        };
        let verdict = policy.decide(&facts);
        agrees(&verdict);
        let upto = &policy.rows[..=place];
        assert!(
            upto.iter().any(|it| it.verdict == verdict),
            "{facts:?}: {verdict:?}"
        );
    }
}
