//! A unary chat answer, read while it streams through, or at once when it is short.

use std::sync::LazyLock;

use memchr::memmem::{Finder, FinderRev};

use super::answer::{Answer, tree};
use super::judge::names_error_or_tier;
use crate::envelope::StreamError;
use crate::native::WholeAnswer;

/// Reads an answer of any size in pieces and keeps none of it but its usage and error.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    answer: Answer,
    broken: bool,
}

impl Scan {
    /// Reads the next piece.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.broken = self.broken || self.answer.push(piece).is_err();
    }

    /// The answer has ended.
    pub(crate) fn finish(&self) -> WholeAnswer {
        let seen = &self.answer.seen;
        let error = seen.error().map(|raw| {
            let value = tree(raw).unwrap_or_else(|| "The upstream answered with an error.".into());
            StreamError::of_member(&value)
        });
        WholeAnswer {
            usage: seen.token_counts(),
            extras: seen.extras(),
            error,
            is_json: !self.broken && self.answer.finish().is_ok(),
            output_bytes: seen.text_bytes,
        }
    }
}

/// Reads an answer that is there as a whole. As a rule only its end is parsed, from `usage` on: where the rest names
/// no error and no service tier, that is all that is asked of it. `output_bytes` is then 0, because the tokens are
/// counted.
pub(crate) fn whole_answer(body: &[u8]) -> WholeAnswer {
    if body.trim_ascii_start().first() == Some(&b'{')
        && let Some((before, end)) = last_usage(body).and_then(|at| body.split_at_checked(at))
        && !names_error_or_tier(body, before.len())
        // In a string its quotes would be escaped, so this is a member; that the end alone is an object proves
        // that it is one of the outermost.
        && matches!(before.trim_ascii_end().last(), Some(b'{' | b','))
    {
        let answer = scan(&[b"{", end]);
        if answer.is_json && answer.usage.is_some() {
            return answer;
        }
    }
    read_whole(body)
}

/// The same with all of it parsed.
pub(crate) fn read_whole(body: &[u8]) -> WholeAnswer {
    scan(&[body])
}

/// Where the last `usage` stands. The search backwards is the slower one, and nearly always needless: not much comes
/// after it.
fn last_usage(body: &[u8]) -> Option<usize> {
    const NAME: &[u8] = br#""usage":"#;
    static FORWARDS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(NAME));
    static BACKWARDS: LazyLock<FinderRev<'static>> = LazyLock::new(|| FinderRev::new(NAME));
    let near = body.len().saturating_sub(TAIL_BYTES);
    let in_tail = FORWARDS.find_iter(body.get(near..).unwrap_or_default()).last();
    in_tail.map(|at| near.wrapping_add(at)).or_else(|| BACKWARDS.rfind(body))
}

/// What mostly holds all of an answer's usage.
const TAIL_BYTES: usize = 512;

fn scan(pieces: &[&[u8]]) -> WholeAnswer {
    let mut scan = Scan::default();
    for piece in pieces {
        scan.push(piece);
    }
    scan.finish()
}
