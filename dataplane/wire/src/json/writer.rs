//! JSON written by hand: members come out in the order in which they are said, and commas come by themselves.
//!
//! The caller opens and closes objects and lists; what is written inside is whole values.

use super::{Tree, write};

/// Writes one document, or several in a row.
#[derive(Debug, Default)]
pub struct JsonWriter {
    out: Vec<u8>,
}

impl JsonWriter {
    /// `{`, as a value.
    pub fn object(&mut self) -> &mut Self {
        self.open(b'{')
    }

    /// `}`
    pub fn end_object(&mut self) -> &mut Self {
        self.out.push(b'}');
        self
    }

    /// `[`, as a value.
    pub fn list(&mut self) -> &mut Self {
        self.open(b'[')
    }

    /// `]`
    pub fn end_list(&mut self) -> &mut Self {
        self.out.push(b']');
        self
    }

    /// The name of a member, whose value comes next. It needs no escapes.
    pub fn name(&mut self, name: &str) -> &mut Self {
        self.open(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self
    }

    /// A string.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.comma();
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut self.out, text);
        self
    }

    /// A string that is escaped already.
    pub fn escaped(&mut self, text: &str) -> &mut Self {
        self.open(b'"').bytes(text.as_bytes()).bytes(b"\"")
    }

    /// A whole number.
    pub fn number(&mut self, number: u64) -> &mut Self {
        self.comma();
        let _ = serde_json::to_writer(&mut self.out, &number);
        self
    }

    /// A value that is JSON already.
    pub fn raw(&mut self, json: &[u8]) -> &mut Self {
        self.comma();
        self.out.extend_from_slice(json);
        self
    }

    /// A value of another document.
    pub fn tree(&mut self, value: Tree<'_, '_>) -> &mut Self {
        self.comma();
        write(value, &mut self.out);
        self
    }

    /// Bytes that are no value of their own: what stands around documents, or parts of one whose commas are the
    /// caller's.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// What has been written. The memory is kept for what comes next, if it is not much.
    pub fn take_copy(&mut self) -> bytes::Bytes {
        let taken = bytes::Bytes::copy_from_slice(&self.out);
        self.out.clear();
        self.out.shrink_to(KEPT_BYTES_MAX);
        taken
    }

    /// What has been written.
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

/// Memory that a writer keeps between two documents.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// `json`, which is valid, without the white space between its values.
pub fn compact(json: &[u8], out: &mut Vec<u8>) {
    let mut rest = json;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b' ' | b'\t' | b'\n' | b'\r')) {
        let (before, from) = rest.split_at_checked(at).unwrap_or_default();
        out.extend_from_slice(before);
        let length = match from.split_first() {
            Some((b'"', inside)) => super::text_length(inside).map_or(from.len(), |(length, _)| length + 2),
            Some(_) | None => 1,
        };
        let (this, after) = from.split_at_checked(length).unwrap_or((from, &[]));
        if this.first() == Some(&b'"') {
            out.extend_from_slice(this);
        }
        rest = after;
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_come_by_themselves() {
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
    fn white_space_goes_but_not_from_strings() {
        let rows = [
            ("{ \"a b\" : [ 1 ,\n\t2 ] , \"c\":\" \\\" x \" }", r#"{"a b":[1,2],"c":" \" x "}"#),
            ("{}", "{}"),
            (" 1 ", "1"),
            ("[\"\",\"\\\\\" , true]", r#"["","\\",true]"#),
        ];
        for (json, want) in rows {
            let mut out = Vec::new();
            compact(json.as_bytes(), &mut out);
            assert_eq!(String::from_utf8_lossy(&out), want);
        }
    }
}
