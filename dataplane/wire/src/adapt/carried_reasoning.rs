//! The encrypted reasoning of a Responses target, for Gemini clients, which send the `thoughtSignature` of a call back on
//! that call. Only the target that encrypted the reasoning can read it, so its name is part of what is carried.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The start of every signature that carries something for another protocol's target.
pub(super) const MARK: &str = "llmgw1:";
/// The word behind the mark of a signature that carries encrypted reasoning.
const REASONING: &str = "reasoning:";
/// The maximum length of encrypted reasoning in bytes. Longer reasoning is left out.
const ENCRYPTED_BYTES_MAX: usize = 512 * 1024;

/// An item of encrypted reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EncryptedReasoning<'a> {
    pub(super) id: &'a str,
    pub(super) encrypted: &'a str,
}

/// Returns the signature that carries reasoning of the target `origin`. `None` if the reasoning is empty or too long.
pub(super) fn carry(origin: &str, reasoning: EncryptedReasoning<'_>) -> Option<String> {
    let EncryptedReasoning { id, encrypted } = reasoning;
    let fits = !encrypted.is_empty() && encrypted.len() <= ENCRYPTED_BYTES_MAX;
    fits.then(|| STANDARD.encode([MARK, REASONING, origin, "\n", id, "\n", encrypted].concat()))
}

/// Returns what a decoded signature, without its mark, carries of reasoning.
pub(super) fn carried(unmarked: &str) -> Option<&str> {
    unmarked.strip_prefix(REASONING)
}

/// Reads carried reasoning. `None` if another target than `origin` encrypted it.
pub(super) fn open<'a>(origin: &str, carried: &'a str) -> Option<EncryptedReasoning<'a>> {
    let (id, encrypted) = carried.strip_prefix(origin)?.strip_prefix('\n')?.split_once('\n')?;
    Some(EncryptedReasoning { id, encrypted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_opens_for_the_target_that_encrypted_it_alone() {
        let reasoning = EncryptedReasoning { id: "rs_1", encrypted: "gAAA+/=" };
        let signature = carry("p/m", reasoning).unwrap();
        let plain = String::from_utf8(STANDARD.decode(signature).unwrap()).unwrap();
        let found = carried(plain.strip_prefix(MARK).unwrap()).unwrap();
        assert_eq!(open("p/m", found), Some(reasoning));
        for other in ["p/n", "p/", "p", "q/m", ""] {
            assert_eq!(open(other, found), None, "{other}");
        }
    }

    #[test]
    fn only_reasoning_up_to_the_bound_is_carried() {
        let of = |length| carry("p/m", EncryptedReasoning { id: "", encrypted: &"a".repeat(length) });
        for (length, is_carried) in
            [(0, false), (1, true), (ENCRYPTED_BYTES_MAX, true), (ENCRYPTED_BYTES_MAX + 1, false)]
        {
            assert_eq!(of(length).is_some(), is_carried, "{length}");
        }
    }
}
