//! The scripted upstream over HTTP/2, by hyper's server.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;

use super::upstream::{Framing, Script, Shared, Sink};
use super::wire::Io;

/// Serves one connection until the other side closes it.
pub(crate) async fn serve(stream: Box<dyn Io>, shared: Rc<Shared>) {
    let service = service_fn(|request| {
        let shared = Rc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(request, shared).await) }
    });
    let connection = Builder::new(LocalExecutor)
        .max_concurrent_streams(200)
        .max_send_buf_size(1 << 20)
        .serve_connection(TokioIo::new(stream), service);
    let _ = connection.await;
}

type Answer = Response<Either<Full<Bytes>, Pieces>>;

async fn answer(request: Request<Incoming>, shared: Rc<Shared>) -> Answer {
    let Ok(body) = request.into_body().collect().await else {
        return Response::new(Either::Left(Full::default()));
    };
    shared.compare(&body.to_bytes());
    let (kind, body) = match shared.script() {
        Script::Whole(body) => ("application/json", Either::Left(Full::new(body))),
        Script::Flow { stream, per_write, pace } => {
            let (mut pieces, taken) = mpsc::channel(1);
            tokio::task::spawn_local(async move {
                stream.play((per_write, pace), shared.epoch, Framing::None, &mut pieces).await
            });
            ("text/event-stream; charset=utf-8", Either::Right(Pieces(taken)))
        }
    };
    Response::builder().header("content-type", kind).header("x-request-id", "req_bench").body(body).unwrap()
}

/// The body of a stream.
struct Pieces(mpsc::Receiver<Bytes>);

impl Sink for mpsc::Sender<Bytes> {
    async fn send(&mut self, piece: Vec<u8>) -> bool {
        Self::send(self, piece.into()).await.is_ok()
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// Runs the streams of a connection on its thread.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
