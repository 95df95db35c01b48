//! Any text is an instant in range that its own text gives again, or none.

use super::*;

/// Checks one text; says whether it is an instant.
///
/// # Panics
/// A promise of [`parse`] or [`text`] is broken.
pub fn check(bytes: &[u8]) -> bool {
    let Ok(given) = std::str::from_utf8(bytes) else {
        return false;
    };
    let Some(instant) = parse(given) else {
        return false;
    };
    assert!((0..END_US).contains(&instant), "{given:?}: {instant}");
    let shown = text(instant);
    let cut = instant - instant % 1_000;
    assert_eq!(parse(&shown), Some(cut), "{given:?} as {shown}");
    assert_eq!(text(cut), shown, "{given:?}");

    // What the text leaves out, by each way to write it.
    let bare = shown.trim_end_matches('Z');
    let micros = instant % 1_000;
    for zone in ["", "z", "+00:00", "-0000"] {
        let whole = format!("{bare}{micros:03}{zone}");
        assert_eq!(parse(&whole), Some(instant), "{given:?} as {whole}");
    }
    // Some zone shows every instant but the first day's with a date of its own.
    if instant < END_US - DAY_US {
        let later = text(instant + 3_600_000_000 * 23 + 60_000_000 * 59);
        let later = format!("{}+23:59", later.trim_end_matches('Z'));
        assert_eq!(parse(&later), Some(cut), "{given:?} as {later}");
    }
    epochs(given, instant);

    let days = i64::from(day_of(instant));
    assert!((days * DAY_US..(days + 1) * DAY_US).contains(&instant));
    assert_eq!(
        parse(&format!("{}T00:00:00Z", &shown[..10])),
        Some(days * DAY_US)
    );
    true
}

/// As a number of each unit it is the same instant, where its size tells the unit.
fn epochs(given: &str, instant: i64) {
    let of = |unit: i64| (instant / unit, instant % unit);
    let (seconds, rest) = of(1_000_000);
    if seconds < 100_000_000_000 {
        assert_eq!(
            parse(&format!("{seconds}.{rest:06}")),
            Some(instant),
            "{given:?}"
        );
    }
    let (millis, rest) = of(1_000);
    if (100_000_000_000..100_000_000_000_000).contains(&millis) {
        assert_eq!(
            parse(&format!("{millis}.{rest:03}9")),
            Some(instant),
            "{given:?}"
        );
    }
    if (100_000_000_000_000..100_000_000_000_000_000).contains(&instant) {
        assert_eq!(parse(&format!("{instant}.")), None, "{given:?}");
        assert_eq!(parse(&instant.to_string()), Some(instant), "{given:?}");
    }
    // ns beyond the year 2262 are more than 63 bits.
    if (100_000_000_000_000..i64::MAX / 1_000).contains(&instant) {
        assert_eq!(parse(&format!("{instant}999")), Some(instant), "{given:?}");
    }
}
