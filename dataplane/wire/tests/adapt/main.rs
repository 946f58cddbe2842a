//! Tests every adaptation with its vectors, and every table of losses with its cases.
//!
//! To add a pair, remove its names from [`vectors::WAITING`] and add a file of cases to `fixtures/loss`.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::expect_used,
    reason = "a test may"
)]

mod chain;
mod chat_choices;
#[path = "../hold/chat_client.rs"]
mod chat_client;
mod chat_over_bedrock;
mod chat_over_gemini;
mod chat_over_messages;
mod chat_over_messages_answers;
mod chat_over_messages_meaning;
mod chat_over_responses;
mod chat_reader;
mod docs;
mod embeddings;
mod every_path;
mod failed_ends;
mod flaws;
mod images_over_gemini;
#[path = "../hold/known_rules.rs"]
mod known_rules;
mod losses;
mod messages_over_chat_meaning;
mod model_levels;
mod model_rules;
mod normal;
mod nothing_is_lost;
mod pair;
mod recorded;
mod repeated_event;
mod responses_for_agents;
mod responses_over_chat;
#[path = "../hold/responses_reader.rs"]
mod responses_reader;
mod round_trip;
mod tool_calls;
mod traps;
mod vectors;
