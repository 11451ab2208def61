//! Hostile entries in the lane of a live session.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    erd_fuzz::world::fuzz_lane::lane(data);
});
