//! See `windlass_fuzz::segment_scan`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: windlass_fuzz::plant(), |data: &[u8]| windlass_fuzz::segment_scan(data));
