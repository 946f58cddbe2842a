//! Recognises events that differ from an earlier one of the stream only in their text, as most do; they need no
//! parsing.

use super::{Template, Varying};
use crate::json::escaped;

/// The last learned event with `M`, the meaning of its text.
#[derive(Debug)]
pub(crate) struct Alike<M> {
    template: Template,
    meaning: Option<M>,
}

/// An event that matches the learned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Like<'e, M> {
    pub(crate) meaning: M,
    /// Its text, still escaped.
    pub(crate) text: &'e str,
    /// Its number, if [`Varying`] has one.
    pub(crate) number: Option<u64>,
}

impl<M: Copy> Alike<M> {
    /// Creates a matcher; matching events may also differ in `varying`.
    pub(crate) fn new(varying: Varying) -> Self {
        Self { template: Template::new(varying), meaning: None }
    }

    /// Remembers an event, which must be JSON, contain `text` between two quotes, and carry nothing else than
    /// `meaning`.
    pub(crate) fn learn(&mut self, event: &[u8], text: &[u8], meaning: M) {
        let from = text.as_ptr().addr().checked_sub(event.as_ptr().addr());
        let span = from.and_then(|from| Some(from..from.checked_add(text.len())?));
        self.meaning = span.filter(|span| span.end <= event.len()).map(|span| {
            self.template.learn(event, 0, span);
            meaning
        });
    }

    /// Returns the text of `event` with its meaning, if it matches the learned event.
    #[inline]
    pub(crate) fn read<'e>(&self, event: &'e [u8]) -> Option<Like<'e, M>> {
        let meaning = self.meaning?;
        let fit = self.template.fit(event, 0).filter(|fit| fit.length == event.len())?;
        let text = event.get(fit.text_at..)?.get(..fit.text)?;
        Some(Like { meaning, text: escaped(text)?, number: fit.number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_event_may_differ_only_in_its_text() {
        let mut alike = Alike::new(Varying::Padding);
        let event = b"{\"a\":\"x\",\"b\":1}";
        assert_eq!(alike.read(event), None, "nothing is known");
        alike.learn(event, &event[6..7], 'm');
        let rows: [(&[u8], Option<&str>); 10] = [
            (b"{\"a\":\"yz\",\"b\":1}", Some("yz")),
            (b"{\"a\":\"y\\n\",\"b\":1}", Some("y\\n")),
            ("{\"a\":\"ü\",\"b\":1}".as_bytes(), Some("ü")),
            (b"{\"a\":\"\",\"b\":1}", None),
            (b"{\"a\":\"y\",\"b\":2}", None),
            (b"{\"a\":\"y\",\"b\":1} ", None),
            (b"{\"a\":\"y\t\",\"b\":1}", None),
            (b"{\"a\":\"y\",\"c\":\"z\",\"b\":1}", None),
            (b"{\"a\":\"\xff\",\"b\":1}", None),
            (b"{\"a\":\"", None),
        ];
        for (event, want) in rows {
            let read = alike.read(event);
            assert_eq!(read.map(|like| like.text), want, "{}", String::from_utf8_lossy(event));
            assert!(read.is_none_or(|like| like.meaning == 'm'));
        }
    }

    #[test]
    fn a_text_outside_the_event_is_not_learned() {
        let (event, other) = (b"{\"a\":\"x\"}".to_vec(), b"x".to_vec());
        let mut alike = Alike::new(Varying::Padding);
        alike.learn(&event, &event[6..7], ());
        alike.learn(&event, &other, ());
        assert_eq!(alike.read(&event), None);
    }
}
