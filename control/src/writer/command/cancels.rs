//! Orders to cancel a running request, at whatever node it runs.

use super::{Command, CommandRefusal, Done, Write};
use crate::routing::publish::{CancelOrder, Touched};

/// Orders all nodes to cancel a request. The audit gets a record once a node has answered that it ran the request.
#[derive(Debug)]
pub(crate) struct OrderCancel(pub(crate) CancelOrder);

impl Command for OrderCancel {
    fn apply(&self, _: &Write<'_>) -> Result<Done, CommandRefusal> {
        Ok(Done::unrecorded(Touched::cancel(self.0.clone())))
    }
}
