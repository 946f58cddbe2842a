//! The built-in voice: converts text to speech in this process, without a network.
//!
//! The engine is SVOX Pico, whose six voices are in `data/`. It is old C code that is not thread-safe, so each thread
//! of a [`Synthesizer`] has its own engine, and callers put a [`Script`] into a queue.

mod container;
mod engine;
mod synthesis;
mod text;
mod voice;

pub use container::Container;
pub use synthesis::{Busy, Script, Sound, Synthesizer};
pub use text::clean;
pub use voice::{VOICES, Voice, named};

/// Sample rate of the engine, in Hz.
pub const SAMPLE_RATE: u32 = 16_000;
