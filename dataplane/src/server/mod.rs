//! The server side: listener, sockets, TLS, HTTP/1.1 and HTTP/2 by hyper, limits, drain, and request bodies. It passes
//! each request to a [`Service`](service::Service) and knows no paths.

pub(crate) mod accept;
mod answer;
pub(crate) mod balance;
pub(crate) mod body;
pub(crate) mod connections;
mod gate;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod harness;
mod http1;
mod http2;
pub(crate) mod io;
pub(crate) mod service;
pub(crate) mod unpack;
