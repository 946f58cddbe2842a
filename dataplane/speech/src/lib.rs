//! The built-in voice: text in, sound out, in this process and without a network.
//!
//! The engine is SVOX Pico, whose six voices stand in `data/`. It is old C that is not safe to share between threads, so
//! each thread of a [`Studio`] has one of its own, and whoever wants something said leaves a [`Script`] in a queue.

mod container;
mod engine;
mod studio;
mod text;
mod voice;

pub use container::Container;
pub use studio::{Busy, Script, Sound, Studio};
pub use text::clean;
pub use voice::{VOICES, Voice, named};

/// Samples that the engine makes a second.
pub const SAMPLE_RATE: u32 = 16_000;
