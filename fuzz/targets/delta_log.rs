//! See `contract.rs` beside the reader.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    retrytoll_lake::log::contract::check(bytes);
});
