//! Times the whole gateway on loopback.
fn main() {}
