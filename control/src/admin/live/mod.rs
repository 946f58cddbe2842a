//! `GET /admin/api/live`: the state of the gateway once a second, as an event stream. Nothing is computed without
//! listeners. A listener who reads slowly misses frames; no frame waits for it.

mod events;
pub(crate) mod hub;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use serde_json::value::RawValue;
use shared::clock::unix_ms;
use shared::error_kind::ErrorKind;
use shared::id::KeyId;
use shared::port::{Body, full};
use tokio::sync::{OwnedSemaphorePermit, watch};

use self::events::{Bye, ByeReason, Hello, LiveEvents, LiveRunning, SeenRequest, put};
use self::hub::{LISTENERS_MAX, LiveFrame, WatchedKey};
use super::gate::{Admission, Gate};
use super::stream::{self, Feed};
use super::{ApiError, Call, Route, route_of};

pub(super) static ROUTES: &[Route] =
    &[route_of(Method::GET, PATH, |call| Box::pin(async move { live(&call) }))
        .answers::<LiveEvents>("Streams events once a second (`text/event-stream`).")
        .query(&["watch"])];

fn live(call: &Call<'_>) -> Result<Response<Body>, ApiError> {
    let mut query = call.query()?;
    let key = query.text("watch");
    query.finish()?;
    let app = call.app;
    let Ok(room) = Arc::clone(&app.live.room).try_acquire_owned() else { return too_many(call.parts) };
    let ended = || ApiError::new(ErrorKind::InvalidKey, "The session has ended. Sign in again.");
    let listener = Listener {
        admission: app.gate.admission(call.parts).ok_or_else(ended)?,
        gate: Arc::clone(&app.gate),
        progress: Progress { is_watching: key.is_some(), ..Progress::default() },
        _watched: key.map(|key| app.live.watch(KeyId::new(key))),
        frames: app.live.subscribe(),
        room,
    };
    let mut hello = Vec::new();
    let (at_ms, generation) = (unix_ms(), app.snapshot.load().generation);
    put(&mut hello, "hello", &Hello { at_ms, version: app.build.version, generation });
    let (feed, body) = stream::channel_of(1);
    tokio::spawn(listener.run(feed, hello));
    Ok(events_of(body))
}

/// Rejects a stream beyond the limit. A browser's `EventSource` does not show the page a rejection, so it gets the
/// reason as an event.
fn too_many(parts: &Parts) -> Result<Response<Body>, ApiError> {
    let accept = parts.headers.get(ACCEPT).map_or(&b""[..], HeaderValue::as_bytes);
    if accept.starts_with(EVENT_STREAM.as_bytes()) {
        let mut bye = Vec::new();
        put(&mut bye, "bye", &Bye { reason: ByeReason::TooMany });
        return Ok(events_of(full(bye)));
    }
    let message = format!(
        "{LISTENERS_MAX} live streams are open, the maximum. Close a page of the console or another listener, and \
         try again."
    );
    Err(ApiError::new(ErrorKind::Overloaded, message).retry_after(RETRY_SECONDS))
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
    /// Held for its effect.
    _watched: Option<WatchedKey>,
    frames: watch::Receiver<Arc<LiveFrame>>,
    progress: Progress,
    room: OwnedSemaphorePermit,
}

impl Listener {
    /// Sends frames until the client disconnects, takes nothing for [`STALL_MAX`], or has been sent `bye`.
    async fn run(mut self, feed: Feed, mut piece: Vec<u8>) {
        loop {
            let sent = tokio::time::timeout(STALL_MAX, feed.send(Bytes::from(std::mem::take(&mut piece))));
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
            if let Some(reason) = self.write(&mut piece) {
                put(&mut piece, "bye", &Bye { reason });
                let _ = tokio::time::timeout(STALL_MAX, feed.send(piece.into())).await;
                break;
            }
        }
        drop(self.room);
    }

    /// Appends the newest frame. Returns the reason if the stream ends with it.
    fn write(&mut self, out: &mut Vec<u8>) -> Option<ByeReason> {
        if !self.gate.still_admits(&self.admission) {
            return Some(ByeReason::SignedOut);
        }
        let frame = Arc::clone(&self.frames.borrow_and_update());
        self.progress.write(&frame, out);
        frame.is_draining.then_some(ByeReason::Draining)
    }
}

/// The position of a listener in the stream.
#[derive(Debug, Default)]
struct Progress {
    /// The number of the last frame.
    last: u64,
    /// The number of the last frame whose watched requests were sent; `None` before the first frame. Requests from
    /// before it are not sent.
    seen_last: Option<u64>,
    is_watching: bool,
    /// The running exchanges that the listener knows.
    running: BTreeSet<Arc<str>>,
}

impl Progress {
    /// Appends a frame, and what was new in the frames since the last one.
    fn write(&mut self, frame: &LiveFrame, out: &mut Vec<u8>) {
        out.extend_from_slice(&frame.figures);
        let providers = frame.providers.iter().filter(|provider| provider.number > self.last);
        let providers: Vec<&str> = providers.map(|provider| &*provider.value).collect();
        if !providers.is_empty() {
            out.extend_from_slice(
                format!("event: providers\ndata: [{}]\n\n", providers.join(",")).as_bytes(),
            );
        }
        self.write_running(frame, out);
        for change in frame.changes.iter().filter(|change| change.number > self.last) {
            out.extend_from_slice(&change.value);
        }
        let seen_last = self.seen_last.unwrap_or_else(|| frame.number.saturating_sub(1));
        for request in frame.seen.iter().filter(|request| self.is_watching && request.number > seen_last) {
            put(out, "seen", &SeenRequest::of(&request.value));
        }
        self.last = frame.number;
        self.seen_last = Some(frame.number);
    }

    fn write_running(&mut self, frame: &LiveFrame, out: &mut Vec<u8>) {
        let changed = frame.running.values().filter(|exchange| exchange.number > self.last);
        let begun_or_changed: Vec<&RawValue> = changed.map(|exchange| &*exchange.value).collect();
        let ended = self.running.iter().filter(|id| !frame.running.contains_key(*id));
        let ended: Vec<&str> = ended.map(|id| &**id).collect();
        if self.last == 0 || !begun_or_changed.is_empty() || !ended.is_empty() {
            put(out, "running", &LiveRunning { begun_or_changed, ended, more: frame.more });
        }
        self.running = frame.running.keys().cloned().collect();
    }
}

/// The path of the stream below the admin API.
pub(super) const PATH: &str = "live";
const EVENT_STREAM: &str = "text/event-stream";
const RETRY_SECONDS: u64 = 5;
/// A client that takes nothing for this time is disconnected.
const STALL_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::hub::Numbered;
    use super::*;

    /// A frame with one provider, one running exchange and one change for each of these numbers.
    fn frame(number: u64, numbers: &[u64]) -> LiveFrame {
        let numbered = |number: &u64| Numbered {
            number: *number,
            value: Arc::<str>::from(format!("{{\"n\":{number}}}")),
        };
        let change = |number: &u64| Numbered {
            number: *number,
            value: Arc::<[u8]>::from(format!("<{number}>").into_bytes()),
        };
        let exchange = |number: &u64| {
            let value = RawValue::from_string(number.to_string()).unwrap();
            (format!("id-{number:02}").into(), Numbered { number: *number, value: value.into() })
        };
        LiveFrame {
            number,
            figures: b"figures ".to_vec(),
            providers: numbers.iter().map(numbered).collect(),
            running: numbers.iter().map(exchange).collect(),
            more: 3,
            changes: numbers.iter().map(change).collect::<VecDeque<_>>(),
            ..LiveFrame::default()
        }
    }

    #[test]
    fn a_listener_that_misses_frames_gets_the_newest_and_all_changes() {
        let mut progress = Progress::default();
        let mut sent = |frame: LiveFrame| {
            let mut out = Vec::new();
            progress.write(&frame, &mut out);
            String::from_utf8(out).unwrap()
        };
        let providers = |list: &str| format!("event: providers\ndata: [{list}]\n\n");
        let running = |begun: &str, ended: &str| {
            format!(
                "event: running\ndata: {{\"begun_or_changed\":[{begun}],\"ended\":[{ended}],\"more\":3}}\n\n"
            )
        };
        let first = sent(frame(7, &[2, 7]));
        let want = format!("figures {}{}<2><7>", providers("{\"n\":2},{\"n\":7}"), running("2,7", ""));
        assert_eq!(first, want);
        assert_eq!(sent(frame(8, &[2, 7])), "figures ");
        let late = sent(frame(12, &[7, 9, 12]));
        let want =
            format!("figures {}{}<9><12>", providers("{\"n\":9},{\"n\":12}"), running("9,12", "\"id-02\""));
        assert_eq!(late, want);
    }
}
