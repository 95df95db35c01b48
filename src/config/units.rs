//! "10m" ↔ milliseconds, "48MB" ↔ bytes.

/// Units of time, in ms, greatest first.
const TIME: &[(&str, u64)] = &[
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Units of size, in bytes, greatest first: `MB` is a million bytes, `MiB` 1,048,576.
const SIZE: &[(&str, u64)] = &[
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// Why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A number alone.
    NoUnit,
    /// Neither a number nor a unit of this kind.
    Form,
    /// More than 64 bits hold.
    TooLarge,
}

/// A duration in ms: whole numbers with units, as "10m", "1h30m" or "250ms".
///
/// # Errors
/// A number without a unit, another form, or more than 64 bits of ms.
pub fn duration_ms(text: &str) -> Result<u64, Wrong> {
    let mut rest = text.trim();
    let mut sum = 0_u64;
    loop {
        let (number, unit, next) = split(rest)?;
        let (_, ms) = TIME
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or(Wrong::Form)?;
        let part = number.checked_mul(*ms).ok_or(Wrong::TooLarge)?;
        sum = sum.checked_add(part).ok_or(Wrong::TooLarge)?;
        rest = next;
        if rest.is_empty() {
            return Ok(sum);
        }
    }
}

/// A size in bytes: a whole number with a unit, as "48MB" or "4 MiB".
///
/// # Errors
/// A number without a unit, another form, or more than 64 bits of bytes.
pub fn size_bytes(text: &str) -> Result<u64, Wrong> {
    let (number, unit, rest) = split(text.trim())?;
    let unit = SIZE
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit));
    match unit.filter(|_| rest.is_empty()) {
        Some((_, bytes)) => number.checked_mul(*bytes).ok_or(Wrong::TooLarge),
        None => Err(Wrong::Form),
    }
}

/// The number and the unit at the beginning of a text, and the rest.
fn split(text: &str) -> Result<(u64, &str, &str), Wrong> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    if number.is_empty() {
        return Err(Wrong::Form);
    }
    let rest = rest.trim_start();
    let letters = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    if unit.is_empty() {
        return Err(if rest.is_empty() {
            Wrong::NoUnit
        } else {
            Wrong::Form
        });
    }
    Ok((
        number.parse().map_err(|_| Wrong::TooLarge)?,
        unit,
        rest.trim_start(),
    ))
}

/// A duration in the greatest unit that leaves no fraction.
#[must_use]
pub fn show_duration(ms: u64) -> String {
    show(ms, TIME, "s")
}

/// A size in the greatest unit that leaves no fraction.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    show(bytes, SIZE, "B")
}

fn show(value: u64, units: &[(&str, u64)], of_zero: &str) -> String {
    let exact = units
        .iter()
        .find(|(_, size)| value != 0 && value.is_multiple_of(*size));
    match exact {
        Some((unit, size)) => format!("{}{unit}", value / size),
        None => format!("0{of_zero}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_shown() {
        for (text, ms, shown) in [
            ("5s", 5_000, "5s"),
            ("10m", 600_000, "10m"),
            ("1h30m", 5_400_000, "90m"),
            (" 1d 1ms ", 86_400_001, "86400001ms"),
            ("250ms", 250, "250ms"),
            ("0s", 0, "0s"),
        ] {
            assert_eq!(duration_ms(text), Ok(ms), "{text}");
            assert_eq!(show_duration(ms), shown, "{text}");
            assert_eq!(duration_ms(shown), Ok(ms), "{shown}");
        }
        for (text, wrong) in [
            ("5", Wrong::NoUnit),
            ("1h30", Wrong::NoUnit),
            ("", Wrong::Form),
            ("s", Wrong::Form),
            ("1.5h", Wrong::Form),
            ("-5s", Wrong::Form),
            ("5 parsecs", Wrong::Form),
            ("5S", Wrong::Form),
            ("99999999999999999999s", Wrong::TooLarge),
            ("300000000000d", Wrong::TooLarge),
        ] {
            assert_eq!(duration_ms(text), Err(wrong), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes, shown) in [
            ("48MB", 48_000_000, "48MB"),
            ("4 mib", 4_194_304, "4MiB"),
            ("1GiB", 1_073_741_824, "1GiB"),
            ("1000MB", 1_000_000_000, "1GB"),
            ("1500B", 1_500, "1500B"),
            ("0B", 0, "0B"),
        ] {
            assert_eq!(size_bytes(text), Ok(bytes), "{text}");
            assert_eq!(show_size(bytes), shown, "{text}");
        }
        for (text, wrong) in [
            ("48", Wrong::NoUnit),
            ("48M", Wrong::Form),
            ("1MB1MB", Wrong::Form),
            ("20000000TB", Wrong::TooLarge),
        ] {
            assert_eq!(size_bytes(text), Err(wrong), "{text}");
        }
    }
}
