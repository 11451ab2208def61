//! Hostile datagrams into a live session.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    erd_fuzz::world::fuzz::session(data);
});
