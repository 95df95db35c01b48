//! A service and a notice → the request that tells it.

use super::{Notice, alertmanager, pagerduty};

/// Whom alerts are sent to. It holds a secret, so it has no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub enum Service {
    PagerDuty {
        /// The integration's key.
        routing_key: String,
    },
    Alertmanager {
        /// How often what fires is sent, ms.
        every_ms: i64,
    },
    Webhook,
}

/// The body of a POST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub content_type: &'static str,
    pub body: String,
}

impl Service {
    /// What tells it of a notice, at this time, ms.
    #[must_use]
    pub fn request(&self, notice: &Notice, now_ms: i64) -> Request {
        let (content_type, body) = match self {
            Self::PagerDuty { routing_key } => {
                ("application/json", pagerduty::body(notice, routing_key))
            }
            Self::Alertmanager { every_ms } => (
                "application/json",
                alertmanager::body(notice, now_ms, *every_ms),
            ),
            // As it came, to the byte.
            Self::Webhook => ("application/cloudevents+json", notice.body.clone()),
        };
        Request { content_type, body }
    }

    /// Whether an answer's status says that it was taken. PagerDuty has one such status: another
    /// one is the answer of something that is not PagerDuty.
    #[must_use]
    pub fn is_accepted(&self, status: u16) -> bool {
        match self {
            Self::PagerDuty { .. } => status == 202,
            Self::Alertmanager { .. } | Self::Webhook => (200..300).contains(&status),
        }
    }
}
