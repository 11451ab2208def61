//! Any legal feedback into every congestion controller.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    erd_fuzz::world::controllers::fuzz(data);
});
