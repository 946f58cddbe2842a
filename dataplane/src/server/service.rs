//! The interface between the server and the service that answers its requests.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use shared::port::BoxError;

use super::io::Link;
use crate::error::Fault;
use crate::worker::Worker;

/// Answers the requests of one connection. Dropping a future cancels its request.
pub(crate) trait Service: Clone + 'static {
    type Body: AnswerBody;
    type Future: Future<Output = Response<Self::Body>> + Unpin + 'static;

    /// Answers a request.
    fn call(&self, request: Request<Incoming>) -> Self::Future;

    /// Returns the answer to a rejected head; `path` is the path that it appears to request.
    fn refuse(&self, path: &str, fault: Fault) -> Response<Self::Body>;
}

/// The body of an answer.
pub(crate) trait AnswerBody: Body<Data = Bytes, Error = BoxError> + Unpin + 'static {
    /// True if the answer has ended with an error event, after which the connection closes.
    fn is_cut(&self) -> bool;
}

/// Creates the service of a connection.
pub(crate) type Connect<S> = fn(&Rc<Worker>, &Rc<Link>, SocketAddr) -> S;

/// A worker and the constructor of its connections' services.
#[derive(Debug)]
pub(crate) struct Server<S> {
    pub(crate) worker: Rc<Worker>,
    pub(crate) connect: Connect<S>,
}

impl<S> Clone for Server<S> {
    fn clone(&self) -> Self {
        Self { worker: Rc::clone(&self.worker), connect: self.connect }
    }
}
