//! Chat clients served by Messages targets (CHAT-6).
//!
//! Signed thinking returns to the target only if the client keeps it. An answer contains `thinking_blocks`, as
//! LiteLLM's answers do, if the request had a `thinking` member or contained such blocks.

mod chunks;
mod form;
mod losses;
mod request;
mod response;
mod stream;
mod target_types;
mod usage;

use shared::operation::Dialect;

use super::{Adaptation, Asking, Prepared, Rejection};

/// This pair's entry in the list of adaptations.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Chat,
    target: Dialect::Messages,
    via: None,
    losses: losses::LOSSES,
    prepare,
    origin: None,
};

fn prepare(asking: &Asking<'_>) -> Result<Prepared, Rejection> {
    let said = request::write(asking)?;
    let answers = Box::new(form::ChatAnswerForm::new(asking, said.wishes, said.names));
    Ok(Prepared { body: said.body.into(), answers, dropped: said.dropped })
}
