//! The web console, embedded.
