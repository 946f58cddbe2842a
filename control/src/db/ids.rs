//! Ids of rows: a prefix for the kind of row, then the time of creation and random bits, so that sorting by id sorts by
//! creation.

use crate::common::vault::random;

/// Returns a new id, such as `prj_01K9Z3W5QN7T2VXB4C6D8E0F1G`: 48 bits of milliseconds and 80 random bits, in the
/// alphabet of ULIDs.
pub(crate) fn new_id(prefix: &str, now_ms: u64) -> Result<String, crate::common::vault::RandomError> {
    let random: [u8; 10] = random()?;
    let mut number = u128::from(now_ms & 0xffff_ffff_ffff);
    for byte in random {
        number = number << 8 | u128::from(byte);
    }
    let mut id = String::with_capacity(prefix.len() + 1 + DIGITS);
    id.push_str(prefix);
    id.push('_');
    for place in (0..DIGITS).rev() {
        let digit = usize::try_from(number >> (place * 5) & 31).unwrap_or_default();
        id.push(ALPHABET.get(digit).copied().map_or('0', char::from));
    }
    Ok(id)
}

const DIGITS: usize = 26;
/// The alphabet of Crockford's base 32.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_increase_with_time_and_never_repeat() {
        let ids: Vec<String> = (0..1_000).map(|ms| new_id("prj", 1_795_000_000_000 + ms).unwrap()).collect();
        assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(ids.iter().all(|id| id.len() == 30 && id.starts_with("prj_01")), "{}", ids[0]);
        assert_ne!(new_id("prj", 7).unwrap(), new_id("prj", 7).unwrap());
    }
}
