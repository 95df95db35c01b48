//! The answers of `retry_cost_share` and `toll` → [`Share`] and [`Toll`], for gates and headlines.

use std::fmt;

use arrow::array::{Array, ArrayRef, AsArray as _, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Int64Type};

/// Digits after the point of a percentage.
pub const PERCENT_SCALE: i8 = 12;
/// Digits after the point of dollars.
pub const DOLLARS_SCALE: i8 = 12;

/// The bands of MONEY.md, section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Band {
    /// Under 5 %.
    Healthy,
    /// 5 % up to under 8 %.
    Review,
    /// 8 % through 15 %; over a week, evaluate a fallback model or a second provider.
    Evaluate,
    /// Over 15 %.
    Incident,
}

impl fmt::Display for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "healthy",
            Self::Review => "review",
            Self::Evaluate => "evaluate",
            Self::Incident => "incident",
        })
    }
}

/// One row of `retry_cost_share`. Percentages and dollars have 12 digits after the point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// What it is the share of; `None` for what has no name.
    pub key: Option<String>,
    /// Expected; `None`: withheld, [`Share::note`] says why.
    pub share_pct: Option<i128>,
    /// The least it can be.
    pub low_pct: Option<i128>,
    /// The most it can be.
    pub high_pct: Option<i128>,
    /// Its band.
    pub band: Option<Band>,
    /// Why it is withheld, or should be read with care.
    pub note: Option<String>,
    /// Expected cost of the retries; `None`: not known.
    pub retry_usd: Option<i128>,
    /// Expected cost of the other attempts; `None`: not known.
    pub other_usd: Option<i128>,
    /// Counted attempts.
    pub attempts: i64,
    /// Retries among them.
    pub retries: i64,
    /// First attempts among them.
    pub first_attempts: i64,
}

impl Share {
    /// The shares of an answer, in its order. A row that lacks a column has `None` or 0 there.
    #[must_use]
    pub fn of(batches: &[RecordBatch]) -> Vec<Self> {
        batches
            .iter()
            .flat_map(|batch| (0..batch.num_rows()).map(|row| Self::row(batch, row)))
            .collect()
    }

    fn row(batch: &RecordBatch, row: usize) -> Self {
        let decimal = |name| decimal(batch, name, row);
        let count = |name| {
            Some(
                present(batch, name, row)?
                    .as_primitive_opt::<Int64Type>()?
                    .value(row),
            )
        };
        let text = |name| text_at(present(batch, name, row)?, row);
        Self {
            key: text("key"),
            share_pct: decimal("share_pct"),
            low_pct: decimal("share_low_pct"),
            high_pct: decimal("share_high_pct"),
            band: decimal("share_pct").map(band),
            note: text("note"),
            retry_usd: decimal("retry_expected_usd"),
            other_usd: decimal("other_expected_usd"),
            attempts: count("attempts").unwrap_or(0),
            retries: count("retries").unwrap_or(0),
            first_attempts: count("first_attempts").unwrap_or(0),
        }
    }
}

/// The row of `toll`: what retries cost in all. Percentages and dollars have 12 digits after the
/// point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Toll {
    /// Redundant cost, expected; `None`: not known.
    pub expected_usd: Option<i128>,
    /// Redundant cost that evidence shows; `None`: not known.
    pub confirmed_usd: Option<i128>,
    /// The expected toll's share of all spend; `None`: withheld.
    pub share_pct: Option<i128>,
    /// The retry-cost share; `None`: withheld.
    pub retry_share_pct: Option<i128>,
}

impl Toll {
    /// Of the answer's one row.
    #[must_use]
    pub fn of(batches: &[RecordBatch]) -> Option<Self> {
        let batch = batches.iter().find(|it| it.num_rows() > 0)?;
        Some(Self {
            expected_usd: decimal(batch, "toll_expected_usd", 0),
            confirmed_usd: decimal(batch, "toll_confirmed_usd", 0),
            share_pct: decimal(batch, "toll_share_pct", 0),
            retry_share_pct: decimal(batch, "retry_share_pct", 0),
        })
    }
}

fn present<'a>(batch: &'a RecordBatch, name: &str, row: usize) -> Option<&'a ArrayRef> {
    batch.column_by_name(name).filter(|it| !it.is_null(row))
}

fn decimal(batch: &RecordBatch, name: &str, row: usize) -> Option<i128> {
    let column = present(batch, name, row)?.as_primitive_opt::<Decimal128Type>()?;
    Some(column.value(row))
}

fn text_at(array: &ArrayRef, row: usize) -> Option<String> {
    let text = cast(&array.slice(row, 1), &DataType::Utf8).ok()?;
    Some(text.as_string::<i32>().value(0).to_owned())
}

/// The band of a share in percent, with 12 digits after the point.
fn band(share_pct: i128) -> Band {
    let percent = |whole: i128| whole * 10_i128.pow(12);
    if share_pct < percent(5) {
        Band::Healthy
    } else if share_pct < percent(8) {
        Band::Review
    } else if share_pct <= percent(15) {
        Band::Evaluate
    } else {
        Band::Incident
    }
}

/// A percentage such as `5` or `7.5`, with 12 digits after the point; `None` where it is none.
#[must_use]
pub fn parse_percent(text: &str) -> Option<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |it: &str| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.len() > 3 || fraction.len() > 12 {
        return None;
    }
    let fraction = format!("{fraction:0<12}");
    let value = whole.parse::<i128>().ok()? * 10_i128.pow(12) + fraction.parse::<i128>().ok()?;
    (value <= 100 * 10_i128.pow(12)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_begin_where_the_definitions_say() {
        let of = |text: &str| band(parse_percent(text).unwrap()).to_string();
        assert_eq!(of("4.999999999999"), "healthy");
        assert_eq!(of("5"), "review");
        assert_eq!(of("7.999999999999"), "review");
        assert_eq!(of("8"), "evaluate");
        assert_eq!(of("15"), "evaluate");
        assert_eq!(of("15.000000000001"), "incident");
    }

    #[test]
    fn percentages_are_exact_or_none() {
        assert_eq!(parse_percent("5"), Some(5_000_000_000_000));
        assert_eq!(parse_percent("0.1"), Some(100_000_000_000));
        assert_eq!(parse_percent("100"), Some(100_000_000_000_000));
        for text in [
            "",
            "5%",
            "-1",
            "1e2",
            "100.1",
            "5.",
            ".5",
            "0.1234567890123",
            "٥",
        ] {
            assert_eq!(parse_percent(text), None, "{text}");
        }
    }
}
