//! Images in OpenAI's shape: whole answers, and streams of partial images. An image is inline, or it is none:
//! nothing here, and nothing in the gateway, fetches an address (IMG-1).

mod stream;
mod whole;

pub use stream::ImageStream;
pub use whole::{synthesize_stream, whole};

/// Why an answer without inline images is refused.
const NOT_INLINE: &str = "it holds the address of an image instead of the image, and llmgw fetches none; choose a model that sends b64_json";

#[cfg(test)]
mod tests;
