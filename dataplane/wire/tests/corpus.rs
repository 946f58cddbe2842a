//! Replays the fuzz corpora, so that every test run covers the inputs that the fuzzers found.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::panic,
    clippy::expect_used,
    reason = "a test may"
)]

mod hold;

fn replay(target: &str, holds: fn(&[u8])) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/");
    let mut files = 0;
    for entry in std::fs::read_dir(format!("{folder}{target}")).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        holds(&std::fs::read(path).unwrap());
        files += 1;
    }
    assert!(files >= 5, "{target} has a corpus");
}

#[test]
fn sse_decoder_holds_on_its_corpus() {
    replay("sse_decoder", hold::sse_decoder);
}

#[test]
fn json_scan_holds_on_its_corpus() {
    replay("json_scan", hold::json_scan);
}

#[test]
fn chat_splice_holds_on_its_corpus() {
    replay("chat_splice", hold::chat_splice);
}

#[test]
fn chat_stream_holds_on_its_corpus() {
    replay("chat_stream", hold::chat_stream);
}

#[test]
fn sanitize_holds_on_its_corpus() {
    replay("sanitize", hold::sanitize);
}

#[test]
fn chat_over_messages_holds_on_its_corpus() {
    replay("chat_over_messages", hold::chat_over_messages);
}

#[test]
fn messages_over_chat_holds_on_its_corpus() {
    replay("messages_over_chat", hold::messages_over_chat::holds);
}

#[test]
fn event_stream_holds_on_its_corpus() {
    replay("event_stream", hold::event_stream);
}

#[test]
fn chat_over_gemini_holds_on_its_corpus() {
    replay("chat_over_gemini", hold::chat_over_gemini);
}

#[test]
fn gemini_over_chat_holds_on_its_corpus() {
    replay("gemini_over_chat", hold::gemini_over_chat::holds);
}

#[test]
fn images_over_gemini_holds_on_its_corpus() {
    replay("images_over_gemini", hold::images_over_gemini::holds);
}

#[test]
fn chat_over_bedrock_holds_on_its_corpus() {
    replay("chat_over_bedrock", hold::chat_over_bedrock);
}

#[test]
fn responses_over_chat_holds_on_its_corpus() {
    replay("responses_over_chat", hold::responses::responses_over_chat);
}

#[test]
fn chat_over_responses_holds_on_its_corpus() {
    replay("chat_over_responses", hold::responses::chat_over_responses);
}

#[test]
fn native_splice_holds_on_its_corpus() {
    replay("native_splice", hold::native_splice);
}

#[test]
fn messages_stream_holds_on_its_corpus() {
    replay("messages_stream", hold::messages_stream);
}

#[test]
fn responses_stream_holds_on_its_corpus() {
    replay("responses_stream", hold::responses_stream);
}

#[test]
fn videos_hold_on_their_corpus() {
    replay("videos", hold::videos);
}

#[test]
fn multipart_holds_on_its_corpus() {
    replay("multipart", hold::multipart);
}
