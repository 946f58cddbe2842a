//! Serialises the tool calls of a chat stream: chat may interleave fragments of several calls, Messages may not.
//!
//! One call is open at a time. Fragments of other calls are buffered, up to [`WAITING_BYTES_MAX`] together, until the
//! arguments of the open one are complete.
//!
//! ```text
//! Waiting --its turn, and its name is known--> Open --arguments whole, and another waits--> Done
//! ```

use super::MessagesForm;
use super::event::MessagesEventWriter;
use crate::adapt::call_id::call_id;
use crate::adapt::signature_in_call_id;
use crate::chat::{AnswerText, ChatCallDelta};
use crate::json::{quote, unescape};

/// The maximum number of bytes of buffered arguments.
pub(super) const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Limits of one answer: the number of calls, and the length in bytes of an id or a name.
pub(super) const CALLS_MAX: usize = 1_024;
const NAME_BYTES_MAX: usize = 1_024;

/// The calls of one answer.
#[derive(Debug, Default)]
pub(super) struct StreamedCalls {
    calls: Vec<StreamedCall>,
    /// All calls before this index are done.
    turn: usize,
    waiting_bytes: usize,
    /// The index of the call that was opened last.
    latest: Option<usize>,
}

/// The calls exceed a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

#[derive(Debug)]
struct StreamedCall {
    /// The upstream's index of the call, if it sends one.
    index: Option<u64>,
    id: Option<String>,
    name: Option<String>,
    /// Gemini's signature of the thoughts before the call, to embed in its id.
    signature: Option<String>,
    /// Buffered arguments, still escaped.
    waiting: String,
    state: CallState,
    shape: ObjectProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    Waiting,
    Open,
    Done,
}

impl StreamedCalls {
    /// Adds one fragment.
    pub(super) fn take(
        &mut self,
        piece: &ChatCallDelta<'_>,
        form: &MessagesForm,
        out: &mut MessagesEventWriter,
    ) -> Result<(), TooMuch> {
        let at = self.find(piece)?;
        let Some(call) = self.calls.get_mut(at) else { return Ok(()) };
        if call.name.is_none() {
            call.name = some(piece.name);
        }
        if call.id.is_none() {
            call.id = some(piece.id);
        }
        if call.signature.is_none() {
            call.signature = piece.signature.as_deref().map(str::to_owned);
        }
        let is_long = |text: &Option<String>| text.as_ref().is_some_and(|text| text.len() > NAME_BYTES_MAX);
        if is_long(&call.id) || is_long(&call.name) {
            return Err(TooMuch);
        }
        if !piece.input.is_empty() {
            let arguments = piece.input.escaped();
            match call.state {
                CallState::Open => {
                    call.shape.read(&arguments);
                    out.delta(&arguments);
                }
                CallState::Waiting => {
                    self.waiting_bytes = self.waiting_bytes.saturating_add(arguments.len());
                    if self.waiting_bytes > WAITING_BYTES_MAX {
                        return Err(TooMuch);
                    }
                    call.waiting.push_str(&arguments);
                }
                // The arguments were complete, so only white space can follow.
                CallState::Done => {}
            }
        }
        self.go_on(false, form, out);
        Ok(())
    }

    /// Opens buffered calls: while the open call is complete, or all of them if `end` is set.
    pub(super) fn go_on(&mut self, end: bool, form: &MessagesForm, out: &mut MessagesEventWriter) {
        while end || !self.is_busy() {
            let mut rest = self.calls.iter().skip(self.turn);
            let next = rest.position(|call| call.state == CallState::Waiting && call.name.is_some());
            let Some(next) = next.map(|next| self.turn.saturating_add(next)) else { break };
            self.close();
            self.open(next, form, out);
        }
    }

    /// Returns true while the arguments of the open call are incomplete.
    pub(super) fn is_busy(&self) -> bool {
        self.calls.iter().skip(self.turn).any(|call| call.state == CallState::Open && !call.shape.is_whole())
    }

    /// Marks the open call as done, because another block follows.
    pub(super) fn close(&mut self) {
        for call in self.calls.iter_mut().skip(self.turn).filter(|call| call.state == CallState::Open) {
            call.state = CallState::Done;
        }
        let done = self.calls.iter().skip(self.turn).take_while(|call| call.state == CallState::Done).count();
        self.turn = self.turn.saturating_add(done);
    }

    /// Returns true if any call has been written.
    pub(super) fn any(&self) -> bool {
        self.latest.is_some()
    }

    /// Returns true if the arguments of the last call are incomplete.
    pub(super) fn is_cut(&self) -> bool {
        self.latest.and_then(|at| self.calls.get(at)).is_some_and(|call| !call.shape.is_whole())
    }

    /// Returns the index of the call that a fragment belongs to. Adds a new call if no call matches. Some vendors send no
    /// index, or the same one for every call: a different id begins a new call, and so does a name without index and id.
    fn find(&mut self, piece: &ChatCallDelta<'_>) -> Result<usize, TooMuch> {
        let (index, id) = (piece.index, some(piece.id));
        let found = match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index),
            None if id.is_some() => self.calls.iter().rposition(|call| call.id == id),
            None if !piece.name.is_empty() => None,
            None => self.calls.len().checked_sub(1),
        };
        if let Some(at) = found
            && let Some(call) = self.calls.get(at)
            && (id.is_none() || call.id.is_none() || call.id == id)
        {
            return Ok(at);
        }
        if self.calls.len() >= CALLS_MAX {
            return Err(TooMuch);
        }
        self.calls.push(StreamedCall {
            index,
            id: None,
            name: None,
            signature: None,
            waiting: String::new(),
            state: CallState::Waiting,
            shape: ObjectProgress::default(),
        });
        Ok(self.calls.len().saturating_sub(1))
    }

    fn open(&mut self, at: usize, form: &MessagesForm, out: &mut MessagesEventWriter) {
        let Some(call) = self.calls.get_mut(at) else { return };
        let id = match &call.id {
            Some(id) => call_id(id, "toolu_"),
            None => format!("toolu_{}_{at}", form.seed).into(),
        };
        let id = signature_in_call_id::join(id, call.signature.as_deref());
        call.state = CallState::Open;
        self.latest = Some(at);
        let name = form.names.restore(call.name.as_deref().unwrap_or_default());
        out.tool(&quote(&id), &quote(name));
        let waiting = std::mem::take(&mut call.waiting);
        self.waiting_bytes = self.waiting_bytes.saturating_sub(waiting.len());
        if !waiting.is_empty() {
            call.shape.read(&waiting);
            out.delta(&waiting);
        }
    }
}

/// Returns a text that is not empty.
fn some(text: AnswerText<'_>) -> Option<String> {
    Some(text.plain().into_owned()).filter(|text| !text.is_empty())
}

/// A scanner that detects the end of a JSON object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectProgress {
    depth: u32,
    begun: bool,
    in_string: bool,
    after_backslash: bool,
}

impl ObjectProgress {
    /// Scans a further piece, which is still escaped.
    pub(super) fn read(&mut self, escaped: &str) {
        if !escaped.contains('\\') {
            self.read_plain(escaped.as_bytes());
        } else if let Some(text) = unescape(escaped.as_bytes()) {
            self.read_plain(text.as_bytes());
        }
    }

    fn read_plain(&mut self, text: &[u8]) {
        for &byte in text {
            if self.in_string {
                match byte {
                    _ if self.after_backslash => self.after_backslash = false,
                    b'\\' => self.after_backslash = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            self.begun |= !byte.is_ascii_whitespace();
        }
    }

    /// Returns true if the object has ended.
    pub(super) fn is_whole(self) -> bool {
        self.begun && self.depth == 0 && !self.in_string
    }
}
