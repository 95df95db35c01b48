//! The toll and the share of the window, its services, the list of jobs → what `report` shows alone.

use std::io::Write;

use retrytoll_jobs::render::{dollars_text, percent_text, report};
use retrytoll_jobs::{Catalog, Format, JobResult, Share, Style, Toll};

/// Writes the headline as text.
///
/// # Errors
/// Writing.
pub fn write(
    out: &mut dyn Write,
    toll: Option<Toll>,
    whole: &JobResult,
    services: &JobResult,
    catalog: &Catalog,
    style: Style,
) -> anyhow::Result<()> {
    if let Some(toll) = toll {
        writeln!(out, "{}", toll_line(toll))?;
    }
    for line in Share::of(&whole.batches)
        .first()
        .map(lines)
        .unwrap_or_default()
    {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    report(out, services, Format::Table, style)?;
    writeln!(out, "\njobs, each with `retrytoll report JOB`:")?;
    let width = catalog.jobs().map(|job| job.name.len()).max().unwrap_or(0);
    for job in catalog.jobs() {
        writeln!(out, "  {:width$}  {}", job.name, job.meta.meaning)?;
    }
    Ok(())
}

/// The toll in a sentence.
#[must_use]
pub fn toll_line(toll: Toll) -> String {
    let dollars = |value: Option<i128>| value.map_or("unknown".into(), dollars_text);
    let share = toll.share_pct.map_or(String::new(), |pct| {
        format!(", {} of spend", percent_text(pct))
    });
    let retries = toll.retry_share_pct.map_or(String::new(), |pct| {
        format!("; retry share {} (review at 5 %)", percent_text(pct))
    });
    let (expected, confirmed) = (dollars(toll.expected_usd), dollars(toll.confirmed_usd));
    format!("Your toll: {expected} (confirmed {confirmed}){share}{retries}")
}

fn lines(share: &Share) -> Vec<String> {
    let share_line = match (share.share_pct, share.band) {
        (Some(pct), Some(band)) => {
            let bound = |pct: Option<i128>| pct.map_or("unknown".into(), percent_text);
            format!(
                "Your retry-cost share: {} {band} (review at 5 %; at least {}, at most {})",
                percent_text(pct),
                bound(share.low_pct),
                bound(share.high_pct)
            )
        }
        _ => format!(
            "Your retry-cost share: {}",
            share.note.as_deref().unwrap_or("not computable")
        ),
    };
    let dollars = |value: Option<i128>| value.map_or("unknown".into(), dollars_text);
    let spend = share
        .retry_usd
        .zip(share.other_usd)
        .map(|(retry, other)| retry + other);
    let spend_line = format!(
        "Spend, expected: {}, of which retries {} ({} of {} attempts)",
        dollars(spend),
        dollars(share.retry_usd),
        share.retries,
        share.attempts
    );
    vec![share_line, spend_line]
}

#[cfg(test)]
mod tests {
    use super::*;
    use retrytoll_jobs::Band;

    #[test]
    fn a_toll_is_told_with_what_is_confirmed() {
        let toll = Toll {
            expected_usd: Some(412_000_000_000_000),
            confirmed_usd: Some(388_004_900_000_000),
            share_pct: Some(3_100_000_000_000),
            retry_share_pct: Some(6_400_000_000_000),
        };
        assert_eq!(
            toll_line(toll),
            "Your toll: $412.00 (confirmed $388.00), 3.1 % of spend; retry share 6.4 % (review at 5 %)"
        );
        let unknown = Toll {
            expected_usd: None,
            share_pct: None,
            retry_share_pct: None,
            ..toll
        };
        assert_eq!(toll_line(unknown), "Your toll: unknown (confirmed $388.00)");
    }

    #[test]
    fn a_headline_says_share_band_bounds_and_spend() {
        let share = Share {
            key: Some("all".into()),
            share_pct: Some(6_400_000_000_000),
            low_pct: Some(4_100_000_000_000),
            high_pct: None,
            band: Some(Band::Review),
            note: None,
            retry_usd: Some(26_400_000_000_000),
            other_usd: Some(386_100_000_000_000),
            attempts: 1_000,
            retries: 90,
            first_attempts: 910,
        };
        assert_eq!(
            lines(&share),
            [
                "Your retry-cost share: 6.4 % review (review at 5 %; at least 4.1 %, at most unknown)",
                "Spend, expected: $412.50, of which retries $26.40 (90 of 1000 attempts)",
            ]
        );
        let note = Some("not computable: no success is logged".to_owned());
        let withheld = Share {
            share_pct: None,
            band: None,
            retry_usd: None,
            note,
            ..share
        };
        assert_eq!(
            lines(&withheld),
            [
                "Your retry-cost share: not computable: no success is logged",
                "Spend, expected: unknown, of which retries unknown (90 of 1000 attempts)",
            ]
        );
    }
}
