//! Tests of requests, by what they are about.

mod build;
mod dialects;
mod head;
mod input;
mod preamble;
mod spelling;
