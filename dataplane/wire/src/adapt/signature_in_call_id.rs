//! Gemini's signature of the thoughts before a call, for clients whose protocol has no field for it. The signature is
//! embedded in the id of the call, which every client sends back unchanged.

use std::borrow::Cow;

/// Separates the id from the signature.
const MARK: &str = "__thought__";
/// The maximum length in bytes of an embedded signature.
const SIGNATURE_BYTES_MAX: usize = 64 * 1024;

/// Returns `id` with `signature` embedded in characters that ids may contain, or `id` alone if the signature is not
/// base64 or too long.
pub(super) fn join<'a>(id: Cow<'a, str>, signature: Option<&str>) -> Cow<'a, str> {
    match signature.and_then(for_ids) {
        Some(signature) => Cow::Owned([&*id, MARK, &signature].concat()),
        None => id,
    }
}

/// Splits an id into the original id and the embedded signature, if there is one.
pub(super) fn split(id: &str) -> (&str, Option<String>) {
    match id.rsplit_once(MARK) {
        Some((plain, signature)) if !plain.is_empty() => match from_ids(signature) {
            Some(signature) => (plain, Some(signature)),
            None => (id, None),
        },
        Some(_) | None => (id, None),
    }
}

/// Converts base64 to the URL alphabet, without padding.
fn for_ids(signature: &str) -> Option<String> {
    let plain = signature.trim_end_matches('=');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let whole = signature.len().is_multiple_of(4) && signature.len().saturating_sub(plain.len()) <= 2;
    let sound = whole && (1..=SIGNATURE_BYTES_MAX).contains(&plain.len()) && plain.bytes().all(fits);
    sound.then(|| plain.replace('+', "-").replace('/', "_"))
}

fn from_ids(signature: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let padding = match signature.len() % 4 {
        0 => "",
        2 => "==",
        3 => "=",
        _ => return None,
    };
    let sound = (1..=SIGNATURE_BYTES_MAX).contains(&signature.len()) && signature.bytes().all(fits);
    sound.then(|| signature.replace('-', "+").replace('_', "/") + padding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_round_trips_through_the_call_id() {
        for signature in ["c2ln", "c2lnbg==", "c2lnbmU=", "+/+/", "____"] {
            let id = join("call_1".into(), Some(signature)).into_owned();
            assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)), "{id}");
            let want = if signature == "____" { None } else { Some(signature.to_owned()) };
            assert_eq!(split(&id), ("call_1", want));
        }
    }

    #[test]
    fn an_invalid_signature_is_not_joined_and_other_ids_are_kept() {
        let long = "a".repeat(SIGNATURE_BYTES_MAX + 4);
        for signature in ["", "=", "a", "ab=", "a b=", "ab\"=", &long] {
            assert_eq!(join("call_1".into(), Some(signature)), "call_1", "{signature}");
        }
        for id in
            ["", "call_1", "__thought__c2ln", "call__thought__", "call__thought__a", "call__thought__c2l n"]
        {
            assert_eq!(split(id), (id, None));
        }
    }
}
