//! Ids of tool calls. An id that every dialect accepts passes unchanged; any other is replaced by a hash of itself, so
//! that the call and its result, read at different times, still have the same id.

use std::borrow::Cow;

use shared::provider::quirks::ToolIds;

/// The maximum length in bytes of an id that every dialect accepts.
const ID_BYTES_MAX: usize = 64;

/// Returns `id`, or its replacement: `prefix` and 24 letters and digits.
pub(super) fn call_id<'a>(id: &'a str, prefix: &str) -> Cow<'a, str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(fits) {
        return Cow::Borrowed(id);
    }
    Cow::Owned(prefix.to_owned() + &letters(id.as_bytes(), 24))
}

/// Returns `id` in the `form` that the target accepts.
pub(super) fn fitting<'a>(form: ToolIds, id: &'a str, prefix: &str) -> Cow<'a, str> {
    match form {
        ToolIds::Word => call_id(id, prefix),
        ToolIds::Nine if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) => id.into(),
        ToolIds::Nine => Cow::Owned(letters(id.as_bytes(), 9)),
    }
}

/// Returns `count` letters and digits derived from a hash of `text`; only the first 25 are independent.
pub(super) fn letters(text: &[u8], count: u32) -> String {
    let hash = fnv_1a(text);
    (0..count)
        .map(|position| LETTERS.get(five_bits(hash, position)).copied().map_or('0', char::from))
        .collect()
}

fn five_bits(hash: u128, position: u32) -> usize {
    usize::try_from(hash.wrapping_shr(position.wrapping_mul(5)) & 31).unwrap_or_default()
}

/// 128-bit FNV-1a. A collision affects only the conversation of the client that causes it, so no stronger hash is
/// needed.
fn fnv_1a(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, &byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn fitting_call_ids_are_kept_and_others_replaced_deterministically() {
        for id in ["call_a1", "toolu_01A", "a-b", &"x".repeat(64)] {
            assert_eq!(call_id(id, "call_"), id);
        }
        let odd = ["", "functions.get_weather:0", "functions.get_weather:1", "é", &"x".repeat(65)];
        let made: HashSet<String> = odd.iter().map(|id| call_id(id, "call_").into_owned()).collect();
        assert_eq!(made.len(), odd.len());
        for id in odd {
            let id = call_id(id, "call_");
            assert_eq!(id.len(), 29, "{id}");
            assert_eq!(call_id(&id, "toolu_"), id, "what is made fits");
        }
        assert_eq!(call_id("functions.get_weather:0", "call_"), "call_vdwn7ewc2cy5kyeeldji32x7");
    }

    #[test]
    fn call_ids_for_a_nine_character_target_have_nine_characters() {
        let fitted = |id: &str| fitting(ToolIds::Nine, id, "call_").into_owned();
        assert_eq!(fitted("a1B2c3D4e"), "a1B2c3D4e", "its own come back as they are");
        let made: HashSet<String> =
            ["call_1", "call_2", "toolu_01", "a1B2c3D4", "a1B2c3D-e", ""].map(fitted).into();
        assert_eq!(made.len(), 6);
        for id in made {
            assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
            assert_eq!(fitted(&id), id);
        }
        assert_eq!(fitting(ToolIds::Word, "call_1", "call_"), "call_1");
    }
}
