//! What librdkafka says by itself → our log, each fault once and then at growing intervals.
//!
//! It goes on by itself, and tells of every try, in each of a process's clients. They all talk to the
//! same brokers, so what is told of one is told of all: one memory for the process.

use std::sync::{Mutex, PoisonError};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use retrytoll_core::said::Said;

use crate::clock::now_ms;

/// Statistics may be older than a fault that was told before them, by up to two of their intervals, ms.
const STALE_MS: i64 = 5_000;

static TOLD: Mutex<Option<Told>> = Mutex::new(None);

#[derive(Default)]
struct Told {
    /// Of connections: over once they stand.
    connections: Said,
    /// When one last failed, ms.
    failed_ms: Option<i64>,
    /// All else: nobody says when it is over.
    others: Said,
}

fn told<T>(work: impl FnOnce(&mut Told) -> T) -> T {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    work(told.get_or_insert_default())
}

fn is_of_connection(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::Resolve
            | RDKafkaErrorCode::SSL
            | RDKafkaErrorCode::Authentication
    )
}

/// An error that no call answers for.
pub fn tell(error: &KafkaError, reason: &str) {
    let code = error.rdkafka_error_code();
    let is_end = code == Some(RDKafkaErrorCode::PartitionEOF);
    if is_end || matches!(error, KafkaError::PartitionEOF(_)) {
        return;
    }
    // The reason names a broker, a thread, a state, and a poll says it once more: of one outage there
    // are dozens.
    let fault = code.map_or_else(|| error.to_string(), |code| format!("{code:?}"));
    let now_ms = now_ms();
    if !code.is_some_and(is_of_connection) {
        if let Some(untold) = told(|told| told.others.again(&fault, now_ms)) {
            tracing::warn!(%error, reason, untold, "kafka");
        }
        return;
    }
    let untold = told(|told| {
        told.failed_ms = Some(now_ms);
        told.connections.again(&fault, now_ms)
    });
    if let Some(untold) = untold {
        tracing::warn!(%error, reason, untold, "kafka is not reached; it is tried again");
    }
}

/// A line of librdkafka's log.
pub fn tell_line(level: RDKafkaLogLevel, facility: &str, line: &str) {
    // A connection that failed is an error that is told already.
    let is_told = facility == "FAIL";
    match level {
        RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
            tracing::debug!(target: "librdkafka", facility, "{line}");
        }
        _ if is_told => tracing::debug!(target: "librdkafka", facility, "{line}"),
        RDKafkaLogLevel::Notice => tracing::info!(target: "librdkafka", facility, "{line}"),
        _ => {
            if let Some(untold) = told(|told| told.others.again(facility, now_ms())) {
                tracing::warn!(target: "librdkafka", facility, untold, "{line}");
            }
        }
    }
}

/// Connections to all brokers stand, by statistics.
pub fn over() {
    let now_ms = now_ms();
    let after_ms = told(|told| {
        let since_ms = now_ms - told.failed_ms?;
        // A clock that was set back must not keep it from being told.
        if (0..STALE_MS).contains(&since_ms) {
            return None;
        }
        told.connections.over(now_ms)
    });
    if let Some(after_ms) = after_ms {
        tracing::info!(after_ms, "kafka answers again");
    }
}
