//! Checks the properties of `yaml` in `control/src/fuzzing.rs` on any input.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| control::fuzzing::yaml(input));
