//! Seeded mutations of a corpus keep the [`contract`](super::contract): a short fuzzing in each
//! test run.

use super::contract::check;

const CORPUS: &[&str] = &[
    include_str!("../../../../fuzz/corpus/decode/smallest.json"),
    include_str!("../../../../fuzz/corpus/decode/full.json"),
    include_str!("../../../../fuzz/corpus/decode/escapes.json"),
    include_str!("../../../../fuzz/corpus/decode/nested.json"),
    include_str!("../../../../fuzz/corpus/decode/numbers.json"),
    include_str!("../../../../fuzz/corpus/decode/spaces.json"),
    include_str!("../../../../fuzz/corpus/decode/array.json"),
    include_str!("../../../../fuzz/corpus/decode/secret.json"),
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
    "\u{1e}",
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
    let (mut events, mut bad) = (0, 0);
    for round in 0..ROUNDS {
        let payload = mutate(&mut random);
        let read = std::panic::catch_unwind(|| check(&payload));
        let Ok(read) = read else {
            panic!("round {round}: {:?}", String::from_utf8_lossy(&payload));
        };
        if read > 0 { events += 1 } else { bad += 1 }
    }
    // Mutations that never, or always, break the input would test little.
    assert!(
        events > ROUNDS / 10 && bad > ROUNDS / 10,
        "{events} events, {bad} bad"
    );
}
