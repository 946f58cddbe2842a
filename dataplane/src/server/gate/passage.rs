//! What the gate and the service of one HTTP/1.1 connection share. The verdict about a head travels here, beside the
//! bytes: no request can claim one.

use std::cell::{Cell, RefCell};

use super::head::Refusal;
use crate::turn::TURN_BYTES;

/// The state of a connection between its gate and its service.
#[derive(Debug, Default)]
pub(in crate::server) struct Passage {
    /// The verdict about the head that hyper has been given and has not brought to the service.
    verdict: RefCell<Option<Verdict>>,
    /// All of the request whose head was judged last has come.
    has_come: Cell<bool>,
    /// The body of an answer has ended, or was dropped; its last bytes may not be written.
    is_answered: Cell<bool>,
    /// The connection ends behind the answer that is under way.
    is_ending: Cell<bool>,
    /// Bytes that may still be written in this turn.
    turn: Cell<usize>,
    /// Bytes of the answer that hyper was given since it had written all of them.
    waiting: Cell<usize>,
}

/// The judgement of the gate about a head.
#[derive(Debug)]
pub(in crate::server) enum Verdict {
    Admitted,
    Refused(Box<Refused>),
}

/// A head that is refused.
#[derive(Debug)]
pub(in crate::server) struct Refused {
    /// The path that it asked for.
    pub(in crate::server) path: String,
    pub(in crate::server) why: Refusal,
}

impl Passage {
    pub(super) fn judge(&self, verdict: Verdict) {
        self.verdict.replace(Some(verdict));
    }

    /// True if hyper has a head that the service has not.
    pub(super) fn is_judged(&self) -> bool {
        self.verdict.borrow().is_some()
    }

    /// Returns the verdict about the request that hyper brings to the service.
    pub(in crate::server) fn take_verdict(&self) -> Option<Verdict> {
        self.verdict.take()
    }

    pub(super) fn has_come(&self, has_come: bool) {
        self.has_come.set(has_come);
    }

    /// True if hyper has all of the request that is being served: the connection can go on behind the answer. If another
    /// head was judged since, that one came behind it.
    pub(in crate::server) fn has_request(&self) -> bool {
        self.has_come.get() || self.is_judged()
    }

    /// The body of an answer has ended.
    pub(in crate::server) fn note_answered(&self) {
        self.is_answered.set(true);
    }

    /// Returns true once for each answer whose body has ended.
    pub(super) fn take_answered(&self) -> bool {
        self.is_answered.take()
    }

    /// The connection is to end behind the answer that is under way.
    pub(in crate::server) fn end(&self) {
        self.is_ending.set(true);
    }

    pub(in crate::server) fn is_ending(&self) -> bool {
        self.is_ending.get()
    }

    /// Notes that hyper was given `bytes` of the answer.
    pub(in crate::server) fn give(&self, bytes: usize) {
        self.waiting.update(|waiting| waiting.saturating_add(bytes));
    }

    /// Notes that hyper has written all that it was given.
    pub(super) fn note_written(&self) {
        self.waiting.set(0);
    }

    /// Bytes of the answer that may wait for the client.
    pub(in crate::server) fn waiting(&self) -> usize {
        self.waiting.get()
    }

    /// Begins a turn of the connection.
    pub(in crate::server) fn begin_turn(&self) {
        self.turn.set(TURN_BYTES);
    }

    /// Bytes that may still be written in this turn.
    pub(super) fn turn(&self) -> usize {
        self.turn.get()
    }

    pub(super) fn spend(&self, bytes: usize) {
        self.turn.update(|turn| turn.saturating_sub(bytes));
    }
}
