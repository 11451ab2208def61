//! Sequences of calls of the C interface.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    erd_fuzz::verbs_c::sequences::run(data);
});
