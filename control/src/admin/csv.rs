//! Writes CSV (RFC 4180) that spreadsheets never interpret as formulas.

/// Appends one line.
pub(crate) fn line(text: &mut String, fields: &[&str]) {
    for (number, field) in fields.iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        put(text, field);
    }
    text.push_str("\r\n");
}

fn put(text: &mut String, field: &str) {
    // Spreadsheets evaluate cells with these prefixes; a leading apostrophe makes the cell text.
    let formula = field.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if !formula && !field.contains([',', '"', '\n', '\r']) {
        text.push_str(field);
        return;
    }
    text.push('"');
    if formula {
        text.push('\'');
    }
    text.push_str(&field.replace('"', "\"\""));
    text.push('"');
}

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
        ] {
            let mut text = String::new();
            line(&mut text, &[field, "x"]);
            assert_eq!(text, format!("{want},x\r\n"));
        }
    }
}
