//! Metering: usage events from the data plane become rows.
//!
//! ```text
//!  data-plane thread                       writer thread
//!  append: one write(2) to its own file     reads on in each file on a timer, one transaction a batch: the
//!                                            events, their sums, and how far each file is stored;
//!                                            a file that is complete and stored is used again, or deleted
//! ```
//!
//! An event is in a file until it is stored, and the transaction that stores it moves that file's mark, so it is
//! never in neither place and never in the table twice.

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
