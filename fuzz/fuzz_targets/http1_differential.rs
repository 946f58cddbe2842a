//! Checks the properties of `http1_differential` in `dataplane/src/fuzzing.rs` on any input.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dataplane::fuzzing::http1_differential(input));
