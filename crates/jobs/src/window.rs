//! `--since`, `--until`, `--tz` and `now` → [`Window`], a span of event time, half-open.

use std::fmt;

use arrow::array::timezone::Tz;
use chrono::{DateTime, Datelike, Days, Duration, NaiveDate, NaiveDateTime, Offset, TimeZone, Utc};

use crate::error::JobError;
use crate::hours::Span;

/// A time zone by its name, such as `Europe/Berlin`, or offset, such as `+08:00`.
#[derive(Clone, Debug)]
pub struct Zone {
    name: String,
    zone: Tz,
}

impl Zone {
    /// The zone named `name`.
    ///
    /// # Errors
    /// [`JobError::BadTime`] where there is none.
    pub fn parse(name: &str) -> Result<Self, JobError> {
        let zone = name.parse().map_err(|_| JobError::BadTime {
            option: "--tz",
            value: name.into(),
            reason: "no zone is named so; give a name such as Europe/Berlin, or an offset such as +08:00"
                .into(),
        })?;
        Ok(Self {
            name: name.into(),
            zone,
        })
    }

    /// Coordinated universal time.
    #[must_use]
    pub fn utc() -> Self {
        #[expect(
            clippy::expect_used,
            reason = "the database of zones is built in, and has UTC"
        )]
        Self::parse("UTC").expect("UTC is a zone")
    }

    /// As it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The time in this zone, to the second: `2026-11-01T02:00:00+01:00`.
    #[must_use]
    pub fn show(&self, time: DateTime<Utc>) -> String {
        let local = time.with_timezone(&self.zone);
        match self.name.as_str() {
            "UTC" => local.format("%Y-%m-%dT%H:%M:%SZ").to_string(),
            _ => local.format("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        }
    }

    /// The first day of the month of `now` in this zone.
    #[must_use]
    pub fn month_start(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        let today = now.with_timezone(&self.zone).date_naive();
        self.day_start(today.with_day(1).unwrap_or(today))
    }

    /// Whether its days begin on whole hours of UTC all over `span`.
    pub(crate) fn begins_on_hours(&self, span: Span) -> bool {
        // Where clocks change, they change for months.
        const STEP: Duration = Duration::days(7);
        let instant = |us| DateTime::from_timestamp_micros(us).unwrap_or_default();
        let (mut at, until) = (instant(span.from), instant(span.until));
        loop {
            let offset = self.zone.offset_from_utc_datetime(&at.naive_utc()).fix();
            if offset.local_minus_utc() % 3_600 != 0 {
                return false;
            }
            if at >= until {
                return true;
            }
            at = (at + STEP).min(until);
        }
    }

    /// When `date` begins. Where a clock change leaves out midnight, the first time after it.
    fn day_start(&self, date: NaiveDate) -> DateTime<Utc> {
        let midnight = NaiveDateTime::from(date);
        (0..=96)
            .find_map(|quarters| {
                let local = midnight + Duration::minutes(15 * quarters);
                self.zone.from_local_datetime(&local).earliest()
            })
            .map_or_else(|| midnight.and_utc(), |it| it.with_timezone(&Utc))
    }
}

/// A span of event time, and the zone in which its days and hours are shown.
#[derive(Clone, Debug)]
pub struct Window {
    /// Inclusive.
    pub since: DateTime<Utc>,
    /// Exclusive.
    pub until: DateTime<Utc>,
    /// Where days begin.
    pub zone: Zone,
}

impl Window {
    /// The window a user asked for. `since` and `until` are `7d` before now (also `m`, `h`, `w`),
    /// the start of a date in the zone, or RFC 3339; without them the last 24 hours up to now.
    ///
    /// # Errors
    /// [`JobError::BadTime`] for a text of another form, or an empty span.
    pub fn parse(
        since: Option<&str>,
        until: Option<&str>,
        zone: Zone,
        now: DateTime<Utc>,
    ) -> Result<Self, JobError> {
        let until_at = until.map_or(Ok(now), |text| instant("--until", text, &zone, now))?;
        let since_at = since.unwrap_or("24h");
        let since_at = match duration(since_at) {
            // "7d" alone means up to now; with an end, up to that.
            Some(length) => before("--since", since_at, until_at, length)?,
            None => instant("--since", since_at, &zone, now)?,
        };
        if since_at >= until_at {
            return Err(JobError::BadTime {
                option: "--since",
                value: zone.show(since_at),
                reason: format!(
                    "is not before --until {}: give an earlier time",
                    zone.show(until_at)
                ),
            });
        }
        Ok(Self {
            since: since_at,
            until: until_at,
            zone,
        })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} to {}",
            self.zone.show(self.since),
            self.zone.show(self.until)
        )
    }
}

fn instant(
    option: &'static str,
    text: &str,
    zone: &Zone,
    now: DateTime<Utc>,
) -> Result<DateTime<Utc>, JobError> {
    if let Some(length) = duration(text) {
        return before(option, text, now, length);
    }
    if let Ok(date) = NaiveDate::parse_from_str(text, "%Y-%m-%d") {
        // Far beyond any event, and near where arithmetic on times ends.
        if (1..=9998).contains(&date.year()) && date.checked_add_days(Days::new(2)).is_some() {
            return Ok(zone.day_start(date));
        }
    }
    DateTime::parse_from_rfc3339(text).map(|it| it.with_timezone(&Utc)).map_err(|_| {
        JobError::BadTime {
            option,
            value: text.into(),
            reason: "is no time; give 7d, 24h, a date such as 2026-11-01, or RFC 3339 such as 2026-11-01T08:00:00Z"
                .into(),
        }
    })
}

fn before(
    option: &'static str,
    text: &str,
    end: DateTime<Utc>,
    length: Duration,
) -> Result<DateTime<Utc>, JobError> {
    let start = end.checked_sub_signed(length).filter(|it| it.year() >= 1);
    start.ok_or_else(|| JobError::BadTime {
        option,
        value: text.into(),
        reason: "reaches before the calendar begins: give less".into(),
    })
}

/// `7d` and the like, of minutes, hours, days or weeks; `None` for another form.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(unit_at);
    let count: i64 = count.parse().ok()?;
    match unit {
        "m" => Duration::try_minutes(count),
        "h" => Duration::try_hours(count),
        "d" => Duration::try_days(count),
        "w" => Duration::try_weeks(count),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text)
            .unwrap()
            .with_timezone(&Utc)
    }

    /// The window as text, or the error.
    fn window(since: Option<&str>, until: Option<&str>, zone: &str) -> String {
        let now = at("2026-11-20T10:30:00Z");
        Zone::parse(zone)
            .and_then(|zone| Window::parse(since, until, zone, now))
            .map_or_else(|error| error.to_string(), |window| window.to_string())
    }

    #[test]
    fn windows_of_every_form() {
        let check = |since, until, zone, expected| {
            assert_eq!(
                window(since, until, zone),
                expected,
                "{since:?} {until:?} {zone}"
            );
        };
        check(
            None,
            None,
            "UTC",
            "2026-11-19T10:30:00Z to 2026-11-20T10:30:00Z",
        );
        check(
            Some("7d"),
            None,
            "UTC",
            "2026-11-13T10:30:00Z to 2026-11-20T10:30:00Z",
        );
        check(
            Some("90m"),
            Some("1h"),
            "UTC",
            "2026-11-20T08:00:00Z to 2026-11-20T09:30:00Z",
        );
        check(
            Some("1d"),
            Some("2026-11-02"),
            "UTC",
            "2026-11-01T00:00:00Z to 2026-11-02T00:00:00Z",
        );
        check(
            Some("2026-11-01"),
            Some("2026-11-02T12:00:00+08:00"),
            "+08:00",
            "2026-11-01T00:00:00+08:00 to 2026-11-02T12:00:00+08:00",
        );
    }

    #[test]
    fn days_begin_in_the_zone_even_without_a_midnight() {
        let start = |zone, date| {
            let zone = Zone::parse(zone).unwrap();
            zone.day_start(NaiveDate::parse_from_str(date, "%Y-%m-%d").unwrap())
        };
        assert_eq!(
            start("Europe/Berlin", "2026-07-01"),
            at("2026-06-30T22:00:00Z")
        );
        // Chile's clocks go from 24:00 to 01:00 in September.
        assert_eq!(
            start("America/Santiago", "2024-09-08"),
            at("2024-09-08T04:00:00Z")
        );
        // Of two midnights, the first.
        assert_eq!(
            start("America/Havana", "2024-11-03"),
            at("2024-11-03T04:00:00Z")
        );
        let month = Zone::parse("Asia/Tokyo")
            .unwrap()
            .month_start(at("2026-10-31T15:30:00Z"));
        assert_eq!(month, at("2026-10-31T15:00:00Z"));
    }

    #[test]
    fn what_is_no_window_says_why() {
        let now = "is no time; give 7d, 24h, a date such as 2026-11-01, or RFC 3339 such as 2026-11-01T08:00:00Z";
        for text in [
            "yesterday",
            "7",
            "7y",
            "2026-13-01",
            "2026-11-01 08:00",
            "",
            "٣d",
        ] {
            assert_eq!(
                window(Some(text), None, "UTC"),
                format!("--since {text}: {now}")
            );
        }
        assert_eq!(
            window(Some("2026-11-02"), Some("2026-11-02"), "UTC"),
            "--since 2026-11-02T00:00:00Z: is not before --until 2026-11-02T00:00:00Z: give an earlier time"
        );
        assert!(window(Some("999999999999d"), None, "UTC").contains("give 7d"));
        assert!(window(Some("99999999d"), None, "UTC").contains("before the calendar begins"));
        assert!(window(None, None, "Mars/Olympus").starts_with("--tz Mars/Olympus: no zone"));
    }
}
