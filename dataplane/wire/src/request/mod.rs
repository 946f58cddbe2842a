//! Reads client requests without a tree while their bodies arrive, and builds the bodies for native targets from the
//! same bytes. One reader serves all client dialects.

mod build;
mod cache_marks;
mod fields;
mod head;
mod input;
mod members;
mod shape;

pub(crate) use build::splice;
pub use build::{Naming, build};
pub use cache_marks::{CachePoints, with_cache_mark, with_cache_points};
pub use head::{
    GeminiCall, GeminiKind, Head, HeadScan, MediaWish, ProviderState, ScanError, ScanFault, VectorForm,
    bare_model,
};
pub use input::{BYTES_PER_TOKEN, FILE_TOKENS_UNKNOWN, InputSize, InputTokens};
pub use members::{ChangedRequest, with_members};

#[cfg(test)]
mod tests;
