//! What runs beside the pipeline has counted → families of jobs and alerts.

use std::fmt::Result;

use crate::metrics::page::Page;
use crate::metrics::tasks::Counts;

pub fn tasks(page: &mut Page, counts: &Counts, is_leading: bool) -> Result {
    let what = (
        "retrytoll_leader",
        "1 where this instance leads: it alerts, and keeps the lake in order.",
    );
    page.gauge(what, Some(f64::from(u8::from(is_leading))))?;
    let jobs = counts.jobs.iter();
    page.histograms(
        (
            "retrytoll_job_seconds",
            "How long jobs took: looks of alert rules, profile, rollup, maintenance.",
        ),
        jobs.clone()
            .map(|(name, job)| ([("job", name)], job.seconds.clone())),
    )?;
    let what = (
        "retrytoll_job_failures",
        "Jobs that failed; each is tried again.",
    );
    page.counters(
        what,
        jobs.map(|(name, job)| ([("job", name)], job.failures)),
    )?;
    for (name, help, counts) in [
        (
            "retrytoll_alert_transitions",
            "Transitions of alerts committed to the outbox, by rule and state.",
            &counts.decided,
        ),
        (
            "retrytoll_alerts_sent",
            "Transitions of alerts sent and acknowledged, repetitions left out, by rule and state.",
            &counts.sent,
        ),
    ] {
        let series = counts
            .iter()
            .map(|((rule, state), count)| ([("rule", rule.as_str()), ("state", *state)], *count));
        page.counters((name, help), series)?;
    }
    let what = (
        "retrytoll_alert_send_failures",
        "Times that alerts or the heartbeat could not be sent.",
    );
    page.counter(what, counts.send_failures)?;
    let firing = counts.firing.iter().flatten();
    page.gauges(
        ("retrytoll_alerts_firing", "Alerts that fire, by rule."),
        firing.map(|(rule, count)| ([("rule", rule)], *count as f64)),
    )
}
