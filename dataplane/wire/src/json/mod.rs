//! JSON without a tree: an incremental scanner over successive pieces of one document, and conversions of single
//! strings.

mod block;
mod fault;
mod meaning;
mod raw;
mod scalar;
mod scan;
mod sink;
mod strict;
mod surrogate;
mod text;
mod text_end;
mod tree;
mod writer;

pub use fault::{JsonFault, What};
pub(crate) use meaning::{Characters, Escapes, TextLength, meant_bytes};
pub(crate) use raw::{BorrowedText, inside_quotes, parse_raw};
pub(crate) use scalar::{whole_decimal, whole_number};
pub use scan::{Scanner, StrictScanner};
pub use sink::{DEPTH_MAX, JsonPlace, JsonSink, JsonText, JsonWord, KEY_BYTES_MAX};
pub(crate) use surrogate::{mend_surrogates, without_surrogates};
pub(crate) use text::{escaped, unescape_mended, unescaped};
pub use text::{quote, unescape, unescape_owned};
pub(crate) use text_end::text_length;
pub use tree::{Tree, parse, write};
pub use writer::JsonWriter;
pub(crate) use writer::compact;

#[cfg(test)]
mod tests;
