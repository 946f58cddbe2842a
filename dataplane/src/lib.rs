//! The data plane: everything between a client's socket and an upstream's.
//!
//! It reads immutable snapshots and uses neither locks nor SQL on the request path. It knows the control service only
//! as a `Handler` for paths outside its own route table. Each worker is one thread with its own runtime, connections
//! and usage log; a request stays on the thread that accepted it.

mod adapt;
mod admit;
mod attempt;
pub mod bounds;
mod caller;
mod clock;
mod dataplane;
mod error;
mod exchange;
#[cfg(test)]
mod fixture;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod head_text;
mod in_process;
mod inbox;
mod memory_budget;
mod metrics;
mod offload;
mod operation;
mod pipe;
mod plan;
mod process;
mod quiet_waker;
mod record;
mod relay;
mod request_id;
mod request_span;
mod route;
mod running;
mod server;
mod settings;
mod starting;
pub mod tls;
mod turn;
mod upstream;
mod worker;

pub use self::dataplane::{Dataplane, listen, new};
pub use self::plan::response_affinity::AffinityParams;
pub use self::process::Params;
pub use self::settings::Settings;
pub use self::starting::Starting;
pub use wire::adapt::tables as adaptations;
