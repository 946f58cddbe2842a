//! A model of a cluster: nodes, their requests and a database under random faults, to check what the shares promise.
//!
//! Each seed is one run. `LLMGW_SHARE_SEEDS=100000` runs more of them, `LLMGW_SHARE_SEED=17` repeats one with its trace.

mod node;
mod rest;
mod schedule;
mod server;
mod tests;
mod world;
