//! Turns configuration into the snapshot that the data plane reads, and keeps it current while the file
//! changes. What held at start-up (policies, keys, how the process serves) is never replaced.

mod reload;
mod snapshot;

pub use reload::{Look, ReloadStatus, Reloader, StatusCell};
pub use snapshot::{key_hash, snapshot};

#[cfg(test)]
mod tests;
