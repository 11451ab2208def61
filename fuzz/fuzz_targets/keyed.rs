//! Hostile datagrams into a live session of a job with a key, sealed under it and not.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    erd_fuzz::world::fuzz::keyed(data);
});
