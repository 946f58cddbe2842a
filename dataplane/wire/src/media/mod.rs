//! The media operations: embeddings, speech, transcriptions, images, videos.

pub mod audio;
pub mod embeddings;
mod events;
pub mod images;
mod opaque;
pub mod videos;
mod voice;

pub use opaque::Opaque;
pub use voice::with_voice;
