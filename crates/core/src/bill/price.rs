//! provider, model → price per token, from a file in LiteLLM's form.
//!
//! Prices are read from the text of their numbers and held in 10^-24 dollars, so that a cost is
//! exact until it is rounded once, half-even, to 10^-12 dollars. LiteLLM's file holds prices such
//! as 5.0000000000000004e-08; a digit below 10^-24 is rounded once when the file is read.

#[cfg(any(test, feature = "contract"))]
pub(crate) mod contract;

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::money::{DOLLAR, ROW_MAX, SCALE, divide_half_even, parse_rounded};

/// Digits after the point of a price per token. Five terms of 10^12 tokens at less than a dollar
/// stay below 10^37, which an `i128` holds.
const PRICE_SCALE: u32 = 24;
/// A price of a dollar per token and more is a mistake of units.
const PRICE_MAX: i128 = 10_i128.pow(PRICE_SCALE);

/// Dollars per token, scaled by 10^24.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    pub input: i128,
    pub output: i128,
    pub cache_read: Option<i128>,
    pub cache_write: Option<i128>,
    pub cache_write_1h: Option<i128>,
}

/// Tokens of one attempt, as MONEY counts them: input includes cached and cache-write tokens,
/// cache-write tokens include those of one hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    pub input: i64,
    pub cached: i64,
    pub cache_write: i64,
    pub cache_write_1h: i64,
    pub output: i64,
}

/// Tokens of a million-token price, and the digits between a price's scale and a row's.
const MTOK_DIVISOR: i128 = 10_i128.pow(PRICE_SCALE - SCALE) / 1_000_000;

impl Price {
    /// What a million tokens of input and of output cost, in 10^-12 dollars: enough for what is
    /// estimated from other attempts, without the price table at hand.
    #[must_use]
    pub fn per_million(&self) -> (i128, i128) {
        let of = |price| divide_half_even(price, MTOK_DIVISOR).min(ROW_MAX);
        (of(self.input), of(self.output))
    }

    /// Tokens at these prices, in 10^-12 dollars; `None` where it does not fit a row.
    ///
    /// Without a price of its own, a cached token costs as much as any input token. Parts that
    /// exceed the whole make no sense: then all input is priced as plain input.
    #[must_use]
    pub fn cost(&self, tokens: Tokens) -> Option<i128> {
        let Tokens {
            input,
            cached,
            mut cache_write,
            mut cache_write_1h,
            output,
        } = tokens;
        // Some count one-hour writes within the writes, some beside them.
        if cache_write_1h > cache_write {
            cache_write = cache_write.saturating_add(cache_write_1h);
        }
        let parts = cached.saturating_add(cache_write);
        let (cached, write) = if parts > input {
            (0, 0)
        } else {
            (cached, cache_write)
        };
        if write == 0 {
            cache_write_1h = 0;
        }
        let plain = input - cached - write;
        let write_price = self.cache_write.unwrap_or(self.input);
        let terms = [
            (plain, self.input),
            (cached, self.cache_read.unwrap_or(self.input)),
            (write - cache_write_1h, write_price),
            (cache_write_1h, self.cache_write_1h.unwrap_or(write_price)),
            (output, self.output),
        ];
        let mut sum = 0_i128;
        for (count, price) in terms {
            sum = sum.checked_add(i128::from(count).checked_mul(price)?)?;
        }
        let cost = divide_half_even(sum, PRICE_MAX / DOLLAR);
        (cost <= ROW_MAX).then_some(cost)
    }
}

/// Prices by model, with the version that rows name.
#[derive(Clone, Debug)]
pub struct Prices {
    by_model: HashMap<Box<[u8]>, Price>,
    mistakes: Vec<BadPrice>,
    version: String,
}

/// A price file that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PriceError {
    #[error("not a price file in LiteLLM's form: an object of models is wanted")]
    NotAnObject(#[source] serde_json::Error),
    #[error("the price file has no model with a price; is it the right file?")]
    Empty,
}

/// An impossible price. Its model is unpriced; the rest of the file is good.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("`{model}`: `{key}` is {value}: a price per token from 0 to below 1 dollar is wanted")]
pub struct BadPrice {
    pub model: String,
    pub key: &'static str,
    pub value: String,
}

/// A key of the table of more bytes than this is never asked for with its provider before it.
const KEY_BYTES_MAX: usize = 256;

#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    input_cost_per_token: Option<&'a RawValue>,
    #[serde(borrow)]
    output_cost_per_token: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_read_input_token_cost: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_creation_input_token_cost: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_creation_input_token_cost_above_1hr: Option<&'a RawValue>,
    /// When the file's prices were so; stands in the entry `_about`.
    as_of: Option<&'a str>,
}

const BUILT_IN: &str = include_str!("../../data/prices.json");

impl Prices {
    /// The small table that is built in; its sources and date stand in the file.
    ///
    /// # Panics
    /// Never: a test reads the same file.
    #[must_use]
    pub fn built_in() -> Self {
        #[expect(
            clippy::expect_used,
            reason = "the file is part of the program, and tested"
        )]
        Self::read(BUILT_IN, "built-in").expect("the built-in price table is valid")
    }

    /// Reads a file in the form of LiteLLM's `model_prices_and_context_window.json`. `name`
    /// begins the version.
    ///
    /// # Errors
    /// The file is no such object, or has no prices. A model with an impossible price is unpriced,
    /// and told by [`Prices::mistakes`].
    pub fn read(json: &str, name: &str) -> Result<Self, PriceError> {
        let entries: HashMap<String, &RawValue> =
            serde_json::from_str(json).map_err(PriceError::NotAnObject)?;
        let mut by_model = HashMap::new();
        let mut mistakes = Vec::new();
        let mut version = name.to_owned();
        for (model, entry) in entries {
            let Ok(entry) = serde_json::from_str::<Entry<'_>>(entry.get()) else {
                continue;
            };
            // LiteLLM's file begins with a sample; keys that begin with `_` are remarks of ours.
            if model == "sample_spec" || model.starts_with('_') {
                if let Some(as_of) = entry.as_of.filter(|_| model == "_about") {
                    version = format!("{name}-{as_of}");
                }
                continue;
            }
            match entry.price(&model) {
                Ok(Some(price)) => {
                    by_model.insert(model.into_bytes().into(), price);
                }
                Ok(None) => {}
                Err(mistake) => mistakes.push(mistake),
            }
        }
        if by_model.is_empty() {
            return Err(PriceError::Empty);
        }
        mistakes.sort_unstable();
        let hash = Sha256::digest(json.as_bytes());
        let hash: String = hash[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self {
            by_model,
            mistakes,
            version: format!("{version}-{hash}"),
        })
    }

    /// The price of a model: of `provider/model`, else of the exact name; where neither is there,
    /// of the name without the date at its end. `None` is unpriced, which is never zero.
    ///
    /// Answers name the snapshot, such as `gpt-4o-mini-2024-07-18`, which costs what its model does
    /// unless the table says otherwise. Other endings, such as `-2407`, are models of their own.
    #[must_use]
    pub fn get(&self, provider: &str, model: &str) -> Option<&Price> {
        let undated = || self.find(provider, without_date(model)?);
        self.find(provider, model).or_else(undated)
    }

    fn find(&self, provider: &str, model: &str) -> Option<&Price> {
        let mut key = [0; KEY_BYTES_MAX];
        let len = provider.len() + 1 + model.len();
        if !provider.is_empty() && len <= KEY_BYTES_MAX {
            key[..provider.len()].copy_from_slice(provider.as_bytes());
            key[provider.len()] = b'/';
            key[provider.len() + 1..len].copy_from_slice(model.as_bytes());
            if let Some(price) = self.by_model.get(&key[..len]) {
                return Some(price);
            }
        }
        self.by_model.get(model.as_bytes())
    }

    /// Models that are unpriced because of an impossible price.
    #[must_use]
    pub fn mistakes(&self) -> &[BadPrice] {
        &self.mistakes
    }

    /// The name, the date where the file has one, and eight hex digits of the file's hash.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// A name without the `-YYYY-MM-DD` at its end; `None` where none is there.
fn without_date(model: &str) -> Option<&str> {
    const FORM: &[u8] = b"-dddd-dd-dd";
    let (name, date) = model.split_at_checked(model.len().checked_sub(FORM.len())?)?;
    let fits = |(byte, form): (u8, &u8)| match form {
        b'd' => byte.is_ascii_digit(),
        _ => byte == *form,
    };
    let is_date = date.bytes().zip(FORM).all(fits);
    (is_date && !name.is_empty()).then_some(name)
}

impl Entry<'_> {
    fn price(&self, model: &str) -> Result<Option<Price>, BadPrice> {
        let read = |value: Option<&RawValue>, key| match value.map(RawValue::get) {
            None | Some("null") => Ok(None),
            Some(text) => {
                let price = parse_rounded(text.trim_matches('"'), PRICE_SCALE).ok();
                let bad = || BadPrice {
                    model: model.into(),
                    key,
                    value: text.into(),
                };
                price
                    .filter(|price| (0..PRICE_MAX).contains(price))
                    .map(Some)
                    .ok_or_else(bad)
            }
        };
        let input = read(self.input_cost_per_token, "input_cost_per_token")?;
        let output = read(self.output_cost_per_token, "output_cost_per_token")?;
        let (Some(input), Some(output)) = (input, output) else {
            return Ok(None);
        };
        Ok(Some(Price {
            input,
            output,
            cache_read: read(
                self.cache_read_input_token_cost,
                "cache_read_input_token_cost",
            )?,
            cache_write: read(
                self.cache_creation_input_token_cost,
                "cache_creation_input_token_cost",
            )?,
            cache_write_1h: read(
                self.cache_creation_input_token_cost_above_1hr,
                "cache_creation_input_token_cost_above_1hr",
            )?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{
        "sample_spec": {"input_cost_per_token": 9, "output_cost_per_token": 9},
        "_about": {"date": "2026-11-30"},
        "plain": {"input_cost_per_token": 1e-06, "output_cost_per_token": "0.000002"},
        "acme/routed": {"input_cost_per_token": 5e-7, "output_cost_per_token": 0},
        "cached": {"input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05,
                   "cache_read_input_token_cost": 3e-07, "cache_creation_input_token_cost": 3.75e-06,
                   "cache_creation_input_token_cost_above_1hr": 6e-06},
        "fine": {"input_cost_per_token": 1.25e-14, "output_cost_per_token": 0},
        "noise": {"input_cost_per_token": 5.0000000000000004e-08, "output_cost_per_token": 1e-30},
        "both": {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06},
        "acme/both": {"input_cost_per_token": 2e-06, "output_cost_per_token": 2e-06},
        "image": {"output_cost_per_image": 0.04}
    }"#;

    fn cost(model: &str, tokens: Tokens) -> Option<i128> {
        Prices::read(FILE, "test")
            .unwrap()
            .get("", model)
            .unwrap()
            .cost(tokens)
    }

    #[test]
    fn tokens_times_prices_are_exact() {
        // 1,000 × $0.000001 + 500 × $0.000002 = $0.002
        let tokens = Tokens {
            input: 1_000,
            output: 500,
            ..Tokens::default()
        };
        assert_eq!(cost("plain", tokens), Some(2_000_000_000));
        // 1,000 input, of which 600 cached, 300 written, of those 100 for an hour; 10 output:
        // 100 × 3e-6 + 600 × 3e-7 + 200 × 3.75e-6 + 100 × 6e-6 + 10 × 1.5e-5 = 0.00198
        let tokens = Tokens {
            input: 1_000,
            cached: 600,
            cache_write: 300,
            cache_write_1h: 100,
            output: 10,
        };
        assert_eq!(cost("cached", tokens), Some(1_980_000_000));
    }

    #[test]
    fn a_cost_is_rounded_once_and_half_even() {
        // 1.25e-14 dollars a token: 40 tokens are 0.5 of 10^-12, 120 are 1.5.
        let of = |input| {
            cost(
                "fine",
                Tokens {
                    input,
                    ..Tokens::default()
                },
            )
        };
        assert_eq!([of(40), of(120), of(41)], [Some(0), Some(2), Some(1)]);
    }

    #[test]
    fn a_float_with_all_its_digits_is_a_price() {
        // 10^12 tokens x 5.0000000000000004e-08 = 50,000.000000000004; the output's 1e-30 is 0.
        let tokens = Tokens {
            input: 1_000_000_000_000,
            output: 1_000_000,
            ..Tokens::default()
        };
        assert_eq!(cost("noise", tokens), Some(50_000_000_000_000_004));
    }

    #[test]
    fn parts_above_the_whole_are_priced_as_input() {
        let tokens = Tokens {
            input: 10,
            cached: 50,
            ..Tokens::default()
        };
        assert_eq!(cost("cached", tokens), Some(30_000_000));
    }

    #[test]
    fn a_cost_beyond_a_row_is_none() {
        let tokens = Tokens {
            input: i64::MAX / 2,
            ..Tokens::default()
        };
        assert_eq!(cost("plain", tokens), None);
    }

    #[test]
    fn models_are_found_by_exact_name_or_with_their_provider() {
        let prices = Prices::read(FILE, "test").unwrap();
        assert!(prices.get("acme", "routed").is_some());
        assert!(prices.get("", "acme/routed").is_some());
        // Whose price it is decides, where both names have one.
        let input = |provider| prices.get(provider, "both").map(|price| price.input);
        assert_eq!(input("acme"), Some(2 * PRICE_MAX / 1_000_000));
        assert_eq!(input("other"), Some(PRICE_MAX / 1_000_000));
        assert_eq!(input(""), Some(PRICE_MAX / 1_000_000));
        // A snapshot costs what its model does, by whatever name that is found.
        assert_eq!(prices.get("", "plain-2024-07-18"), prices.get("", "plain"));
        assert!(prices.get("", "plain-2024-07-18").is_some());
        assert!(prices.get("acme", "routed-2025-01-31").is_some());
        let long = "x".repeat(2 * KEY_BYTES_MAX);
        assert!(prices.get(&long, "both").is_some());
        for (provider, model) in [
            ("", "routed"),
            ("", "sample_spec"),
            ("", "image"),
            ("", "Plain"),
            ("", "plain-2407"),
            ("", "plain-20240718"),
            ("", "plain-24-07-18"),
            ("", "-2024-07-18"),
            ("", "plain-2024-07-18-x"),
        ] {
            assert!(prices.get(provider, model).is_none(), "{model}");
        }
    }

    #[test]
    fn a_file_that_is_none_says_so() {
        assert!(matches!(
            Prices::read("[]", "x"),
            Err(PriceError::NotAnObject(_))
        ));
        assert!(matches!(Prices::read("{}", "x"), Err(PriceError::Empty)));
    }

    #[test]
    fn an_impossible_price_is_told_and_costs_only_its_model() {
        let file = r#"{
            "good": {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06},
            "large": {"input_cost_per_token": 3, "output_cost_per_token": 1e-06},
            "less": {"input_cost_per_token": 1e-06, "output_cost_per_token": -1e-06},
            "words": {"input_cost_per_token": "NaN", "output_cost_per_token": 1e-06}
        }"#;
        let prices = Prices::read(file, "x").unwrap();
        let mistakes: Vec<_> = prices.mistakes().iter().map(ToString::to_string).collect();
        let starts = [
            "`large`: `input_cost_per_token` is 3:",
            "`less`: `output",
            "`words`: `in",
        ];
        assert_eq!(mistakes.len(), starts.len(), "{mistakes:#?}");
        for (mistake, start) in mistakes.iter().zip(starts) {
            assert!(mistake.starts_with(start), "{mistake}");
        }
        assert!(prices.get("", "good").is_some());
        assert!(prices.get("", "large").is_none());
    }

    #[test]
    fn the_built_in_table_prices_the_well_known() {
        let prices = Prices::built_in();
        assert_eq!(prices.mistakes(), []);
        for (provider, model) in [
            ("openai", "gpt-4o-mini"),
            ("anthropic", "claude-sonnet-4-5"),
            ("gemini", "gemini-2.5-flash"),
            ("deepseek", "deepseek-chat"),
        ] {
            assert!(prices.get(provider, model).is_some(), "{model}");
        }
        let version = prices.version();
        let parts: Vec<_> = version.split('-').collect();
        assert_eq!(parts[..3], ["built", "in", "2026"], "{version}");
        assert_eq!(parts.last().map(|hash| hash.len()), Some(8), "{version}");
    }

    /// Each entry of the built-in table is usable: prices that a person would write, a cached token
    /// no dearer than another, and a cost for a million tokens of each side that is their sum.
    #[test]
    fn every_row_of_the_built_in_table_is_a_price() {
        let prices = Prices::built_in();
        let table: HashMap<String, serde_json::Value> = serde_json::from_str(BUILT_IN).unwrap();
        assert!(table.contains_key("_about"));
        for (model, entry) in table.iter().filter(|(model, _)| *model != "_about") {
            let price = prices.get("", model).expect(model);
            assert!(price.input > 0 && price.output >= price.input, "{model}");
            assert!(
                price.cache_read.is_none_or(|it| it < price.input),
                "{model}"
            );
            assert!(
                price
                    .cache_write
                    .is_none_or(|it| it == 0 || it >= price.input),
                "{model}"
            );
            let provider = entry["litellm_provider"].as_str().expect(model);
            let bare = model.strip_prefix(&format!("{provider}/")).unwrap_or(model);
            assert_eq!(prices.get(provider, bare), Some(price), "{model}");
            let million = Tokens {
                input: 1_000_000,
                output: 1_000_000,
                ..Tokens::default()
            };
            let dollars = |key: &str| entry[key].as_f64().expect(model) * 1e6;
            let expected = dollars("input_cost_per_token") + dollars("output_cost_per_token");
            let cost = price.cost(million).expect(model) as f64 / 1e12;
            assert!((cost - expected).abs() < 1e-9, "{model}: {cost}");
        }
    }
}
