//! What a client asks for, read without a tree while its body arrives, and the same bytes as a native target gets
//! them: one reader for every dialect that clients speak.

mod build;
mod fields;
mod head;
mod input;
mod shape;

pub(crate) use build::splice;
pub use build::{Naming, build};
pub use head::{Head, HeadScan, MediaWish, ProviderState, ScanError, ScanFault};
pub use input::{BYTES_PER_TOKEN, FILE_TOKENS_UNKNOWN, InputSize, InputTokens};

#[cfg(test)]
mod tests;
