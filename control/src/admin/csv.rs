//! Writes CSV (RFC 4180) that spreadsheets never interpret as formulas, whichever separator they expect.

use std::borrow::Cow;

use shared::characters::is_invisible;

/// Appends one line.
pub(crate) fn line(text: &mut String, fields: &[&str]) {
    for (number, field) in fields.iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        text.push_str(&cell(field));
    }
    text.push_str("\r\n");
}

/// Returns a field as it stands in a line: quoted where needed, and with an apostrophe, which makes a cell text, wherever a
/// spreadsheet would begin to read a formula.
pub(crate) fn cell(field: &str) -> Cow<'_, str> {
    let text = without_formulas(field);
    let is_plain =
        matches!(text, Cow::Borrowed(_)) && !text.contains([',', '"']) && !text.contains(SEPARATORS);
    if is_plain {
        return text;
    }
    Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
}

/// A spreadsheet that separates by semicolons or tabs begins a cell after each of them, and a row after each line break:
/// it sees no quotes that begin within a cell.
fn without_formulas(field: &str) -> Cow<'_, str> {
    let begins = |text: &str| text.trim_start_matches(is_skipped).starts_with(is_formula);
    let places = std::iter::once(0).chain(field.match_indices(SEPARATORS).map(|(at, mark)| at + mark.len()));
    let mut marked = String::new();
    let mut copied = 0;
    for at in places.filter(|at| field.get(*at..).is_some_and(begins)) {
        marked.push_str(field.get(copied..at).unwrap_or_default());
        marked.push('\'');
        copied = at;
    }
    if copied == 0 && marked.is_empty() {
        return Cow::Borrowed(field);
    }
    marked.push_str(field.get(copied..).unwrap_or_default());
    Cow::Owned(marked)
}

/// True for characters with which spreadsheets begin a formula, the full-width and small forms of East Asia included.
fn is_formula(c: char) -> bool {
    matches!(
        c,
        '=' | '+'
            | '-'
            | '@'
            | '\u{ff1d}'
            | '\u{ff0b}'
            | '\u{ff0d}'
            | '\u{ff20}'
            | '\u{fe66}'
            | '\u{fe62}'
            | '\u{fe63}'
            | '\u{fe6b}'
    )
}

/// True for characters that a spreadsheet may drop before a formula.
fn is_skipped(c: char) -> bool {
    c.is_whitespace() || c == '"' || is_invisible(c)
}

/// Characters that end a cell of some spreadsheet, besides the comma.
const SEPARATORS: [char; 4] = [';', '\t', '\n', '\r'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_fields_are_quoted_where_needed_and_never_formulas() {
        for (field, want) in [
            ("plain", "plain"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("a \"b\"", "\"a \"\"b\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "\"'=1+1\""),
            ("@cmd", "\"'@cmd\""),
            ("-2", "\"'-2\""),
            ("2-1", "2-1"),
            ("x;y", "\"x;y\""),
            ("x;=1+1;y", "\"x;'=1+1;y\""),
            ("x; =1", "\"x;' =1\""),
            ("x\t@cmd", "\"x\t'@cmd\""),
            ("x\r\n+1;-2", "\"x\r'\n'+1;'-2\""),
            ("x;\"=1\";y", "\"x;'\"\"=1\"\";y\""),
            ("\"=1+1\"", "\"'\"\"=1+1\"\"\""),
            ("＝1+1", "\"'＝1+1\""),
            ("x;＠cmd", "\"x;'＠cmd\""),
            ("－2", "\"'－2\""),
            ("\u{200b}=1", "\"'\u{200b}=1\""),
            ("a＝b", "a＝b"),
        ] {
            let mut text = String::new();
            line(&mut text, &[field, "x"]);
            assert_eq!(text, format!("{want},x\r\n"));
        }
    }
}
