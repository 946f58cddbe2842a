//! Finds `COMMIT` in the bytes of a connection without TLS, also where they are cut.

/// The server's answer to a commit: the message `CommandComplete` with its length and text.
const ANSWER: &[u8] = b"C\0\0\0\x0bCOMMIT\0";
/// The client's request, in capitals.
const REQUEST: &[u8] = b"COMMIT";

/// Which bytes are looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sought {
    Request,
    Answer,
}

/// A search over the pieces of a stream.
#[derive(Debug)]
pub(crate) struct Commits {
    sought: Sought,
    /// The end of the last piece, shorter than what is looked for.
    rest: Vec<u8>,
}

impl Commits {
    pub(crate) fn new(sought: Sought) -> Self {
        Self { sought, rest: Vec::new() }
    }

    /// Returns, for each `COMMIT` that ends in this piece, where it begins: 0 if it began in an earlier one.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Vec<usize> {
        let before = self.rest.len();
        self.rest.extend_from_slice(piece);
        let needle = match self.sought {
            Sought::Request => REQUEST,
            Sought::Answer => ANSWER,
        };
        let windows = self.rest.windows(needle.len()).enumerate();
        let found = windows.filter(|(_, window)| match self.sought {
            Sought::Request => window.eq_ignore_ascii_case(needle),
            Sought::Answer => *window == needle,
        });
        let places = found.map(|(place, _)| place.saturating_sub(before)).collect();
        let kept = self.rest.len().saturating_sub(needle.len() - 1);
        self.rest.drain(..kept);
        places
    }
}

#[cfg(test)]
mod tests {
    use super::{Commits, Sought};

    #[test]
    fn a_commit_is_found_once_wherever_it_is_cut() {
        let cases: [(Sought, &[u8], usize); 3] = [
            (Sought::Request, b"Q\0\0\0\x0bcommit\0", 5),
            (Sought::Request, b"Q\0\0\0\x0cCOMMIT;\0", 5),
            (Sought::Answer, b"C\0\0\0\x0bCOMMIT\0Z\0\0\0\x05I", 0),
        ];
        for (sought, bytes, place) in cases {
            for cut in 0..=bytes.len() {
                let mut commits = Commits::new(sought);
                let mut found = commits.push(&bytes[..cut]);
                let second = commits.push(&bytes[cut..]);
                found.extend(second.iter().map(|place| place + cut));
                assert_eq!(found.len(), 1, "{sought:?} at {cut}");
                assert!(found[0] == place || found[0] == cut, "{sought:?} at {cut}: {found:?}");
            }
            assert_eq!(Commits::new(sought).push(b"C\0\0\0\x0dROLLBACK\0"), [0_usize; 0], "{sought:?}");
        }
    }
}
