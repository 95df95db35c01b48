//! seed → retry-decision events of a made-up company, in the order of their time.
//!
//! Five services of three tenants call models of several providers. Every error class occurs; for
//! two hours one provider answers late, and is down for a while (`day`). What was not delivered is
//! often sent again as a new operation, by a user who presses the button or by a job.
//! The generator also writes down what it produced, so that the figures can be checked by others.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::day::{self, Trouble};
use super::outcome::{Outcome, draw};

/// What to generate.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub operations: u32,
    /// The first instant, ms since 1970.
    pub start_ms: i64,
    /// How long operations go on to start, ms.
    pub span_ms: i64,
}

/// A caller of models.
#[derive(Debug)]
pub struct Service {
    pub name: &'static str,
    pub team: &'static str,
    pub provider: &'static str,
    pub model: &'static str,
    pub fallback: Option<&'static str>,
    pub scenario: &'static str,
    pub stream: bool,
    pub max_tokens: i64,
    /// Typical input tokens.
    pub input: i64,
    pub read_timeout_ms: i64,
    pub retries: i64,
    /// Share of the operations, of 100.
    pub weight: u32,
    /// Whether successes come with the provider's usage.
    pub logs_usage: bool,
}

/// The services, heaviest first.
pub const SERVICES: [Service; 5] = [
    Service {
        name: "support-chat",
        team: "support",
        provider: "openai",
        model: "gpt-4o-mini",
        fallback: None,
        scenario: "interactive",
        stream: true,
        max_tokens: 512,
        input: 1_800,
        read_timeout_ms: 30_000,
        retries: 1,
        weight: 45,
        logs_usage: true,
    },
    Service {
        name: "contract-review",
        team: "legal",
        provider: "anthropic",
        model: "claude-sonnet-4-5",
        fallback: Some("claude-haiku-4-5"),
        scenario: "batch",
        stream: false,
        max_tokens: 4_096,
        input: 24_000,
        read_timeout_ms: 60_000,
        retries: 3,
        weight: 20,
        logs_usage: true,
    },
    Service {
        name: "product-search",
        team: "shop",
        provider: "gemini",
        model: "gemini-2.5-flash",
        fallback: None,
        scenario: "interactive",
        stream: false,
        max_tokens: 256,
        input: 900,
        read_timeout_ms: 10_000,
        retries: 2,
        weight: 25,
        logs_usage: true,
    },
    Service {
        name: "night-eval",
        team: "platform",
        provider: "openai",
        model: "acme-tuned-preview",
        fallback: None,
        scenario: "eval",
        stream: false,
        max_tokens: 1_024,
        input: 3_000,
        read_timeout_ms: 60_000,
        retries: 2,
        weight: 5,
        logs_usage: true,
    },
    Service {
        name: "voice-notes",
        team: "support",
        provider: "openai",
        model: "gpt-4o",
        fallback: None,
        scenario: "interactive",
        stream: true,
        max_tokens: 300,
        input: 600,
        read_timeout_ms: 20_000,
        retries: 2,
        weight: 5,
        logs_usage: false,
    },
];

const TENANTS: [&str; 3] = ["acme", "globex", "initech"];

/// The service whose batch goes out while its provider is down, and the share of 1,000 operations
/// that it takes.
const OF_BATCH: (&Service, u32) = (&SERVICES[1], 20);

/// Of 1,000 prompts, those whose answer takes longer than their caller waits.
const TAKE_LONG: u32 = 2;

/// What is asked for; sent again, it is another operation of the same prompt.
#[derive(Clone, Debug)]
pub struct Call {
    pub service: &'static Service,
    pub tenant: &'static str,
    pub prompt_hash: String,
    pub input: i64,
    pub max_tokens: i64,
    /// When its operation starts, ms.
    pub starts_ms: i64,
    /// Its answer takes longer than the caller waits.
    pub takes_long: bool,
}

/// One record to produce.
#[derive(Clone, Debug, PartialEq)]
pub struct Produced {
    pub ts_ms: i64,
    /// The message key: the prompt's hash.
    pub key: String,
    pub payload: String,
    pub kind: Kind,
}

/// What a record is, as the truth has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Event,
    /// The same event once more.
    Duplicate,
    /// No event: a dead letter.
    Malformed,
}

impl Produced {
    /// The record's line in the truth.
    pub fn truth(&self) -> String {
        let kind = match self.kind {
            Kind::Event => "event",
            Kind::Duplicate => "duplicate",
            Kind::Malformed => "malformed",
        };
        match serde_json::from_str::<Value>(&self.payload) {
            Ok(event) => format!(r#"{{"kind":"{kind}","event":{event}}}"#),
            Err(_) => json!({ "kind": kind, "payload": self.payload }).to_string(),
        }
    }
}

/// All records of a plan, by time; those of one operation stay in order.
pub fn generate(plan: Plan) -> Vec<Produced> {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let mut records = Vec::new();
    let mut number = 0;
    while number < plan.operations {
        let mut next = Some(call(plan, number, &mut random));
        while let Some(call) = next.filter(|_| number < plan.operations) {
            next = operation(plan, number, call, &mut random, &mut records);
            number += 1;
        }
    }
    records.sort_by_key(|record| record.ts_ms);
    with_mishaps(records, &mut random)
}

/// Redeliveries, and lines that are no events.
fn with_mishaps(records: Vec<Produced>, random: &mut fastrand::Rng) -> Vec<Produced> {
    let mut all = Vec::with_capacity(records.len() * 51 / 50);
    for record in records {
        let odd = random.u32(..1_000);
        let again = (odd < 8).then(|| Produced {
            kind: Kind::Duplicate,
            ..record.clone()
        });
        let cut = (odd == 999).then(|| Produced {
            payload: record.payload[..record.payload.len() / 2].to_owned(),
            kind: Kind::Malformed,
            ..record.clone()
        });
        all.push(record);
        all.extend(again);
        all.extend(cut);
    }
    all
}

fn pick_service(random: &mut fastrand::Rng) -> &'static Service {
    let mut at = random.u32(..100);
    for service in &SERVICES {
        if at < service.weight {
            return service;
        }
        at -= service.weight;
    }
    &SERVICES[0]
}

/// A new prompt.
fn call(plan: Plan, number: u32, random: &mut fastrand::Rng) -> Call {
    let of_batch = random.u32(..1_000) < OF_BATCH.1;
    let (service, starts_ms, share) = match of_batch {
        true => (OF_BATCH.0, day::in_batch(plan, random), 3),
        false => {
            let starts_ms = plan.start_ms + random.i64(0..plan.span_ms.max(1));
            (pick_service(random), starts_ms, 1)
        }
    };
    let input = service.input + random.i64(0..service.input.max(2)) - service.input / 2;
    let words = format!("{}/{number}/{}", service.name, random.u64(..));
    let digest = Sha256::digest(words.as_bytes());
    let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Call {
        service,
        tenant: TENANTS[random.usize(..TENANTS.len())],
        prompt_hash: format!("sha256:{hash}"),
        // The letters of the batch are short.
        input: input / share,
        max_tokens: if of_batch { 1_024 } else { service.max_tokens },
        starts_ms,
        takes_long: random.u32(..1_000) < TAKE_LONG,
    }
}

/// One operation, attempt by attempt. What comes back is sent again.
fn operation(
    plan: Plan,
    number: u32,
    call: Call,
    random: &mut fastrand::Rng,
    out: &mut Vec<Produced>,
) -> Option<Call> {
    let service = call.service;
    let mut now = call.starts_ms;
    let request_id = format!("req-{:08x}-{number:08x}", random.u32(..));
    let mut model = service.model;
    for attempt in 0..=service.retries {
        let trouble = match day::trouble(plan, service, now) {
            Trouble::None | Trouble::Late if call.takes_long => Trouble::TooLong,
            trouble => trouble,
        };
        let outcome = draw(&call, trouble, random);
        let started = now;
        now += outcome.elapsed_ms;
        let decision = outcome.decision(service, attempt == service.retries);
        let mut event = asked(&call, &request_id, attempt, model);
        event["elapsed_ms"] = outcome.elapsed_ms.into();
        event["ts"] = rfc3339(now).into();
        event["started_at"] = rfc3339(started).into();
        event["decision"] = decision.into();
        let goes_on = matches!(decision, "retry" | "retry_limited" | "fallback");
        let wait = (1_000 << attempt.min(3)) + random.i64(0..1_000);
        if goes_on {
            event["next_retry_ms"] = wait.into();
        }
        describe(&outcome, service, call.input, random, &mut event);
        out.push(Produced {
            ts_ms: now,
            key: call.prompt_hash.clone(),
            payload: event.to_string(),
            kind: Kind::Event,
        });
        if !goes_on {
            let starts_ms = now + again_ms(service, decision, random)?;
            return Some(Call { starts_ms, ..call });
        }
        now += wait;
        if decision == "fallback" {
            model = service.fallback.unwrap_or(model);
        }
    }
    None
}

/// After how long an operation that ended so is sent again, ms: a user presses the button within a
/// minute, a job looks after five to ten.
fn again_ms(service: &Service, decision: &str, random: &mut fastrand::Rng) -> Option<i64> {
    if matches!(decision, "success" | "cancelled") {
        return None;
    }
    let chance = random.u32(..100);
    match service.scenario {
        "interactive" if chance < 70 => Some(2_000 + random.i64(0..60_000)),
        "batch" if chance < 10 => Some(300_000 + random.i64(0..300_000)),
        _ => None,
    }
}

/// What an event says of the call itself.
fn asked(call: &Call, request_id: &str, attempt: i64, model: &str) -> Value {
    let service = call.service;
    json!({
        "request_id": request_id, "attempt": attempt, "model": model,
        "prompt_hash": call.prompt_hash, "max_tokens": call.max_tokens,
        "service": service.name, "team": service.team,
        "tenant": call.tenant, "provider": service.provider, "scenario": service.scenario,
        "stream": service.stream, "layer": "app",
        "client_request_id": format!("{request_id}-{attempt}"),
        "read_timeout_ms": service.read_timeout_ms, "connect_timeout_ms": 3_000,
        "max_retries": service.retries, "environment": "production",
    })
}

/// How the attempt ended, and the provider's usage where it told any.
fn describe(
    outcome: &Outcome,
    service: &Service,
    input: i64,
    random: &mut fastrand::Rng,
    event: &mut Value,
) {
    let texts = [
        ("error_type", outcome.error_type),
        ("phase", outcome.phase),
        ("finish_reason", outcome.finish_reason),
    ];
    for (name, text) in texts {
        if !text.is_empty() {
            event[name] = text.into();
        }
    }
    if outcome.status > 0 {
        event["status_code"] = outcome.status.into();
        event["server_request_id"] = format!("srv_{:016x}", random.u64(..)).into();
    }
    if outcome.retry_after_ms > 0 {
        event["retry_after_ms"] = outcome.retry_after_ms.into();
    }
    if outcome.cache_hit {
        event["cache_hit"] = true.into();
    }
    if service.stream {
        event["stream_complete"] = (outcome.error_type.is_empty()).into();
    }
    if outcome.output_tokens > 0 && service.logs_usage {
        event["input_tokens"] = input.into();
        event["output_tokens"] = outcome.output_tokens.into();
        if input > 10_000 {
            event["cached_input_tokens"] = (input / 2).into();
        }
    } else if outcome.output_tokens == 0 && !outcome.error_type.is_empty() {
        // A caller knows what it sent, if not what came back.
        event["input_tokens"] = input.into();
        event["usage_source"] = "estimated".into();
    }
}

fn rfc3339(ms: i64) -> String {
    let instant = chrono::DateTime::from_timestamp_millis(ms).unwrap_or_default();
    instant.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan {
        seed: 7,
        operations: 3_000,
        start_ms: 1_788_300_000_000,
        span_ms: 86_400_000,
    };

    #[test]
    fn a_seed_gives_the_same_traffic() {
        assert_eq!(generate(PLAN), generate(PLAN));
        assert_ne!(generate(PLAN), generate(Plan { seed: 8, ..PLAN }));
    }

    #[test]
    fn weights_are_parts_of_a_hundred() {
        assert_eq!(
            SERVICES.iter().map(|service| service.weight).sum::<u32>(),
            100
        );
    }

    #[test]
    fn every_operation_ends_and_numbers_its_attempts() {
        let mut last: std::collections::HashMap<String, (i64, String)> = Default::default();
        let events = generate(PLAN);
        for record in events.iter().filter(|record| record.kind == Kind::Event) {
            let event: Value = serde_json::from_str(&record.payload).unwrap();
            let id = event["request_id"].as_str().unwrap().to_owned();
            let attempt = event["attempt"].as_i64().unwrap();
            let decision = event["decision"].as_str().unwrap().to_owned();
            let before = last.insert(id, (attempt, decision));
            assert_eq!(before.map_or(0, |(number, _)| number + 1), attempt);
        }
        assert_eq!(last.len(), PLAN.operations as usize);
        let ending = |(_, decision): &(i64, String)| {
            !decision.starts_with("retry") && decision != "fallback"
        };
        assert!(last.values().all(ending));
    }

    #[test]
    fn what_was_not_delivered_is_sent_again() {
        let mut prompts: std::collections::HashMap<String, Vec<Value>> = Default::default();
        for record in generate(PLAN) {
            let event: Value = serde_json::from_str(&record.payload).unwrap_or_default();
            if record.kind == Kind::Event && event["next_retry_ms"].is_null() {
                let hash = event["prompt_hash"].as_str().unwrap().to_owned();
                prompts.entry(hash).or_default().push(event);
            }
        }
        let lengths = prompts.values().map(Vec::len);
        assert!(lengths.filter(|it| *it > 1).count() > 1);
        for operations in prompts.values() {
            for pair in operations.windows(2) {
                assert!(!["success", "cancelled"].contains(&pair[0]["decision"].as_str().unwrap()));
                assert_eq!(pair[0]["tenant"], pair[1]["tenant"]);
                assert_ne!(pair[0]["request_id"], pair[1]["request_id"]);
                assert_ne!(pair[0]["scenario"], "eval");
            }
        }
    }
}
