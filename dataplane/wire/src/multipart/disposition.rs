//! Parses the parameters of the two headers that define a form's boundary and the names of its parts.

/// Returns the boundary from a `Content-Type` of a form (RFC 2046 section 5.1.1: 1 to 70 characters).
pub fn boundary(content_type: &str) -> Option<String> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    parameter(parameters, "boundary").filter(|boundary| (1..=70).contains(&boundary.len()))
}

/// Returns the name of the part with these header lines.
pub(super) fn part_name(head: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let value = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    let (kind, parameters) = value.split_once(';')?;
    if kind.trim().eq_ignore_ascii_case("form-data") { parameter(parameters, "name") } else { None }
}

/// Returns the value of a parameter in `; name=value; other="quoted"`.
fn parameter(mut rest: &str, wanted: &str) -> Option<String> {
    loop {
        let (name, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let (value, tail) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let (token, tail) = after.split_once(';').unwrap_or((after, ""));
                (token.trim().to_owned(), tail)
            }
        };
        if name.trim_matches([' ', '\t', ';']).eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = tail;
    }
}

/// Returns the unescaped text before the closing quote, and the text after it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(chars.next()?.1),
            other => value.push(other),
        }
    }
    None
}
