//! Usage, from the journal that the data plane appends to, to its tables, sums and reports. Records are packed by the
//! crate `records`.
//!
//! ```text
//!  data-plane thread                       writer thread
//!  append: one write(2) to its own file     reads new events from each file on a timer, one transaction per
//!  (journal/)                                batch: the events, their sums, and each file's read position;
//!                                            recycles or deletes complete files that are stored
//!
//!  journal/ -> ingest -> table, rollup, charges -> requests, report/, export; reprice and retention change them
//!                        table -> periods/ -> series/, targets
//! ```
//!
//! An event stays in its file until it is stored, and the transaction that stores it also advances that file's read
//! position. An event is therefore never lost between the two and never stored twice.

pub(crate) mod charges;
pub(crate) mod dimension;
pub(crate) mod export;
pub(crate) mod first_request;
pub(crate) mod gauge;
pub(crate) mod hour_costs;
pub(crate) mod ingest;
pub(crate) mod journal;
pub(crate) mod key_days;
pub(crate) mod last_answers;
pub(crate) mod last_rows;
pub(crate) mod merging;
pub(crate) mod metrics;
pub(crate) mod occurrences;
pub(crate) mod origins;
pub(crate) mod periods;
pub(crate) mod read_positions;
pub(crate) mod recent;
pub(crate) mod report;
pub(crate) mod reprice;
pub(crate) mod request_index;
pub(crate) mod requests;
pub(crate) mod retention;
pub(crate) mod rollup;
pub(crate) mod scope;
pub(crate) mod series;
pub(crate) mod sums;
pub(crate) mod table;
mod target_groups;
pub(crate) mod targets;
pub(crate) mod telemetry;

#[cfg(test)]
pub(crate) mod tests;
