//! text or number → µs since 1970 in UTC.
//!
//! RFC 3339 (also with a space for the `T`, and without a zone, which then is UTC), or an epoch
//! in s, ms, µs or ns, told apart by size: a value below 10^11 is seconds (until the year 5138),
//! below 10^14 ms, below 10^17 µs, else ns. Fractions are kept to the µs and cut there.

#[cfg(any(test, feature = "contract"))]
pub(crate) mod contract;

/// Microseconds in a day.
pub const DAY_US: i64 = 86_400_000_000;
/// The years an instant may lie in: Parquet, Arrow and every reader hold these.
const YEARS: std::ops::RangeInclusive<i64> = 1970..=9999;
/// The first µs after [`YEARS`].
const END_US: i64 = 253_402_300_800_000_000;

/// Reads an instant; `None` where the text is none, or lies outside the years 1970 to 9999.
///
/// ```
/// use retrytoll_core::timestamp::parse;
/// assert_eq!(parse("2026-11-01T01:00:00.5+08:00"), parse("2026-10-31T17:00:00.5Z"));
/// assert_eq!(parse("1788300000.12"), Some(1_788_300_000_120_000));
/// assert_eq!(parse("1788300000120"), Some(1_788_300_000_120_000));
/// ```
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let instant = match bytes.get(4) {
        Some(b'-') if bytes[0].is_ascii_digit() => parse_rfc3339(bytes)?,
        _ => parse_epoch(bytes)?,
    };
    (0..END_US).contains(&instant).then_some(instant)
}

/// An instant as RFC 3339 in UTC, cut to the ms.
///
/// ```
/// use retrytoll_core::timestamp::text;
/// assert_eq!(text(1_788_300_000_123_456), "2026-09-01T22:00:00.123Z");
/// ```
#[must_use]
pub fn text(instant_us: i64) -> String {
    let (year, month, day) = civil_from_days(instant_us.div_euclid(DAY_US));
    let ms = instant_us.rem_euclid(DAY_US) / 1_000;
    let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
    let (second, ms) = (ms / 1_000 % 60, ms % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The days since 1970 of an instant, for the partition date.
#[must_use]
pub fn day_of(instant_us: i64) -> i32 {
    instant_us.div_euclid(DAY_US) as i32
}

fn parse_epoch(bytes: &[u8]) -> Option<i64> {
    let (whole, fraction) = match bytes.iter().position(|&byte| byte == b'.') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &b""[..]),
    };
    let whole_digits = whole.len();
    if whole_digits == 0 || whole_digits > 19 || whole_digits < bytes.len() && fraction.is_empty() {
        return None;
    }
    let value = digits(whole)?;
    // How many digits of the fraction reach a µs.
    let (scale, reach) = match value {
        0..100_000_000_000 => (1_000_000, 6),
        100_000_000_000..100_000_000_000_000 => (1_000, 3),
        100_000_000_000_000..100_000_000_000_000_000 => (1, 0),
        _ => {
            digits_or_none(fraction)?;
            return Some(value / 1_000);
        }
    };
    value
        .checked_mul(scale)?
        .checked_add(fraction_us(fraction, reach)?)
}

/// The first `reach` digits of a fraction as an integer of that many digits.
fn fraction_us(fraction: &[u8], reach: usize) -> Option<i64> {
    digits_or_none(fraction)?;
    let kept = &fraction[..fraction.len().min(reach)];
    let value = if kept.is_empty() { 0 } else { digits(kept)? };
    Some(value * 10_i64.pow((reach - kept.len()) as u32))
}

fn digits_or_none(bytes: &[u8]) -> Option<()> {
    bytes.iter().all(u8::is_ascii_digit).then_some(())
}

fn digits(bytes: &[u8]) -> Option<i64> {
    digits_or_none(bytes)?;
    bytes.iter().try_fold(0_i64, |sum, byte| {
        sum.checked_mul(10)?.checked_add(i64::from(byte - b'0'))
    })
}

fn parse_rfc3339(bytes: &[u8]) -> Option<i64> {
    let separated = bytes.len() >= 19
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && matches!(bytes[10], b'T' | b't' | b' ')
        && bytes[13] == b':'
        && bytes[16] == b':';
    if !separated {
        return None;
    }
    let number = |from: usize, to: usize| digits(&bytes[from..to]);
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    // A leap second (:60) is the next second, as POSIX time has it.
    let possible = YEARS.contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !possible {
        return None;
    }
    let (fraction, zone) = split_fraction(&bytes[19..])?;
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    let offset_s = zone_offset_s(zone)?;
    Some((seconds - offset_s) * 1_000_000 + fraction)
}

/// The fraction in µs, and what follows it.
fn split_fraction(rest: &[u8]) -> Option<(i64, &[u8])> {
    match rest.first() {
        Some(b'.' | b',') => {
            let length = rest[1..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            if length == 0 {
                return None;
            }
            Some((fraction_us(&rest[1..=length], 6)?, &rest[1 + length..]))
        }
        _ => Some((0, rest)),
    }
}

/// What to take from a local time to have UTC, in seconds.
fn zone_offset_s(zone: &[u8]) -> Option<i64> {
    let (sign, hours, minutes) = match zone {
        b"" | b"Z" | b"z" => return Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] | [sign @ (b'+' | b'-'), h1, h2, m1, m2] => {
            (sign, digits(&[*h1, *h2])?, digits(&[*m1, *m2])?)
        }
        _ => return None,
    };
    if hours > 23 || minutes > 59 {
        return None;
    }
    let offset = hours * 3_600 + minutes * 60;
    Some(if *sign == b'-' { -offset } else { offset })
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar, by counting years from March
/// (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date of a day: [`days_from_civil`] the other way round (`civil_from_days` there).
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let leaps = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<i64>) {
        assert_eq!(parse(text), expected, "{text}");
    }

    // 2026-11-01T00:00:00Z is 20,758 days after 1970-01-01: 56 years of 365 days, 14 leap days
    // (1972 to 2024), and 304 days from January to October.
    const NOVEMBER: i64 = (56 * 365 + 14 + 304) * DAY_US;

    #[test]
    fn zones_give_utc() {
        let hour = 3_600_000_000;
        check("2026-11-01T00:00:00Z", Some(NOVEMBER));
        check("2026-11-01t00:00:00z", Some(NOVEMBER));
        check("2026-11-01 00:00:00", Some(NOVEMBER));
        check("2026-11-01T08:00:00+08:00", Some(NOVEMBER));
        check("2026-10-31T18:30:00-05:30", Some(NOVEMBER));
        check("2026-10-31T18:30:00-0530", Some(NOVEMBER));
        // New York's clocks went from 02:00 to 03:00 on 2026-03-08: the offsets say so.
        check("2026-03-08T01:59:59-05:00", parse("2026-03-08T06:59:59Z"));
        check("2026-03-08T03:00:00-04:00", parse("2026-03-08T07:00:00Z"));
        check("2026-11-01T01:00:00.000001Z", Some(NOVEMBER + hour + 1));
        check(
            "2026-11-01T01:00:00.9999999Z",
            Some(NOVEMBER + hour + 999_999),
        );
        check("2026-10-31T23:59:60Z", Some(NOVEMBER));
    }

    #[test]
    fn epochs_are_told_apart_by_size() {
        let expected = Some(1_788_300_000_123_456);
        check("1788300000.123456", expected);
        check("1788300000.1234569", expected);
        check("1788300000123.456", expected);
        check("1788300000123456", expected);
        check("1788300000123456.7", expected);
        check("1788300000123456789", expected);
        check("0", Some(0));
        check("99999999999", Some(99_999_999_999_000_000));
        check("100000000000", Some(100_000_000_000_000));
    }

    #[test]
    fn calendars_have_edges() {
        check("1970-01-01T00:00:00Z", Some(0));
        check("2000-02-29T00:00:00Z", Some((30 * 365 + 7 + 59) * DAY_US));
        check("9999-12-31T23:59:59Z", Some(END_US - 1_000_000));
        check("9999-12-31T23:59:59-00:01", None);
        check("1970-01-01T00:00:00+00:01", None);
        check("2023-02-29T00:00:00Z", None);
        check("2100-02-29T00:00:00Z", None);
        check("2026-13-01T00:00:00Z", None);
        check("2026-04-31T00:00:00Z", None);
        check("2026-01-01T24:00:00Z", None);
    }

    #[test]
    fn other_text_is_no_instant() {
        for text in [
            "",
            "now",
            "-1",
            "1e9",
            "1788300000.",
            ".5",
            "NaN",
            "2026-11-01",
            "2026-11-01T00:00Z",
            "2026-11-01T00:00:00.Z",
            "2026-11-01T00:00:00+8",
            "2026-11-01T00:00:00+25:00",
            "2026-11-01T00:00:00Zz",
            "99999999999999999999",
            "1788300000123456789.x",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn a_text_is_read_as_the_same_instant() {
        for ms in [
            0,
            1,
            999,
            951_782_400_000,
            1_788_300_000_120,
            END_US / 1_000 - 1,
        ] {
            assert_eq!(parse(&text(ms * 1_000)), Some(ms * 1_000), "{ms}");
        }
        assert_eq!(text(-1), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_last() {
        let mut days = 0;
        for year in 1970..2370 {
            for month in 1..=12 {
                for day in 1..=days_in(year, month) {
                    assert_eq!(
                        days_from_civil(year, month, day),
                        days,
                        "{year}-{month}-{day}"
                    );
                    assert_eq!(civil_from_days(days), (year, month, day), "{days}");
                    days += 1;
                }
            }
        }
        assert_eq!(days, 146_097);
    }
}
