//! The only traits that cross planes: something that answers requests, and something that makes them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;

use crate::access::Access;
use crate::routing::Target;

/// An error that only a log reads.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A body whose type neither plane needs to know.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
/// A future that either plane may await on any thread.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Answers HTTP requests: the control service to the data plane, for paths outside its table, and the data
/// plane to the control service, for test completions and for `explain`. Dropping the answer, or its body, ends
/// what is still being done for it.
pub trait Handler: fmt::Debug + Send + Sync {
    /// Answers one request. `peer` is the address of whoever sent it.
    fn handle(
        &self,
        request: http::Request<Body>,
        peer: std::net::SocketAddr,
    ) -> BoxFuture<http::Response<Body>>;
}

/// Makes one HTTP request to the outside with the data plane's connections, TLS and address rules.
pub trait HttpClient: fmt::Debug + Send + Sync {
    /// Sends `request` (an absolute `http` or `https` URI) and reads the answer up to `limits`. Redirects are
    /// not followed, and an answer in a content encoding is an error.
    fn send(
        &self,
        request: http::Request<Bytes>,
        limits: HttpLimits,
    ) -> BoxFuture<Result<http::Response<Bytes>, BoxError>>;
}

/// In the extensions of a request from inside the process: it is judged as `access` says and not by a key. A
/// request from the network has no extensions of ours.
#[derive(Clone, Debug)]
pub struct Insider {
    /// Who the request counts as.
    pub access: Arc<Access>,
    /// The one target that it goes to, whatever its selector says and whatever the target's circuit; it need not
    /// be in the snapshot. `access` must be allowed to use it like any other.
    pub only: Option<Target>,
    /// Stop after the plan, and answer with the plan as JSON: no upstream call, no record, no quota (FAIL-8).
    pub explain: bool,
}

/// In the extensions of a request that the data plane hands to the control service: a caller whom it has
/// authenticated, and who asks about their own key.
#[derive(Clone, Debug)]
pub struct KeyHolder(pub Arc<Access>);

/// In the extensions of a request of the control service: it may go to the metadata server of the machine, which
/// nothing else may reach, and there to nothing but tokens.
#[derive(Clone, Copy, Debug)]
pub struct MetadataServer;

impl MetadataServer {
    /// Where every cloud has it.
    pub const ADDRESS: &'static str = "169.254.169.254";
    /// Where Google's gives access tokens of the machine's account.
    pub const TOKEN_PATH: &'static str = "/computeMetadata/v1/instance/service-accounts/default/token";
    /// Where Azure's does.
    pub const AZURE_TOKEN_PATH: &'static str = "/metadata/identity/oauth2/token";
}

/// Bounds of one outgoing request.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// From the call to the last byte of the answer.
    pub timeout: Duration,
    /// Bytes of the answer's body.
    pub body_bytes_max: usize,
}

/// A whole body.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    use http_body_util::BodyExt as _;
    http_body_util::Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}
