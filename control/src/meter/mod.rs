//! Metering: usage events from the data plane become rows.
//!
//! ```text
//!  data-plane thread                      writer thread
//!  append: journal file, then queue ----> drains the queue on a timer, one transaction a batch
//!              |                               |
//!              '--- what did not fit or ------> read again from the file; a file whose events
//!                   outlived the process        are all stored is deleted
//! ```
//!
//! An event is known by its [`EventId`](crate::store::usage::EventId) from the moment it is written to the
//! journal, so storing it twice changes nothing, and it is never in fewer than one of file, queue and table.

pub(crate) mod gauge;
pub(crate) mod ingest;
pub(crate) mod journal;
pub(crate) mod segment;
pub(crate) mod writer;

#[cfg(test)]
pub(crate) mod tests;
