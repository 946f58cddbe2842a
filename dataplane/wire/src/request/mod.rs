//! What a client asks for, read without a tree while its body arrives, and the same bytes as a native target gets
//! them: one reader for every dialect that clients speak.

mod build;
mod fields;
mod head;
mod shape;

pub use build::{Naming, build};
pub use head::{Head, HeadScan, ProviderState, ScanError, ScanFault};

#[cfg(test)]
mod tests;
