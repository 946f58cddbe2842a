//! A JSON writer. Members are written in call order, and commas are inserted automatically.
//!
//! The caller opens and closes objects and lists, and writes whole values inside them.

use super::{Tree, write};

/// Writes one document, or several in a row.
#[derive(Debug, Default)]
pub struct JsonWriter {
    out: Vec<u8>,
}

impl JsonWriter {
    /// Creates a writer with room for `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { out: Vec::with_capacity(bytes) }
    }

    /// Opens an object: `{`.
    pub fn object(&mut self) -> &mut Self {
        self.open(b'{')
    }

    /// Closes an object: `}`.
    pub fn end_object(&mut self) -> &mut Self {
        self.out.push(b'}');
        self
    }

    /// Opens a list with a left bracket.
    pub fn list(&mut self) -> &mut Self {
        self.open(b'[')
    }

    /// Closes a list with a right bracket.
    pub fn end_list(&mut self) -> &mut Self {
        self.out.push(b']');
        self
    }

    /// Writes the name of a member; its value must be written next. The name must not need escaping.
    pub fn name(&mut self, name: &str) -> &mut Self {
        self.open(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self
    }

    /// Writes the name of a member like `name`, and escapes it.
    pub fn quoted_name(&mut self, name: &str) -> &mut Self {
        self.text(name).bytes(b":")
    }

    /// Writes a string and escapes it.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.comma();
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut self.out, text);
        self
    }

    /// Writes a string that is already escaped.
    pub fn escaped(&mut self, text: &str) -> &mut Self {
        self.open(b'"').bytes(text.as_bytes()).bytes(b"\"")
    }

    /// Writes a whole number.
    pub fn number(&mut self, number: u64) -> &mut Self {
        self.comma();
        let _ = serde_json::to_writer(&mut self.out, &number);
        self
    }

    /// Writes a number; null if it is not finite.
    pub fn float(&mut self, number: f64) -> &mut Self {
        self.comma();
        let _ = serde_json::to_writer(&mut self.out, &number);
        self
    }

    /// Writes a value that is already JSON.
    pub fn raw(&mut self, json: &[u8]) -> &mut Self {
        self.comma();
        self.out.extend_from_slice(json);
        self
    }

    /// Writes a value of a parsed document.
    pub fn tree(&mut self, value: Tree<'_, '_>) -> &mut Self {
        self.comma();
        write(value, &mut self.out);
        self
    }

    /// Writes bytes without inserting a comma: text between documents, or parts of a document whose commas the caller
    /// writes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// True if nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Returns a copy of the output and clears the writer. Keeps at most `KEPT_BYTES_MAX` of its memory for the next
    /// document.
    pub fn take_copy(&mut self) -> bytes::Bytes {
        let taken = bytes::Bytes::copy_from_slice(&self.out);
        self.out.clear();
        self.out.shrink_to(KEPT_BYTES_MAX);
        taken
    }

    /// Returns the output.
    pub fn finish(self) -> Vec<u8> {
        self.out
    }

    fn open(&mut self, byte: u8) -> &mut Self {
        self.comma();
        self.out.push(byte);
        self
    }

    #[inline]
    fn comma(&mut self) {
        if !matches!(self.out.last(), None | Some(b'{' | b'[' | b':' | b',' | b'\n' | b' ')) {
            self.out.push(b',');
        }
    }
}

/// The maximum memory that a writer keeps between two documents, in bytes.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Returns `json`, which must be valid, without the white space between its tokens.
pub(crate) fn compact(json: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(json.len()), json);
    while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'"' | b' ' | b'\t' | b'\n' | b'\r')) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let text = from.strip_prefix('"');
        let length = text
            .map_or(1, |text| super::text_length(text.as_bytes()).map_or(from.len(), |length| length + 2));
        let (this, after) = from.split_at_checked(length).unwrap_or((from, ""));
        if text.is_some() {
            out.push_str(this);
        }
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writer_adds_commas() {
        let mut writer = JsonWriter::default();
        writer
            .object()
            .name("a")
            .list()
            .number(1)
            .text("x,\"")
            .escaped("\\n")
            .raw(b"null")
            .object()
            .end_object()
            .end_list();
        writer.name("b").object().name("c").list().end_list().end_object().name("d").text("").end_object();
        let want = r#"{"a":[1,"x,\"","\n",null,{}],"b":{"c":[]},"d":""}"#;
        assert_eq!(String::from_utf8_lossy(&writer.take_copy()), want);
        assert!(writer.is_empty());
    }

    #[test]
    fn compacting_removes_white_space_outside_strings() {
        let rows = [
            ("{ \"a b\" : [ 1 ,\n\t2 ] , \"c\":\" \\\" x \" }", r#"{"a b":[1,2],"c":" \" x "}"#),
            ("{}", "{}"),
            (" 1 ", "1"),
            ("[\"\",\"\\\\\" , true]", r#"["","\\",true]"#),
        ];
        for (json, want) in rows {
            assert_eq!(compact(json), want);
        }
    }
}
