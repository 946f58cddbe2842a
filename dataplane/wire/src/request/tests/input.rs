//! Tests the size of an input by kind of content.

use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use shared::operation::Dialect;

use crate::request::{HeadScan, InputSize};
use crate::tokens::{ImageSize, StatedSize};

/// Reads a body whole, in single bytes and in pieces.
fn size_of(dialect: Dialect, body: &str) -> Rc<InputSize> {
    let read = |piece: usize| {
        let mut scan = HeadScan::new(dialect);
        body.as_bytes().chunks(piece).for_each(|piece| scan.push(piece).unwrap());
        scan.finish().unwrap().input
    };
    let whole = read(body.len());
    assert_eq!(read(1), whole, "in single bytes");
    assert_eq!(read(1_000), whole, "in pieces");
    whole
}

/// Returns the size of one content part.
fn part(dialect: Dialect, part: &serde_json::Value) -> Rc<InputSize> {
    let turn = json!([{"role": "user", "content": [part]}]);
    let body = match dialect {
        Dialect::Responses => json!({"model": "m", "input": turn}),
        Dialect::Chat
        | Dialect::Messages
        | Dialect::Embeddings
        | Dialect::Speech
        | Dialect::Transcription
        | Dialect::Images
        | Dialect::Videos
        | Dialect::Gemini
        | Dialect::GeminiEmbeddings
        | Dialect::Bedrock => json!({"model": "m", "messages": turn}),
    };
    size_of(dialect, &body.to_string())
}

fn png(width: u8, height: u8) -> String {
    let head = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &[0, 0, width, 0, 0, 0, height, 0], &[8, 6, 0, 0, 0]];
    let data = [&[0; 4][..], b"\0\0\x30\0IDAT", &[7; 9_000]];
    BASE64_STANDARD.encode([head.concat(), data.concat()].concat())
}

#[test]
fn pictures_are_counted_in_every_dialect_with_inline_sizes() {
    let (data, known) =
        (png(2, 1), vec![StatedSize { size: ImageSize { width: 512, height: 256 }, is_final: true }]);
    let url = format!("data:image/png;base64,{data}");
    let there = "https://example.com/a.png";
    for (dialect, block, sizes) in [
        (Dialect::Chat, json!({"type": "image_url", "image_url": {"url": url, "detail": "low"}}), &known),
        (Dialect::Chat, json!({"type": "image_url", "image_url": url}), &known),
        (Dialect::Chat, json!({"image_url": {"url": there}}), &vec![]),
        (Dialect::Responses, json!({"type": "input_image", "image_url": url}), &known),
        (Dialect::Responses, json!({"type": "input_image", "image_url": there}), &vec![]),
        (Dialect::Responses, json!({"type": "input_image", "file_id": "file_1"}), &vec![]),
        (Dialect::Messages, json!({"type": "image", "source": {"type": "base64", "data": data}}), &known),
        (Dialect::Messages, json!({"source": {"data": data, "type": "base64"}, "type": "image"}), &known),
        (Dialect::Messages, json!({"type": "image", "source": {"type": "file", "file_id": "x"}}), &vec![]),
        (
            Dialect::Messages,
            json!({"type": "tool_result", "content": [{"type": "image", "source": {"data": data}}]}),
            &known,
        ),
    ] {
        let size = part(dialect, &block);
        assert_eq!((size.pictures, &size.picture_sizes), (1, sizes), "{dialect:?} {block}");
        assert_eq!((size.files, size.files_elsewhere), (0, 0), "{dialect:?} {block}");
        assert!(size.text_bytes < 100 && size.other_bytes < 200, "{size:?}");
    }
}

#[test]
fn files_and_sound_are_counted_by_their_bytes() {
    let pdf = BASE64_STANDARD.encode([b"%PDF-1.7", &[7; 2_992][..]].concat());
    let sound = BASE64_STANDARD.encode([b"ID3", &[7; 2_997][..]].concat());
    let url = format!("data:application/pdf;base64,{pdf}");
    let of = |size: Rc<InputSize>| (size.files, size.file_bytes, size.files_elsewhere, size.audio_bytes);
    for (dialect, block, want) in [
        (Dialect::Chat, json!({"type": "file", "file": {"file_data": url}}), (1, 3_000, 0, 0)),
        (Dialect::Chat, json!({"type": "file", "file": {"file_id": "file_1"}}), (0, 0, 1, 0)),
        (Dialect::Chat, json!({"type": "input_audio", "input_audio": {"data": sound}}), (0, 0, 0, 3_000)),
        (Dialect::Chat, json!({"input_audio": {"data": "AAAA", "format": "mp3"}}), (0, 0, 0, 3)),
        (Dialect::Responses, json!({"type": "input_file", "file_data": url}), (1, 3_000, 0, 0)),
        (Dialect::Responses, json!({"type": "input_file", "file_url": "https://a"}), (0, 0, 1, 0)),
        (
            Dialect::Messages,
            json!({"type": "document", "source": {"type": "base64", "data": pdf}}),
            (1, 3_000, 0, 0),
        ),
        (Dialect::Messages, json!({"type": "document", "source": {"type": "url", "url": "u"}}), (0, 0, 1, 0)),
    ] {
        assert_eq!(of(part(dialect, &block)), want, "{dialect:?} {block}");
    }
    let text = r#"{"model":"m","messages":[{"content":[{"type":"document","source":{"type":"text","data":"x"}},
        {"type":"document","source":{"type":"content","content":[{"type":"text","text":"y"}]}}]}]}"#;
    assert_eq!(of(size_of(Dialect::Messages, text)), (0, 0, 0, 0), "documents of text are text");
    let stored = r#"{"model":"m","input":[{"type":"item_reference","id":"a"},{"type":"item_reference"}]}"#;
    assert_eq!(size_of(Dialect::Responses, stored).stored_items, 2);
}

#[test]
fn text_that_looks_like_a_picture_counts_as_text() {
    let disguised = format!("data:image/png;base64,{}", png(1, 1));
    for block in [
        json!({"type": "text", "text": disguised}),
        json!({"type": "tool_use", "input": {"url": disguised, "data": disguised, "image": {"url": 1}}}),
        json!({"type": "tool_result", "content": disguised}),
    ] {
        let size = part(Dialect::Messages, &block);
        assert!(size.text_bytes >= 12_000 && size.pictures == 0, "{} {}", size.text_bytes, size.pictures);
    }
    let around = part(Dialect::Messages, &json!({"type": "tool_use", "input": {"a": vec![7; 1_000]}}));
    assert!(around.other_bytes >= 2_000, "numbers are read too");
}

#[test]
fn the_length_of_text_is_counted_after_unescaping() {
    let plain = r#"{"model":"m","messages":[{"content":"你好，世界"}],"system":[{"text":"été 🚀"}]}"#;
    let escaped = r#"{"model":"m","messages":[{"content":"\u4f60\u597d\uff0c\u4e16\u754c"}],
        "system":[{"text":"\u00e9t\u00e9 \ud83d\ude80"}]}"#;
    let bytes = size_of(Dialect::Messages, plain).text_bytes;
    assert_eq!((bytes, size_of(Dialect::Messages, escaped).text_bytes), (15 + 10, bytes));
}

#[test]
fn each_number_of_a_token_list_counts_as_a_token() {
    for (input, numbers, text_bytes) in
        [("[1,2,3]", 3, 0), ("[[1,2],[3,4,5]]", 5, 0), (r#"["ab","cde"]"#, 0, 5), ("[]", 0, 0)]
    {
        let size = size_of(Dialect::Embeddings, &format!(r#"{{"model":"m","input":{input}}}"#));
        assert_eq!((size.numbers, size.text_bytes, size.other_bytes), (numbers, text_bytes, 0), "{input}");
    }
    assert_eq!(part(Dialect::Chat, &json!({"type": "text", "x": 7})).numbers, 0);
}

#[test]
fn speech_input_is_counted_in_characters() {
    for (input, characters) in [("hello", 5), ("你好", 2), (r"\u4f60\n\ud83d\ude80", 3)] {
        let body = format!(r#"{{"model":"m","input":"{input}","voice":"v"}}"#);
        assert_eq!(size_of(Dialect::Speech, &body).characters, characters, "{input}");
    }
}

#[test]
fn the_upper_estimate_is_never_below_the_likely_one() {
    let size = InputSize {
        text_bytes: 401,
        other_bytes: 40,
        numbers: 7,
        pictures: 3,
        picture_sizes: vec![StatedSize { size: ImageSize { width: 512, height: 512 }, is_final: true }],
        files: 1,
        file_bytes: 100_000,
        files_elsewhere: 1,
        stored_items: 2,
        audio_ms: 1_500,
        audio_bytes: 16_000,
        ..InputSize::default()
    };
    // The text, its file of three pages, one of five pages, two items.
    assert_eq!(size.likely("gpt-4o").text, 101 + 7 + 3 * 2_000 + 5 * 2_000 + 2 * 250);
    assert_eq!(size.most("gpt-4o").text, 221 + 7 + 103_000 + 100_000 + 2 * 4_000);
    assert_eq!(size.likely("gpt-4o").pictures, 255 + 2 * 765);
    assert_eq!(size.most("gpt-4o").pictures, 255 + 2 * (85 + 8 * 170));
    assert_eq!((size.likely("m").audio, size.most("m").audio), (15 + 20, 48 + 8 * 32));
    let small = StatedSize { size: ImageSize { width: 1, height: 1 }, is_final: false };
    let stated = InputSize { pictures: 1, picture_sizes: vec![small], ..InputSize::default() };
    let unknown = InputSize { pictures: 1, ..InputSize::default() };
    assert_eq!(
        stated.most("gpt-4o").pictures,
        unknown.most("gpt-4o").pictures,
        "a later header may state more"
    );
    for model in ["gpt-4o", "gpt-4o-mini", "gpt-5.5", "claude-opus-5", "claude-3-opus", "gemini-3", ""] {
        let (likely, most) = (size.likely(model), size.most(model));
        assert!(likely.pictures <= most.pictures, "{model}: {likely:?} {most:?}");
    }
}
