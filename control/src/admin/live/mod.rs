//! `GET /admin/api/live`: the state of the gateway once a second, as an event stream. Nothing is computed without
//! listeners. A listener who reads slowly misses frames; no frame waits for it.

mod events;
mod frame;
pub(crate) mod hub;
pub(crate) mod node_frame;
mod others;
mod own;
mod seen;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use serde::Deserialize;
use shared::clock::unix_ms;
use shared::error_kind::ErrorKind;
use shared::id::KeyId;
use shared::port::{Body, full};
use tokio::sync::watch;

use self::events::{Bye, ByeReason, Hello, LiveEvents, put};
use self::frame::{LiveFrame, Progress};
use self::hub::WatchedKey;
use self::own::OwnRequests;
use super::gate::{Admission, Gate, LIVE_PATH};
use super::shares::CallerShare;
use super::stream::{self, Feed};
use super::{ApiError, Call, Route, route_of};
use crate::admin::permission::Permission;
use crate::db::readers::asking_as;

pub(super) static ROUTES: &[Route] =
    &[route_of(Method::GET, LIVE_PATH, |call| Box::pin(live(call)))
        .answers::<LiveEvents>(
            "Streams events once a second (`text/event-stream`). A human gets `hello`, `running`, `seen` and `bye`, with the \
             requests of their projects.",
        )
        .query::<LiveQuery>()
        .permits(Permission::SeeUsage)];

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LiveQuery {
    /// The ID of a key, whose finished requests are sent as `seen`.
    watch: Option<String>,
}

async fn live(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let LiveQuery { watch: key } = call.query()?;
    let app = call.app;
    let own = OwnRequests::of(&call);
    if let (Some(own), Some(watched)) = (&own, &key)
        && !own.keys().await.is_some_and(|keys| keys.contains(&KeyId::new(watched.as_str())))
    {
        return Err(ApiError::new(ErrorKind::NotFound, "There is no such key, or it is not usable."));
    }
    let share = match app.live.streams.take(&call.actor.who) {
        Ok(share) => share,
        Err(error) => return too_many(call.parts, error),
    };
    let ended = || ApiError::new(ErrorKind::InvalidKey, "The session has ended. Sign in again.");
    let admission = app.gate.live_admission(call.parts).ok_or_else(ended)?;
    let is_watching = key.is_some();
    let watched = key.map(|key| app.live.watch(KeyId::new(key)));
    let frames = app.live.subscribe();
    let progress = Progress::new(is_watching, frames.borrow().number);
    let gate = Arc::clone(&app.gate);
    let listener = Listener { admission, gate, own, _watched: watched, frames, progress, share };
    let mut hello = Vec::new();
    let (at_ms, generation) = (unix_ms(), app.snapshot.load().generation);
    put(&mut hello, "hello", &Hello { at_ms, version: app.build.version, generation });
    let (feed, body) = stream::channel_of(1);
    let human = call.standing.human().map(Arc::from);
    tokio::spawn(asking_as(human, listener.run(feed, hello.into())));
    Ok(events_of(body))
}

/// Rejects a stream beyond the limit. A browser's `EventSource` does not show the page a rejection, so it gets the
/// reason as an event.
fn too_many(parts: &Parts, error: ApiError) -> Result<Response<Body>, ApiError> {
    let accept = parts.headers.get(ACCEPT).map_or(&b""[..], HeaderValue::as_bytes);
    if accept.starts_with(EVENT_STREAM.as_bytes()) {
        let mut bye = Vec::new();
        put(&mut bye, "bye", &Bye { reason: ByeReason::TooMany });
        return Ok(events_of(full(bye)));
    }
    Err(error)
}

fn events_of(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies would collect events before they pass them on.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// One live stream.
struct Listener {
    admission: Admission,
    gate: Arc<Gate>,
    /// The restriction of a human's stream.
    own: Option<OwnRequests>,
    /// Held for its effect.
    _watched: Option<WatchedKey>,
    frames: watch::Receiver<Arc<LiveFrame>>,
    progress: Progress,
    share: CallerShare,
}

impl Listener {
    /// Sends frames until the client disconnects, takes nothing for [`STALL_MAX`], or has been sent `bye`.
    async fn run(mut self, feed: Feed, mut piece: Bytes) {
        loop {
            let sent = tokio::time::timeout(STALL_MAX, feed.send(std::mem::take(&mut piece)));
            if !matches!(sent.await, Ok(Ok(()))) {
                break;
            }
            // The frame is chosen once the previous one has left, so a slow client gets the newest.
            if !matches!(tokio::time::timeout(STALL_MAX, feed.room()).await, Ok(Ok(()))) {
                break;
            }
            let changed = tokio::select! {
                changed = self.frames.changed() => changed,
                () = feed.gone() => break,
            };
            if changed.is_err() {
                break;
            }
            let end;
            (piece, end) = self.next().await;
            if let Some(reason) = end {
                let mut last = Vec::from(piece);
                put(&mut last, "bye", &Bye { reason });
                let _ = tokio::time::timeout(STALL_MAX, feed.send(last.into())).await;
                break;
            }
        }
        // Clients connect again after any end.
        feed.finish();
        drop(self.share);
    }

    /// Returns the events of the newest frame, and the reason if the stream ends with it.
    async fn next(&mut self) -> (Bytes, Option<ByeReason>) {
        let signed_out = (Bytes::new(), Some(ByeReason::SignedOut));
        let mut frame = Arc::clone(&self.frames.borrow_and_update());
        if let Some(own) = &self.own {
            let keys = own.keys().await;
            let Some(keys) = keys.filter(|_| self.gate.is_open(&self.admission)) else { return signed_out };
            frame = Arc::new(frame.of_keys(&keys));
        } else if !self.gate.still_admits(&self.admission) {
            return signed_out;
        }
        (self.progress.advance(&frame), frame.is_draining.then_some(ByeReason::Draining))
    }
}

const EVENT_STREAM: &str = "text/event-stream";
/// A client that takes nothing for this time is disconnected.
const STALL_MAX: Duration = Duration::from_secs(60);
