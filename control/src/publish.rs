//! Turns configuration into the snapshot that the data plane reads.
