//! HTTP/2 to upstreams: hyper's client, whose connections the requests of a worker share.

mod connection;
mod send;
mod sharing;
mod socket;
#[cfg(test)]
mod tests;

pub(super) use self::connection::SharedConnection;
pub(super) use self::send::send_http2;
pub(super) use self::sharing::{Place, may_be_shared};
pub(crate) use self::sharing::{SharedConnections, StreamLease};
