//! Patterns of messages: literal text in lower case, `{used}` and `{limit}` for numbers of tokens, and `{}` for any text.

/// Returns true if the pattern occurs in `message`, which is in lower case.
pub(super) fn fits(pattern: &str, message: &str) -> bool {
    find(pattern, message).is_some()
}

/// Returns the numbers of tokens that the pattern finds in `message`: used, and the limit. `None` unless it has both.
pub(super) fn numbers(pattern: &str, message: &str) -> Option<(u64, u64)> {
    let found = find(pattern, message)?;
    found.used.zip(found.limit)
}

#[derive(Clone, Copy, Default)]
struct Numbers {
    used: Option<u64>,
    limit: Option<u64>,
}

/// Finds the first place in `message` where the pattern fits.
fn find(pattern: &str, message: &str) -> Option<Numbers> {
    let first = pattern.split('{').next().filter(|first| !first.is_empty())?;
    let rest = pattern.get(first.len()..)?;
    message.match_indices(first).find_map(|(at, _)| {
        let after = message.get(at.checked_add(first.len())?..)?;
        follows(rest, after, Numbers::default())
    })
}

/// Returns the numbers if `message` starts with the rest of a pattern, which starts with a placeholder.
fn follows(pattern: &str, message: &str, found: Numbers) -> Option<Numbers> {
    if pattern.is_empty() {
        return Some(found);
    }
    let (placeholder, rest) = pattern.strip_prefix('{')?.split_once('}')?;
    let literal = rest.split('{').next().unwrap_or_default();
    let next = rest.get(literal.len()..)?;
    if placeholder.is_empty() {
        let starts = message.match_indices(literal);
        let mut ends = starts.filter_map(|(at, _)| message.get(at.checked_add(literal.len())?..));
        return ends.find_map(|after| follows(next, after, found));
    }
    let (number, after) = number(message)?;
    let found = match placeholder {
        "used" => Numbers { used: Some(number), ..found },
        _ => Numbers { limit: Some(number), ..found },
    };
    follows(next, after.strip_prefix(literal)?, found)
}

/// Reads a number, in which groups of digits may be separated. Returns what follows it.
fn number(message: &str) -> Option<(u64, &str)> {
    let end =
        message.find(|c: char| !(c.is_ascii_digit() || matches!(c, ',' | '_'))).unwrap_or(message.len());
    let (digits, _) = message.split_at_checked(end)?;
    let digits = digits.trim_end_matches([',', '_']);
    let number = digits.replace([',', '_'], "").parse().ok()?;
    Some((number, message.get(digits.len()..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_finds_its_numbers() {
        for (pattern, message, want) in [
            ("a {used} b {limit}", "x a 12 b 10.", Some((12, 10))),
            ("a {used} b {limit}", "a x, a 12 b 10", Some((12, 10))),
            (
                "is {limit} tokens{}resulted in {used} t",
                "is 8,192 tokens. it resulted in 9_011 t",
                Some((9011, 8192)),
            ),
            ("limit {limit}, requested {used}", "limit 10000, requested 15088, please", Some((15088, 10000))),
            ("a {used} b {limit}", "a 12 b x", None),
            ("a {used}", "a 12", None),
            ("a {used} b {limit}", "a 99999999999999999999999 b 1", None),
        ] {
            assert_eq!(numbers(pattern, message), want, "{message}");
        }
        assert!(fits("a {used}", "ba 12") && fits("no model {} here", "no model 'x' here"));
        assert!(!fits("a {used}", "a b") && !fits("no model {} here", "no model 'x'"));
    }
}
