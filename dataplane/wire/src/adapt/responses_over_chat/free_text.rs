//! Reads the input of a custom tool from the arguments of the function that stands for it, while they arrive.
//!
//! The arguments are `{"input": "the text"}`. Some models send the text itself, or another member; a call is never lost
//! because of that.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::chat::escape;
use crate::chat::request::free_text::ARGUMENT;

/// Reads the arguments of one call. Its output is escaped as in JSON, and never ends inside an escape sequence.
#[derive(Debug, Default)]
pub(super) struct FreeTextReader {
    state: State,
    /// The arguments, until the text has been found.
    arguments: String,
}

#[derive(Debug, Default)]
enum State {
    /// Before the first character that is not blank.
    #[default]
    Start,
    /// Inside the object, outside strings. `depth` is 1 in the outer object.
    Between { depth: usize, place: Place },
    /// Inside a string other than the text. `name` is its content if it is a name of the outer object.
    Skipped { depth: usize, name: Option<String>, is_escaped: bool },
    /// Inside the text. `escape` is the beginning of an incomplete escape sequence.
    Text { escape: String },
    /// The arguments are not an object: they are the text.
    Plain,
    /// After the text.
    Done,
}

/// The place in the outer object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    BeforeName,
    AfterName { is_text: bool },
    InValue,
}

impl FreeTextReader {
    /// Reads the next piece of the arguments and appends the text in it to `out`.
    pub(super) fn push(&mut self, mut piece: &str, out: &mut String) {
        if !matches!(self.state, State::Text { .. } | State::Plain | State::Done) {
            self.arguments.push_str(piece);
        }
        while let Some(first) = piece.chars().next() {
            match &mut self.state {
                State::Plain => {
                    out.push_str(&escape(Cow::Borrowed(piece)));
                    return;
                }
                State::Done => return,
                State::Text { escape: pending } if pending.is_empty() => {
                    let end = piece.find(['"', '\\']).unwrap_or(piece.len());
                    let (text, rest) = piece.split_at(end);
                    out.push_str(&escape(Cow::Borrowed(text)));
                    piece = rest;
                    match rest.chars().next() {
                        Some('"') => self.state = State::Done,
                        Some(backslash) => {
                            pending.push(backslash);
                            piece = rest.get(1..).unwrap_or_default();
                        }
                        None => {}
                    }
                    continue;
                }
                State::Text { escape: pending } => {
                    // A quote after a high surrogate ends the text.
                    if put_escaped(pending, first, out) {
                        piece = after(piece, first);
                    }
                    continue;
                }
                State::Start | State::Between { .. } | State::Skipped { .. } => self.skip(first, piece, out),
            }
            piece = after(piece, first);
        }
    }

    /// Reads a character before the text.
    fn skip(&mut self, first: char, piece: &str, out: &mut String) {
        let state = std::mem::take(&mut self.state);
        self.state = match state {
            State::Start if first.is_whitespace() => State::Start,
            State::Start if first == '{' => State::Between { depth: 1, place: Place::BeforeName },
            State::Start => {
                // The piece is written by the caller, except for this character.
                let before = self.arguments.len().saturating_sub(piece.len());
                out.push_str(&escape(Cow::Borrowed(self.arguments.get(..before).unwrap_or_default())));
                out.push_str(&escape(first.to_string().into()));
                State::Plain
            }
            State::Between { depth, place } => between(first, depth, place),
            State::Skipped { depth, name, is_escaped: false } if first == '"' => {
                let place = match name {
                    Some(name) => Place::AfterName { is_text: name == ARGUMENT },
                    None => Place::InValue,
                };
                State::Between { depth, place }
            }
            State::Skipped { depth, mut name, is_escaped } => {
                // Only its equality with the argument's name matters.
                if let Some(name) = name.as_mut().filter(|name| name.len() <= ARGUMENT.len()) {
                    name.push(first);
                }
                State::Skipped { depth, name, is_escaped: first == '\\' && !is_escaped }
            }
            state @ (State::Text { .. } | State::Plain | State::Done) => state,
        };
        if matches!(self.state, State::Text { .. } | State::Plain) {
            self.arguments = String::new();
        }
    }

    /// Ends the arguments and appends the rest of the text to `out`. Arguments without the expected member are searched
    /// for their only text; failing that, they are the text.
    pub(super) fn end(&mut self, out: &mut String) {
        let arguments = std::mem::take(&mut self.arguments);
        let has_text = matches!(self.state, State::Text { .. } | State::Plain | State::Done);
        self.state = State::Done;
        if has_text || arguments.trim().is_empty() {
            return;
        }
        let members = serde_json::from_str::<Map<String, Value>>(&arguments).unwrap_or_default();
        let mut texts = members.iter().filter_map(|(_, value)| value.as_str());
        match (texts.next(), texts.next()) {
            (Some(text), None) => out.push_str(&escape(Cow::Borrowed(text))),
            _ if arguments.trim() == "{}" => {}
            _ => out.push_str(&escape(Cow::Owned(arguments))),
        }
    }
}

/// Returns the state after `first`, which is outside strings.
fn between(first: char, depth: usize, place: Place) -> State {
    let outer = depth == 1;
    match (first, place) {
        ('"', Place::AfterName { is_text: true }) if outer => State::Text { escape: String::new() },
        ('"', _) => {
            let name = (outer && place == Place::BeforeName).then(String::new);
            State::Skipped { depth, name, is_escaped: false }
        }
        ('{' | '[', _) => State::Between { depth: depth.saturating_add(1), place: Place::InValue },
        ('}' | ']', _) if outer => State::Between { depth, place: Place::InValue },
        ('}' | ']', _) => State::Between { depth: depth.saturating_sub(1), place: Place::InValue },
        (',', _) if outer => State::Between { depth, place: Place::BeforeName },
        (':', _) => State::Between { depth, place },
        (blank, _) if blank.is_whitespace() => State::Between { depth, place },
        _ => State::Between { depth, place: Place::InValue },
    }
}

/// Adds `next` to the incomplete escape sequence `pending`, and writes it to `out` once it is complete. Returns false if
/// `next` is not part of it.
fn put_escaped(pending: &mut String, next: char, out: &mut String) -> bool {
    let done = |pending: &mut String, out: &mut String, text: &str| {
        out.push_str(text);
        pending.clear();
    };
    if pending.len() == SURROGATE_BYTES && next != '\\' {
        done(pending, out, REPLACEMENT);
        return false;
    }
    match (pending.len() % SURROGATE_BYTES, next) {
        (0, _) => pending.push(next),
        (1, 'u') => pending.push(next),
        (1, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => {
            if pending.len() > SURROGATE_BYTES {
                pending.replace_range(..SURROGATE_BYTES, REPLACEMENT);
            }
            pending.push(next);
            let whole = std::mem::take(pending);
            out.push_str(&whole);
        }
        (2..=5, digit) if digit.is_ascii_hexdigit() => {
            pending.push(digit);
            end_unicode(pending, out);
        }
        _ => {
            // Not an escape sequence: the characters themselves.
            let whole = std::mem::take(pending);
            out.push_str(&escape(Cow::Owned(whole)));
            return false;
        }
    }
    true
}

/// Writes `pending` if its last `\u` sequence is complete, except for a high surrogate, which waits for its other half.
fn end_unicode(pending: &mut String, out: &mut String) {
    if !pending.len().is_multiple_of(SURROGATE_BYTES) {
        return;
    }
    let unit = |at: usize| {
        let digits =
            pending.get(at.saturating_add(2)..at.saturating_add(SURROGATE_BYTES)).unwrap_or_default();
        u16::from_str_radix(digits, 16).unwrap_or_default()
    };
    let (is_second, last) =
        (pending.len() > SURROGATE_BYTES, unit(pending.len().saturating_sub(SURROGATE_BYTES)));
    match last {
        0xD800..=0xDBFF if is_second => {
            // Two first halves: the second one may still become a pair.
            out.push_str(REPLACEMENT);
            pending.replace_range(..SURROGATE_BYTES, "");
        }
        0xD800..=0xDBFF => {}
        0xDC00..=0xDFFF if is_second => out.push_str(&std::mem::take(pending)),
        0xDC00..=0xDFFF => {
            pending.clear();
            out.push_str(REPLACEMENT);
        }
        _ => {
            if is_second {
                pending.replace_range(..SURROGATE_BYTES, REPLACEMENT);
            }
            out.push_str(&std::mem::take(pending));
        }
    }
}

fn after(piece: &str, first: char) -> &str {
    piece.get(first.len_utf8()..).unwrap_or_default()
}

/// The length of a `\uXXXX` sequence.
const SURROGATE_BYTES: usize = 6;
/// Replaces half of a surrogate pair.
const REPLACEMENT: &str = "\\ufffd";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Returns the text of arguments that arrive in these pieces, still escaped.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
        let (mut reader, mut out) = (FreeTextReader::default(), String::new());
        for piece in pieces {
            reader.push(piece, &mut out);
            assert!(serde_json::from_str::<String>(&format!("\"{out}\"")).is_ok(), "{out}");
        }
        reader.end(&mut out);
        serde_json::from_str(&format!("\"{out}\"")).unwrap()
    }

    /// Reads `arguments` cut in two at every character.
    fn text_of(arguments: &str) -> String {
        let whole = read([arguments]);
        for (at, _) in arguments.char_indices() {
            let (before, after) = arguments.split_at(at);
            assert_eq!(read([before, after]), whole, "{arguments:?} cut at {at}");
        }
        assert_eq!(read(arguments.split_inclusive(|_| true)), whole, "{arguments:?}");
        whole
    }

    #[test]
    fn the_free_text_is_found_in_any_arguments() {
        let rows = [
            (r#"{"input":"*** Begin Patch\n+a \"b\"\n"}"#, "*** Begin Patch\n+a \"b\"\n"),
            (r#" { "input" : "a" } "#, "a"),
            (r#"{"why":{"input":"no","x":["input"]},"input":"yes"}"#, "yes"),
            (r#"{"n":1,"t":true,"input":"yes","more":"no"}"#, "yes"),
            (r#"{"x":"input","input":"yes"}"#, "yes"),
            (r#"{"patch":"only text","n":1}"#, "only text"),
            (r#"{"a":"x","b":"y"}"#, r#"{"a":"x","b":"y"}"#),
            (r#"{"input":{"a":"x"}}"#, r#"{"input":{"a":"x"}}"#),
            (r#"{"in\u0070ut":"x"}"#, "x"),
            ("*** Begin Patch\n\"x\"", "*** Begin Patch\n\"x\""),
            (" \n*** Begin", " \n*** Begin"),
            (r#""a \n string""#, r#""a \n string""#),
            ("{\"input\":\"raw\nline\tend\"}", "raw\nline\tend"),
            (r#"{"input":"cut o"#, "cut o"),
            (r#"{"input":"cut \"#, "cut "),
            (r#"{"input":"\ud83d\ude80 \u00fc"}"#, "\u{1f680} ü"),
            (r#"{"input":"\ud83d"}"#, "\u{fffd}"),
            (
                r#"{"input":"\ud83dx\ude80\ud83d\n\ud83d\ud83d\ude80"}"#,
                "\u{fffd}x\u{fffd}\u{fffd}\n\u{fffd}\u{1f680}",
            ),
            (r#"{"input":"\ud83d\u0041\q\u12x"}"#, "\u{fffd}A\\q\\u12x"),
            (r#"{"input":""}"#, ""),
            ("{}", ""),
            ("", ""),
            (" ", ""),
        ];
        for (arguments, want) in rows {
            assert_eq!(text_of(arguments), want, "{arguments:?}");
        }
    }

    proptest! {
        #[test]
        fn any_free_text_arrives_unchanged(text in any::<String>(), cut in 1_usize..9) {
            let arguments = json!({"input": text}).to_string();
            let letters: Vec<char> = arguments.chars().collect();
            let pieces: Vec<String> = letters.chunks(cut).map(|chunk| chunk.iter().collect()).collect();
            prop_assert_eq!(read(pieces.iter().map(String::as_str)), text);
        }

        #[test]
        fn any_arguments_become_a_text(arguments in any::<String>(), prefix in "(\\{\"input\":\"(\\\\ud83d)?)?") {
            text_of(&(prefix + &arguments));
        }
    }
}
