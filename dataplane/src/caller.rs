//! The context of a request: the connection that it came on, and its ID.

use std::cell::{Cell, OnceCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Response};
use shared::port::{ExchangeTap, Insider, Rehearsal, Side};

use crate::admit::authenticate::LastKey;
use crate::admit::labels::LastClient;
use crate::head_text::{head_text, is_credential};
use crate::relay::ResponseBody;
use crate::server::body::HeldBody;
use crate::server::io::ConnectionState;
use crate::worker::Worker;

/// The remote end of a connection.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) worker: Rc<Worker>,
    pub(crate) connection: Rc<ConnectionState>,
    pub(crate) peer: SocketAddr,
    pub(crate) last_key: LastKey,
    pub(crate) last_client: LastClient,
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
    /// The observer of the exchange, if its bodies are captured.
    pub(crate) captured: OnceCell<Arc<dyn ExchangeTap>>,
    /// True if the request has reached routing, and so has a record and its span.
    pub(crate) is_recorded: Cell<bool>,
}

impl Exchange {
    /// Returns true if the request asks for the plan instead of an answer.
    pub(crate) fn explains(&self) -> bool {
        self.caller.insider.as_ref().is_some_and(|insider| insider.explain)
    }

    /// Returns the observer of the request's exchanges with upstreams.
    pub(crate) fn tap(&self) -> Option<&Arc<dyn ExchangeTap>> {
        match &self.caller.insider {
            Some(insider) => insider.tap.as_ref(),
            None => self.captured.get(),
        }
    }

    /// Begins the capture of an authorized request of a client, if bodies are captured.
    pub(crate) fn capture(&self, parts: &Parts) {
        let Some(capture) = &self.worker().process.capture else { return };
        if self.caller.insider.is_some() {
            return;
        }
        let tap = capture.begin(self.id());
        // A client may send a credential in the query, although none is read from there.
        let query = parts.uri.query().map_or("", |_| "?[hidden]");
        let first = format!("{} {}{query} {:?}", parts.method, parts.uri.path(), parts.version);
        tap.begin(Side::ClientRequest, head_text(first, &parts.headers, is_credential));
        self.captured.set(tap).ok();
    }

    /// Reports the body of the request to the observer of a captured exchange.
    pub(crate) fn note_body(&self, body: &HeldBody) {
        if let Some(tap) = self.captured.get() {
            body.segments.iter().for_each(|segment| tap.piece(Side::ClientRequest, segment));
        }
    }

    /// Reports the response to the observer of a captured exchange, its body as it passes.
    pub(crate) fn note_response(&self, response: &mut Response<ResponseBody>) {
        let Some(tap) = self.captured.get() else { return };
        let first = format!("HTTP {}", response.status());
        tap.begin(Side::ClientResponse, head_text(first, response.headers(), is_credential));
        response.body_mut().capture(Arc::clone(tap));
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
