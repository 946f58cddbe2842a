//! Checks the properties of `chat_over_bedrock` in `hold` on any input.
#![no_main]

#[path = "../../dataplane/wire/tests/hold/mod.rs"]
#[allow(dead_code, reason = "every target uses one of them")]
mod hold;

libfuzzer_sys::fuzz_target!(|input: &[u8]| hold::chat_over_bedrock(input));
