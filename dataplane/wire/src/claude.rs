//! Parses versions from the names of Claude models, in the spelling of any provider, and recognises signatures.

/// Returns the version of a Claude model. A name without a version counts as the newest; `None` if it is not a Claude
/// model.
pub(crate) fn version(model: &str) -> Option<(u64, u64)> {
    let model = model.to_ascii_lowercase();
    let (_, name) = model.split_once("claude")?;
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    // A date is not a version, and numbers after it are not either.
    let numbers = words.filter_map(|word| word.parse::<u64>().ok()).take_while(|number| *number < 100);
    let mut numbers = numbers.fuse();
    Some((numbers.next().unwrap_or(u64::MAX), numbers.next().unwrap_or_default()))
}

/// Returns true if `text` may be the signature of a thought: base64, unlike the marks that other vendors put there.
/// Escapes of JSON are accepted.
pub(crate) fn may_be_signature(text: &[u8]) -> bool {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\\');
    !text.is_empty() && text.iter().all(is_base64)
}

/// True if the model is one of the Opus models.
pub(crate) fn is_opus(model: &str) -> bool {
    model.to_ascii_lowercase().contains("opus")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claude_versions_are_read_from_any_spelling_of_the_name() {
        for (model, want) in [
            ("claude-sonnet-4-5-20250929", Some((4, 5))),
            ("claude-sonnet-4-20250514", Some((4, 0))),
            ("claude-3-7-sonnet-latest", Some((3, 7))),
            ("us.anthropic.claude-opus-4-6-v1:0", Some((4, 6))),
            ("claude-haiku-4-5@20251001", Some((4, 5))),
            ("anthropic/claude-opus-4.7", Some((4, 7))),
            ("claude-sonnet-5", Some((5, 0))),
            ("Claude-Fable-5-20260801", Some((5, 0))),
            ("claude-instant-1.2", Some((1, 2))),
            ("my-claude", Some((u64::MAX, 0))),
            ("gpt-5", None),
            ("", None),
        ] {
            assert_eq!(version(model), want, "{model}");
        }
    }
}
