//! An error → what the user reads, and the exit code.
//!
//! `error:` says what went wrong, each `cause:` why, `hint:` what to do. A broken pipe is
//! success: who reads no more has enough.

use std::error::Error;
use std::io::{ErrorKind, Write};

use crate::config::Mistakes;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Fine,
    Failed,
    /// The command line or the configuration is wrong: trying again will not help.
    Usage,
    /// All went well, and a gate that was asked for (`--fail-over`) is not met.
    GateNotMet,
}

impl Exit {
    /// What the system is told.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Fine => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::GateNotMet => 3,
        }
    }

    /// Ends the process at once, without what libraries registered for its end: OpenSSL would free
    /// what a thread of librdkafka, about to connect, is reading.
    pub fn end(self) -> ! {
        // Who reads no more has enough.
        let _ = std::io::stdout().flush();
        signal_hook::low_level::exit(self.code())
    }
}

/// An error of the shell, with what to do and how the program ends.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Stop {
    message: String,
    hint: String,
    exit: Exit,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Stop {
    /// Something failed that may go well another time.
    #[must_use]
    pub fn failed(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
            exit: Exit::Failed,
            source: None,
        }
    }

    /// The command line is wrong.
    #[must_use]
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            ..Self::failed(message, hint)
        }
    }

    /// The same, because of `cause`.
    #[must_use]
    pub fn because(self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            source: Some(cause.into()),
            ..self
        }
    }
}

/// Writes the error with its causes and hints, and says how to end.
pub fn tell(error: &anyhow::Error, out: &mut dyn Write) -> Exit {
    let mut exit = Exit::Failed;
    let mut hints = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    for cause in error.chain() {
        if let Some(io) = cause.downcast_ref::<std::io::Error>()
            && io.kind() == ErrorKind::BrokenPipe
        {
            return Exit::Fine;
        }
        if let Some(stop) = cause.downcast_ref::<Stop>() {
            exit = stop.exit;
            hints.push(stop.hint.as_str());
        }
        if cause.is::<Mistakes>() {
            exit = Exit::Usage;
        }
        // Some libraries say their cause in their own text too.
        let text = cause.to_string();
        if !lines.last().is_some_and(|before| before.contains(&text)) {
            lines.push(text);
        }
    }
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        text.push_str(if at == 0 { "error: " } else { "  cause: " });
        text.push_str(line);
        text.push('\n');
    }
    for hint in hints.iter().filter(|hint| !hint.is_empty()) {
        text.push_str(&format!("hint: {hint}\n"));
    }
    // Nobody is left to tell where stderr is gone.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    exit
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::config::Mistake;

    fn told(error: impl Into<anyhow::Error>) -> (Exit, String) {
        let mut out = Vec::new();
        let exit = tell(&error.into(), &mut out);
        (exit, String::from_utf8(out).expect("text"))
    }

    #[test]
    fn an_error_says_what_why_and_what_to_do() {
        let cause = io::Error::new(ErrorKind::NotFound, "no such file");
        let stop = Stop::usage("can't read key.txt", "name another file").because(cause);
        let text = "error: can't read key.txt\n  cause: no such file\nhint: name another file\n";
        assert_eq!(told(stop), (Exit::Usage, text.into()));

        let plain = anyhow::anyhow!("inner").context("outer");
        assert_eq!(
            told(plain),
            (Exit::Failed, "error: outer\n  cause: inner\n".into())
        );
    }

    #[test]
    fn a_cause_that_stands_in_the_text_already_is_not_repeated() {
        let stop = Stop::failed("can't send: timed out", "").because("timed out");
        assert_eq!(
            told(stop),
            (Exit::Failed, "error: can't send: timed out\n".into())
        );
    }

    #[test]
    fn a_broken_pipe_is_success_however_deep() {
        let broken = io::Error::new(ErrorKind::BrokenPipe, "gone");
        let deep = anyhow::Error::from(broken).context("can't print");
        assert_eq!(told(deep), (Exit::Fine, String::new()));
    }

    #[test]
    fn mistakes_of_the_configuration_are_of_usage() {
        let mistake = Mistake {
            origin: None,
            key: "kafka.topic".into(),
            value: None,
            problem: "is not set".into(),
            hint: "set it".into(),
        };
        let text = "error: the configuration has a mistake\n  kafka.topic is not set\n    \
                    hint: set it\n";
        assert_eq!(told(Mistakes(vec![mistake])), (Exit::Usage, text.into()));
    }
}
