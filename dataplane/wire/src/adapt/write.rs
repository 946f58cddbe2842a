//! A JSON writer for objects, member by member.

use bytes::BufMut;

use crate::json::{self, Tree};

/// An open JSON object. Write its members, then call [`ObjectWriter::close`].
#[derive(Debug)]
pub(super) struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> ObjectWriter<'a> {
    /// Begins an object at the end of `out`.
    pub(super) fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    /// Begins a member and returns the buffer to write its value to. `name` must not need escapes.
    pub(super) fn key(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::replace(&mut self.empty, false) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Writes a member with a value of the client's document.
    pub(super) fn tree(&mut self, name: &str, value: Tree<'_, '_>) {
        json::write(value, self.key(name));
    }

    /// Writes a member with a string value.
    pub(super) fn text(&mut self, name: &str, text: &str) {
        string(self.key(name), text);
    }

    /// Writes a member whose value is JSON text.
    pub(super) fn raw(&mut self, name: &str, json: &str) {
        self.key(name).extend_from_slice(json.as_bytes());
    }

    /// Ends the object.
    pub(super) fn close(self) {
        self.out.push(b'}');
    }
}

/// Writes `text` as a JSON string.
pub(super) fn string(out: &mut Vec<u8>, text: &str) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(&mut *out, text);
}

/// Writes the comma before an array element, except the first.
pub(super) fn comma(out: &mut Vec<u8>) {
    if !matches!(out.last(), Some(b'[')) {
        out.push(b',');
    }
}

/// Writes `number` in decimal digits.
#[inline]
pub(super) fn number(out: &mut impl BufMut, number: u64) {
    out.put_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are_formatted() {
        for value in [0, 7, 10, 1_795_000_000, u64::MAX] {
            let mut out = Vec::new();
            number(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
    }

    #[test]
    fn members_are_separated_and_text_is_quoted() {
        let mut out = Vec::new();
        let mut object = ObjectWriter::open(&mut out);
        object.text("a", "x\"\n\u{1f680}");
        object.raw("b", "null");
        let list = object.key("c");
        list.push(b'[');
        for text in ["1", "2"] {
            comma(list);
            string(list, text);
        }
        list.push(b']');
        object.close();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"a\":\"x\\\"\\n\u{1f680}\",\"b\":null,\"c\":[\"1\",\"2\"]}"
        );
    }
}
