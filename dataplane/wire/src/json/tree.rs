//! Whole parsed documents, used where a document is translated into another dialect. Members keep their order, so that
//! schemas and arguments are written in their original order.

use simd_json::prelude::Writable as _;
use simd_json::tape::{Tape, Value};

use super::sink::Deaf;
use super::surrogate::mend_surrogates;
use super::{JsonFault, Scanner, What};

/// A value of a parsed document.
pub type Tree<'tape, 'text> = Value<'tape, 'text>;

/// Parses a whole object in place; the contents of `document` are overwritten. Applies the same rules as the scanner:
/// strict grammar, at most [`super::DEPTH_MAX`] levels. Unpaired surrogates become U+FFFD.
pub fn parse(document: &mut [u8]) -> Result<Tape<'_>, JsonFault> {
    let mut scanner = Scanner::new();
    scanner.push(document, &mut Deaf)?;
    scanner.finish()?;
    mend_surrogates(document);
    let end = document.len();
    // Errors that only this parser finds: text that is not UTF-8, and invalid escapes.
    simd_json::to_tape(document)
        .map_err(|error| JsonFault { offset: error.index().min(end), what: What::Unexpected(b'"') })
}

/// Writes `value` compactly. Members keep their order, and text is escaped only where necessary.
pub fn write(value: Tree<'_, '_>, out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = value.write(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(document: &str) -> String {
        let mut bytes = document.as_bytes().to_vec();
        let tape = parse(&mut bytes).unwrap();
        let mut out = Vec::new();
        write(tape.as_value(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_parsed_document_is_written_compact_and_in_order() {
        let members: Vec<String> = (0..100).rev().map(|n| format!(r#""k{n}":{n}"#)).collect();
        let many = format!("{{{}}}", members.join(","));
        assert_eq!(again(&many), many);
        assert_eq!(
            again(
                "{ \"a\" : [ 1 , -2, 0.5, 1e3 ], \"z\":{}, \"b\": \"\\u00fc\\n\\ud83d\\ude80\", \"n\": null, \"t\":true }"
            ),
            "{\"a\":[1,-2,0.5,1000.0],\"z\":{},\"b\":\"ü\\n\u{1f680}\",\"n\":null,\"t\":true}"
        );
        assert_eq!(
            again(r#"{"big":18446744073709551615,"bigger":18446744073709551616}"#),
            r#"{"big":18446744073709551615,"bigger":1.8446744073709552e19}"#
        );
    }

    #[test]
    fn half_of_a_surrogate_pair_becomes_a_replacement_character() {
        assert_eq!(
            again(r#"{"a":"cut \ud83d","b\ude80":"\ud83d\ude80"}"#),
            "{\"a\":\"cut \u{fffd}\",\"b\u{fffd}\":\"\u{1f680}\"}"
        );
    }

    #[test]
    fn invalid_json_is_rejected() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
        for document in ["", "{", "[]", "{\"a\":1}x", "{\"a\":\"\\x\"}", &deep] {
            assert!(parse(&mut document.as_bytes().to_vec()).is_err(), "{document}");
        }
        assert!(parse(&mut b"{\"a\":\"\xff\"}".to_vec()).is_err());
    }
}
