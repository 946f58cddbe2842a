//! JSON without a tree: a scanner over successive pieces of one document, and the text of single strings.

mod limit;
mod scan;
mod text;

pub use limit::{DEPTH_MAX, KEY_BYTES_MAX};
pub use scan::{Fault, Place, Scanner, Sink, What};
pub use text::{quote, unescape};

#[cfg(test)]
mod tests;
