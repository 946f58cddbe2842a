//! Events of one stream that differ in one text alone, as most do: the others need not be parsed.

/// What stands around the text.
#[derive(Debug, Default)]
pub(super) struct Alike {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Alike {
    /// Remembers an event, which is JSON, and in which `text` stands between two quotes.
    pub(super) fn learn(&mut self, event: &[u8], text: &[u8]) {
        let at = text.as_ptr().addr().checked_sub(event.as_ptr().addr());
        let around = at.and_then(|at| Some((event.get(..at)?, event.get(at.checked_add(text.len())?..)?)));
        match around {
            Some((before, after)) => {
                before.clone_into(&mut self.before);
                after.clone_into(&mut self.after);
            }
            None => self.forget(),
        }
    }

    /// The next events are to be parsed.
    pub(super) fn forget(&mut self) {
        self.before.clear();
    }

    /// The text of an event that differs from the one remembered in nothing else, if it is plain: without escapes.
    #[inline]
    pub(super) fn text<'e>(&self, event: &'e [u8]) -> Option<&'e [u8]> {
        if self.before.is_empty() {
            return None;
        }
        let text = event.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        let plain = text.iter().all(|&byte| byte >= b' ' && !matches!(byte, b'"' | b'\\'));
        (plain && !text.is_empty() && std::str::from_utf8(text).is_ok()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_may_differ_and_it_must_be_plain() {
        let mut alike = Alike::default();
        assert_eq!(alike.text(b"{\"a\":\"x\"}"), None, "nothing is known");
        let event = b"{\"a\":\"x\",\"b\":1}";
        alike.learn(event, &event[6..7]);
        let rows: [(&[u8], Option<&[u8]>); 9] = [
            (b"{\"a\":\"yz\",\"b\":1}", Some(b"yz")),
            ("{\"a\":\"ü\",\"b\":1}".as_bytes(), Some("ü".as_bytes())),
            (b"{\"a\":\"\",\"b\":1}", None),
            (b"{\"a\":\"y\",\"b\":2}", None),
            (b"{\"a\":\"y\\n\",\"b\":1}", None),
            (b"{\"a\":\"y\n\",\"b\":1}", None),
            (b"{\"a\":\"y\",\"c\":\"z\",\"b\":1}", None),
            (b"{\"a\":\"\xff\",\"b\":1}", None),
            (b"{\"a\":\"", None),
        ];
        for (event, want) in rows {
            assert_eq!(alike.text(event), want, "{}", String::from_utf8_lossy(event));
        }
        alike.forget();
        assert_eq!(alike.text(event), None);
    }

    #[test]
    fn a_text_that_stands_elsewhere_is_not_learned() {
        let (mut alike, event, other) = (Alike::default(), b"{\"a\":\"x\"}".to_vec(), b"x".to_vec());
        alike.learn(&event, &other);
        assert_eq!(alike.text(&event), None);
    }
}
