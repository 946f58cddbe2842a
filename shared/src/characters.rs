//! Characters that a reader does not see: those that have no glyph, and those that change the direction of the text
//! around them. Two names that differ only by them look the same.

/// Returns true for characters that change the direction of text (Unicode's `Bidi_Control`).
pub fn is_direction_mark(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns true for characters without a glyph, direction marks included: format characters, fillers, and selectors of
/// variants. Spaces and control characters are not among them.
pub fn is_invisible(c: char) -> bool {
    is_direction_mark(c)
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200d}'
                | '\u{2028}'
                | '\u{2029}'
                | '\u{2060}'..='\u{2065}'
                | '\u{206a}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Returns the first invisible character of `text` that its script does not need: joiners between letters of scripts that
/// join them (Arabic to Sinhala, as IDNA permits them), and joiners and variants within a sequence of emoji, are needed.
pub fn needless_invisible(text: &str) -> Option<char> {
    let mut before = None;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        if is_invisible(c) && !is_needed(before, c, characters.peek().copied()) {
            return Some(c);
        }
        before = Some(c);
    }
    None
}

fn is_needed(before: Option<char>, c: char, after: Option<char>) -> bool {
    let (Some(before), after) = (before, after.unwrap_or(' ')) else { return false };
    let joins = |c: char| ('\u{620}'..='\u{dff}').contains(&c);
    match c {
        '\u{200c}' => joins(before) && joins(after),
        '\u{200d}' => (joins(before) && joins(after)) || (is_emoji(before) && is_emoji(after)),
        '\u{fe0f}' => is_emoji(before) && before != '\u{fe0f}',
        _ => false,
    }
}

/// True for symbols from which sequences of emoji are made, and for their variant selector.
fn is_emoji(c: char) -> bool {
    matches!(c, '\u{a9}' | '\u{ae}' | '\u{203c}'..='\u{3299}' | '\u{1f000}'..='\u{1faff}' | '\u{fe0f}')
        && !c.is_alphabetic()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_needless_unless_their_script_needs_them() {
        for (text, want) in [
            ("Ada Lovelace", None),
            ("Zoë, 東京, עברית", None),
            ("a\u{202e}b", Some('\u{202e}')),
            ("a\u{2066}b\u{2069}", Some('\u{2066}')),
            ("עברית\u{200f}", Some('\u{200f}')),
            ("ad\u{200b}min", Some('\u{200b}')),
            ("ad\u{200d}min", Some('\u{200d}')),
            ("ad\u{200c}min", Some('\u{200c}')),
            ("\u{feff}admin", Some('\u{feff}')),
            ("soft\u{ad}hyphen", Some('\u{ad}')),
            ("a\u{2028}b", Some('\u{2028}')),
            ("a\u{3164}", Some('\u{3164}')),
            ("a\u{e0041}", Some('\u{e0041}')),
            ("a\u{fe0f}", Some('\u{fe0f}')),
            ("می\u{200c}خواهم", None),
            ("ක්\u{200d}ෂ", None),
            ("می\u{200c}\u{200c}خواهم", Some('\u{200c}')),
            ("می\u{200c}", Some('\u{200c}')),
            ("❤\u{fe0f} team", None),
            ("❤\u{fe0f}\u{fe0f}", Some('\u{fe0f}')),
            ("👩\u{200d}💻", None),
            ("👩\u{200d}", Some('\u{200d}')),
            ("👁\u{fe0f}\u{200d}🗨\u{fe0f}", None),
        ] {
            assert_eq!(needless_invisible(text), want, "{text:?}");
        }
    }
}
