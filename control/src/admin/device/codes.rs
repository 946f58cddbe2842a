//! The codes of a sign-in: one that only the client knows, and one that the person compares or types.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::hmac;
use shared::secret::Secret;

use crate::common::vault::{RandomError, VaultKeys, random};

/// Returns a new code of the client: the text of 256 random bits and their signature, so that a guessed code is refused
/// without a look into the database.
pub(super) fn new_device_code(keys: &VaultKeys) -> Result<Secret<String>, RandomError> {
    let bits = random::<32>()?;
    let signature = hmac::sign(&keys.derived(PURPOSE), &bits);
    Ok(Secret::new(BASE64_URL_SAFE_NO_PAD.encode([&bits, signature.as_ref()].concat())))
}

/// True if this gateway signed the code.
pub(super) fn is_signed(keys: &VaultKeys, device_code: &str) -> bool {
    let code = BASE64_URL_SAFE_NO_PAD.decode(device_code).unwrap_or_default();
    let parts = code.split_at_checked(32);
    parts.is_some_and(|(bits, signature)| hmac::verify(&keys.derived(PURPOSE), bits, signature).is_ok())
}

/// Returns the form in which the code of the client is stored.
pub(super) fn hash(device_code: &str) -> Vec<u8> {
    digest(&SHA256, device_code.as_bytes()).as_ref().to_vec()
}

/// Returns a new code of the person: [`LETTERS`] letters of [`ALPHABET`], all equally likely.
pub(super) fn new_user_code() -> Result<String, RandomError> {
    let mut code = String::with_capacity(LETTERS);
    while code.len() < LETTERS {
        for byte in random::<16>()? {
            // The last bytes would make the first letters likelier.
            let index = Some(usize::from(byte)).filter(|byte| *byte < 256 - 256 % ALPHABET.len());
            let letter = index.and_then(|index| ALPHABET.get(index % ALPHABET.len()));
            code.extend(letter.filter(|_| code.len() < LETTERS).map(|letter| char::from(*letter)));
        }
    }
    Ok(code)
}

/// Reads a code as a person types it: in any case, with or without separators. `None` if it cannot be one.
pub(super) fn read_user_code(typed: &str) -> Option<String> {
    let letters = typed.bytes().filter(|byte| !b" -".contains(byte)).map(|byte| byte.to_ascii_uppercase());
    let code: Vec<u8> = letters.take(LETTERS + 1).collect();
    let is_code = code.len() == LETTERS && code.iter().all(|letter| ALPHABET.contains(letter));
    String::from_utf8(code).ok().filter(|_| is_code)
}

/// Returns a code of the person as it is shown: `WDJB-MJHT`.
pub(super) fn shown_user_code(code: &str) -> String {
    code.split_at_checked(LETTERS / 2).map_or_else(|| code.to_owned(), |(one, two)| format!("{one}-{two}"))
}

/// The purpose of the key that signs the codes of clients.
const PURPOSE: &str = "codes of device sign-ins";
/// The number of letters: 2.5e10 codes.
const LETTERS: usize = 8;
/// Consonants, so that codes form no words (RFC 8628 section 6.1).
const ALPHABET: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_that_were_signed_here_are_looked_up() {
        let keys =
            |byte| VaultKeys { key_hash_key: Secret::new([byte; 32]), data_key: Secret::new([byte; 32]) };
        let code = new_device_code(&keys(1)).unwrap();
        assert!(is_signed(&keys(1), code.expose()));
        assert!(!is_signed(&keys(2), code.expose()));
        for forged in ["", "guessed", &code.expose()[1..], &"A".repeat(86)] {
            assert!(!is_signed(&keys(1), forged), "{forged}");
        }
    }

    #[test]
    fn a_code_is_read_as_people_type_it() {
        for (typed, want) in [
            ("WDJB-MJHT", Some("WDJBMJHT")),
            ("wdjb mjht", Some("WDJBMJHT")),
            ("WDJBMJHT", Some("WDJBMJHT")),
            ("WDJBMJH", None),
            ("WDJBMJHTT", None),
            ("WDJBMJHA", None),
            ("", None),
        ] {
            assert_eq!(read_user_code(typed).as_deref(), want, "{typed}");
        }
        let code = new_user_code().unwrap();
        assert_eq!(read_user_code(&shown_user_code(&code)), Some(code));
    }
}
