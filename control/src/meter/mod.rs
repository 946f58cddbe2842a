//! Metering: stores the data plane's usage events as rows.
//!
//! ```text
//!  data-plane thread                       writer thread
//!  append: one write(2) to its own file     reads new events from each file on a timer, one transaction per
//!                                            batch: the events, their sums, and each file's read position;
//!                                            recycles or deletes complete files that are stored
//! ```
//!
//! An event stays in its file until it is stored, and the transaction that stores it also advances that file's read
//! position. An event is therefore never lost between the two and never stored twice.

pub(crate) mod gauge;
pub(crate) mod ingest;
pub(crate) mod journal;
mod notes;
pub(crate) mod quota;
pub(crate) mod segment;
mod spares;
mod tracked;

#[cfg(test)]
pub(crate) mod tests;
