//! Removes quoted text from errors of upstreams: they quote what a client sent, prompts included. Names (of models, members,
//! types) are kept, because they are why an error is read.

use std::borrow::Cow;

/// Returns `text` with each quoted part that may be a piece of a prompt replaced by `…` within its quotes. For errors that are
/// stored: no prompt is in a record, a log or a backup.
pub fn without_quoted_text(text: &str) -> Cow<'_, str> {
    let mut clean = String::new();
    let (mut rest, mut before) = (text, ' ');
    while let Some((at, open)) = rest.char_indices().find(|(_, c)| closing(*c).is_some()) {
        let (head, quoted) = rest.split_at(at);
        before = head.chars().next_back().unwrap_or(before);
        let inner = quoted.strip_prefix(open).unwrap_or_default();
        let end = if joins(before) { None } else { closing(open).map(|close| end_of(inner, close)) };
        clean.push_str(head);
        clean.push(open);
        (rest, before) = match end {
            // An apostrophe within a word.
            None => (inner, open),
            Some(end) => {
                let (content, after) = inner.split_at(end.unwrap_or(inner.len()));
                clean.push_str(if is_name(content) { content } else { ELLIPSIS });
                (after, ELLIPSIS_END)
            }
        };
        // The closing mark opens nothing.
        if let Some(mark) = rest.chars().next().filter(|_| end.is_some()) {
            clean.push(mark);
            (rest, before) = (rest.get(mark.len_utf8()..).unwrap_or_default(), mark);
        }
    }
    if clean.is_empty() {
        return Cow::Borrowed(text);
    }
    clean.push_str(rest);
    Cow::Owned(clean)
}

/// Returns the mark that ends what `open` begins.
fn closing(open: char) -> Option<char> {
    match open {
        '"' | '\'' | '`' => Some(open),
        '“' | '„' => Some('”'),
        '‘' | '‚' => Some('’'),
        '«' => Some('»'),
        '「' => Some('」'),
        _ => None,
    }
}

/// Returns the place of the mark that ends a quotation: one that no backslash precedes and that does not stand within a word.
/// `None` if the text ends first.
fn end_of(text: &str, close: char) -> Option<usize> {
    let ends = |at: usize| {
        let after = text.get(at + close.len_utf8()..).and_then(|after| after.chars().next());
        let is_escaped = text.get(..at).is_some_and(|before| before.ends_with('\\'));
        !is_escaped && !after.is_some_and(joins)
    };
    text.match_indices(close).map(|(at, _)| at).find(|at| ends(*at))
}

/// True for a character beside which a mark may be an apostrophe. Scripts without spaces between words write quotations
/// directly beside other characters.
fn joins(beside: char) -> bool {
    let has_no_spaces = matches!(beside, '\u{e00}'..='\u{eff}' | '\u{2e80}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..);
    beside.is_alphanumeric() && !has_no_spaces
}

/// True for names of models, members, types and paths: one word of a few characters.
fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.:/@[]{}*,=<>".contains(c);
    text.len() <= NAME_BYTES_MAX && text.chars().all(is_part)
}

const ELLIPSIS: &str = "…";
const ELLIPSIS_END: char = '…';
const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_prompts_are_removed_and_names_stay() {
        for (text, want) in [
            ("The model `gpt-5.1-mini` does not exist.", "The model `gpt-5.1-mini` does not exist."),
            ("Invalid 'messages[0].content'", "Invalid 'messages[0].content'"),
            ("Rate limit reached for \"org/model:free\"", "Rate limit reached for \"org/model:free\""),
            ("your message 'my private words' was flagged", "your message '…' was flagged"),
            ("your message “my private words” was flagged", "your message “…” was flagged"),
            ("You can't use it; it doesn't work", "You can't use it; it doesn't work"),
            ("'it's mine' isn't allowed", "'…' isn't allowed"),
            ("got {\"content\": \"my secret words\"}", "got {\"content\": \"…\"}"),
            ("got \"a \\\"quoted word\\\" inside\" here", "got \"…\" here"),
            ("input: 'my words that never end", "input: '…"),
            ("«mes mots privés» refusé", "«…» refusé"),
            ("「秘密」は禁止", "「…」は禁止"),
            ("模型拒绝了'我的秘密'的内容", "模型拒绝了'…'的内容"),
            ("'秘密'", "'…'"),
            ("\"\" is empty", "\"\" is empty"),
            ("plain", "plain"),
            ("", ""),
            ("'", "'"),
        ] {
            assert_eq!(without_quoted_text(text), want, "{text}");
        }
        let long = format!("'{}'", "a".repeat(NAME_BYTES_MAX + 1));
        assert_eq!(without_quoted_text(&long), "'…'");
    }
}
