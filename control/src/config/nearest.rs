//! The known name that a misspelt one was probably meant to be.

/// The one of `known` nearest to `name`, if it is near enough to be worth naming.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let bound = (name.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= bound && *candidate != name)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edits (insert, delete, replace, swap of neighbours) that turn `left` into `right`, letter case ignored.
/// Inputs over [`CHARS_MAX`] count as far apart, so that a hostile key costs nothing.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().take(CHARS_MAX + 1).map(|c| c.to_ascii_lowercase()).collect();
    let right: Vec<char> = right.chars().take(CHARS_MAX + 1).map(|c| c.to_ascii_lowercase()).collect();
    if left.len() > CHARS_MAX || right.len() > CHARS_MAX {
        return usize::MAX;
    }
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (row, l) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, r) in right.iter().enumerate() {
            let at = |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX / 2);
            let replace = at(&last, column) + usize::from(l != r);
            let mut best = replace.min(at(&last, column + 1) + 1).min(at(&current, column) + 1);
            if row > 0 && column > 0 && left.get(row - 1) == Some(r) && right.get(column - 1) == Some(l) {
                best = best.min(at(&before_last, column - 1) + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last.last().copied().unwrap_or(usize::MAX)
}

const CHARS_MAX: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_likely_one_or_none() {
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
    fn a_huge_name_is_far_from_everything() {
        assert_eq!(nearest(&"a".repeat(1 << 20), ["a", "base_url"]), None);
    }
}
