//! How an instance does → what is wrong, in words; nothing where all is well.

use crate::pipeline::Reading;

/// The poll loop goes round ten times a second; after this, ms, it hangs.
const POLL_MS_MAX: i64 = 60_000;
/// A commit that takes longer than this, ms, waits for the lake, or dead letters for their topic.
const COMMIT_MS_MAX: i64 = 10_000;

/// What a restart would mend: a thread that is gone, or hangs. Not brokers or a lake that can't be
/// reached; nobody calls a process that is starting or ending ill.
pub fn unhealthy(now: &Reading, is_stopping: bool, gone: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    if is_stopping {
        return problems;
    }
    if let Some(polled_ms) = now.polled_ms {
        let since_ms = now.at_ms - polled_ms;
        if since_ms > POLL_MS_MAX {
            let (seconds, most) = (since_ms / 1_000, POLL_MS_MAX / 1_000);
            problems.push(format!(
                "the poll loop has not gone round for {seconds} s, and {most} s are the most"
            ));
        }
    }
    if now.is_broken {
        problems.push("the writing stage has ended; the log says why".to_owned());
    }
    problems.extend(gone.iter().map(|task| format!("the task {task} has ended")));
    problems
}

/// Why it does not do its work now. `connected` is how many brokers are, if that was told yet;
/// `lake` is what is wrong with the lake's folder.
pub fn unready(
    now: &Reading,
    is_stopping: bool,
    connected: Option<u64>,
    lake: Option<String>,
) -> Vec<String> {
    let mut reasons = Vec::new();
    if is_stopping {
        reasons.push("stopping".to_owned());
    }
    if now.polled_ms.is_none() {
        reasons.push("starting".to_owned());
    } else if !now.is_reading {
        reasons
            .push("waiting for the group's partitions, or for the lake to claim them".to_owned());
    }
    if connected == Some(0) {
        reasons.push("no broker is connected".to_owned());
    }
    reasons.extend(lake);
    let committing_ms = now.committing_since_ms.map(|since| now.at_ms - since);
    if let Some(ms) = committing_ms.filter(|ms| *ms > COMMIT_MS_MAX) {
        let seconds = ms / 1_000;
        reasons.push(format!(
            "a commit has waited {seconds} s for the lake, or for the topic of dead letters"
        ));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_763_596_800_000;

    fn well() -> Reading {
        Reading {
            at_ms: NOW_MS,
            polled_ms: Some(NOW_MS - 20),
            is_reading: true,
            ..Reading::default()
        }
    }

    #[test]
    fn it_is_ill_where_a_thread_is_gone_or_hangs() {
        let hangs = Reading {
            polled_ms: Some(NOW_MS - 61_000),
            ..well()
        };
        let gone = Reading {
            is_broken: true,
            ..well()
        };
        let starts = Reading {
            polled_ms: None,
            is_reading: false,
            ..well()
        };
        let waits = Reading {
            committing_since_ms: Some(NOW_MS - 100_000),
            ..well()
        };
        let none: &[&str] = &[];
        for (reading, tasks, problems) in [
            (well(), none, vec![]),
            (starts, none, vec![]),
            // Slow brokers or a slow lake are no illness of ours.
            (waits, none, vec![]),
            (
                hangs,
                none,
                vec!["the poll loop has not gone round for 61 s, and 60 s are the most"],
            ),
            (
                gone,
                none,
                vec!["the writing stage has ended; the log says why"],
            ),
            (well(), &["alerts"], vec!["the task alerts has ended"]),
        ] {
            assert_eq!(unhealthy(&reading, false, tasks), problems);
        }
        assert_eq!(unhealthy(&gone, true, &["alerts"]), Vec::<String>::new());
    }

    #[test]
    fn it_is_ready_once_it_reads_what_is_its_own() {
        let starts = Reading {
            polled_ms: None,
            is_reading: false,
            ..well()
        };
        let joins = Reading {
            is_reading: false,
            ..well()
        };
        let commits = |ms| Reading {
            committing_since_ms: Some(NOW_MS - ms),
            ..well()
        };
        let lake = Some("the lake is gone".to_owned());
        for (reading, stopping, connected, lake, reasons) in [
            (well(), false, None, None, vec![]),
            (well(), false, Some(1), None, vec![]),
            (commits(10_000), false, Some(1), None, vec![]),
            (starts, false, None, None, vec!["starting"]),
            (
                joins,
                false,
                Some(0),
                None,
                vec![
                    "waiting for the group's partitions, or for the lake to claim them",
                    "no broker is connected",
                ],
            ),
            (
                commits(10_001),
                true,
                Some(1),
                lake,
                vec![
                    "stopping",
                    "the lake is gone",
                    "a commit has waited 10 s for the lake, or for the topic of dead letters",
                ],
            ),
        ] {
            assert_eq!(unready(&reading, stopping, connected, lake), reasons);
        }
    }
}
