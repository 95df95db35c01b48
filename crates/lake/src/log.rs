//! A log entry's bytes → [`Entry`], and an [`Entry`]'s actions → bytes.
//!
//! An entry is one commit. Ours carry in `commitInfo`, beside Delta's own fields,
//! `retrytollCommitId` (unique per commit), `retrytollGroup`, `retrytollMember`, and
//! `retrytollActions`, the number of lines, by which a cut entry is known.

#[cfg(any(test, feature = "contract"))]
pub mod contract;

use std::fmt;

use bytes::Bytes;
use deltalake::kernel::{Action, Add, CommitInfo, Metadata, Protocol, Remove};
use deltalake::logstore::{LogStore, get_actions};
use serde_json::Value;

use crate::error::LakeError;
use crate::position::Owner;

const COMMIT_ID: &str = "retrytollCommitId";
const GROUP: &str = "retrytollGroup";
const MEMBER: &str = "retrytollMember";
const ACTIONS: &str = "retrytollActions";
const RECORD: &str = "retrytollRecord";

/// Who wrote an entry, as far as it says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Author {
    /// Unique per commit; `None` in another program's.
    pub commit_id: Option<String>,
    /// The consumer group.
    pub group: Option<String>,
    /// The member within the group: host and process.
    pub member: Option<String>,
    /// Delta's name for what the commit did.
    pub operation: Option<String>,
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.group, &self.member) {
            (Some(group), Some(member)) => write!(f, "member {member} of group {group}"),
            _ => write!(
                f,
                "another program ({})",
                self.operation.as_deref().unwrap_or("unnamed")
            ),
        }
    }
}

/// One commit, as far as the protocol looks at it.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Its version.
    pub version: u64,
    /// Who wrote it.
    pub by: Author,
    /// Application ids and their values.
    pub txns: Vec<(String, i64)>,
    /// Files added.
    pub adds: Vec<Add>,
    /// Files removed.
    pub removes: Vec<Remove>,
    /// The new schema and properties, if it changes them.
    pub metadata: Option<Metadata>,
    /// The new protocol, if it changes it.
    pub protocol: Option<Protocol>,
}

impl Entry {
    /// Reads an entry.
    ///
    /// # Errors
    /// [`LakeError::BadEntry`] where it is empty, cut, or no Delta entry.
    pub fn parse(version: u64, bytes: &Bytes) -> Result<Self, LakeError> {
        let bad = |reason: String| LakeError::BadEntry { version, reason };
        if bytes.iter().all(|b| b.is_ascii_whitespace() || *b == 0) {
            return Err(bad(format!("it is empty ({} bytes)", bytes.len())));
        }
        let actions =
            get_actions(version, bytes).map_err(|e| bad(format!("a line does not parse ({e})")))?;
        Self::from_actions(version, actions).map_err(bad)
    }

    /// The entry of these actions; an error says why they are not all of it.
    pub(crate) fn from_actions(version: u64, actions: Vec<Action>) -> Result<Self, String> {
        let mut entry = Self {
            version,
            ..Self::default()
        };
        let found = actions.len() as u64;
        let mut expected = None;
        for action in actions {
            match action {
                Action::CommitInfo(info) => {
                    expected = info.info.get(ACTIONS).and_then(Value::as_u64);
                    entry.by = author(&info);
                }
                Action::Txn(txn) => entry.txns.push((txn.app_id, txn.version)),
                Action::Add(add) => entry.adds.push(add),
                Action::Remove(remove) => entry.removes.push(remove),
                Action::Metadata(metadata) => entry.metadata = Some(metadata),
                Action::Protocol(protocol) => entry.protocol = Some(protocol),
                Action::Cdc(_) | Action::DomainMetadata(_) => {}
            }
        }
        match expected {
            Some(expected) if expected != found => {
                Err(format!("it has {found} of {expected} lines"))
            }
            _ => Ok(entry),
        }
    }

    /// What the entry names, in its order; an owner may come several times.
    pub fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        self.txns
            .iter()
            .filter_map(|(app_id, _)| Owner::of_app_id(app_id))
    }
}

fn author(info: &CommitInfo) -> Author {
    let text = |key: &str| {
        info.info
            .get(key)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    Author {
        commit_id: text(COMMIT_ID),
        group: text(GROUP),
        member: text(MEMBER),
        operation: info.operation.clone(),
    }
}

/// The bytes of an entry: `commitInfo`, with what the log is to keep of it, then the actions, one a line. They do not depend on the
/// version, so that the same bytes can be put again at a later one.
pub(crate) fn entry_bytes(
    by: &Author,
    now_ms: i64,
    actions: &[Action],
    record: &Value,
) -> Result<Bytes, LakeError> {
    let text = |value: &Option<String>| value.clone().map_or(Value::Null, Value::String);
    let mut info = CommitInfo {
        timestamp: Some(now_ms),
        operation: by.operation.clone(),
        engine_info: Some(concat!("retrytoll/", env!("CARGO_PKG_VERSION")).to_owned()),
        info: [
            (COMMIT_ID.to_owned(), text(&by.commit_id)),
            (GROUP.to_owned(), text(&by.group)),
            (MEMBER.to_owned(), text(&by.member)),
            (ACTIONS.to_owned(), Value::from(actions.len() + 1)),
        ]
        .into(),
        ..CommitInfo::default()
    };
    if !record.is_null() {
        info.info.insert(RECORD.to_owned(), record.clone());
    }
    let mut out = Vec::with_capacity(256 * (actions.len() + 1));
    for action in std::iter::once(&Action::CommitInfo(info)).chain(actions) {
        serde_json::to_writer(&mut out, action)
            .map_err(|e| LakeError::data("write an entry of the log", e))?;
        out.push(b'\n');
    }
    Ok(out.into())
}

/// The entry of `version`, or `None` where there is none.
///
/// # Errors
/// The store's, and [`LakeError::BadEntry`].
pub async fn read_entry(log: &dyn LogStore, version: u64) -> Result<Option<Entry>, LakeError> {
    let bytes = log
        .read_commit_entry(version)
        .await
        .map_err(|e| LakeError::delta(format!("read entry {version} of the log"), e))?;
    bytes.map(|bytes| Entry::parse(version, &bytes)).transpose()
}

/// The entries from `base + 1` on, up to the first version that does not exist.
///
/// # Errors
/// As [`read_entry`].
pub async fn entries_after(log: &dyn LogStore, base: u64) -> Result<Vec<Entry>, LakeError> {
    let mut entries = Vec::new();
    while let Some(entry) = read_entry(log, base + 1 + entries.len() as u64).await? {
        entries.push(entry);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use deltalake::kernel::Transaction;

    fn two_txns() -> Bytes {
        let by = Author {
            commit_id: Some("id-1".into()),
            group: Some("g".into()),
            member: Some("host:7".into()),
            operation: Some("WRITE".into()),
        };
        let txn = |id: &str, v| Action::Txn(Transaction::new(id, v));
        entry_bytes(
            &by,
            1_700_000_000_000,
            &[txn("retrytoll/next/0/s", 4), txn("x", 1)],
            &Value::Null,
        )
        .unwrap()
    }

    #[test]
    fn an_entry_comes_back_as_written() {
        let entry = Entry::parse(9, &two_txns()).unwrap();
        assert_eq!(entry.version, 9);
        assert_eq!(entry.by.commit_id.as_deref(), Some("id-1"));
        assert_eq!(entry.by.to_string(), "member host:7 of group g");
        assert_eq!(
            entry.txns,
            [("retrytoll/next/0/s".to_owned(), 4), ("x".to_owned(), 1)]
        );
        assert_eq!(entry.owners().count(), 1);
        assert!(
            !std::str::from_utf8(&two_txns())
                .unwrap()
                .contains("lastUpdated")
        );
    }

    #[test]
    fn every_cut_is_noticed_but_the_last_newline() {
        let whole = two_txns();
        for len in 0..whole.len() - 1 {
            assert!(
                Entry::parse(0, &whole.slice(..len)).is_err(),
                "{len} bytes of {}",
                whole.len()
            );
        }
        assert!(Entry::parse(0, &whole.slice(..whole.len() - 1)).is_ok());
        assert!(Entry::parse(0, &Bytes::from(vec![0; 200])).is_err());
    }
}
