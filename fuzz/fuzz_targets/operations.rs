//! Operations and faults on three engines.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    erd_fuzz::world::fuzz::operations(data);
});
