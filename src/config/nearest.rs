//! A misspelt name → the name that was meant.

/// The known name that is at most a third of its length away from `typed`, if any.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_ascii_lowercase();
    known
        .into_iter()
        .map(|name| (edits(&typed, &name.to_ascii_lowercase()), name))
        .filter(|(edits, name)| *edits <= name.len().div_ceil(3))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, name)| name)
}

/// The least number of bytes to insert, remove or replace that makes `b` of `a`.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, expected) in [
            ("", "", 0),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("flush", "flsuh", 2),
        ] {
            assert_eq!(edits(a, b), expected, "{a} {b}");
            assert_eq!(edits(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn a_slip_is_found_and_a_stranger_is_not() {
        let known = ["kafka.topic", "kafka.bootstrap", "flush.interval"];
        assert_eq!(nearest("kafka.topc", known), Some("kafka.topic"));
        assert_eq!(nearest("Kafka.Bootstrap", known), Some("kafka.bootstrap"));
        assert_eq!(nearest("zookeeper", known), None);
    }
}
