//! The secrets of all providers of this process. An upstream may quote another provider's credential: one that was
//! sent to it by mistake, or that several providers share. No diagnostic contains any of them.
//!
//! The set is built when routing is published and read only for diagnostics. A text is scanned once, regardless of
//! the number of secrets: every position is looked up in a table of the last bytes of each encoding of a secret.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;

use super::known::{base64_cores, hex_forms, percent_decoded};
use super::{Spans, is_base64, run_end, run_start};
use crate::bounds::GUARDED_SECRETS;
use crate::secret::Secret;

/// Secrets in every common encoding.
#[derive(Debug, Default)]
pub struct Guarded {
    patterns: Vec<Pattern>,
    /// Indices of the patterns that end with these bytes.
    by_tail: HashMap<[u8; TAIL], Vec<usize>>,
    /// A bit set of the hashes of all tails. It rules out nearly every position of a text.
    tails: Box<[u64]>,
}

#[derive(Debug)]
struct Pattern {
    bytes: Secret<Vec<u8>>,
    /// True if the whole surrounding base64 run is redacted.
    is_base64: bool,
}

/// Replaces the secrets that are redacted from all diagnostics of this process.
pub fn guard(secrets: Guarded) {
    CURRENT.store(Arc::new(secrets));
}

/// Marks the guarded secrets in `text`.
pub(super) fn mark(text: &str, spans: &mut Spans) {
    CURRENT.load().mark(text.as_bytes(), spans);
}

static CURRENT: LazyLock<ArcSwap<Guarded>> = LazyLock::new(ArcSwap::default);

impl Guarded {
    /// Builds the set from all secrets that are long enough to be distinguished from words.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut guarded = Self { tails: vec![0; WORDS].into(), ..Self::default() };
        let secrets = secrets.into_iter().map(str::trim).filter(|secret| is_secret(secret));
        for (place, secret) in secrets.enumerate() {
            if GUARDED_SECRETS.is_full(place) {
                break;
            }
            guarded.add(secret.as_bytes().to_vec(), false);
            hex_forms(secret).into_iter().for_each(|hex| guarded.add(hex, false));
            base64_cores(secret).into_iter().for_each(|core| guarded.add(core, true));
        }
        guarded
    }

    fn add(&mut self, bytes: Vec<u8>, is_base64: bool) {
        let Some(tail) = bytes.last_chunk::<TAIL>().copied() else { return };
        let same_tail = self.by_tail.entry(tail).or_default();
        let is_known =
            |place: &usize| self.patterns.get(*place).is_some_and(|known| *known.bytes.expose() == bytes);
        if same_tail.iter().any(is_known) {
            return;
        }
        same_tail.push(self.patterns.len());
        let (word, bit) = place(tail);
        if let Some(word) = self.tails.get_mut(word) {
            *word |= bit;
        }
        self.patterns.push(Pattern { bytes: Secret::new(bytes), is_base64 });
    }

    fn mark(&self, text: &[u8], spans: &mut Spans) {
        if self.patterns.is_empty() {
            return;
        }
        self.find(text, |start, end, is_core| {
            let span = if is_core {
                run_start(text, start, is_base64)..run_end(text, end, is_base64)
            } else {
                start..end
            };
            spans.push(span);
        });
        if memchr::memchr(b'%', text).is_some() {
            let (decoded, origins) = percent_decoded(text);
            let origin = |at: usize| origins.get(at).copied().unwrap_or(text.len());
            self.find(&decoded, |start, end, _| spans.push(origin(start)..origin(end)));
        }
    }

    /// Calls `found` with the start and end of each match, and true if its pattern is a base64 core.
    fn find(&self, text: &[u8], mut found: impl FnMut(usize, usize, bool)) {
        for (at, window) in text.windows(TAIL).enumerate() {
            let Ok(tail) = <[u8; TAIL]>::try_from(window) else { continue };
            let (word, bit) = place(tail);
            if self.tails.get(word).is_none_or(|word| word & bit == 0) {
                continue;
            }
            let end = at + TAIL;
            let before = text.split_at(end).0;
            let patterns = self.by_tail.get(&tail).into_iter().flatten();
            for pattern in patterns.filter_map(|place| self.patterns.get(*place)) {
                if before.ends_with(pattern.bytes.expose()) {
                    found(end - pattern.bytes.expose().len(), end, pattern.is_base64);
                }
            }
        }
    }
}

/// Returns true unless `secret` may be a placeholder word, as used for the key of a server that needs none.
fn is_secret(secret: &str) -> bool {
    secret.len() >= BYTES_MIN
        && secret.len() <= BYTES_MAX
        && (secret.len() >= LONG || secret.bytes().any(|byte| byte.is_ascii_digit()))
}

/// Returns the word index and the bit of a tail in [`Guarded::tails`].
fn place(tail: [u8; TAIL]) -> (usize, u64) {
    let hash = u64::from_ne_bytes(tail).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (usize::try_from(hash >> 58).unwrap_or_default() % WORDS, 1 << (hash >> 52 & 63))
}

const TAIL: usize = 8;
/// The number of words: 4,096 bits.
const WORDS: usize = 64;
/// The minimum length of a guarded secret: a shorter one cannot be distinguished from a word.
const BYTES_MIN: usize = 8;
/// The minimum length of a secret without a digit.
const LONG: usize = 16;
/// The maximum length of a guarded secret; no credential that is sent verbatim is longer.
const BYTES_MAX: usize = 8 << 10;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::tests::passes;

    #[test]
    fn secrets_beyond_the_maximum_are_not_guarded() {
        let secrets: Vec<String> = (0..=GUARDED_SECRETS.max()).map(|n| format!("sk-{n:06}-secret")).collect();
        let guarded = passes(&GUARDED_SECRETS, || Guarded::new(secrets.iter().map(String::as_str)));
        assert!(!clean(&secrets[0], &guarded).contains("secret"));
        assert!(clean(&secrets[GUARDED_SECRETS.max()], &guarded).contains("secret"));
    }

    const SECRET: &str = "zq-other/provider+9?";

    fn clean(text: &str, guarded: &Guarded) -> String {
        let mut spans = Vec::new();
        guarded.mark(text.as_bytes(), &mut spans);
        let mut clean = text.to_owned();
        spans.sort_by_key(|span| std::cmp::Reverse(span.start));
        for span in spans {
            clean.replace_range(span, "#");
        }
        clean
    }

    #[test]
    fn a_guarded_secret_is_redacted_in_every_encoding_and_prose_is_kept() {
        let guarded =
            Guarded::new([SECRET, "ollama", "lm-studio", "not-needed", " \n", "second-secret-of-another"]);
        for (text, want) in [
            ("it was zq-other/provider+9?.", "it was #."),
            ("zq-other/provider+9? second-secret-of-another", "# #"),
            ("hex 7a712d6f746865722f70726f76696465722b393f end", "hex # end"),
            ("hex 7A712D6F746865722F70726F76696465722B393F end", "hex # end"),
            ("url zq-other%2Fprovider%2b9%3F end", "url # end"),
            ("base64 enEtb3RoZXIvcHJvdmlkZXIrOT8= end", "base64 # end"),
            ("basic dTp6cS1vdGhlci9wcm92aWRlcis5Pw== end", "basic # end"),
            ("ollama and lm-studio are not-needed", "ollama and lm-studio are not-needed"),
            ("zq-other/provider+8? zq-other/provider", "zq-other/provider+8? zq-other/provider"),
            ("", ""),
        ] {
            assert_eq!(clean(text, &guarded), want, "{text}");
        }
        assert_eq!(clean("zq-other/provider+9?", &Guarded::default()), "zq-other/provider+9?");
    }

    #[test]
    fn two_thousand_secrets_with_the_same_affixes_are_distinguished() {
        let secrets: Vec<String> = (0..2_000).map(|n| format!("sk-team-{n:06}-suffix-of-all")).collect();
        let guarded = Guarded::new(secrets.iter().map(String::as_str));
        assert_eq!(clean("a sk-team-001999-suffix-of-all b", &guarded), "a # b");
        assert_eq!(clean("a sk-team-002000-suffix-of-all b", &guarded), "a sk-team-002000-suffix-of-all b");
    }

    #[test]
    fn nothing_shows_a_secret() {
        let shown = format!("{:?}", Guarded::new([SECRET]));
        assert!(!shown.contains("other/provider") && !shown.contains("7a712d"), "{shown}");
    }
}
