//! Records which target created a Responses answer, so that later requests that refer to it go there.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use shared::access::Access;
use shared::operation::Dialect;
use shared::routing::Target;
use shared::usage::TokenCounts;
use wire::request::Head;
use wire::responses;

use super::{Begun, Job, Success};
use crate::plan::response_affinity::{Home, ResponseHash};
use crate::relay::Scan;
use crate::worker::Worker;

/// Records the parts of a relayed Responses answer that only its target can interpret: its ID and its encrypted reasoning.
#[derive(Debug)]
pub(crate) struct Trail {
    worker: Rc<Worker>,
    access: Arc<Access>,
    home: Home,
    /// The hash of the answer's ID, if the ID is known.
    response: Option<ResponseHash>,
}

impl Trail {
    pub(crate) fn see(&self, bytes: &[u8]) {
        self.worker.plane.homes.note_reasoning(bytes, self.home);
    }

    /// Records the ID of the answer.
    fn begins(&mut self, id: Option<String>, head: &Head) {
        let note = |id: String| self.worker.plane.homes.note_response(&id, head, &self.access, self.home);
        self.response = id.map(note);
    }

    /// Records the number of tokens of the answer and of everything before it.
    pub(crate) fn ends(&self, tokens: &TokenCounts) {
        if let Some(response) = self.response {
            self.worker.plane.homes.note_tokens(response, tokens.total());
        }
    }
}

/// Returns the trail of an answer, if a later request may refer to it.
pub(super) fn trail(
    job: &Job,
    target: &Target,
    success: &Success,
    adapted_from: Option<Dialect>,
) -> Option<Box<Trail>> {
    if job.head.dialect != Dialect::Responses || adapted_from.is_some() {
        return None;
    }
    let home = job.worker.plane.homes.of(target);
    let (worker, access) = (Rc::clone(&job.worker), Arc::clone(&job.access));
    let mut trail = Trail { worker, access, home, response: None };
    match &success.begun {
        Begun::Whole(whole) => {
            trail.begins(id_of(&whole.body, job.head.stream), &job.head);
            trail.see(&whole.body);
            whole.usage.iter().for_each(|tokens| trail.ends(tokens));
        }
        Begun::Flowing { held, scan, .. } => {
            let id = match scan {
                Scan::Stream(_) => responses::id::of_events(held),
                Scan::Whole(_) => held.first().and_then(|bytes| responses::id::of_answer(bytes)),
            };
            trail.begins(id, &job.head);
            held.iter().for_each(|bytes| trail.see(bytes));
        }
    }
    Some(Box::new(trail))
}

/// Returns the ID of a whole answer, or of one that was converted to a stream.
fn id_of(body: &Bytes, is_stream: bool) -> Option<String> {
    if is_stream {
        responses::id::of_events(std::slice::from_ref(body))
    } else {
        responses::id::of_answer(body)
    }
}
