//! How two endpoints find each other's queue pairs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    erd_fuzz::negotiation::run(data);
});
