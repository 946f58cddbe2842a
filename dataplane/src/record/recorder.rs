//! The usage events of one worker, on their way to its log.

use std::cell::RefCell;
use std::sync::Arc;

use shared::request_traces::RequestTraces;
use shared::trace_context::RequestSpan;
use shared::usage::{Note, UsageEvent, UsageLog};

use crate::metrics::Counters;
use crate::settings::Settings;

/// Writes the usage events of one worker.
pub(crate) struct UsageRecorder {
    log: RefCell<Box<dyn UsageLog>>,
    pub(super) counters: Arc<Counters>,
    /// True if one line is logged per request (CFG-7).
    pub(super) logs_requests: bool,
    traces: Option<Arc<RequestTraces>>,
}

impl std::fmt::Debug for UsageRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UsageRecorder").finish_non_exhaustive()
    }
}

impl UsageRecorder {
    pub(crate) fn new(log: Box<dyn UsageLog>, counters: Arc<Counters>, settings: &Settings) -> Self {
        let (logs_requests, traces) = (settings.log_requests, settings.traces.clone());
        Self { log: RefCell::new(log), counters, logs_requests, traces }
    }

    /// Records an exchange. Returns true if the record survives a kill of the process from now on; otherwise the client
    /// must not get a complete answer.
    #[must_use]
    pub(super) fn append(&self, event: &UsageEvent) -> bool {
        self.log.borrow_mut().append(event)
    }

    /// Leaves the spans of a recorded exchange for export, if they are sampled.
    pub(super) fn export(&self, span: Option<&RequestSpan>, event: &UsageEvent) {
        if let (Some(traces), Some(span)) = (&self.traces, span.filter(|span| span.is_sampled)) {
            traces.exchange(span, event);
        }
    }

    /// Notes how an exchange is to be recorded if the process is killed before it ends. Returns `None` if the note
    /// could not be written.
    pub(super) fn note(&self, running: &UsageEvent) -> Option<Note> {
        self.log.borrow_mut().note(running)
    }

    /// Removes the note of an exchange that has been recorded.
    pub(super) fn strike(&self, note: Note) {
        self.log.borrow_mut().strike(note);
    }

    /// Returns true if another exchange can be recorded.
    pub(crate) fn has_room(&self) -> bool {
        self.log.borrow().has_room()
    }

    /// Lets a full usage log check for room. Runs once a second.
    pub(crate) fn tend(&self) {
        self.log.borrow_mut().tend();
    }
}
