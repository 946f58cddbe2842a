//! Suggestions for misspelt names.

use strsim::osa_distance;

/// Returns the name in `known` that is nearest to `name`, if it is close enough for a suggestion. Ignores letter case.
/// A name of more than [`CHARS_MAX`] characters matches nothing, so that hostile input costs nothing.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let count = name.chars().take(CHARS_MAX + 1).count();
    if count > CHARS_MAX {
        return None;
    }
    let bound = (count / 3).max(1);
    let lower = name.to_ascii_lowercase();
    known
        .into_iter()
        .filter(|candidate| candidate.len() <= CHARS_MAX && *candidate != name)
        .map(|candidate| (osa_distance(&lower, &candidate.to_ascii_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= bound)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

const CHARS_MAX: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_known_name_is_suggested_if_close_enough() {
        let known = ["base_url", "api_key", "timeout", "stream_idle_timeout", "type"];
        let cases = [
            ("base_ulr", Some("base_url")),
            ("baseurl", Some("base_url")),
            ("apikey", Some("api_key")),
            ("API_KEY", Some("api_key")),
            ("timeot", Some("timeout")),
            ("tpye", Some("type")),
            ("wholly_different", None),
            ("x", None),
            ("", None),
        ];
        for (name, want) in cases {
            assert_eq!(nearest(name, known), want, "{name}");
        }
    }

    #[test]
    fn a_huge_name_has_no_nearest_name() {
        assert_eq!(nearest(&"a".repeat(1 << 20), ["a", "base_url"]), None);
    }
}
