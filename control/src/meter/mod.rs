//! Metering: stores the data plane's usage events as rows.
//!
//! ```text
//!  data-plane thread                       writer thread
//!  append: one write(2) to its own file     reads on in each file on a timer, one transaction a batch: the
//!                                            events, their sums, and how far each file is stored;
//!                                            a file that is complete and stored is used again, or deleted
//! ```
//!
//! An event stays in its file until it is stored, and the transaction that stores it also advances that file's read
//! position. An event is therefore never lost between the two and never stored twice.

pub(crate) mod frame;
pub(crate) mod gauge;
pub(crate) mod ingest;
pub(crate) mod journal;
mod names;
mod notes;
pub(crate) mod quota;
pub(crate) mod segment;
mod spares;
mod tracked;

#[cfg(test)]
pub(crate) mod tests;
