//! See `windlass_fuzz::control_messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: windlass_fuzz::plant(), |data: &[u8]| windlass_fuzz::control_messages(data));
