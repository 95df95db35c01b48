//! text → exact dollars. Never through a float.

use std::fmt;
use std::str::FromStr;

/// Digits after the point.
pub const SCALE: u32 = 12;
/// One dollar.
pub const DOLLAR: i128 = 10_i128.pow(SCALE);
/// The greatest amount that a row's column, `Decimal128(18,12)`, holds, less one unit of 10^-12
/// dollars: below a million dollars.
pub const ROW_MAX: i128 = 10_i128.pow(18) - 1;

/// An amount in dollars, scaled by 10^12.
///
/// ```
/// use retrytoll_core::money::Usd;
/// let tiny: Usd = "1e-7".parse()?;
/// assert_eq!((0..1_000_000).map(|_| tiny.0).sum::<i128>(), "0.10".parse::<Usd>()?.0);
/// assert_eq!(tiny.to_string(), "0.0000001");
/// # Ok::<(), retrytoll_core::money::AmountError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Usd(pub i128);

/// Why text is no amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    #[error("not a decimal number")]
    NotDecimal,
    #[error("more digits after the point than the {0} that are kept; round it")]
    TooFine(u32),
    #[error("too large for its column; is the unit right?")]
    TooLarge,
}

impl FromStr for Usd {
    type Err = AmountError;

    /// Decimal text, with an exponent or without: `12`, `0.0015`, `1e-7`.
    ///
    /// # Errors
    /// Other text (`NaN`, `inf`, ``), a digit below 10^-12, or a million dollars and more.
    fn from_str(text: &str) -> Result<Self, AmountError> {
        let amount = parse_scaled(text, SCALE)?;
        if amount.abs() > ROW_MAX {
            Err(AmountError::TooLarge)
        } else {
            Ok(Self(amount))
        }
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let amount = self.0.unsigned_abs();
        let (whole, fraction) = (amount / DOLLAR as u128, amount % DOLLAR as u128);
        if fraction == 0 {
            return write!(out, "{sign}{whole}");
        }
        let digits = format!("{fraction:012}");
        write!(out, "{sign}{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// Decimal text times 10^`scale`, exactly.
///
/// # Errors
/// Other text, a digit too fine for the scale, or a value beyond 38 digits.
pub fn parse_scaled(text: &str, scale: u32) -> Result<i128, AmountError> {
    let (value, places) = scaled(text, scale)?;
    match power_of_ten(places) {
        Some(power) if value % power == 0 => Ok(value / power),
        _ if value == 0 => Ok(0),
        _ => Err(AmountError::TooFine(scale)),
    }
}

/// Decimal text times 10^`scale`, what is finer rounded once, ties to the even neighbour.
///
/// ```
/// use retrytoll_core::money::parse_rounded;
/// assert_eq!(parse_rounded("2.50e-2", 2), Ok(2));
/// assert_eq!(parse_rounded("0.0251", 2), Ok(3));
/// ```
///
/// # Errors
/// Other text, or a value beyond 38 digits.
pub fn parse_rounded(text: &str, scale: u32) -> Result<i128, AmountError> {
    let (value, places) = scaled(text, scale)?;
    let power = power_of_ten(places);
    Ok(power.map_or(0, |power| divide_half_even(value, power)))
}

/// A value and the power of ten that it is still to be divided by.
fn scaled(text: &str, scale: u32) -> Result<(i128, i64), AmountError> {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => {
            let exponent: i32 = text[at + 1..]
                .parse()
                .map_err(|_| AmountError::NotDecimal)?;
            (&text[..at], exponent)
        }
        None => (text, 0),
    };
    let (negative, digits) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut all = whole.bytes().chain(fraction.bytes());
    if whole.len() + fraction.len() == 0 || !all.all(|byte| byte.is_ascii_digit()) {
        return Err(AmountError::NotDecimal);
    }
    // Zeros at the end say nothing, and may be many.
    let fraction = fraction.trim_end_matches('0');
    let mut value = 0_i128;
    for byte in whole.bytes().chain(fraction.bytes()) {
        let digit = i128::from(byte - b'0');
        value = value
            .checked_mul(10)
            .and_then(|it| it.checked_add(digit))
            .ok_or(AmountError::TooLarge)?;
    }
    let value = if negative { -value } else { value };
    let places = i64::from(exponent) + i64::from(scale) - fraction.len() as i64;
    if places <= 0 || value == 0 {
        return Ok((value, -places));
    }
    let value = power_of_ten(places).and_then(|power| value.checked_mul(power));
    Ok((value.ok_or(AmountError::TooLarge)?, 0))
}

/// 10^`places`, where that fits; 1 for what is not positive.
fn power_of_ten(places: i64) -> Option<i128> {
    let places = u32::try_from(places.max(0)).ok()?;
    10_i128.checked_pow(places)
}

/// `value / divisor`, ties to the even neighbour; `divisor` is positive.
#[must_use]
pub fn divide_half_even(value: i128, divisor: i128) -> i128 {
    let (quotient, rest) = (value.div_euclid(divisor), value.rem_euclid(divisor));
    match rest.cmp(&(divisor - rest)) {
        std::cmp::Ordering::Less => quotient,
        std::cmp::Ordering::Greater => quotient + 1,
        std::cmp::Ordering::Equal => quotient + quotient.rem_euclid(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<i128, AmountError>) {
        assert_eq!(text.parse::<Usd>().map(|usd| usd.0), expected, "{text}");
    }

    #[test]
    fn decimal_text_is_exact() {
        check("1", Ok(DOLLAR));
        check("-1.5", Ok(-3 * DOLLAR / 2));
        check("0.0016150000000000", Ok(1_615_000_000));
        check("1e-7", Ok(100_000));
        check("1.5E+2", Ok(150 * DOLLAR));
        check("0e99", Ok(0));
        check("1000e-3", Ok(DOLLAR));
        check("999999.999999999999", Ok(ROW_MAX));
        check("0.000000000001", Ok(1));
        check(&format!("0.5{}", "0".repeat(60)), Ok(DOLLAR / 2));
        check(&"0".repeat(60), Ok(0));
    }

    #[test]
    fn what_is_no_amount_says_why() {
        for text in [
            "", "-", ".", "NaN", "inf", "1,5", "0x1", "1e", "e5", "--1", "1 ", "\u{664}",
        ] {
            check(text, Err(AmountError::NotDecimal));
        }
        check("0.0000000000001", Err(AmountError::TooFine(12)));
        check("1e-99", Err(AmountError::TooFine(12)));
        check("1000000", Err(AmountError::TooLarge));
        check("1e99999999", Err(AmountError::TooLarge));
        check(&"9".repeat(60), Err(AmountError::TooLarge));
    }

    #[test]
    fn display_cuts_no_digit() {
        for text in [
            "0",
            "0.000000000001",
            "12.34",
            "-0.5",
            "999999.999999999999",
        ] {
            assert_eq!(
                text.parse::<Usd>().map(|usd| usd.to_string()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn ties_go_to_the_even_neighbour() {
        let rounded = [-15, -5, 4, 5, 6, 15, 25].map(|value| divide_half_even(value, 10));
        assert_eq!(rounded, [-2, 0, 0, 0, 1, 2, 2]);
        let divisor = 10_i128.pow(38);
        assert_eq!(divide_half_even(divisor / 2 + 1, divisor), 1);
    }

    #[test]
    fn what_is_too_fine_is_rounded_only_where_asked() {
        for (text, expected) in [
            ("0.12345", Ok(12)),
            ("0.125", Ok(12)),
            ("0.135", Ok(14)),
            ("-0.125", Ok(-12)),
            ("1e-99", Ok(0)),
            ("7", Ok(700)),
            ("1e40", Err(AmountError::TooLarge)),
            ("NaN", Err(AmountError::NotDecimal)),
        ] {
            assert_eq!(parse_rounded(text, 2), expected, "{text}");
        }
    }
}
