//! The rig of `adaptations.rs`: the gateway as a process, and one stream of each dialect.

pub(crate) mod gateway;
pub(crate) mod payload;
#[path = "../../tests/support/proc.rs"]
mod proc;
#[path = "../support/process.rs"]
mod process;
