//! Prepares text for the engine: without the tags that it interprets, in pieces of about a sentence.

/// Maximum bytes of a piece, which the engine receives at once; a multi-byte character may exceed it.
const PIECE_BYTES_MAX: usize = 400;

/// Replaces control characters, `<` and `>` with spaces: the engine interprets `<` as the start of a command, and stops
/// at control characters.
pub fn clean(text: &str) -> String {
    let keep = |char: char| if char.is_control() || matches!(char, '<' | '>') { ' ' } else { char };
    text.chars().map(keep).collect()
}

/// Splits clean text into pieces of at most about `PIECE_BYTES_MAX` bytes, in order. Pieces without letters or digits
/// are omitted.
pub(crate) fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(end_of_piece(rest));
        if piece.chars().any(char::is_alphanumeric) {
            pieces.push(piece.trim());
        }
        rest = tail.trim_start();
    }
    pieces
}

/// Returns the end of the first sentence, or the best position to split a long one.
fn end_of_piece(text: &str) -> usize {
    let mut space = None;
    let mut before = ' ';
    for (at, char) in text.char_indices() {
        if at > PIECE_BYTES_MAX {
            return space.unwrap_or(at);
        }
        if char.is_whitespace() {
            if matches!(before, '.' | '!' | '?' | ';' | ':' | '…') {
                return at;
            }
            space = Some(at);
        }
        before = char;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_controls_are_not_read() {
        assert_eq!(clean("a<speed level=\"500\">b\0c\u{7}"), "a speed level=\"500\" b c ");
    }

    #[test]
    fn text_is_split_between_sentences_without_loss() {
        assert_eq!(pieces(" One. Two? Three 3.5 four!  "), ["One.", "Two?", "Three 3.5 four!"]);
        assert_eq!(pieces("... \u{2014} !"), [""; 0]);
        let long = "words and more ".repeat(200);
        let cut = pieces(&long);
        assert!(cut.iter().all(|piece| piece.len() <= PIECE_BYTES_MAX + 4));
        assert_eq!(cut.join(" "), long.trim());
        let endless = "ü".repeat(1_000);
        assert_eq!(pieces(&endless).concat(), endless);
    }
}
