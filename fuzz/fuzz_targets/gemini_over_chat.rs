//! Checks the properties of `gemini_over_chat` in `hold` on any input.
#![no_main]

#[path = "../../dataplane/wire/tests/hold/mod.rs"]
#[allow(dead_code, reason = "every target uses one of them")]
mod hold;

libfuzzer_sys::fuzz_target!(|input: &[u8]| hold::gemini_over_chat::holds(input));
