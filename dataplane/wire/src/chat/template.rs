//! The last event that held nothing but text, as a pattern: most events of a stream differ from the one before
//! them in their text alone, or in the padding that OpenAI adds to it, and a few comparisons tell so.
//!
//! An event that fits would be judged as the last one was. What stands around its text is the same to the byte,
//! and the text is neither a member's name nor does it hold a quote or line end of its own.

use std::ops::Range;

use crate::json::text_length;

/// A larger event is not remembered.
const TEMPLATE_BYTES_MAX: usize = 4 * 1024;

/// What stands before padding, whose length goes up and down to hide that of the text.
const PADDING: &[u8] = b"\"obfuscation\":\"";

/// An event without its text.
#[derive(Debug, Default)]
pub(super) struct Template {
    /// Which of the known members holds the text.
    key: usize,
    /// Up to and with the first quote of the text. Empty if nothing fits.
    before: Vec<u8>,
    /// From the last quote of the text on: to the end, or to the first quote of the padding.
    after: Vec<u8>,
    /// From the last quote of the padding to the end. Empty if there is none.
    after_padding: Vec<u8>,
}

/// An event that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    /// Bytes of the event.
    pub(super) length: usize,
    /// Bytes of its text.
    pub(super) text: usize,
}

impl Template {
    /// Remembers an event whose text stands at `text`, under the member `key`. It must end with LF, so that
    /// nothing that comes after it belongs to it.
    pub(super) fn learn(&mut self, event: &[u8], key: usize, text: Range<usize>) {
        self.before.clear();
        self.after.clear();
        self.after_padding.clear();
        let (Some(before), Some(after)) = (event.get(..text.start), event.get(text.end..)) else { return };
        if event.len() > TEMPLATE_BYTES_MAX || !after.ends_with(b"\n") {
            return;
        }
        let (after, after_padding) = split_at_padding(after).unwrap_or((after, &[]));
        self.key = key;
        self.before.extend_from_slice(before);
        self.after.extend_from_slice(after);
        self.after_padding.extend_from_slice(after_padding);
    }

    /// The event that `rest` begins with, if it fits and is whole, and text is looked for under `key`.
    #[inline]
    pub(super) fn fit(&self, rest: &[u8], key: usize) -> Option<Fit> {
        if self.before.is_empty() || self.key != key {
            return None;
        }
        let at_text = rest.strip_prefix(self.before.as_slice())?;
        let (text, mut end) = string(at_text)?;
        end = end.strip_prefix(self.after.as_slice())?;
        if !self.after_padding.is_empty() {
            end = string(end)?.1.strip_prefix(self.after_padding.as_slice())?;
        }
        (text > 0).then_some(Fit { length: rest.len().wrapping_sub(end.len()), text })
    }
}

/// The length of the string that `rest` begins inside of, and what comes from its last quote on.
#[inline]
fn string(rest: &[u8]) -> Option<(usize, &[u8])> {
    let (length, _) = text_length(rest)?;
    let (text, end) = rest.split_at_checked(length)?;
    let odd = text.iter().any(|byte| matches!(byte, b'\n' | b'\r'))
        || text.ends_with(b"usage")
        || text.ends_with(b"error")
        || text.ends_with(b"finish_reason");
    (!odd).then_some((length, end))
}

fn split_at_padding(after: &[u8]) -> Option<(&[u8], &[u8])> {
    let from = memchr::memmem::find(after, PADDING)?.checked_add(PADDING.len())?;
    let (before, padding) = after.split_at_checked(from)?;
    Some((before, padding.get(text_length(padding)?.0..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(template: &Template, rest: &[u8]) -> Option<(usize, usize)> {
        template.fit(rest, 0).map(|fit| (fit.length, fit.text))
    }

    type Row = (&'static str, &'static [u8], Option<(usize, usize)>);

    #[test]
    fn only_the_text_may_differ() {
        let mut template = Template::default();
        assert_eq!(fit(&template, b"data: \"a\"\n\n"), None, "nothing learnt");
        template.learn(b"data: \"a\"\n\n", 0, 7..8);
        let rows: [Row; 12] = [
            ("itself", b"data: \"a\"\n\n", Some((11, 1))),
            ("other text, and more behind it", b"data: \"bcd\"\n\ndata", Some((13, 3))),
            ("escaped quote", b"data: \"\\\"\"\n\n", Some((12, 2))),
            ("no text", b"data: \"\"\n\n", None),
            ("cut", b"data: \"a\"\n", None),
            ("line end in the text", b"data: \"a\nb\"\n\n", None),
            ("CR in the text", b"data: \"a\rb\"\n\n", None),
            ("a member's name", b"data: \"error\"\n\n", None),
            ("what looks like a name", b"data: \"\\\"usage\"\n\n", None),
            ("something else before", b"data:  \"a\"\n\n", None),
            ("something else after", b"data: \"a\" \n\n", None),
            ("cut in the text", b"data: \"a", None),
        ];
        for (name, rest, want) in rows {
            assert_eq!(fit(&template, rest), want, "{name}");
        }
        assert_eq!(template.fit(b"data: \"a\"\n\n", 1), None, "text is looked for elsewhere");
        template.learn(b"data: \"a\"\r\r", 0, 7..8);
        assert_eq!(fit(&template, b"data: \"a\"\r\r"), None, "an LF could belong to it");
    }

    #[test]
    fn padding_may_differ_too() {
        let event =
            |text: &str, padding: &str| format!("data: \"{text}\",\"obfuscation\":\"{padding}\"}}\n\n");
        let mut template = Template::default();
        template.learn(event("a", "xyz").as_bytes(), 0, 7..8);
        for (text, padding) in [("a", "xyz"), ("abc", ""), ("b", "0123456789")] {
            let event = event(text, padding);
            assert_eq!(fit(&template, event.as_bytes()), Some((event.len(), text.len())), "{event}");
        }
        for event in [event("", "x"), event("a", "usage"), event("a", "\n"), event("a", "x\",\"b\":\"")] {
            assert_eq!(fit(&template, event.as_bytes()), None, "{event}");
        }
    }

    #[test]
    fn large_events_are_not_kept() {
        let event = |bytes: usize| format!("data: \"a\"{}\n\n", " ".repeat(bytes - 11));
        let mut template = Template::default();
        for (bytes, kept) in [(TEMPLATE_BYTES_MAX, true), (TEMPLATE_BYTES_MAX + 1, false)] {
            template.learn(event(bytes).as_bytes(), 0, 7..8);
            assert_eq!(fit(&template, event(bytes).as_bytes()).is_some(), kept, "{bytes}");
        }
    }
}
