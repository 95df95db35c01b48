//! a service, what stands in its way, and luck → how one attempt ends.

use super::day::Trouble;
use super::traffic::{Call, Service};

/// How one attempt ended, as its caller saw it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub status: i64,
    pub error_type: &'static str,
    pub phase: &'static str,
    pub finish_reason: &'static str,
    pub elapsed_ms: i64,
    pub output_tokens: i64,
    pub retry_after_ms: i64,
    pub cache_hit: bool,
    /// The user stopped it.
    pub cancelled: bool,
    /// Trying again can't help.
    pub hopeless: bool,
}

impl Outcome {
    /// What the caller then did.
    pub fn decision(&self, service: &Service, last: bool) -> &'static str {
        if self.cancelled {
            return "cancelled";
        }
        if self.error_type.is_empty() {
            return "success";
        }
        match (self.hopeless, last) {
            (true, _) => "no_retry",
            (false, true) if service.scenario == "interactive" => "ask_user",
            (false, true) => "give_up",
            (false, false) if self.phase == "read" => "retry_limited",
            (false, false) if self.status == 529 && service.fallback.is_some() => "fallback",
            (false, false) => "retry",
        }
    }
}

/// Chances of each end, of 10,000, on an ordinary day.
const CHANCES: [(u32, End); 15] = [
    (60, End::Connect),
    (15, End::PoolTimeout),
    (10, End::Write),
    (120, End::ReadTimeout),
    (40, End::StreamCut),
    (180, End::RateLimit),
    (8, End::Quota),
    (60, End::Overloaded),
    (50, End::Server),
    (25, End::Client),
    (25, End::Content),
    (80, End::Truncated),
    (50, End::InvalidOutput),
    (40, End::Cancelled),
    (150, End::CacheHit),
];

/// While a provider answers late, this share of 10,000 runs into the read timeout.
const LATE: u32 = 3_500;
/// Of a prompt whose answer takes longer than its caller waits, this share of 10,000 does.
const TOO_LONG: u32 = 7_500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Connect,
    PoolTimeout,
    Write,
    ReadTimeout,
    StreamCut,
    RateLimit,
    Quota,
    Overloaded,
    Server,
    Client,
    Content,
    Truncated,
    InvalidOutput,
    Cancelled,
    CacheHit,
    Success,
}

fn draw_end(trouble: Trouble, random: &mut fastrand::Rng) -> End {
    let late = match trouble {
        Trouble::None => 0,
        Trouble::Late => LATE,
        Trouble::TooLong => TOO_LONG,
        Trouble::Down => return End::Server,
    };
    if late > 0 && random.u32(..10_000) < late {
        return End::ReadTimeout;
    }
    let mut at = random.u32(..10_000);
    for (chance, end) in CHANCES {
        if at < chance {
            return end;
        }
        at -= chance;
    }
    End::Success
}

fn failed(elapsed_ms: i64, status: i64, error_type: &'static str, phase: &'static str) -> Outcome {
    Outcome {
        status,
        error_type,
        phase,
        elapsed_ms,
        ..Outcome::default()
    }
}

fn answered(output_tokens: i64, finish_reason: &'static str) -> Outcome {
    Outcome {
        status: 200,
        finish_reason,
        elapsed_ms: 400 + output_tokens * 12,
        output_tokens,
        ..Outcome::default()
    }
}

/// Draws how an attempt of this call ends.
pub fn draw(call: &Call, trouble: Trouble, random: &mut fastrand::Rng) -> Outcome {
    let service = call.service;
    let end = draw_end(trouble, random);
    let output = 1 + random.i64(0..call.max_tokens * 3 / 4);
    let elapsed_ms = 300 + random.i64(0..2_000);
    let failed = |status, error_type, phase| failed(elapsed_ms, status, error_type, phase);
    let answered = |finish_reason| answered(output, finish_reason);
    match end {
        End::Connect => failed(0, "ConnectTimeout", "connect"),
        End::PoolTimeout => failed(0, "PoolTimeout", "pool"),
        End::Write => failed(0, "WriteError", "write"),
        End::ReadTimeout => Outcome {
            elapsed_ms: service.read_timeout_ms,
            ..failed(0, "ReadTimeout", "read")
        },
        End::StreamCut if service.stream => failed(200, "RemoteProtocolError", "stream"),
        End::StreamCut => failed(0, "ConnectionResetError", "read"),
        End::RateLimit => Outcome {
            retry_after_ms: 1_000 * (1 + random.i64(0..20)),
            ..failed(429, "RateLimitError", "")
        },
        End::Quota => Outcome {
            hopeless: true,
            ..failed(429, "insufficient_quota", "")
        },
        End::Overloaded => failed(529, "overloaded_error", ""),
        End::Server => failed(
            [500, 502, 503][random.usize(..3)],
            "InternalServerError",
            "",
        ),
        End::Client => Outcome {
            hopeless: true,
            ..failed(400, "BadRequestError", "")
        },
        End::Content => Outcome {
            error_type: "ContentPolicyViolation",
            finish_reason: "content_filter",
            hopeless: true,
            output_tokens: output.min(40),
            ..answered("")
        },
        End::Truncated => Outcome {
            output_tokens: call.max_tokens,
            ..answered("length")
        },
        End::InvalidOutput => Outcome {
            error_type: "JSONDecodeError",
            ..answered("stop")
        },
        End::Cancelled => Outcome {
            cancelled: true,
            ..failed(0, "Cancelled", "read")
        },
        End::CacheHit => Outcome {
            cache_hit: true,
            elapsed_ms: 5 + random.i64(0..20),
            ..answered("stop")
        },
        End::Success => answered("stop"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::traffic::SERVICES;

    fn call() -> Call {
        Call {
            service: &SERVICES[1],
            tenant: "acme",
            prompt_hash: String::new(),
            input: 24_000,
            max_tokens: 4_096,
            starts_ms: 0,
            takes_long: false,
        }
    }

    #[test]
    fn every_end_comes_up() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut left: Vec<End> = CHANCES
            .iter()
            .map(|(_, end)| *end)
            .chain([End::Success])
            .collect();
        for _ in 0..100_000 {
            let end = draw_end(Trouble::None, &mut random);
            left.retain(|other| *other != end);
        }
        assert_eq!(left, []);
    }

    #[test]
    fn trouble_is_read_timeouts_or_an_outage() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut count = |trouble, is: fn(&Outcome) -> bool| {
            (0..10_000)
                .filter(|_| is(&draw(&call(), trouble, &mut random)))
                .count()
        };
        let is_late = |it: &Outcome| it.phase == "read";
        let usual = count(Trouble::None, is_late);
        let late = count(Trouble::Late, is_late);
        let too_long = count(Trouble::TooLong, is_late);
        assert!(
            usual < 400 && late > 3_000 && too_long > 7_000,
            "{usual}, {late} and {too_long} of 10,000"
        );
        assert_eq!(count(Trouble::Down, |it| it.status >= 500), 10_000);
    }
}
