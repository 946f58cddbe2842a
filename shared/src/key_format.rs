//! The format of issued keys (AUTH-6): `llmgw_`, 43 characters of secret, and a 6-character checksum over everything
//! before it. A scanner can recognise a key, and anyone can detect a mistyped one, without asking the gateway.

use zeroize::Zeroizing;

use crate::secret::Secret;

/// Returns the key for `secret`: its 256 bits in base 62, followed by the CRC-32 (as in zip and PNG) of the prefix
/// and those digits.
pub fn key_of(secret: &Secret<[u8; 32]>) -> Secret<String> {
    let mut key = String::with_capacity(KEY_CHARS);
    key.push_str(PREFIX);
    push_base62(&mut key, secret.expose(), SECRET_CHARS);
    let check = crc32(key.as_bytes()).to_be_bytes();
    push_base62(&mut key, &check, CHECK_CHARS);
    Secret::new(key)
}

/// Returns the part of a key that may be displayed to distinguish it from others.
pub fn shown_part(key: &Secret<String>) -> String {
    key.expose().chars().take(PREFIX.len() + SHOWN_CHARS).collect()
}

/// Returns the part of a presented key that may be displayed: the same as of an issued key; of any other key, which may
/// be a vendor's, the first four characters, if it is at least 16 long.
pub fn shown_part_of_presented(presented: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(presented).ok()?;
    let chars = if text.starts_with(PREFIX) { PREFIX.len() + SHOWN_CHARS } else { FOREIGN_CHARS };
    text.get(..chars).filter(|_| text.len() >= FOREIGN_BYTES_MIN && text.is_ascii())
}

/// Returns true if `text` has the format of a key and a correct checksum. The check does not cover who issued the key.
pub fn is_well_formed(text: &str) -> bool {
    let Some((before, check)) = text.split_at_checked(PREFIX.len() + SECRET_CHARS) else { return false };
    let Some(secret) = before.strip_prefix(PREFIX) else { return false };
    let mut expected = String::with_capacity(CHECK_CHARS);
    push_base62(&mut expected, &crc32(before.as_bytes()).to_be_bytes(), CHECK_CHARS);
    secret.bytes().all(|byte| byte.is_ascii_alphanumeric()) && check == expected
}

/// Appends the number with the big-endian bytes `number` as `digits` base-62 digits, with leading zeros.
fn push_base62<const N: usize>(text: &mut String, number: &[u8; N], digits: usize) {
    let mut rest = Zeroizing::new(number.map(u32::from));
    let mut reversed = Zeroizing::new(Vec::with_capacity(digits));
    for _ in 0..digits {
        let mut remainder = 0;
        for byte in rest.iter_mut() {
            let part = remainder << 8 | *byte;
            (*byte, remainder) = (part / 62, part % 62);
        }
        reversed.push(usize::try_from(remainder).unwrap_or_default());
    }
    text.extend(reversed.iter().rev().map(|digit| ALPHABET.get(*digit).copied().map_or('0', char::from)));
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

const PREFIX: &str = "llmgw_";
const SECRET_CHARS: usize = 43;
const CHECK_CHARS: usize = 6;
const KEY_CHARS: usize = PREFIX.len() + SECRET_CHARS + CHECK_CHARS;
/// The number of displayed characters of the secret: 36 of its 256 bits.
const SHOWN_CHARS: usize = 6;
/// The displayed characters of a key that was not issued here, and the length from which on any are.
const FOREIGN_CHARS: usize = 4;
const FOREIGN_BYTES_MIN: usize = 16;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: [u8; 32]) -> String {
        key_of(&Secret::new(secret)).expose().clone()
    }

    #[test]
    fn the_checksum_is_the_well_known_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn a_key_is_the_secret_in_base_62_and_its_checksum() {
        let mut one = [0; 32];
        one[31] = 1;
        let key = key(one);
        assert_eq!(key.len(), 55);
        assert_eq!(&key[..49], "llmgw_0000000000000000000000000000000000000000001");
        let check = key[49..]
            .bytes()
            .fold(0, |sum, byte| sum * 62 + ALPHABET.iter().position(|digit| *digit == byte).unwrap());
        assert_eq!(u32::try_from(check), Ok(crc32(&key.as_bytes()[..49])));
        assert_eq!(shown_part(&Secret::new(key)), "llmgw_000000");
    }

    #[test]
    fn a_presented_key_shows_no_more_than_an_issued_one() {
        for (presented, want) in [
            (&b"llmgw_abcdefghijkl"[..], Some("llmgw_abcdef")),
            (b"llmgw_abcdef", None),
            (b"sk-ant-0123456789", Some("sk-a")),
            (b"short-secret", None),
            ("sk-\u{e4}nt-0123456789".as_bytes(), None),
            (b"\xff0123456789abcdef", None),
        ] {
            assert_eq!(shown_part_of_presented(presented), want, "{presented:?}");
        }
    }

    /// Compares with a checksum that another program computed for a key with another prefix.
    #[test]
    fn the_key_checksum_matches_a_foreign_implementation() {
        let index: serde_json::Value =
            serde_json::from_str(include_str!("../../dataplane/wire/fixtures/auth/index.json")).unwrap();
        let cases = index["cases"].as_array().unwrap();
        let case = cases.iter().find(|case| case["id"] == "key_checksum").unwrap();
        let text = |name: &str| case[name].as_str().unwrap();
        let checked = |body: &str| {
            let mut key = body.to_owned();
            push_base62(&mut key, &crc32(body.as_bytes()).to_be_bytes(), CHECK_CHARS);
            key
        };
        assert_eq!(checked(text("body")), text("key"));
        let bad = text("bad");
        assert_ne!(checked(&bad[..bad.len() - CHECK_CHARS]), bad);
    }

    #[test]
    fn the_greatest_secret_fits() {
        // 2^256 - 1 in base 62.
        let digits = &key([0xff; 32])[6..49];
        let number = digits.bytes().fold([0_u8; 33], |number, digit| {
            let mut carry = ALPHABET.iter().position(|known| *known == digit).unwrap();
            let mut next = number;
            for byte in next.iter_mut().rev() {
                carry += usize::from(*byte) * 62;
                *byte = u8::try_from(carry & 0xff).unwrap();
                carry >>= 8;
            }
            next
        });
        assert_eq!((number[0], &number[1..]), (0, &[0xff; 32][..]));
    }

    #[test]
    fn each_mistyped_character_of_a_key_is_detected() {
        let good = key(std::array::from_fn(|place| u8::try_from(place * 7 + 3).unwrap()));
        assert!(is_well_formed(&good));
        for place in 0..good.len() {
            for other in ['0', 'Z', 'q', '_', '-', 'ä'] {
                let mut mistyped: Vec<char> = good.chars().collect();
                let was = std::mem::replace(&mut mistyped[place], other);
                let text: String = mistyped.iter().collect();
                assert_eq!(is_well_formed(&text), was == other, "{text}");
            }
            assert!(!is_well_formed(&good[..place]) && !is_well_formed(&good[place + 1..]));
        }
        assert!(!is_well_formed(&format!("{good}0")) && !is_well_formed(""));
    }

    #[test]
    fn swapped_neighbours_in_a_key_are_detected() {
        let good = key(std::array::from_fn(|place| u8::try_from(place * 5 + 5).unwrap()));
        for place in 6..good.len() - 1 {
            let mut mistyped = good.clone().into_bytes();
            mistyped.swap(place, place + 1);
            let text = String::from_utf8(mistyped).unwrap();
            assert!(text == good || !is_well_formed(&text), "{text}");
        }
    }
}
