//! Fuzzes what `http1_gate` promises in `dataplane/src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dataplane::fuzzing::http1_gate(input));
