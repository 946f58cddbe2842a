//! Fuzzes what `archive` promises in `control/src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| control::fuzzing::archive(input));
