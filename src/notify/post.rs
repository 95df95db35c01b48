//! A notice → a POST to a service → its answer.

use std::time::Duration;

use anyhow::Context as _;
use chrono::DateTime;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use retrytoll_core::notify::{Answer, Notice, Service};
use url::Url;

use crate::clock::now_ms;

/// How long a service may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Characters of an answer that are told.
const TOLD_CHARS_MAX: usize = 300;

/// A service and the way to it.
pub struct Target {
    pub service: Service,
    url: Url,
    client: Client,
}

/// What came of a request.
pub struct Posted {
    pub answer: Answer,
    /// The status and the beginning of the answer, or what failed.
    pub why: String,
}

impl Target {
    /// A service at this address.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(service: Service, url: Url) -> anyhow::Result<Self> {
        let client = Client::builder()
            .user_agent(concat!("retrytoll/", env!("CARGO_PKG_VERSION")))
            .timeout(ANSWER_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirected POST would arrive as a GET, and its answer look like success.
            .redirect(Policy::none())
            .build()
            .context("cannot set up HTTP")?;
        Ok(Self {
            service,
            url,
            client,
        })
    }

    /// Sends a notice, once.
    pub async fn post(&self, notice: &Notice) -> Posted {
        let request = self.service.request(notice, now_ms());
        let post = self.client.post(self.url.clone());
        let post = post
            .header(CONTENT_TYPE, request.content_type)
            .body(request.body);
        match post.send().await {
            Ok(response) => self.judge(response).await,
            // The address may hold a secret.
            Err(error) => Posted {
                answer: Answer::Later { hold_ms: None },
                why: format!("{:#}", anyhow::Error::from(error.without_url())),
            },
        }
    }

    async fn judge(&self, mut response: Response) -> Posted {
        let status = response.status().as_u16();
        let header = response.headers().get(RETRY_AFTER);
        let hold_ms = header.and_then(|it| retry_after_ms(it.to_str().ok()?, now_ms()));
        let mut body = Vec::new();
        while body.len() < TOLD_CHARS_MAX * 4 {
            match response.chunk().await {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                // The status is what counts.
                Ok(None) | Err(_) => break,
            }
        }
        Posted {
            answer: Answer::of(&self.service, status, hold_ms),
            why: format!("{status} {}", self.told(&body)),
        }
    }

    /// The beginning of an answer as one line, without our secret.
    fn told(&self, body: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(body).into_owned();
        if let Service::PagerDuty { routing_key } = &self.service {
            text = text.replace(routing_key, "(hidden)");
        }
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        words.chars().take(TOLD_CHARS_MAX).collect()
    }
}

/// `Retry-After`: seconds, or a date.
fn retry_after_ms(text: &str, now_ms: i64) -> Option<i64> {
    if let Ok(seconds) = text.trim().parse::<u32>() {
        return Some(i64::from(seconds) * 1_000);
    }
    let date = DateTime::parse_from_rfc2822(text.trim()).ok()?;
    Some((date.timestamp_millis() - now_ms).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        // 2015-10-21T07:28:00Z.
        let date_ms = 1_445_412_480_000;
        for (text, ms) in [
            ("0", Some(0)),
            (" 120 ", Some(120_000)),
            ("Wed, 21 Oct 2015 07:28:00 GMT", Some(30_000)),
            ("Wed, 21 Oct 2015 07:27:00 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(retry_after_ms(text, date_ms - 30_000), ms, "{text:?}");
        }
    }
}
