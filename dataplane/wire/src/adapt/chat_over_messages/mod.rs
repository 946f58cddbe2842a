//! A client that speaks Chat at a target that speaks Messages (CHAT-6).
//!
//! Reasoning that the target has signed comes back to it only if the client keeps it: an answer carries
//! `thinking_blocks`, as LiteLLM's do, where the request spoke of `thinking` or brought such blocks along.

mod chunks;
mod form;
mod losses;
mod request;
mod response;
mod said;
mod stream;
mod usage;

use shared::operation::Dialect;

use super::{Adaptation, Asking, Prepared, Rejection};

/// The row of the table.
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
