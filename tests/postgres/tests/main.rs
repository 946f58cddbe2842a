//! Tests of the servers and of the proxy, through `psql` and plain TCP.

mod server;
mod standby;
