//! A value → its text: exact everywhere, and on a terminal money and counts as people read them.

use arrow::array::{Array, ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Decimal128Type, Field, Int64Type, Schema};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::sync::Arc;

/// An exact decimal without needless zeros: `value` has `scale` digits after the point.
///
/// ```
/// use retrytoll_jobs::render::decimal_text;
/// assert_eq!(decimal_text(100_000, 6), "0.1");
/// assert_eq!(decimal_text(-1_500_000, 6), "-1.5");
/// assert_eq!(decimal_text(7_000_000, 6), "7");
/// ```
#[must_use]
pub fn decimal_text(value: i128, scale: i8) -> String {
    let sign = if value < 0 { "-" } else { "" };
    let digits = value.unsigned_abs().to_string();
    let Ok(places) = usize::try_from(scale) else {
        return format!(
            "{sign}{digits}{}",
            "0".repeat(usize::from(scale.unsigned_abs()))
        );
    };
    let digits = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{fraction}")
    }
}

/// `value` without its last `digits` digits, rounded half to even.
fn rounded(value: i128, digits: u32) -> i128 {
    let Some(unit) = 10_i128.checked_pow(digits) else {
        return 0;
    };
    let (quotient, rest) = (value.div_euclid(unit), value.rem_euclid(unit));
    // `unit` is even, but for 1, where the rest is 0.
    let up = rest > unit / 2 || (rest == unit / 2 && rest > 0 && quotient % 2 != 0);
    quotient + i128::from(up)
}

/// A text for a person, and whether it is the value to the last digit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub text: String,
    pub exact: bool,
}

fn exactly(text: String) -> Shown {
    Shown { text, exact: true }
}

/// Dollars: cents from one dollar up, else four digits that count, so that nothing becomes 0.
pub(super) fn money(value: i128, scale: i8) -> Shown {
    let scale = u32::from(scale.unsigned_abs());
    let magnitude = value.unsigned_abs();
    let length = magnitude.checked_ilog10().map_or(0, |it| it + 1);
    // Digits after the point to show: 2, or through the fourth digit that is not 0.
    let places = if length > scale {
        2
    } else {
        scale - length + 4
    }
    .clamp(2, scale.max(2));
    let shown = rounded(value, scale.saturating_sub(places));
    let exact = shown.checked_mul(10_i128.pow(scale.saturating_sub(places))) == Some(value);
    let digits = shown.unsigned_abs().to_string();
    let width = places.min(scale) as usize;
    let digits = format!("{digits:0>least$}", least = width + 1);
    let (whole, fraction) = digits.split_at(digits.len() - width);
    let mut fraction = fraction.trim_end_matches('0').to_owned();
    while fraction.len() < 2 {
        fraction.push('0');
    }
    let sign = if shown < 0 { "-" } else { "" };
    Shown {
        text: format!("{sign}${}.{fraction}", grouped(whole)),
        exact,
    }
}

/// A percentage with one digit after the point. It stands beside its band, and its bounds are
/// in every other format, so rounding needs no remark.
fn percent(value: i128, scale: i8) -> Shown {
    let tenths = rounded(value, u32::from(scale.unsigned_abs()).saturating_sub(1));
    let sign = if tenths < 0 { "-" } else { "" };
    let tenths = tenths.unsigned_abs();
    exactly(format!("{sign}{}.{} %", tenths / 10, tenths % 10))
}

/// Dollars with 12 digits after the point, as tables show them: `$412.38`.
#[must_use]
pub fn dollars_text(value: i128) -> String {
    money(value, 12).text
}

/// A percentage with 12 digits after the point, as tables show it: `6.4 %`.
#[must_use]
pub fn percent_text(value: i128) -> String {
    percent(value, 12).text
}

/// A count as tables show it: `1,234,567`.
#[must_use]
pub fn count_text(count: u64) -> String {
    grouped(&count.to_string())
}

/// `1,234,567`.
fn grouped(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && out != "-" {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// What a control character could do to a terminal, it does as text.
#[must_use]
pub fn harmless(text: String) -> String {
    if !text.chars().any(char::is_control) {
        return text;
    }
    text.chars()
        .fold(String::with_capacity(text.len()), |mut out, c| {
            if c.is_control() {
                out.extend(c.escape_default());
            } else {
                out.push(c);
            }
            out
        })
}

/// The cells of a column for a terminal. With `units`, a name's end says how they are shown:
/// `_usd` as dollars, `_pct` as percent; whole numbers in groups of three.
pub(super) fn column(
    field: &Field,
    array: &ArrayRef,
    units: bool,
) -> Result<Vec<Shown>, ArrowError> {
    let name = field.name();
    let null = if units && name.ends_with("_usd") {
        "unknown"
    } else {
        "-"
    };
    let options = FormatOptions::default().with_null("-");
    let formatter = ArrayFormatter::try_new(array, &options)?;
    let integers = array.as_primitive_opt::<Int64Type>();
    let decimals = array.as_primitive_opt::<Decimal128Type>();
    let cell = |row: usize| {
        if array.is_null(row) {
            return Ok(exactly(null.into()));
        }
        match (decimals, integers, array.data_type()) {
            (Some(values), _, DataType::Decimal128(_, scale)) => {
                let value = values.value(row);
                Ok(match units {
                    true if name.ends_with("_usd") => money(value, *scale),
                    true if name.ends_with("_pct") => percent(value, *scale),
                    _ => exactly(decimal_text(value, *scale)),
                })
            }
            (_, Some(values), _) if units => {
                let value = values.value(row);
                let sign = if value < 0 { "-" } else { "" };
                Ok(exactly(format!(
                    "{sign}{}",
                    grouped(&value.unsigned_abs().to_string())
                )))
            }
            _ => Ok(exactly(harmless(formatter.value(row).try_to_string()?))),
        }
    };
    (0..array.len()).map(cell).collect()
}

/// The batch with every decimal as exact text, as JSON and CSV want it.
///
/// # Errors
/// Arrow's, for a batch that is none.
pub(super) fn decimals_as_text(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().map(|array| match array.data_type() {
        DataType::Decimal128(_, scale) => {
            let values = array.as_primitive::<Decimal128Type>().iter();
            let texts = values.map(|value| value.map(|it| decimal_text(it, *scale)));
            Arc::new(texts.collect::<StringArray>()) as ArrayRef
        }
        _ => array.clone(),
    });
    let columns = columns.collect::<Vec<_>>();
    let fields = batch
        .schema()
        .fields()
        .iter()
        .zip(&columns)
        .map(|(field, array)| {
            Arc::new(Field::clone(field).with_data_type(array.data_type().clone()))
        })
        .collect::<Vec<_>>();
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        let check = |value, scale, expected: &str| assert_eq!(decimal_text(value, scale), expected);
        check(0, 12, "0");
        check(1, 12, "0.000000000001");
        check(-1, 12, "-0.000000000001");
        check(1_000_000_000_000, 12, "1");
        check(12_345, 0, "12345");
        check(12, -2, "1200");
        check(i128::MIN, 38, "-1.70141183460469231731687303715884105728");
    }

    #[test]
    fn money_is_short_and_never_nothing() {
        let check = |dollars_e12: i128, expected: &str, exact: bool| {
            let shown = money(dollars_e12, 12);
            assert_eq!(
                (shown.text.as_str(), shown.exact),
                (expected, exact),
                "{dollars_e12}"
            );
        };
        check(0, "$0.00", true);
        check(412_380_000_000_000, "$412.38", true);
        check(412_384_999_999_999, "$412.38", false);
        // Half to even.
        check(1_005_000_000_000, "$1.00", false);
        check(1_015_000_000_000, "$1.02", false);
        check(-1_015_000_000_000, "-$1.02", false);
        check(1_234_567_000_000_000_000, "$1,234,567.00", true);
        check(12_000_000_000, "$0.012", true);
        check(100_000, "$0.0000001", true);
        check(1, "$0.000000000001", true);
        check(123_456_789, "$0.0001235", false);
        check(999_999_999_999, "$1.00", false);
        assert_eq!(money(5, 0).text, "$5.00");
        assert_eq!(money(15, 1).text, "$1.50");
    }

    #[test]
    fn percentages_and_counts() {
        let check = |value, expected: &str| assert_eq!(percent(value, 12).text, expected);
        check(6_382_978_723_404, "6.4 %");
        check(0, "0.0 %");
        check(100_000_000_000_000, "100.0 %");
        check(4_950_000_000_000, "5.0 %");
        check(4_850_000_000_000, "4.8 %");
        assert_eq!(grouped("1"), "1");
        assert_eq!(grouped("123"), "123");
        assert_eq!(grouped("1234567"), "1,234,567");
    }

    #[test]
    fn a_terminal_is_not_written_to_by_the_data() {
        assert_eq!(harmless("a\u{1b}[2Jb\n".into()), "a\\u{1b}[2Jb\\n");
        assert_eq!(harmless("Müller 東京".into()), "Müller 東京");
    }
}
