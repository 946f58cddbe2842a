//! A template of the last text-only event. Most events of a stream differ from the one before only in their text, or
//! also in a number or padding that the vendor adds; a few comparisons recognise them.
//!
//! An event that fits the template would get the same verdict as the last one: all bytes around its text are identical,
//! and the text is not a member name and contains no unescaped quote and no line end.

#![expect(
    clippy::indexing_slicing,
    reason = "positions come from searches of the same event; a wrong one must fail in the fuzzer"
)]

use std::ops::Range;

use crate::json::text_length;

/// Larger events are not used as a template, in bytes.
const TEMPLATE_BYTES_MAX: usize = 4 * 1024;
/// The maximum number of parts that differ from event to event.
const HOLES_MAX: usize = 3;
/// The maximum number of digits of a varying number; a longer one never fits.
const DIGITS_MAX: usize = 18;

/// The text before OpenAI's padding, whose length varies to hide that of the text.
const PADDING: &[u8] = b"\"obfuscation\":\"";
/// The text before Amazon's padding.
const SHORT_PADDING: &[u8] = b"\"p\":\"";
/// The text before an event's sequence number.
const NUMBER: &[u8] = b"\"sequence_number\":";
/// The text before Gemini's running output count. The total that follows it adds no information.
const OUTPUT: &[u8] = b"\"candidatesTokenCount\":";
const TOTAL: &[u8] = b"\"totalTokenCount\":";

/// The parts that may differ besides the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Varying {
    /// OpenAI's padding.
    #[default]
    Padding,
    /// OpenAI's padding and the sequence number of the event.
    PaddingAndNumber,
    /// Anthropic's padding: spaces before the last brace.
    Blanks,
    /// Amazon's padding.
    ShortPadding,
    /// Gemini's running usage; the reported number is the output count.
    RunningUsage,
}

/// An event with holes for the parts that differ.
#[derive(Debug, Default)]
pub(crate) struct Template {
    varying: Varying,
    /// The index of the member that holds the text.
    key: usize,
    /// The bytes up to the first hole. Empty if there is no template.
    before: Vec<u8>,
    /// The holes in order, each with the bytes after it.
    holes: [(Hole, Vec<u8>); HOLES_MAX],
}

/// A part that differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hole {
    /// No hole here or after it.
    #[default]
    None,
    Text,
    Padding,
    Number,
    /// A number that is not reported.
    Sum,
    Blanks,
}

/// An event that fits the template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fit {
    /// The length of the event in bytes.
    pub(crate) length: usize,
    /// The offset of its text.
    pub(crate) text_at: usize,
    /// The length of its text in bytes.
    pub(crate) text: usize,
    /// Its number, if it has one.
    pub(crate) number: Option<u64>,
}

impl Template {
    pub(crate) fn new(varying: Varying) -> Self {
        Self { varying, ..Self::default() }
    }

    /// Remembers an event whose text is at `text`, under the member with index `key`.
    pub(crate) fn learn(&mut self, event: &[u8], key: usize, text: Range<usize>) {
        self.before.clear();
        if event.len() > TEMPLATE_BYTES_MAX {
            return;
        }
        self.key = key;
        let mut found = [Some((text, Hole::Text)), None, None];
        for (slot, other) in found.iter_mut().skip(1).zip(self.others(event)) {
            *slot = other;
        }
        found.sort_unstable_by_key(|hole| hole.as_ref().map_or(usize::MAX, |(span, _)| span.start));
        let mut at = 0;
        let mut last = &mut self.before;
        let mut holes = self.holes.iter_mut();
        for (span, kind) in found.into_iter().flatten() {
            last.extend_from_slice(&event[at..span.start]);
            at = span.end;
            let Some((hole, after)) = holes.next() else { break };
            *hole = kind;
            after.clear();
            last = after;
        }
        last.extend_from_slice(&event[at..]);
        holes.for_each(|(hole, _)| *hole = Hole::None);
    }

    /// Finds the parts that differ besides the text.
    fn others(&self, event: &[u8]) -> [Option<(Range<usize>, Hole)>; 2] {
        match self.varying {
            Varying::Padding => [padding(event, PADDING), None],
            Varying::PaddingAndNumber => [padding(event, PADDING), number(event, NUMBER, Hole::Number)],
            Varying::Blanks => [blanks(event), None],
            Varying::ShortPadding => [padding(event, SHORT_PADDING), None],
            Varying::RunningUsage => [number(event, OUTPUT, Hole::Number), number(event, TOTAL, Hole::Sum)],
        }
    }

    /// Returns the event at the start of `rest` if it is complete, fits the template, and `key` is the member of its
    /// text.
    #[inline]
    pub(crate) fn fit(&self, rest: &[u8], key: usize) -> Option<Fit> {
        if self.before.is_empty() || self.key != key {
            return None;
        }
        let mut fit = Fit::default();
        let mut end = rest.strip_prefix(self.before.as_slice())?;
        for (hole, after) in &self.holes {
            match hole {
                Hole::None => break,
                Hole::Text => {
                    fit.text_at = rest.len() - end.len();
                    (fit.text, end) = string(end)?;
                }
                Hole::Padding => (_, end) = string(end)?,
                Hole::Number => {
                    let (number, rest) = digits(end)?;
                    (fit.number, end) = (Some(number), rest);
                }
                Hole::Sum => (_, end) = digits(end)?,
                Hole::Blanks => end = after_blanks(end),
            }
            end = end.strip_prefix(after.as_slice())?;
        }
        fit.length = rest.len() - end.len();
        (fit.text > 0).then_some(fit)
    }
}

/// Returns the length of the string whose contents start at `rest`, and the bytes from its closing quote on.
#[inline]
fn string(rest: &[u8]) -> Option<(usize, &[u8])> {
    let length = text_length(rest)?;
    let (text, end) = rest.split_at(length);
    let odd = text.iter().any(|byte| matches!(byte, b'\n' | b'\r'))
        || text.ends_with(b"usage")
        || text.ends_with(b"error")
        || text.ends_with(b"finish_reason");
    (!odd).then_some((length, end))
}

/// Parses the number at the start of `rest` and returns it with the bytes after it.
#[inline]
fn digits(rest: &[u8]) -> Option<(u64, &[u8])> {
    let (mut at, mut number) = (0_usize, 0_u64);
    while let Some(digit) = rest.get(at).filter(|byte| byte.is_ascii_digit()) {
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit & 0xf));
        at = at.wrapping_add(1);
    }
    let leading_zero = at > 1 && rest.first() == Some(&b'0');
    (at > 0 && at <= DIGITS_MAX && !leading_zero).then_some((number, rest.get(at..)?))
}

fn after_blanks(rest: &[u8]) -> &[u8] {
    let blanks = rest.iter().take_while(|byte| **byte == b' ').count();
    &rest[blanks..]
}

fn padding(event: &[u8], before: &[u8]) -> Option<(Range<usize>, Hole)> {
    let from = memchr::memmem::find(event, before)?.checked_add(before.len())?;
    let length = text_length(event.get(from..)?)?;
    Some((from..from.checked_add(length)?, Hole::Padding))
}

fn number(event: &[u8], name: &[u8], hole: Hole) -> Option<(Range<usize>, Hole)> {
    let after_name = memchr::memmem::find(event, name)?.checked_add(name.len())?;
    let rest = after_blanks(event.get(after_name..)?);
    let (from, to) = (event.len().checked_sub(rest.len())?, event.len().checked_sub(digits(rest)?.1.len())?);
    Some((from..to, hole))
}

/// Returns the spaces before the brace that ends an event, if there are any. They cannot be inside a string.
fn blanks(event: &[u8]) -> Option<(Range<usize>, Hole)> {
    let data = event.trim_ascii_end().strip_suffix(b"}")?;
    let from = data.iter().rposition(|byte| *byte != b' ')?.checked_add(1)?;
    (from < data.len()).then_some((from..data.len(), Hole::Blanks))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(template: &Template, rest: &[u8]) -> Option<(usize, usize)> {
        template.fit(rest, 0).map(|fit| (fit.length, fit.text))
    }

    type Row = (&'static str, &'static [u8], Option<(usize, usize)>);

    #[test]
    fn an_event_that_fits_may_differ_only_in_its_text() {
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
    fn numbers_may_differ_before_and_after_the_text() {
        let before = |number: &str, text: &str| {
            format!("data: {{\"sequence_number\":{number},\"delta\":\"{text}\"}}\n\n")
        };
        let after = |number: &str, text: &str| {
            format!("data: {{\"delta\":\"{text}\",\"obfuscation\":\"xy\",\"sequence_number\":{number}}}\n\n")
        };
        for event in [&before as &dyn Fn(&str, &str) -> String, &after] {
            let mut template = Template::new(Varying::PaddingAndNumber);
            let first = event("9", "a");
            let at = first.find("\"a\"").unwrap() + 1;
            template.learn(first.as_bytes(), 0, at..at + 1);
            for (number, text) in [("9", "a"), ("10", "bcd"), ("0", "x"), ("123456789012345678", "x")] {
                let event = event(number, text);
                let fit = template.fit(event.as_bytes(), 0).unwrap();
                assert_eq!(
                    (fit.length, fit.text, fit.number),
                    (event.len(), text.len(), number.parse().ok())
                );
            }
            for number in ["", "-1", "01", "1.5", "1e3", "null", "1234567890123456789"] {
                assert_eq!(fit(&template, event(number, "a").as_bytes()), None, "{number}");
            }
        }
    }

    #[test]
    fn running_usage_may_differ_with_and_without_blanks() {
        for blank in ["", " "] {
            let event = |text: &str, output: u64, total: u64| {
                format!(
                    "{{\"text\":\"{text}\",\"promptTokenCount\":{blank}3,\"candidatesTokenCount\":{blank}{output},\
                     \"totalTokenCount\":{blank}{total}}}"
                )
            };
            let mut template = Template::new(Varying::RunningUsage);
            template.learn(event("a", 1, 4).as_bytes(), 0, 9..10);
            let other = event("bcd", 120, 123);
            let fit = template.fit(other.as_bytes(), 0).unwrap();
            assert_eq!((fit.length, fit.text_at, fit.text, fit.number), (other.len(), 9, 3, Some(120)));
            assert_eq!(template.fit(other.replace('3', "4").as_bytes(), 0), None, "the prompt has grown");
        }
    }

    #[test]
    fn blanks_before_the_last_brace_may_differ() {
        let event =
            |text: &str, blanks: usize| format!("data: {{\"a\":\"{text}\"{}}}\n\n", " ".repeat(blanks));
        let mut template = Template::new(Varying::Blanks);
        template.learn(event("a", 3).as_bytes(), 0, 12..13);
        for (text, blanks) in [("a", 3), ("bcd", 0), ("b", 20)] {
            let event = event(text, blanks);
            assert_eq!(fit(&template, event.as_bytes()), Some((event.len(), text.len())), "{event}");
        }
        assert_eq!(fit(&template, b"data: {\"a\":\"x\"  ,}\n\n"), None);
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
