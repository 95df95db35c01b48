//! `--log` → log lines on stderr: text on a terminal, JSON otherwise.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::exit::Stop;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// One JSON object a line, for machines.
    Json,
    Text {
        colour: bool,
    },
}

/// What is logged: `info`, or `warn,retrytoll=debug`.
///
/// # Errors
/// `words` is no filter.
pub fn filter(words: &str) -> Result<EnvFilter, Stop> {
    let wrong = |why: String| {
        Stop::usage(
            format!("--log {words:?} is no filter: {why}"),
            "use error, warn, info, debug or trace, by target as warn,retrytoll=debug",
        )
    };
    // A single unknown word would be taken for a target, and log everything.
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let alone = words.split(',').find(|word| {
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric());
        plain && !levels.contains(&word.to_ascii_lowercase().as_str())
    });
    if let Some(word) = alone {
        return Err(wrong(format!("{word:?} is no level")));
    }
    EnvFilter::try_new(words).map_err(|error| wrong(error.to_string()))
}

/// Begins to log. A second call changes nothing.
pub fn start(filter: EnvFilter, look: Look) {
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let begun = match look {
        Look::Json => registry.with(layer.json().flatten_event(true)).try_init(),
        Look::Text { colour } => registry.with(layer.with_ansi(colour)).try_init(),
    };
    if begun.is_err() {
        tracing::debug!("logging had begun already");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_level_or_levels_by_target() {
        for words in [
            "info",
            "WARN",
            "warn,retrytoll=debug",
            "off",
            "info,librdkafka=trace",
        ] {
            assert!(filter(words).is_ok(), "{words}");
        }
        for words in ["verbose", "info,loud", "retrytoll=loud", ""] {
            assert!(filter(words).is_err(), "{words:?}");
        }
    }
}
