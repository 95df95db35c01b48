//! See `retrytoll_core::contract`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    retrytoll_core::contract::policy(bytes);
});
