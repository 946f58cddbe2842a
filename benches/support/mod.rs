//! The rig of `relay.rs`: processes under test pinned to one core, a scripted upstream and a load generator on the
//! other, and the statistics of interleaved rounds.

pub(crate) mod answer;
pub(crate) mod collector;
pub(crate) mod floor;
pub(crate) mod http2;
pub(crate) mod library;
pub(crate) mod line;
pub(crate) mod llmgw;
pub(crate) mod load;
pub(crate) mod nginx;
pub(crate) mod payload;
#[path = "../../tests/support/proc.rs"]
pub(crate) mod proc;
pub(crate) mod proxy;
pub(crate) mod report;
pub(crate) mod scenario;
pub(crate) mod soak;
pub(crate) mod threads;
pub(crate) mod upstream;
pub(crate) mod wire;

pub(crate) use line::process;
