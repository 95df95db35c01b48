//! Seeded mutations of a corpus: no input may panic, a bad record leaves the batch untouched, and
//! what is JSON is what another parser says is JSON.

use serde::de::IgnoredAny;

use super::*;
use crate::batch::SourceId;

const CORPUS: &[&str] = &[
    include_str!("../../corpus/decode/smallest.json"),
    include_str!("../../corpus/decode/full.json"),
    include_str!("../../corpus/decode/escapes.json"),
    include_str!("../../corpus/decode/nested.json"),
    include_str!("../../corpus/decode/numbers.json"),
    include_str!("../../corpus/decode/spaces.json"),
    include_str!("../../corpus/decode/array.json"),
    include_str!("../../corpus/decode/secret.json"),
];

/// What a mutation likes to put in.
const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ",",
    ":",
    "null",
    "true",
    "-",
    "0",
    "1e999",
    "\\u",
    "\\ud800",
    "\\",
    "\u{0}",
    "\"model\":\"m\",",
    "\"cost\":",
    "NaN",
    " ",
    "\n",
    "\u{e9}",
];

const ROUNDS: u32 = 60_000;

fn mutate(random: &mut fastrand::Rng) -> Vec<u8> {
    let pick = |random: &mut fastrand::Rng| CORPUS[random.usize(..CORPUS.len())].as_bytes();
    let mut bytes = pick(random).to_vec();
    for _ in 0..random.usize(0..5) {
        let at = random.usize(..=bytes.len());
        match random.u32(..6) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << random.u32(..8),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => {
                let token = TOKENS[random.usize(..TOKENS.len())].bytes();
                bytes.splice(at..at, token);
            }
            4 => {
                let other = pick(random);
                let from = random.usize(..other.len());
                let to = random.usize(from..=other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            _ => {
                let end = random.usize(at..=bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
    bytes
}

#[test]
fn mutations_of_the_corpus_break_nothing() {
    let seed = 0x5eed_2026;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut decoder = Decoder::default();
    let (mut events, mut bad) = (0, 0);
    for round in 0..ROUNDS {
        let payload = mutate(&mut random);
        let shown = || format!("{:?}", String::from_utf8_lossy(&payload));
        let mut batch = EventBatch::new(SourceId("fuzz".into()), 0);
        let record = Record {
            offset: 1,
            index: 0,
            timestamp_ms: Some(0),
            payload: &payload,
        };
        let result = decoder.decode(&record, &mut batch);
        let other = serde_json::from_slice::<IgnoredAny>(&payload);
        match &result {
            Ok(()) => {
                events += 1;
                batch.pad();
                assert_eq!(batch.len(), 1);
                assert!(batch.ints.iter().all(|column| column.get(1).is_none()));
                assert!(
                    other.is_ok(),
                    "round {round}: taken, but no JSON: {}",
                    shown()
                );
            }
            Err(error) => {
                bad += 1;
                assert!(batch.is_empty(), "round {round}");
                batch.pad();
                assert!(
                    error.at.is_none_or(|at| at <= payload.len() + 1),
                    "round {round}: {error}"
                );
                // The other parser does not look at the UTF-8 of what it skips.
                let says_no_json =
                    matches!(error.reason, Reason::InvalidJson | Reason::TrailingData);
                // Half a surrogate pair is JSON by its grammar, and no text: either is right.
                let has_half = payload
                    .windows(3)
                    .any(|it| it.eq_ignore_ascii_case(b"\\ud"));
                let is_known = !says_no_json || has_half;
                assert!(
                    is_known || other.is_err(),
                    "round {round}: {error}: {}",
                    shown()
                );
            }
        }
    }
    // Mutations that never, or always, break the input would test little.
    assert!(
        events > ROUNDS / 10 && bad > ROUNDS / 10,
        "{events} events, {bad} bad"
    );
}
