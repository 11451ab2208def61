//! Every parser of the wire formats.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erd_fuzz::world::fuzz::wire(data));
