//! word → id, within one flush.
//!
//! Words that look like secrets are replaced here, once per word and not once per event.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::secret;

/// A map keyed by 128-bit hashes, which need no second hashing.
pub type HashedMap<V> = HashMap<u128, V, BuildHasherDefault<IdentityHasher>>;

/// Takes the low half of a key that is a hash already.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_ne_bytes(word);
        }
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }
}

/// The words of one flush by id. Id 0 is "no word".
#[derive(Clone, Debug)]
pub struct Words {
    /// The exclusive end of each word in `bytes`.
    ends: Vec<i32>,
    bytes: Vec<u8>,
}

impl Words {
    /// The word of an id that this dictionary gave; empty for 0.
    #[must_use]
    pub fn get(&self, id: u32) -> &str {
        let at = id as usize;
        let start = if at == 0 {
            0
        } else {
            self.ends[at - 1] as usize
        };
        // Words come in as checked UTF-8, and ends fall between words.
        std::str::from_utf8(&self.bytes[start..self.ends[at] as usize]).unwrap_or_default()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Never: id 0 is always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The exclusive ends of the words, and all bytes.
    #[must_use]
    pub fn parts(&self) -> (&[i32], &[u8]) {
        (&self.ends, &self.bytes)
    }
}

/// Gives each word an id.
#[derive(Debug)]
pub struct Dictionary {
    ids: HashedMap<u32>,
    words: Words,
    secret: Vec<bool>,
    shared: Option<Arc<Words>>,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self {
            ids: HashedMap::default(),
            words: Words {
                ends: vec![0],
                bytes: Vec::new(),
            },
            secret: vec![false],
            shared: None,
        }
    }
}

impl Dictionary {
    /// The id of a word, the same for the same word; 0 for the empty one.
    pub fn id(&mut self, word: &str) -> u32 {
        if word.is_empty() {
            return 0;
        }
        let key = xxhash_rust::xxh3::xxh3_128(word.as_bytes());
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        let id = self.words.ends.len() as u32;
        let replaced = secret::replaced(word);
        self.secret.push(replaced.is_some());
        self.words
            .bytes
            .extend_from_slice(replaced.as_deref().unwrap_or(word).as_bytes());
        self.words.ends.push(self.words.bytes.len() as i32);
        self.ids.insert(key, id);
        self.shared = None;
        id
    }

    /// Whether the word of this id looked like a secret and was replaced.
    #[must_use]
    pub fn is_secret(&self, id: u32) -> bool {
        self.secret[id as usize]
    }

    /// The word of an id of this dictionary.
    #[must_use]
    pub fn get(&self, id: u32) -> &str {
        self.words.get(id)
    }

    /// All words so far; a copy is made only when words have come since the last call.
    pub fn share(&mut self) -> Arc<Words> {
        Arc::clone(
            self.shared
                .get_or_insert_with(|| Arc::new(self.words.clone())),
        )
    }

    /// Heap bytes held: what to bound a flush by when words are really free text.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.ids.capacity() * 32 + self.words.bytes.capacity() + self.words.ends.capacity() * 5
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_word_has_the_same_id() {
        let mut dictionary = Dictionary::default();
        let ids: Vec<_> = ["a", "", "b", "a"].map(|word| dictionary.id(word)).into();
        assert_eq!(ids, [1, 0, 2, 1]);
        assert_eq!(["", "a", "b"], [0, 1, 2].map(|id| dictionary.get(id)));
    }

    #[test]
    fn a_shared_copy_is_kept_until_a_word_comes() {
        let mut dictionary = Dictionary::default();
        dictionary.id("a");
        let first = dictionary.share();
        assert!(Arc::ptr_eq(&first, &dictionary.share()));
        dictionary.id("b");
        let second = dictionary.share();
        assert_eq!((first.len(), second.len(), second.get(2)), (2, 3, "b"));
    }

    #[test]
    fn a_secret_is_replaced_by_its_hash() {
        let mut dictionary = Dictionary::default();
        let id = dictionary.id("sk-proj-abcdefghijklmnopqrstuvwx");
        assert!(dictionary.is_secret(id));
        assert!(
            dictionary.get(id).starts_with("secret:sha256:"),
            "{}",
            dictionary.get(id)
        );
        assert_eq!(dictionary.id("sk-proj-abcdefghijklmnopqrstuvwx"), id);
    }
}
