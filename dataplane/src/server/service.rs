//! The interface between the server and the service that answers its requests.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use shared::port::BoxError;

use super::body::Inbound;
use super::connections::Connections;
use super::io::ConnectionState;
use crate::error::Fault;

/// Answers the requests of one connection. Dropping a future cancels its request.
pub(crate) trait Service: Clone + 'static {
    type Body: AnswerBody;
    type Future: Future<Output = Response<Self::Body>> + Unpin + 'static;

    /// Answers a request.
    fn call(&self, request: Request<Inbound>) -> Self::Future;

    /// Returns the answer to a rejected head; `path` is the path that it appears to request.
    fn refuse(&self, path: &str, fault: Fault) -> Response<Self::Body>;
}

/// The body of an answer.
pub(crate) trait AnswerBody: Body<Data = Bytes, Error = BoxError> + Unpin + 'static {
    /// True if the answer has ended with an error event, after which the connection closes.
    fn is_cut(&self) -> bool;
}

/// Creates the services of a worker's connections.
pub(crate) trait Connect: Clone + 'static {
    type Service: Service;

    /// Returns the connections of the worker.
    fn connections(&self) -> &Connections;

    /// Creates the service of one connection.
    fn connect(&self, state: &Rc<ConnectionState>, peer: SocketAddr) -> Self::Service;
}
