//! Reads CSV (RFC 4180): cells separated by commas, quoted if they contain commas, quotes or line ends. The separator
//! is a semicolon or a tab if the first line has more of those.

use csv::ReaderBuilder;

/// Returns the lines of a text, each as cells, without empty lines.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Vec<String>> {
    let first = text.lines().next().unwrap_or_default();
    let often = |separator: &char| first.matches(*separator).count();
    // `max_by_key` returns the last of several maxima, so a comma wins a tie.
    let separator = [';', '\t', ','].into_iter().max_by_key(often).unwrap_or(',');
    let separator = u8::try_from(separator).unwrap_or(b',');
    let reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(separator)
        .from_reader(text.as_bytes());
    let lines = reader.into_records().map_while(Result::ok);
    let lines = lines.map(|line| line.iter().map(str::to_owned).collect::<Vec<_>>());
    lines.filter(|cells| cells.len() > 1 || cells.iter().any(|cell| !cell.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_cells_are_split_as_in_rfc_4180() {
        for (text, want) in [
            ("a,b\r\n1,2\r\n", vec![vec!["a", "b"], vec!["1", "2"]]),
            ("a,b\n1,", vec![vec!["a", "b"], vec!["1", ""]]),
            ("\"a,b\",\"c\"\"d\"\n\n\"x\ny\",2", vec![vec!["a,b", "c\"d"], vec!["x\ny", "2"]]),
            ("a;b,c;d\n1;2;3\n", vec![vec!["a", "b,c", "d"], vec!["1", "2", "3"]]),
            ("a\tb\n1\t2", vec![vec!["a", "b"], vec!["1", "2"]]),
            ("one\n\"open", vec![vec!["one"], vec!["open"]]),
            ("", vec![]),
        ] {
            assert_eq!(lines(text).collect::<Vec<_>>(), want, "{text:?}");
        }
    }
}
