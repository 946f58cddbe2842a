//! The packed format of usage records, in the journal and in the table `usage`.
//!
//! ```text
//!  frame    one record in a journal file, bound to its place
//!  block    many records in a row of the table, with a list of their texts
//!  record   one exchange: the fixed part, then `more`, then the steps of its trace
//!  varint   numbers and texts
//! ```
//!
//! Files and rows outlive the release that wrote them: each decoder reads what every earlier release wrote. The bytes may
//! be damaged: a decoder returns `None` or skips them, and never panics. Nothing here reads files or the database.

pub mod block;
pub mod digest;
pub mod frame;
pub mod names;
mod record;
pub mod varint;

pub use record::{
    LastNames, Record, RecordName, RecordState, RecordStep, TEXTS, Texts, Trace, bounded, bounded_cost,
    rare_fields,
};
