//! State shared by the gate and the service of one HTTP/1.1 connection. The result of checking a head is passed here,
//! outside the byte stream, so that no request can forge one.

use std::cell::{Cell, RefCell};

use super::head::HeadFault;
use crate::turn::TURN_BYTES;

/// State shared by the gate and the service of a connection.
#[derive(Debug, Default)]
pub(in crate::server) struct GateState {
    /// The result of checking the head that hyper has read but not yet passed to the service.
    head_check: RefCell<Option<HeadCheck>>,
    /// The request whose head was checked last has arrived completely.
    body_complete: Cell<bool>,
    /// The body of an answer has ended or was dropped; its last bytes may not have been written yet.
    answer_ended: Cell<bool>,
    /// The connection ends after the current answer.
    is_ending: Cell<bool>,
    /// Number of the current turn of the connection.
    turn: Cell<u32>,
    /// Bytes that may still be written in this turn.
    turn_bytes: Cell<usize>,
    /// Bytes of the answer passed to hyper since it last had written everything.
    waiting: Cell<usize>,
}

/// The result of checking a head.
#[derive(Debug)]
pub(in crate::server) enum HeadCheck {
    Passed,
    Rejected(Box<RejectedHead>),
}

/// A rejected head.
#[derive(Debug)]
pub(in crate::server) struct RejectedHead {
    /// The requested path.
    pub(in crate::server) path: String,
    pub(in crate::server) fault: HeadFault,
}

impl GateState {
    pub(super) fn set_head_check(&self, check: HeadCheck) {
        self.head_check.replace(Some(check));
    }

    /// True if hyper has a head that it has not passed to the service.
    pub(super) fn has_pending_head(&self) -> bool {
        self.head_check.borrow().is_some()
    }

    /// Takes the result of the check of the request that hyper passes to the service.
    pub(in crate::server) fn take_head_check(&self) -> Option<HeadCheck> {
        self.head_check.take()
    }

    pub(super) fn set_body_complete(&self, complete: bool) {
        self.body_complete.set(complete);
    }

    /// True if hyper has the complete request that is being served, so that the connection can continue after the
    /// answer. A pending head implies it: that head came after this request.
    pub(in crate::server) fn has_complete_request(&self) -> bool {
        self.body_complete.get() || self.has_pending_head()
    }

    /// Records that the body of an answer has ended.
    pub(in crate::server) fn end_answer(&self) {
        self.answer_ended.set(true);
    }

    /// Returns true once for each answer whose body has ended.
    pub(super) fn take_ended_answer(&self) -> bool {
        self.answer_ended.take()
    }

    /// Ends the connection after the current answer.
    pub(in crate::server) fn end(&self) {
        self.is_ending.set(true);
    }

    pub(in crate::server) fn is_ending(&self) -> bool {
        self.is_ending.get()
    }

    /// Counts `bytes` of the answer passed to hyper.
    pub(in crate::server) fn count_waiting(&self, bytes: usize) {
        self.waiting.update(|waiting| waiting.saturating_add(bytes));
    }

    /// Resets the count: hyper has written everything it had.
    pub(super) fn note_written(&self) {
        self.waiting.set(0);
    }

    /// Returns the bytes of the answer that may still wait for the client.
    pub(in crate::server) fn waiting(&self) -> usize {
        self.waiting.get()
    }

    /// Starts a turn of the connection.
    pub(in crate::server) fn begin_turn(&self) {
        self.turn.update(|turn| turn.wrapping_add(1));
        self.turn_bytes.set(TURN_BYTES);
    }

    /// Returns the number of the current turn.
    pub(in crate::server) fn turn(&self) -> u32 {
        self.turn.get()
    }

    /// Returns the bytes that may still be written in this turn.
    pub(super) fn turn_bytes(&self) -> usize {
        self.turn_bytes.get()
    }

    pub(super) fn spend(&self, bytes: usize) {
        self.turn_bytes.update(|left| left.saturating_sub(bytes));
    }
}
