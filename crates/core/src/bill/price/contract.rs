//! Any text is a table of exact prices from 0 to below a dollar, or an error; what a model's file
//! entry says is what its tokens cost.

use serde_json::Value;

use super::*;
use crate::field::COUNT_MAX;
use crate::money::{ROW_MAX, parse_scaled};

/// Checks one file; says whether it is a price table.
///
/// # Panics
/// A promise of [`Prices`] is broken.
pub fn check(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let prices = match Prices::read(text, "fuzz") {
        Ok(prices) => prices,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    assert!(!prices.by_model.is_empty());
    let hash = prices.version().rsplit('-').next().unwrap_or_default();
    assert!(
        prices.version().starts_with("fuzz-") && hash.len() == 8,
        "{}",
        prices.version()
    );

    let entries: HashMap<String, &RawValue> = match serde_json::from_str(text) {
        Ok(entries) => entries,
        Err(error) => panic!("a table was read from what is no JSON: {error}"),
    };
    for (model, price) in &prices.by_model {
        let Ok(model) = std::str::from_utf8(model) else {
            panic!("{model:?} is no text");
        };
        assert!(
            !model.starts_with('_') && model != "sample_spec",
            "{model:?}"
        );
        assert_eq!(prices.get("", model), Some(price));
        let entry = entries.get(model).map(|entry| entry.get());
        agrees(price, entry.unwrap_or_default());
        costs(price);
    }
    for mistake in prices.mistakes() {
        let BadPrice { model, key, value } = mistake;
        assert!(!prices.by_model.contains_key(model.as_bytes()), "{mistake}");
        let entry = entries.get(model).map_or("", |entry| entry.get());
        assert!(entry.contains(value), "{mistake}: {entry}");
        let shown = mistake.to_string();
        assert!(
            shown.contains(key) && shown.contains(model.as_str()),
            "{shown}"
        );
    }
    assert!(prices.mistakes().is_sorted());
    true
}

/// Another reader of numbers, a float's, has no other value than by its few digits.
fn agrees(price: &Price, entry: &str) {
    let Ok(entry) = serde_json::from_str::<Value>(entry) else {
        // A number beyond floats, or text that is none, in a member that is no price.
        return;
    };
    let optional = |price: Option<i128>, key: &str| {
        assert_eq!(price.is_some(), !entry[key].is_null(), "{key}: {entry}");
        price.map(|price| (price, key.to_owned()))
    };
    let all = [
        optional(Some(price.input), "input_cost_per_token"),
        optional(Some(price.output), "output_cost_per_token"),
        optional(price.cache_read, "cache_read_input_token_cost"),
        optional(price.cache_write, "cache_creation_input_token_cost"),
        optional(
            price.cache_write_1h,
            "cache_creation_input_token_cost_above_1hr",
        ),
    ];
    for (price, key) in all.into_iter().flatten() {
        assert!((0..PRICE_MAX).contains(&price), "{key}: {entry}");
        let said = match &entry[&key] {
            Value::String(text) => text.parse::<f64>().ok(),
            number => number.as_f64(),
        };
        let Some(said) = said else {
            panic!("{key}: {entry} gives {price}, and is no number");
        };
        let read = price as f64 / 1e24;
        let apart = (said - read).abs();
        assert!(
            apart <= said * 1e-14 + 0.6e-24,
            "{key}: {entry} gives {price}"
        );
        let digits = format!("0.{price:024}");
        assert_eq!(parse_scaled(&digits, PRICE_SCALE), Ok(price));
    }
}

/// Whatever tokens an event can have, they cost something exact that fits a row, or nothing known.
fn costs(price: &Price) {
    let of = |input, cached, cache_write, cache_write_1h, output| {
        price.cost(Tokens {
            input,
            cached,
            cache_write,
            cache_write_1h,
            output,
        })
    };
    assert_eq!(of(0, 0, 0, 0, 0), Some(0));
    let amounts = [0, 1, 3, 1_000_000, COUNT_MAX];
    for input in amounts {
        let mut before = Some(0);
        for output in amounts {
            let cost = of(input, input / 3, input / 2, input / 5, output);
            assert!(cost.is_none_or(|it| (0..=ROW_MAX).contains(&it)));
            // More output costs no less, and past a row's bound it stays past.
            assert!(
                cost.is_none() || cost >= before && before.is_some(),
                "{price:?}"
            );
            before = cost;
        }
        // Parts beyond the whole are no discount.
        assert_eq!(
            of(input, COUNT_MAX, COUNT_MAX, COUNT_MAX, 0),
            of(input, 0, 0, 0, 0)
        );
    }
    let (input, output) = price.per_million();
    assert_eq!(of(1_000_000, 0, 0, 0, 0).unwrap_or(ROW_MAX), input);
    assert_eq!(of(0, 0, 0, 0, 1_000_000).unwrap_or(ROW_MAX), output);
}
