//! Reads CSV (RFC 4180): cells separated by commas, quoted if they contain commas, quotes or line ends. The separator
//! is a semicolon or a tab if the first line has more of those.

/// An iterator over the lines of a text, each as cells. Skips empty lines.
#[derive(Debug)]
pub(super) struct CsvLines<'a> {
    rest: &'a str,
    separator: char,
}

impl<'a> CsvLines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let first = text.lines().next().unwrap_or_default();
        let often = |separator: &char| first.matches(*separator).count();
        // `max_by_key` returns the last of several maxima, so a comma wins a tie.
        let separator = [';', '\t', ','].into_iter().max_by_key(often).unwrap_or(',');
        Self { rest: text, separator }
    }

    /// Reads one cell. The bool is true if the cell ends its line.
    fn cell(&mut self) -> (String, bool) {
        let mut cell = String::new();
        let mut chars = self.rest.char_indices().peekable();
        let mut quoted = false;
        while let Some((at, char)) = chars.next() {
            match char {
                '"' if quoted && chars.peek().is_some_and(|(_, next)| *next == '"') => {
                    cell.push('"');
                    chars.next();
                }
                '"' if quoted || cell.is_empty() => quoted = !quoted,
                '\n' if !quoted => return (self.end(cell, at + 1), true),
                '\r' if !quoted && chars.peek().is_some_and(|(_, next)| *next == '\n') => {}
                _ if char == self.separator && !quoted => return (self.end(cell, at + 1), false),
                _ => cell.push(char),
            }
        }
        self.rest = "";
        (cell, true)
    }

    fn end(&mut self, cell: String, next: usize) -> String {
        self.rest = self.rest.get(next..).unwrap_or_default();
        cell
    }
}

impl Iterator for CsvLines<'_> {
    type Item = Vec<String>;

    fn next(&mut self) -> Option<Vec<String>> {
        while !self.rest.is_empty() {
            let mut cells = Vec::new();
            loop {
                let (cell, is_last) = self.cell();
                cells.push(cell);
                if is_last {
                    break;
                }
            }
            if cells.len() > 1 || cells.iter().any(|cell| !cell.trim().is_empty()) {
                return Some(cells);
            }
        }
        None
    }
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
            assert_eq!(CsvLines::new(text).collect::<Vec<_>>(), want, "{text:?}");
        }
    }
}
