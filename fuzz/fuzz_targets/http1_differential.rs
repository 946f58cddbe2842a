//! Fuzzes what `http1_differential` promises in `dataplane/src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dataplane::fuzzing::http1_differential(input));
