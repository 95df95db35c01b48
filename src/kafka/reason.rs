//! What librdkafka logs → why there is no connection, and which key to look at.
//!
//! Its errors only say that time ran out; the reason stands in its log, in its own words for its
//! own settings.

use std::sync::Mutex;
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};

use crate::exit::Stop;

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub text: String,
    /// What to do.
    pub hint: &'static str,
    /// Another try would end in the same way.
    is_final: bool,
}

/// Words of librdkafka, what they mean in ours ("" where its own are clear), and what to do.
const KNOWN: &[(&str, &str, &str)] = &[
    (
        "certificate verify failed",
        "the broker's certificate can't be trusted",
        "is it signed by what kafka.ssl_ca_file holds, still valid, and made out to the host in \
         kafka.bootstrap?",
    ),
    ("alert bad certificate", CERTIFICATE.0, CERTIFICATE.1),
    ("alert certificate", CERTIFICATE.0, CERTIFICATE.1),
    ("alert unknown ca", CERTIFICATE.0, CERTIFICATE.1),
    (
        "mechanism handshake failed",
        "",
        "set kafka.sasl_mechanism to one that the listener has",
    ),
    (
        "SASL authentication error",
        "",
        "correct kafka.sasl_username and the password (RETRYTOLL_KAFKA_SASL_PASSWORD, or \
         kafka.sasl_password_file), and kafka.sasl_mechanism to one that the user has",
    ),
    (
        "connecting to a PLAINTEXT broker listener",
        "the listener does not talk TLS",
        "set kafka.security_protocol to plaintext or sasl_plaintext, or name a listener with TLS in \
         kafka.bootstrap",
    ),
    (
        "must be >= `session.timeout.ms`",
        "max.poll.interval.ms is less than kafka.session_timeout",
        "correct kafka.session_timeout, or max.poll.interval.ms of [kafka.properties]",
    ),
    (
        "ssl.ca.location failed",
        "kafka.ssl_ca_file holds no certificate",
        "put certificates into it, in PEM",
    ),
    (
        "ssl.certificate.location failed",
        "kafka.ssl_cert_file holds no certificate",
        "put the client's certificate into it, in PEM",
    ),
    (
        "ssl.key.location failed",
        "kafka.ssl_key_file can't be read as a key",
        "put the private key into it, in PEM; for one with a password set \
         kafka.ssl_key_password_file, or RETRYTOLL_KAFKA_SSL_KEY_PASSWORD",
    ),
];

const CERTIFICATE: (&str, &str) = (
    "the broker refuses this client's certificate, or that there is none",
    "set kafka.ssl_cert_file and kafka.ssl_key_file to a certificate that the broker trusts",
);

/// What a listener does that is talked to in another way; also one that goes down. Which of these is
/// told depends on whether it did so before we wrote.
const HUNG_UP: [&str; 3] = ["Disconnected", "Broken pipe", "Connection reset"];
const HUNG_UP_HINT: &str = "set kafka.security_protocol to what the listener talks: ssl or sasl_ssl with TLS, sasl_plaintext \
     or sasl_ssl where it wants a login; is the broker up?";

const ANYTHING: &str = "is kafka.bootstrap right, is the broker up, and does \
                        kafka.security_protocol fit its listener?";

impl Reason {
    /// Of a line of librdkafka's, or of its error's text.
    pub fn of(line: &str) -> Self {
        match KNOWN.iter().find(|(mark, ..)| line.contains(mark)) {
            Some((_, text, hint)) => Self {
                text: if text.is_empty() { bare(line) } else { text }.to_owned(),
                hint,
                is_final: true,
            },
            None => Self::passing(bare(line)),
        }
    }

    /// What another try may mend.
    fn passing(text: &str) -> Self {
        let hung_up = HUNG_UP.iter().any(|mark| text.contains(mark));
        let text = match hung_up && !text.contains(HUNG_UP[0]) {
            true => format!("{} ({text})", HUNG_UP[0]),
            false => text.to_owned(),
        };
        let hint = if hung_up { HUNG_UP_HINT } else { ANYTHING };
        Self {
            text,
            hint,
            is_final: false,
        }
    }
}

/// A line without its thread and broker, which we name ourselves, and without the time it took.
fn bare(line: &str) -> &str {
    let line = line.strip_prefix("[thrd:").map_or(line, |rest| {
        rest.split_once("]: ").map_or(line, |(_, text)| text)
    });
    let line = match line.split_once(": ") {
        Some((broker, text)) if broker.contains('/') && !broker.contains(' ') => text,
        _ => line,
    };
    line.rsplit_once(" (after ").map_or(line, |(text, _)| text)
}

/// A client that could not even be made: a file of the configuration is wrong.
pub fn not_made(error: &KafkaError) -> Stop {
    let Reason { text, hint, .. } = Reason::of(&error.to_string());
    Stop::usage(text, hint)
}

/// Keeps the last reason that librdkafka logged, and tells nothing else.
#[derive(Default)]
pub struct Reasons(Mutex<Option<Reason>>);

impl Reasons {
    fn keep(&self, line: &str) {
        // The last word is always that all brokers are down, which is no reason.
        if line.ends_with("brokers are down") {
            return;
        }
        if let Ok(mut last) = self.0.lock() {
            *last = Some(Reason::of(line));
        }
    }
}

impl ClientContext for Reasons {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, line: &str) {
        tracing::debug!(target: "librdkafka", facility, "{line}");
        if matches!(facility, "FAIL" | "ERROR") {
            self.keep(line);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, reason, "error");
        self.keep(reason);
    }
}

impl ConsumerContext for Reasons {}

/// A consumer that is there to ask, not to read.
///
/// # Errors
/// As [`not_made`].
pub fn asker(mut client: ClientConfig) -> Result<BaseConsumer<Reasons>, KafkaError> {
    // A listener that hangs up is told as information.
    client.set_log_level(RDKafkaLogLevel::Info);
    client.create_with_context(Reasons::default())
}

/// The first try; each further one may take twice as long.
const FIRST_TRY: Duration = Duration::from_secs(1);

/// The answer to `question`, asked again until `timeout`, or until it is known why there can be
/// none.
///
/// # Errors
/// Why there is none.
pub fn ask<T>(
    asker: &BaseConsumer<Reasons>,
    timeout: Duration,
    question: impl Fn(Duration) -> KafkaResult<T>,
) -> Result<T, Reason> {
    let (mut left, mut wait) = (timeout, FIRST_TRY);
    loop {
        let this_time = wait.min(left);
        let error = match question(this_time) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let reason = last(asker);
        left -= this_time;
        match reason {
            Some(reason) if reason.is_final || left.is_zero() => return Err(reason),
            None if left.is_zero() => return Err(Reason::of(&error.to_string())),
            _ => wait *= 2,
        }
    }
}

/// The last reason: librdkafka tells by events, which wait to be polled.
fn last(asker: &BaseConsumer<Reasons>) -> Option<Reason> {
    const EVENTS_MAX: usize = 100;
    for _ in 0..EVENTS_MAX {
        if asker.poll(Duration::ZERO).is_none() {
            break;
        }
    }
    asker.context().0.lock().ok()?.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_wrong_and_what_to_do() {
        let verify = "[thrd:ssl://127.0.0.1:9/bootstrap]: ssl://127.0.0.1:9/bootstrap: SSL \
                      handshake failed: error:0A000086:SSL routines::certificate verify failed: \
                      broker certificate could not be verified (after 21ms in state SSL_HANDSHAKE)";
        let reason = Reason::of(verify);
        assert_eq!(reason.text, "the broker's certificate can't be trusted");
        assert!(reason.hint.contains("kafka.ssl_ca_file") && reason.is_final);

        let login = "[thrd:sasl_ssl://a:9/bootstrap]: sasl_ssl://a:9/bootstrap: SASL authentication \
                     error: Authentication failed: Invalid username or password (after 4ms in \
                     state AUTH_REQ)";
        let reason = Reason::of(login);
        let text = "SASL authentication error: Authentication failed: Invalid username or password";
        assert_eq!(reason.text, text);
        assert!(reason.hint.contains("RETRYTOLL_KAFKA_SASL_PASSWORD"));
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        let refused = "[thrd:a:9/bootstrap]: a:9/bootstrap: Connect to ipv4#127.0.0.1:9 failed: \
                       Connection refused (after 0ms in state CONNECT)";
        let reason = Reason::of(refused);
        let text = "Connect to ipv4#127.0.0.1:9 failed: Connection refused";
        assert_eq!((reason.text.as_str(), reason.is_final), (text, false));
        assert_eq!(reason.hint, ANYTHING);
        // A listener that hangs up, before we write and after it.
        let waiting = "[thrd:ssl://a:9/bootstrap]: ssl://a:9/bootstrap: Disconnected: verify that \
                       security.protocol is correctly configured (after 3ms in state APIVERSION_QUERY)";
        let writing = "[thrd:ssl://a:9/bootstrap]: ssl://a:9/bootstrap: Send failed: \
                       error:80000020:system library::Broken pipe: tls_retry_write_records failure \
                       (after 3ms in state APIVERSION_QUERY)";
        let text = "Disconnected (Send failed: error:80000020:system library::Broken pipe: \
                    tls_retry_write_records failure)";
        assert_eq!(Reason::of(writing).text, text);
        for line in [waiting, writing] {
            let reason = Reason::of(line);
            assert!(reason.text.starts_with("Disconnected"), "{}", reason.text);
            assert!(reason.hint.contains("where it wants a login") && !reason.is_final);
        }
        assert_eq!(
            Reason::of("odd words: and more").text,
            "odd words: and more"
        );
    }
}
