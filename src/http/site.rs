//! A path → its answer.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use retrytoll_lake::Clock;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::probe::{unhealthy, unready};
use super::request::{
    Answer, BAD, BROKEN, Head, NOT_ALLOWED, NOT_FOUND, OK, TOO_LARGE, UNAVAILABLE,
};
use crate::config::usable::Limits;
use crate::metrics::{CONTENT_TYPE, Metrics, text};
use crate::pipeline::Health;

/// How long the lake's folder may take to be listed.
const LAKE_PATIENCE: Duration = Duration::from_secs(2);

/// A task that works for as long as the process does.
#[derive(Debug)]
pub struct Worker {
    pub name: &'static str,
    pub handle: AbortHandle,
}

/// What is told of, and where it is looked up.
pub struct Site {
    pub health: Arc<Health>,
    pub metrics: Arc<Metrics>,
    pub limits: Limits,
    pub leading: Arc<AtomicBool>,
    pub stop: Arc<AtomicBool>,
    pub clock: Clock,
    /// The Delta log of `attempts`, on local disk.
    pub log: PathBuf,
    pub workers: Vec<Worker>,
}

impl Site {
    /// The whole answer to a request.
    pub(super) async fn answer(&self, head: Head) -> String {
        let (method, path) = match head {
            Head::Partial => return too_large().text(true),
            Head::Bad => {
                let line = "this is not HTTP/1; ask for http://, not https://".to_owned();
                return Answer::lines(BAD, &[line]).text(true);
            }
            Head::Asks { method, path } => (method, path),
        };
        let with_body = method != "HEAD";
        if !matches!(method.as_str(), "GET" | "HEAD") {
            let line = format!("{method} is not known here; use GET");
            return Answer::lines(NOT_ALLOWED, &[line]).text(with_body);
        }
        let answer = match path.as_str() {
            "/metrics" => self.metrics(),
            "/healthz" => self.healthz(),
            "/readyz" => self.readyz().await,
            _ => {
                let line = "here are /metrics, /healthz and /readyz".to_owned();
                Answer::lines(NOT_FOUND, &[line])
            }
        };
        answer.text(with_body)
    }

    fn metrics(&self) -> Answer {
        let is_leading = self.leading.load(Ordering::Acquire);
        let page = text(&self.metrics, self.limits, is_leading, self.clock.now_ms());
        match page {
            Ok(body) => Answer {
                status: OK,
                content_type: CONTENT_TYPE,
                body,
            },
            Err(error) => Answer::lines(BROKEN, &[error.to_string()]),
        }
    }

    fn healthz(&self) -> Answer {
        let reading = self.health.read(self.clock.now_ms());
        let workers = self.workers.iter();
        let gone: Vec<&str> = workers
            .filter(|it| it.handle.is_finished())
            .map(|it| it.name)
            .collect();
        judged(&unhealthy(&reading, self.is_stopping(), &gone))
    }

    async fn readyz(&self) -> Answer {
        let lake = self.lake_problem().await;
        let reading = self.health.read(self.clock.now_ms());
        let connected = self.metrics.brokers.get().map(|it| it.connected);
        judged(&unready(&reading, self.is_stopping(), connected, lake))
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// What is wrong with the lake's folder, if anything.
    async fn lake_problem(&self) -> Option<String> {
        let log = self.log.display();
        match timeout(LAKE_PATIENCE, tokio::fs::read_dir(&self.log)).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(format!("the lake can't be read at {log}: {error}")),
            Err(_) => {
                let seconds = LAKE_PATIENCE.as_secs();
                Some(format!(
                    "the lake did not answer within {seconds} s at {log}"
                ))
            }
        }
    }
}

fn too_large() -> Answer {
    let line = format!("a request's head may have {} bytes", super::HEAD_BYTES_MAX);
    Answer::lines(TOO_LARGE, &[line])
}

fn judged(problems: &[String]) -> Answer {
    match problems {
        [] => Answer::lines(OK, &["ok".to_owned()]),
        _ => Answer::lines(UNAVAILABLE, problems),
    }
}
