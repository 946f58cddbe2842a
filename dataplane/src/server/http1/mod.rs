//! HTTP/1.1 from clients, spoken in the task of their connection: a head is read once, strictly; a request is
//! answered; the answer goes out, a short one in a single write. A client that leaves takes its answer with it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderMap, Method, Response};
use http_body::{Body as _, Frame, SizeHint};
use shared::port::BoxError;

mod answer;
mod connection;
mod head;

use self::answer::{Framing, Then};
use self::connection::Connection;
use super::body::Inbound;
use super::io::{Order, Phase, ServerIo};
use crate::exchange::{self, Caller};
use crate::http1::{Body, Fault};
use crate::relay::Reply;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::head::hold_head;

/// How long a client may take to hear why its request was refused.
const LINGER: Duration = Duration::from_secs(1);
/// An answer's body is not asked for more while so much of it waits for the client.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// Serves a connection until it ends.
pub(crate) async fn serve(caller: &Rc<Caller>, io: ServerIo) {
    let connection = Rc::new(RefCell::new(Connection::new(io, caller.worker.plane.settings.local_mode)));
    // A fault ends the connection as it is: there is nobody to tell.
    if converse(caller, &connection).await.is_ok() {
        drop(close(&connection).await);
    }
}

/// Answers requests for as long as another may follow.
async fn converse(caller: &Rc<Caller>, connection: &Rc<RefCell<Connection>>) -> io::Result<()> {
    loop {
        caller.link.enter(Phase::Idle);
        let head = poll_fn(|cx| connection.borrow_mut().poll_head(&caller.link, cx)).await?;
        caller.link.enter(Phase::Busy);
        let (response, asked) = match head {
            None => return Ok(()),
            Some(Ok(head)) => {
                let asked = Asked {
                    method: head.request.method().clone(),
                    http11: head.http11,
                    keep_alive: head.keep_alive,
                };
                let body = RequestBody(Rc::clone(connection));
                let request = head.request.map(|()| Inbound::Http1(body));
                let answering = exchange::respond(Rc::clone(caller), request);
                (while_there(connection, answering).await?, asked)
            }
            Some(Err(refused)) => {
                connection.borrow_mut().lose();
                let response = exchange::refuse(caller, &refused.path, refused.why.fault());
                (response, Asked { method: Method::GET, http11: true, keep_alive: false })
            }
        };
        if !send(caller, connection, &asked, response).await? {
            return Ok(());
        }
    }
}

/// What of a request decides how it is answered.
struct Asked {
    method: Method,
    http11: bool,
    keep_alive: bool,
}

/// Waits for `future` unless the client leaves first.
async fn while_there<T>(
    connection: &RefCell<Connection>,
    mut future: Pin<Box<impl Future<Output = T> + ?Sized>>,
) -> io::Result<T> {
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Ok(value)),
        Poll::Pending => connection.borrow_mut().poll_gone(cx).map(|()| Err(gone())),
    })
    .await
}

fn gone() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// Sends an answer; returns true if the connection may go on, which it may not behind a failed stream.
async fn send(
    caller: &Caller,
    connection: &RefCell<Connection>,
    asked: &Asked,
    response: Response<Reply>,
) -> io::Result<bool> {
    let (head, mut body) = response.into_parts();
    let mut framing = Framing::of(&asked.method, head.status, body.size_hint().exact(), asked.http11);
    let keep_alive = asked.keep_alive
        && framing != Framing::UntilClose
        && caller.link.order.get() == Order::None
        && !closes(&head.headers)
        && connection.borrow_mut().skip_request();
    let then = match (keep_alive, asked.http11) {
        (true, true) => Then::Next,
        (true, false) => Then::NextAsAsked,
        (false, _) => Then::Close,
    };
    framing.head(&mut connection.borrow_mut().out, &head, &caller.worker.date(), then);
    drop(head);
    let mut ended = framing == Framing::Bodiless;
    let sent = poll_fn(|cx| {
        loop {
            let waits =
                !ended && poll_body(connection, &mut body, &mut framing, &mut ended, cx)?.is_pending();
            let mut connection = connection.borrow_mut();
            let flushed = connection.poll_flush(cx)?;
            if flushed.is_ready() && ended {
                return Poll::Ready(Ok(()));
            }
            if flushed.is_pending() || waits {
                return connection.poll_gone(cx).map(|()| Err(gone()));
            }
        }
    })
    .await;
    sent.map(|()| keep_alive && !body.is_cut())
}

/// Takes from `body` what there is, up to a bound. Ready at its end, or when the client must read first.
fn poll_body(
    connection: &RefCell<Connection>,
    body: &mut Reply,
    framing: &mut Framing,
    ended: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while connection.borrow().out.bytes() < WAITING_BYTES_MAX {
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx)).transpose().map_err(io::Error::other)?;
        let out = &mut connection.borrow_mut().out;
        let Some(frame) = frame else {
            *ended = true;
            return Poll::Ready(framing.end(out));
        };
        // Trailers are not relayed.
        if let Ok(piece) = frame.into_data() {
            framing.piece(out, &piece)?;
        }
    }
    Poll::Ready(Ok(()))
}

fn closes(headers: &HeaderMap) -> bool {
    headers.get(CONNECTION).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
}

/// Ends the connection so that the last answer arrives: a socket that is closed with bytes unread is reset.
async fn close(connection: &RefCell<Connection>) -> io::Result<()> {
    poll_fn(|cx| connection.borrow_mut().poll_shutdown(cx)).await?;
    if connection.borrow_mut().skip_request() {
        return Ok(());
    }
    tokio::time::timeout(LINGER, poll_fn(|cx| connection.borrow_mut().poll_drained(cx))).await?
}

/// The body of a request.
#[derive(Debug)]
pub(crate) struct RequestBody(Rc<RefCell<Connection>>);

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let piece = ready!(self.0.borrow_mut().poll_data(cx));
        Poll::Ready(piece.map(|piece| piece.map(Frame::data).map_err(of_fault)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.borrow().reader.has_ended()
    }

    fn size_hint(&self) -> SizeHint {
        match self.0.borrow().reader.body() {
            Body::Ended => SizeHint::with_exact(0),
            Body::Length(left) => SizeHint::with_exact(left),
            Body::Chunked(_) | Body::UntilClose => SizeHint::default(),
        }
    }
}

fn of_fault(fault: Fault) -> BoxError {
    match fault {
        Fault::Closed => "the connection was closed before its end".into(),
        Fault::Io(error) => Box::new(error),
        Fault::Invalid(why) => why.into(),
    }
}
