//! Writes fields of protobuf messages straight into a buffer. Spans are written with it, because a span has about twenty
//! attributes: as values of prost, each of them would take two allocations, and its length would be computed at every level.

/// Appends the fields of one message to a buffer. As in prost, a field with its default value is left out.
#[derive(Debug)]
pub(super) struct Fields<'a>(&'a mut Vec<u8>);

impl<'a> Fields<'a> {
    pub(super) fn new(buffer: &'a mut Vec<u8>) -> Self {
        Self(buffer)
    }

    pub(super) fn bytes(&mut self, tag: u8, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.text_of(tag, &[bytes]);
        }
    }

    /// Writes a text or bytes field that consists of these parts.
    pub(super) fn text_of(&mut self, tag: u8, parts: &[&[u8]]) {
        self.key(tag, WireType::Length);
        self.varint(parts.iter().map(|part| part.len() as u64).sum());
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
    }

    pub(super) fn varint_field(&mut self, tag: u8, number: u64) {
        if number > 0 {
            self.key(tag, WireType::Varint);
            self.varint(number);
        }
    }

    pub(super) fn fixed64(&mut self, tag: u8, number: u64) {
        if number > 0 {
            self.key(tag, WireType::Fixed64);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    pub(super) fn fixed32(&mut self, tag: u8, number: u32) {
        if number > 0 {
            self.key(tag, WireType::Fixed32);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Writes a field that is a message, whose fields `write` appends.
    pub(super) fn message(&mut self, tag: u8, write: impl FnOnce(&mut Fields<'_>)) {
        self.key(tag, WireType::Length);
        // The length of most messages, such as attributes, takes one byte. Longer ones make room for the rest.
        let place = self.0.len();
        self.0.push(0);
        write(&mut Fields(self.0));
        let end = self.0.len();
        self.varint((end - place - 1) as u64);
        let first = self.0.get(end).copied().unwrap_or_default();
        if let Some(reserved) = self.0.get_mut(place) {
            *reserved = first;
        }
        let rest = self.0.len() - end - 1;
        if rest > 0 {
            self.0.copy_within(end + 1.., end);
        }
        self.0.pop();
        if rest > 0
            && let Some(moved) = self.0.get_mut(place + 1..)
        {
            moved.rotate_right(rest);
        }
    }

    /// Writes the begin of a field that is a message of this length.
    pub(super) fn begin_message(&mut self, tag: u8, length: usize) {
        self.key(tag, WireType::Length);
        self.varint(length as u64);
    }

    fn key(&mut self, tag: u8, wire_type: WireType) {
        self.varint(u64::from(tag) << 3 | wire_type as u64);
    }

    fn varint(&mut self, mut number: u64) {
        while let [low, ..] = number.to_le_bytes()
            && number >= u64::from(CONTINUES)
        {
            self.0.push(low | CONTINUES);
            number >>= 7;
        }
        let [last, ..] = number.to_le_bytes();
        self.0.push(last);
    }
}

/// Appends the attributes of one message, of the type `KeyValue` with a value of the type `AnyValue`.
#[derive(Debug)]
pub(super) struct Attributes<'f, 'a> {
    fields: &'f mut Fields<'a>,
    tag: u8,
}

impl<'f, 'a> Attributes<'f, 'a> {
    /// Appends attributes to `fields`, whose field `tag` contains them.
    pub(super) fn new(fields: &'f mut Fields<'a>, tag: u8) -> Self {
        Self { fields, tag }
    }

    pub(super) fn text(&mut self, key: &str, text: &str) {
        self.add(key, |value| value.text_of(TEXT, &[text.as_bytes()]));
    }

    pub(super) fn optional_text(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    /// Adds an attribute with a list of one text.
    pub(super) fn list_of(&mut self, key: &str, text: &str) {
        self.add(key, |value| {
            value.message(LIST, |list| {
                list.message(1, |value| value.text_of(TEXT, &[text.as_bytes()]));
            });
        });
    }

    pub(super) fn set(&mut self, key: &str) {
        self.add(key, |value| value.varint_field(FLAG, 1));
    }

    /// Adds an attribute with a number; one beyond the range of the format is cut to it.
    pub(super) fn number(&mut self, key: &str, number: u64) {
        self.add(key, |value| {
            value.key(NUMBER, WireType::Varint);
            value.varint(number.min(i64::MAX.unsigned_abs()));
        });
    }

    pub(super) fn optional_number(&mut self, key: &str, number: Option<u64>) {
        if let Some(number) = number {
            self.number(key, number);
        }
    }

    pub(super) fn fraction(&mut self, key: &str, number: f64) {
        self.add(key, |value| {
            value.key(FRACTION, WireType::Fixed64);
            value.0.extend_from_slice(&number.to_le_bytes());
        });
    }

    fn add(&mut self, key: &str, value: impl FnOnce(&mut Fields<'_>)) {
        self.fields.message(self.tag, |attribute| {
            attribute.text_of(1, &[key.as_bytes()]);
            attribute.message(2, value);
        });
    }
}

/// The encoding of a field's value.
#[derive(Clone, Copy)]
enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Length = 2,
    Fixed32 = 5,
}

/// The bit of a byte of a varint that others follow.
const CONTINUES: u8 = 0x80;

/// The fields of an attribute's value, one for each type.
const TEXT: u8 = 1;
const FLAG: u8 = 2;
const NUMBER: u8 = 3;
const FRACTION: u8 = 4;
const LIST: u8 = 5;

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::super::message::{Attribute, Resource};
    use super::*;

    #[test]
    fn messages_of_every_length_are_encoded_as_by_prost() {
        for length in [0, 1, 100, 120, 127, 128, 300, 16_300, 16_383, 16_384, 3 << 20] {
            let texts = [("long", "x".repeat(length)), ("short", "y".to_owned())];
            let want = texts.iter().map(|(key, text)| Attribute::text(key, text.as_str())).collect();
            let mut buffer = b"before".to_vec();
            let mut fields = Fields::new(&mut buffer);
            let mut attributes = Attributes::new(&mut fields, 1);
            texts.iter().for_each(|(key, text)| attributes.text(key, text));
            let want = Resource { attributes: want }.encode_to_vec();
            assert_eq!(buffer.strip_prefix(b"before"), Some(&want[..]), "{length}");
        }
    }

    #[test]
    fn fields_with_their_default_value_are_left_out() {
        let mut buffer = Vec::new();
        let mut fields = Fields::new(&mut buffer);
        fields.bytes(1, b"");
        fields.varint_field(2, 0);
        fields.fixed64(3, 0);
        fields.fixed32(16, 0);
        assert!(buffer.is_empty());
        Fields::new(&mut buffer).fixed32(16, 0x101);
        assert_eq!(buffer, [0x85, 1, 1, 1, 0, 0]);
    }
}
