//! Checks the properties of `records` in `hold` on any input.
#![no_main]

#[path = "../../control/records/tests/hold/mod.rs"]
#[allow(dead_code, reason = "every target uses one of them")]
mod hold;

libfuzzer_sys::fuzz_target!(|input: &[u8]| hold::records(input));
