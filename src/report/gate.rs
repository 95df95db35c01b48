//! `--fail-over PCT`: the share of the whole window → whether the gate is met, and why.

use std::cmp::Ordering;

use retrytoll_jobs::Share;
use retrytoll_jobs::render::decimal_text;
use retrytoll_jobs::share::{PERCENT_SCALE, parse_percent};

use crate::exit::Exit;

/// The greatest share that passes, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// With 12 digits after the point.
    limit_pct: i128,
}

impl Gate {
    /// The gate of a percentage such as `5` or `7.5`, as clap wants it.
    ///
    /// # Errors
    /// What to give in place of it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let limit = parse_percent(text.strip_suffix('%').unwrap_or(text));
        let limit_pct = limit.ok_or("give a percentage from 0 to 100, such as 5 or 7.5")?;
        Ok(Self { limit_pct })
    }

    /// Judges the share of the whole window; `None` where the window holds no attempt. A share
    /// that is withheld is not over, and it is said.
    #[must_use]
    pub fn judge(self, whole: Option<&Share>) -> (Exit, String) {
        let percent = |value| format!("{} %", decimal_text(value, PERCENT_SCALE));
        let limit = percent(self.limit_pct);
        let Some(whole) = whole else {
            return (
                Exit::Fine,
                format!("gate met: no attempts, so no share is over {limit}"),
            );
        };
        match (whole.share_pct, &whole.note) {
            (None, why) => {
                let why = why.as_deref().unwrap_or("not computable");
                (
                    Exit::Fine,
                    format!("gate not judged: the share is withheld ({why})"),
                )
            }
            (Some(share), _) => match share.cmp(&self.limit_pct) {
                Ordering::Greater => (
                    Exit::GateNotMet,
                    format!("gate not met: {} is over {limit}", percent(share)),
                ),
                _ => (
                    Exit::Fine,
                    format!("gate met: {} is not over {limit}", percent(share)),
                ),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(share_pct: Option<i128>, note: Option<&str>) -> Share {
        Share {
            key: Some("all".into()),
            share_pct,
            low_pct: None,
            high_pct: None,
            band: None,
            note: note.map(Into::into),
            retry_usd: None,
            other_usd: None,
            attempts: 1,
            retries: 0,
            first_attempts: 1,
        }
    }

    #[test]
    fn only_a_share_over_the_limit_fails() {
        let judge = |whole: Option<Share>| Gate::parse("5").expect("gate").judge(whole.as_ref());
        let of = |value| judge(Some(share(Some(value), None)));
        assert_eq!(
            of(5_000_000_000_001),
            (
                Exit::GateNotMet,
                "gate not met: 5.000000000001 % is over 5 %".into()
            )
        );
        assert_eq!(
            of(5_000_000_000_000),
            (Exit::Fine, "gate met: 5 % is not over 5 %".into())
        );
        assert_eq!(
            judge(Some(share(
                None,
                Some("not computable: no success is logged")
            ))),
            (
                Exit::Fine,
                "gate not judged: the share is withheld (not computable: no success is logged)"
                    .into()
            )
        );
        assert_eq!(judge(None).0, Exit::Fine);
    }

    #[test]
    fn a_gate_is_a_percentage() {
        assert!(Gate::parse("7.5%").is_ok());
        assert!(Gate::parse("-1").is_err() && Gate::parse("101").is_err());
    }
}
