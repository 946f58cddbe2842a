//! Records which target created a Responses answer, so that later requests that refer to it go there.

use bytes::Bytes;
use shared::operation::Dialect;
use shared::routing::Target;
use wire::responses;

use super::{Begun, Job, Success};
use crate::plan::response_affinity::Trail;
use crate::relay::Scan;

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
    let mut trail = Trail::new(&job.worker.process.homes, &job.access, target);
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
