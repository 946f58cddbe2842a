//! One HTTP/1.1 connection to an upstream, driven inside the task of the request that uses it.
//!
//! hyper's pooled client gives every connection a task of its own, so each piece of a body crosses two tasks
//! and leaves in a write of its own. Here the connection's driver is polled by whoever waits for the answer:
//! all that one read of the socket brought is relayed in one go, and dropping the answer drops the socket,
//! which is all that cancelling takes.
//!
//! ```text
//!   Parked --poll--> Polling --wake from inside--> Again --poll loop goes round--> Polling
//!      ^                |
//!      '--- pending ----'      (a wake while Parked wakes the request's task)
//! ```

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use atomic_waker::AtomicWaker;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;

use super::dial::UpstreamIo;
use super::outgoing::Outgoing;

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: http1::SendRequest<Outgoing>,
    driver: Driver,
    hush: Arc<Hush>,
    waker: Waker,
    /// It has answered a request before, so the upstream may have closed it in the meantime.
    pub(crate) reused: bool,
}

#[derive(Debug)]
struct Driver(Option<Pin<Box<http1::Connection<UpstreamIo, Outgoing>>>>);

/// Bytes of an answer that hyper may hold before they are relayed.
const READ_BUFFER_BYTES_MAX: usize = 64 << 10;
/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 32 << 10;

impl Connection {
    /// Speaks HTTP/1.1 over `io`.
    pub(crate) async fn handshake(io: UpstreamIo) -> hyper::Result<Self> {
        let (sender, driver) = http1::Builder::new()
            .max_buf_size(READ_BUFFER_BYTES_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .handshake(io)
            .await?;
        let hush = Arc::new(Hush { parent: AtomicWaker::new(), state: AtomicU8::new(PARKED) });
        let waker = Waker::from(Arc::clone(&hush));
        Ok(Self { sender, driver: Driver(Some(Box::pin(driver))), hush, waker, reused: false })
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(&mut self, request: Request<Outgoing>) -> hyper::Result<Response<Incoming>> {
        let mut answer = pin!(self.sender.send_request(request));
        std::future::poll_fn(|cx| {
            drive(&mut self.driver, &self.hush, &self.waker, cx, |inner| answer.as_mut().poll(inner))
        })
        .await
    }

    /// The next piece of the answer's body.
    pub(crate) fn poll_data(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Bytes>>> {
        drive(&mut self.driver, &self.hush, &self.waker, cx, |inner| poll_data(body, inner))
    }

    /// Whether another request may be sent; notices that the upstream has closed.
    pub(crate) fn is_reusable(&mut self) -> bool {
        let mut inner = Context::from_waker(&self.waker);
        self.driver.poll(&mut inner);
        self.driver.0.is_some() && self.sender.is_ready()
    }
}

/// Skips trailers, which are never relayed.
pub(super) fn poll_data(body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Bytes>>> {
    loop {
        match std::task::ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Some(Ok(data)));
                }
            }
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return Poll::Ready(None),
        }
    }
}

/// Polls `want` and the driver in turns until one of them has something or both wait for the socket.
fn drive<T>(
    driver: &mut Driver,
    hush: &Hush,
    waker: &Waker,
    cx: &Context<'_>,
    mut want: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    hush.parent.register(cx.waker());
    let mut inner = Context::from_waker(waker);
    loop {
        hush.state.store(POLLING, Ordering::Relaxed);
        if let Poll::Ready(value) = want(&mut inner) {
            // Whoever has the value polls again, so wakes may stay hushed until then.
            return Poll::Ready(value);
        }
        driver.poll(&mut inner);
        if let Poll::Ready(value) = want(&mut inner) {
            return Poll::Ready(value);
        }
        let parked = hush.state.compare_exchange(POLLING, PARKED, Ordering::AcqRel, Ordering::Acquire);
        if parked.is_ok() {
            return Poll::Pending;
        }
    }
}

impl Driver {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.0
            && driver.as_mut().poll(cx).is_ready()
        {
            self.0 = None;
        }
    }
}

/// A waker that is silent while its connection is being polled: what the driver and the body say to each
/// other then must not schedule the whole task again.
#[derive(Debug)]
struct Hush {
    parent: AtomicWaker,
    state: AtomicU8,
}

const PARKED: u8 = 0;
const POLLING: u8 = 1;
const AGAIN: u8 = 2;

impl Wake for Hush {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(AGAIN, Ordering::AcqRel) == PARKED {
            self.parent.wake();
        }
    }
}
