//! Checks the properties of `images_over_gemini` in `hold` on any input.
#![no_main]

#[path = "../../dataplane/wire/tests/hold/mod.rs"]
#[allow(dead_code, reason = "every target uses one of them")]
mod hold;

libfuzzer_sys::fuzz_target!(|input: &[u8]| hold::images_over_gemini::holds(input));
