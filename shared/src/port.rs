//! The only traits that cross planes: one that answers requests, one that makes them, one that lists and cancels those that
//! are running, and those through which they are observed.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::id::{ModelId, ProviderId};
use crate::proxy::OwnWay;
use crate::quota::ShareNeed;
use crate::routing::{Endpoint, Target};
use crate::running::RunningExchanges;
use crate::usage::StateHash;

/// An error that is only logged.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A body of erased type, used by both planes.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
/// A future that either plane may await on any thread.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Answers HTTP requests. The control service implements it for the data plane (paths outside the data plane's
/// table), and the data plane for the control service (test completions and `explain`). Dropping the response or its
/// body cancels the work for it.
pub trait Handler: fmt::Debug + Send + Sync {
    /// Answers one request. `peer` is the address of the sender.
    fn handle(
        &self,
        request: http::Request<Body>,
        peer: std::net::SocketAddr,
    ) -> BoxFuture<http::Response<Body>>;

    /// Notes that `peer` presented a key that nobody has, and that is no key of the format that the gateway issues, in the
    /// request with this method and ID. Returns the time to wait if it has presented too many. Never called for a right key.
    fn wrong_key(
        &self,
        _request: (&http::Method, &str),
        _peer: std::net::SocketAddr,
    ) -> Result<(), Duration> {
        Ok(())
    }
}

/// Makes HTTP requests to upstreams with the data plane's connections, TLS and address rules.
pub trait HttpClient: fmt::Debug + Send + Sync {
    /// Sends `request` (an absolute `http` or `https` URI) and reads the response up to `limits`. Redirects are not
    /// followed, and a response with a content encoding is an error.
    fn send(
        &self,
        request: http::Request<Bytes>,
        limits: HttpLimits,
    ) -> BoxFuture<Result<http::Response<Bytes>, BoxError>>;
}

/// Lists and cancels the running exchanges. The data plane implements it for the control service.
pub trait Exchanges: fmt::Debug + Send + Sync {
    /// Returns a copy of the running exchanges.
    fn running(&self) -> BoxFuture<RunningExchanges>;

    /// Cancels the running exchanges with this request ID. Their clients get an error, and their upstream connections
    /// are closed. Returns false if there is none.
    fn cancel(&self, request_id: &str) -> BoxFuture<bool>;
}

/// Tables of the data plane that a restart should keep. The data plane implements it, and the control service stores
/// them: it alone uses files.
pub trait KeptTables: fmt::Debug + Send + Sync {
    /// Returns a number that is another one after each change of the tables.
    fn changes(&self) -> u64;

    /// Returns the content of the tables.
    fn content(&self) -> Vec<u8>;

    /// Adds `content`, which an earlier process returned. Returns false, and adds nothing, if it has another layout.
    fn restore(&self, content: &[u8]) -> bool;
}

/// Finds the origins of stored state that the data plane does not know itself: after a restart, or of another node. The
/// control service implements it over its database. It is never asked about requests that refer to no stored state.
pub trait StateOrigins: fmt::Debug + Send + Sync {
    /// Looks an ID up once. A caller that has waited long enough drops the future.
    fn find(&self, wanted: WantedState) -> BoxFuture<Result<StateOrigin, LookupRefusal>>;
}

/// The stored state that a request refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedState {
    /// The caller's [owner of state](crate::usage::owner_of_state).
    pub owner: String,
    /// The hash of its ID.
    pub hash: StateHash,
    /// True if state of other owners is [`StateOrigin::Foreign`]; false if it is unknown.
    pub tells_foreign: bool,
}

/// The origin of stored state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateOrigin {
    /// The state is the owner's.
    Own {
        /// The provider instance that created it.
        provider: ProviderId,
        /// The address of that instance at that time.
        address: String,
        /// The tokens of the response with all before it, if they are known.
        tokens: Option<u64>,
    },
    /// The state is another owner's.
    Foreign,
    /// Nothing is known of it.
    Unknown,
}

/// Reasons why the origin of stored state cannot be looked up now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupRefusal {
    /// The caller, or all callers, look up too much.
    Busy,
    /// Records of an earlier process, which may contain it, are not stored yet.
    Behind,
    /// The database did not answer.
    Failed,
}

/// Gets larger shares of the limits that the nodes of a cluster share. The control service implements it over the database of
/// the cluster. It is only asked after a counter was full.
pub trait ShareGrants: fmt::Debug + Send + Sync {
    /// Waits until the share of this node may have grown. Returns true if the request should try again, and false if it is
    /// refused. `until_ms` is the time on [`since_boot_ms`](crate::clock::since_boot_ms) at which it is refused in any case.
    fn wait(&self, need: ShareNeed, until_ms: u64) -> BoxFuture<bool>;
}

/// A request extension of an in-process request: the request is authorized by `access` instead of a key. A request
/// from the network never has this extension.
#[derive(Clone, Debug)]
pub struct Insider {
    /// The access that the request is authorized with.
    pub access: Arc<Access>,
    /// The only target of the request, regardless of its selector and of the target's circuit. It need not be in the
    /// snapshot. `access` must still permit it.
    pub only: Option<Target>,
    /// The only target that the request may use out of those that its selector names.
    pub restricted_to: Option<(ProviderId, ModelId)>,
    /// Observes what is exchanged with upstreams.
    pub tap: Option<Arc<dyn ExchangeTap>>,
    /// Stops after the plan and responds with the plan as JSON: no upstream call, no record, no quota (FAIL-8).
    pub explain: bool,
}

/// A request extension of an in-process request that is explained: what the explanation assumes.
#[derive(Clone, Debug, Default)]
pub struct Rehearsal {
    /// An endpoint that takes the place of the one with its name, if there is one.
    pub draft: Option<Arc<Endpoint>>,
    /// The faults of targets. `None` leaves out the attempts at the candidates.
    pub faults: Option<Vec<AssumedFault>>,
}

/// An assumed fault of a provider, or of one of its models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssumedFault {
    /// The provider instance.
    pub provider: ProviderId,
    /// The model; `None` for all models of the instance.
    pub model: Option<ModelId>,
    /// The kind of fault.
    pub kind: FaultKind,
}

/// The kind of an assumed fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It answers with this error status.
    Status {
        /// The status.
        status: u16,
        /// The text of the error, which decides as that of an upstream does.
        text: Option<Box<str>>,
    },
    /// It never answers.
    Hang,
    /// It closes the connection before the first content.
    Cut,
}

impl AssumedFault {
    /// Returns true if the fault affects `target`.
    pub fn hits(&self, target: &Target) -> bool {
        self.provider == target.provider.id
            && self.model.as_ref().is_none_or(|model| *model == target.model.id)
    }
}

impl Insider {
    /// Creates an authorization by `access` without further conditions.
    pub fn new(access: Arc<Access>) -> Self {
        Self { access, only: None, restricted_to: None, tap: None, explain: false }
    }
}

/// Observes one exchange: its sides begin in the order of time, and each attempt has two of them.
pub trait ExchangeTap: fmt::Debug + Send + Sync {
    /// A side begins, with its head as text, without credentials.
    fn begin(&self, side: Side, head: String);

    /// A piece of the body of the latest side of this kind has passed.
    fn piece(&self, side: Side, piece: &Bytes);
}

/// A side of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The request of the client.
    ClientRequest,
    /// The request to an upstream.
    UpstreamRequest,
    /// The answer of an upstream.
    UpstreamResponse,
    /// The answer to the client.
    ClientResponse,
}

/// Captures whole exchanges. The control service implements it for the data plane.
pub trait Capture: fmt::Debug + Send + Sync {
    /// Begins an exchange. It is complete when the last reference to its observer is dropped.
    fn begin(&self, request_id: &str) -> Arc<dyn ExchangeTap>;
}

/// The path below which the control service takes requests of the data plane with bodies of any type, up to the data
/// plane's limit.
pub const RUN_PATH: &str = "/admin/api/run/";

/// A request extension for the control service: the access of a caller whom the data plane has authenticated and who
/// asks about their own key.
#[derive(Clone, Debug)]
pub struct KeyHolder(pub Arc<Access>);

/// A request extension for the control service: the data plane has authorized the caller to read the metrics.
#[derive(Clone, Copy, Debug)]
pub struct MetricsReader;

/// A request extension of the control service: the request may go to the machine's metadata server, which no other
/// request may reach, and only to its token paths.
#[derive(Clone, Copy, Debug)]
pub struct MetadataServer;

impl MetadataServer {
    /// The address of the metadata server in every cloud.
    pub const ADDRESS: &'static str = "169.254.169.254";
    /// The path of Google's metadata server for access tokens of the machine's account.
    pub const TOKEN_PATH: &'static str = "/computeMetadata/v1/instance/service-accounts/default/token";
    /// The path of Azure's metadata server for access tokens.
    pub const AZURE_TOKEN_PATH: &'static str = "/metadata/identity/oauth2/token";
}

/// A request extension of the control service: the request goes to the Unix socket with this path. Its URI has the scheme
/// `http`.
#[derive(Clone, Debug)]
pub struct SocketPath(pub Box<str>);

/// A request extension of the control service: the request takes this way, instead of that of the variables.
#[derive(Clone, Debug)]
pub struct Via(pub Arc<OwnWay>);

/// A request extension of the control service: only the head of the response is needed. Its body is not read, so its size
/// and encoding do not matter, and the returned body is empty.
#[derive(Clone, Copy, Debug)]
pub struct HeadOnly;

/// Limits of one outgoing request.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// The time from the call to the last byte of the response.
    pub timeout: Duration,
    /// The maximum size of the response body in bytes.
    pub body_bytes_max: usize,
}

/// Returns a body that consists of `bytes`.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    use http_body_util::BodyExt as _;
    http_body_util::Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}
