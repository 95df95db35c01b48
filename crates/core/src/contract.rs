//! bytes of any kind → nothing, or a panic that names the broken promise: what the readers of
//! foreign bytes keep, whatever comes.
//!
//! A *contract* stands beside the reader it is about. Three run it: the fuzzer (`fuzz/`), the kept
//! *corpus* in each test run, and for [`decode`] seeded mutations.

pub use crate::bill::policy::contract::check as policy;
pub use crate::bill::price::contract::check as prices;
pub use crate::decode::contract::check as decode;
pub use crate::timestamp::contract::check as timestamp;

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Each file of a corpus, with how many things were read out of it.
    fn corpus<T>(target: &str, check: impl Fn(&[u8]) -> T) -> Vec<T> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        let entries = std::fs::read_dir(folder.join(target)).expect("a folder for each target");
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let read = paths.iter().map(|path| {
            println!("{}", path.display());
            check(&std::fs::read(path).unwrap())
        });
        read.collect()
    }

    /// A corpus of which nothing is read, or everything, shows little.
    #[track_caller]
    fn both(read: &[bool]) {
        let good = read.iter().filter(|it| **it).count();
        let bad = read.len() - good;
        assert!(good >= 5 && bad >= 5, "{good} good, {bad} bad");
    }

    #[test]
    fn decode() {
        both(&corpus("decode", |bytes| super::decode(bytes) > 0));
    }

    #[test]
    fn timestamp() {
        both(&corpus("timestamp", super::timestamp));
    }

    #[test]
    fn prices() {
        both(&corpus("prices", super::prices));
    }

    #[test]
    fn policy() {
        both(&corpus("policy", super::policy));
    }
}
