//! The Messages dialect: Anthropic's.

mod count;

pub use count::{count, count_answer, is_count};
