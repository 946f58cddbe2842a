//! The tables by which nodes that share a PostgreSQL know each other: `cluster`, `changes`, `nodes`, `fences`, `job_leases` and
//! `board`. Their statements use the clock and the start of the server (`engine/postgres/schema.rs`), so they run on
//! PostgreSQL only.

pub(crate) mod board;
pub(crate) mod changes;
pub(crate) mod clock;
pub(crate) mod fences;
#[cfg_attr(not(test), expect(dead_code, reason = "no job stores a result that only the holder may store"))]
pub(crate) mod leases;
pub(crate) mod nodes;
