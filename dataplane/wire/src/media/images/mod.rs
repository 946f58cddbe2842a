//! Images in OpenAI's format: whole answers and streams of partial images. Only inline images are accepted: the gateway
//! never fetches an image from an address (IMG-1).

mod stream;
mod whole;

pub use stream::ImageStream;
pub use whole::{synthesize_stream, whole};

/// The reason why an answer without inline images is rejected.
const NOT_INLINE: &str = "it contains the URL of an image instead of the image, and llmgw does not fetch \
                          URLs; choose a model that sends b64_json";

#[cfg(test)]
mod tests;
