//! What is no conversation: embeddings, speech, transcriptions, images, videos.

mod opaque;

pub use opaque::Opaque;
