//! The data plane: everything between a client's socket and an upstream's.
//!
//! It reads immutable snapshots and uses neither locks nor SQL on the request path. It knows the control service only
//! as a `Handler` for paths outside its own route table. Each worker is one thread with its own runtime, connections
//! and usage log; a request stays on the thread that accepted it.

mod adapt;
mod admit;
mod attempt;
mod error;
mod exchange;
mod failover;
#[cfg(test)]
mod fixture;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod inside;
mod metrics;
mod operation;
mod plan;
mod plane;
mod record;
mod relay;
mod room;
mod route;
mod server;
mod threads;
pub mod tls;
mod turn;
mod upstream;
mod worker;

pub use self::plane::Settings;
pub use self::threads::{Dataplane, Params, listen, new};
