//! Any bytes are an entry that comes back as it was written, or a bad entry.

use std::collections::BTreeMap;

use deltalake::kernel::Transaction;
use serde::Serialize;

use super::*;
use crate::position::{Position, completeness_mark, positions};

const VERSION: u64 = 7;

/// Checks one entry; says whether it is one.
///
/// # Panics
/// A promise of [`Entry`], or of what its application ids mean, is broken.
pub fn check(bytes: &[u8]) -> bool {
    let entry = match Entry::parse(VERSION, &Bytes::copy_from_slice(bytes)) {
        Ok(entry) => entry,
        Err(LakeError::BadEntry { version, reason }) => {
            assert!(version == VERSION && !reason.is_empty());
            return false;
        }
        Err(other) => panic!("no bad entry, but {other}"),
    };
    assert_eq!(entry.version, VERSION);
    comes_back(&entry);
    are_positions(&entry);
    true
}

fn comes_back(entry: &Entry) {
    let txn = |(id, value): &(String, i64)| Action::Txn(Transaction::new(id, *value));
    let adds = entry.adds.iter().cloned().map(Action::Add);
    let removes = entry.removes.iter().cloned().map(Action::Remove);
    let actions: Vec<_> = (entry.txns.iter().map(txn))
        .chain(adds)
        .chain(removes)
        .chain(entry.metadata.clone().map(Action::Metadata))
        .chain(entry.protocol.clone().map(Action::Protocol))
        .collect();
    let bytes = match entry_bytes(&entry.by, 0, &actions, &Value::Null) {
        Ok(bytes) => bytes,
        Err(error) => panic!("can't be written again: {error}"),
    };
    let again = match Entry::parse(VERSION, &bytes) {
        Ok(again) => again,
        Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&bytes)),
    };
    assert_eq!(again.by, entry.by);
    assert_eq!(again.txns, entry.txns);
    assert_eq!(shown(&again.adds), shown(&entry.adds));
    assert_eq!(shown(&again.removes), shown(&entry.removes));
    assert_eq!(shown(&again.metadata), shown(&entry.metadata));
    assert_eq!(shown(&again.protocol), shown(&entry.protocol));
    // Half of it is known to be half.
    assert!(Entry::parse(VERSION, &bytes.slice(..bytes.len() / 2)).is_err());
}

fn shown(actions: &impl Serialize) -> Value {
    match serde_json::to_value(actions) {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// What our application ids say goes there and back; others' are nobody's.
fn are_positions(entry: &Entry) {
    for owner in entry.owners() {
        if let Owner::Partition(partition) = &owner {
            let again = Owner::of_app_id(&partition.app_id("next"));
            assert_eq!(again.as_ref(), Some(&owner));
        }
    }
    let txns: BTreeMap<String, i64> = entry.txns.iter().cloned().collect();
    let found = positions(&txns);
    for (partition, position) in &found {
        let stated = position.to_txns(partition).into_iter().collect();
        assert_eq!(Position::of(&stated, partition).as_ref(), Some(position));
    }
    let _ = completeness_mark(&found);
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/delta_log");
        let mut good = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            good += usize::from(super::check(&std::fs::read(path).unwrap()));
        }
        assert!(good >= 5, "{good} good");
    }
}
