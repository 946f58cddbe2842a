//! The context of a request: the connection that it came on, and its ID.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::HeaderValue;
use shared::port::{Insider, Rehearsal, UpstreamTap};

use crate::admit::authenticate::LastKey;
use crate::server::io::ConnectionState;
use crate::worker::Worker;

/// The remote end of a connection.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) worker: Rc<Worker>,
    pub(crate) connection: Rc<ConnectionState>,
    pub(crate) peer: SocketAddr,
    pub(crate) last_key: LastKey,
    /// The authorization of an in-process request; `None` for connections.
    pub(crate) insider: Option<Insider>,
    /// The assumptions of an explanation.
    pub(crate) rehearsal: Option<Rehearsal>,
}

/// One request whose response is pending.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) caller: Rc<Caller>,
    pub(crate) request_id: HeaderValue,
    /// The selector of the body, if requests are watched.
    pub(crate) selector: OnceCell<Box<str>>,
}

impl Exchange {
    /// Returns true if the request asks for the plan instead of an answer.
    pub(crate) fn explains(&self) -> bool {
        self.caller.insider.as_ref().is_some_and(|insider| insider.explain)
    }

    /// Returns the observer of the request's exchanges with upstreams.
    pub(crate) fn tap(&self) -> Option<&Arc<dyn UpstreamTap>> {
        self.caller.insider.as_ref()?.tap.as_ref()
    }

    pub(crate) fn worker(&self) -> &Rc<Worker> {
        &self.caller.worker
    }

    /// Keeps the selector while requests are watched, cut to [`SELECTOR_BYTES_MAX`].
    pub(crate) fn note_selector(&self, selector: &str) {
        if self.worker().process.activity.watch.is_on() {
            let cut = selector.floor_char_boundary(SELECTOR_BYTES_MAX);
            self.selector.set(selector.split_at(cut).0.into()).ok();
        }
    }

    /// Returns the request ID as text.
    pub(crate) fn id(&self) -> &str {
        self.request_id.to_str().unwrap_or_default()
    }
}

/// The maximum length of a kept selector in bytes.
const SELECTOR_BYTES_MAX: usize = 256;
