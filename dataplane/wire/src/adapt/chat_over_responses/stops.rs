//! Stop sequences of clients that come by way of chat, such as Claude Code. The Responses API has no member for them: the
//! answer is cut at the first one. The target does not know that, so it goes on, and bills what follows.

use std::borrow::Cow;

use crate::adapt::path::MemberPath;
use crate::adapt::{Rejection, read};
use crate::chat::request::ChatRequest;

/// The maximum number of sequences, and of bytes of each.
const STOPS_MAX: usize = 16;
const STOP_BYTES_MAX: usize = 1_024;

/// Cuts the text of one answer, which may come in pieces.
#[derive(Clone, Debug, Default)]
pub(super) struct StopCut {
    stops: Vec<String>,
    /// The end of the text so far, which may be the beginning of a sequence.
    held: String,
    /// The position in `stops` of the sequence that was found.
    found: Option<usize>,
}

impl StopCut {
    /// Reads the sequences of a request.
    pub(super) fn of(request: &ChatRequest<'_, '_>) -> Result<Self, Rejection> {
        let path = MemberPath::top("stop");
        let Some(stop) = request.tree("stop").filter(|stop| !read::is_empty(*stop)) else {
            return Ok(Self::default());
        };
        let mut stops = Vec::new();
        match read::as_text(stop) {
            Some(text) => stops.push(text.to_owned()),
            None => {
                for (position, text) in read::array(stop, || path.to_string())?.iter().enumerate() {
                    stops.push(read::text(text, || path.at(position).to_string())?.to_owned());
                }
            }
        }
        stops.retain(|stop| !stop.is_empty());
        let is_too_much = stops.len() > STOPS_MAX || stops.iter().any(|stop| stop.len() > STOP_BYTES_MAX);
        match is_too_much {
            true => Err(path.refuse("has more than 16 sequences, or one of more than 1024 bytes.")),
            false => Ok(Self { stops, ..Self::default() }),
        }
    }

    /// True if there is nothing to look for.
    pub(super) fn is_idle(&self) -> bool {
        self.stops.is_empty()
    }

    /// Returns the sequence at which the text was cut.
    pub(super) fn found(&self) -> Option<&str> {
        self.stops.get(self.found?).map(String::as_str)
    }

    /// Adds a piece of the text and returns what is certainly before a sequence.
    pub(super) fn push(&mut self, piece: &str) -> Cow<'static, str> {
        if self.found.is_some() {
            return Cow::Borrowed("");
        }
        self.held.push_str(piece);
        // The one that is complete first, so that the division into pieces changes nothing.
        let places = self.stops.iter().enumerate().filter_map(|(which, stop)| {
            let at = self.held.find(stop)?;
            Some((at.saturating_add(stop.len()), at, which))
        });
        if let Some((_, at, which)) = places.min() {
            self.found = Some(which);
            self.held.truncate(at);
            return Cow::Owned(std::mem::take(&mut self.held));
        }
        let from = self.open_from();
        let rest = self.held.split_off(from);
        Cow::Owned(std::mem::replace(&mut self.held, rest))
    }

    /// Returns what was held back at the end of the text.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Returns the first position from which the rest of the held text begins a sequence, or the length of the text.
    fn open_from(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or_default();
        let least = self.held.len().saturating_sub(longest.saturating_sub(1));
        let starts = self.held.char_indices().map(|(at, _)| at).filter(|at| *at >= least);
        let is_open = |at: &usize| {
            self.held.get(*at..).is_some_and(|end| self.stops.iter().any(|stop| stop.starts_with(end)))
        };
        let mut open = starts.filter(is_open);
        open.next().unwrap_or(self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_the_first_sequence_however_it_is_divided() {
        for (stops, text, want, found) in [
            (vec!["</b>"], "a</b>c", "a", Some("</b>")),
            (vec!["</b>"], "a</bc", "a</bc", None),
            (vec!["</b>"], "a<</b>", "a<", Some("</b>")),
            (vec!["xy", "x"], "axyb", "a", Some("x")),
            (vec!["abcd", "bc"], "abcd", "a", Some("bc")),
            (vec!["cd", "ab"], "ü ab cd", "ü ", Some("ab")),
            (vec!["🌍!"], "ü🌍🌍!x", "ü🌍", Some("🌍!")),
            (vec!["aab"], "aaab", "a", Some("aab")),
            (vec!["end"], "en", "en", None),
        ] {
            let stops: Vec<String> = stops.into_iter().map(str::to_owned).collect();
            for at in text.char_indices().map(|(at, _)| at) {
                let mut cut = StopCut { stops: stops.clone(), ..StopCut::default() };
                let (first, second) = text.split_at(at);
                let mut seen = cut.push(first).into_owned();
                // One character at a time.
                for piece in second.chars() {
                    seen.push_str(&cut.push(piece.encode_utf8(&mut [0; 4])));
                }
                seen.push_str(&cut.finish());
                assert_eq!((seen.as_str(), cut.found()), (want, found), "{text} at {at}");
            }
        }
    }

    #[test]
    fn no_more_is_held_back_than_a_sequence_is_long() {
        let mut cut = StopCut { stops: vec!["abab".to_owned()], ..StopCut::default() };
        let seen: String = (0..1_000).map(|_| cut.push("aba").into_owned()).collect();
        assert!(cut.held.len() < 4 && seen.len() > 2_990, "{}", seen.len());
    }
}
