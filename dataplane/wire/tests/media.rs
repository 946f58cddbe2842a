//! Runs the recorded audio and embeddings exchanges in `fixtures/audio` and `fixtures/embeddings`. They are read the
//! same however they are cut, and every byte except the model passes unchanged.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may")]

use base64::Engine as _;
use bytes::Bytes;
use serde_json::{Value, json};
use shared::operation::Dialect;
use shared::usage::TokenCounts;
use wire::media::{Opaque, audio};
use wire::multipart::{FormFields, FormScan};
use wire::native::{WholeAnswer, WholeScan, whole_answer};
use wire::request::{Head, HeadScan, Naming, build};
use wire::sse::SseDecoder;
use wire::stream::{AnswerStream, StreamOptions, StreamState};

fn fixture(path: &str) -> Vec<u8> {
    std::fs::read(format!("{}/fixtures/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Returns the cases of one kind with the content of their files.
fn cases(folder: &str, kind: &str) -> Vec<(Value, Vec<u8>)> {
    let index: Value = serde_json::from_slice(&fixture(&format!("{folder}/index.json"))).unwrap();
    let of_kind = index["cases"].as_array().unwrap().iter().filter(|case| case["kind"] == kind);
    of_kind.map(|case| (case.clone(), fixture(case["file"].as_str().unwrap()))).collect()
}

/// Returns the ways to cut the input: in two pieces at every byte, and in pieces of one and of seven bytes.
fn cuttings(input: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut cuttings: Vec<Vec<&[u8]>> =
        (0..=input.len()).map(|at| vec![&input[..at], &input[at..]]).collect();
    cuttings.extend([input.chunks(1).collect(), input.chunks(7).collect()]);
    cuttings
}

fn upstream(head: &Head, pieces: &[&[u8]]) -> Vec<u8> {
    let segments: Vec<Bytes> = pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
    build(&segments, head, Naming::Model("target/\"model\""), true, None).concat()
}

#[test]
fn requests_reach_the_upstream_unchanged_except_the_model() {
    let mut seen = 0;
    for (dialect, folder) in [(Dialect::Speech, "audio"), (Dialect::Embeddings, "embeddings")] {
        for (case, input) in cases(folder, "request") {
            let Ok(body) = serde_json::from_slice::<Value>(&input) else { continue };
            let old = format!("{:?}", body["model"].as_str().unwrap());
            let want = String::from_utf8(input.clone()).unwrap().replacen(&old, r#""target/\"model\"""#, 1);
            for pieces in cuttings(&input) {
                let mut scan = HeadScan::new(dialect);
                pieces.iter().for_each(|piece| scan.push(piece).unwrap());
                let head = scan.finish().unwrap();
                assert_eq!(head.model, body["model"].as_str().unwrap(), "{}", case["id"]);
                assert_eq!(String::from_utf8(upstream(&head, &pieces)).unwrap(), want, "{}", case["id"]);
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 3);
}

/// Returns the name and content of each part.
fn parts(form: &[u8], boundary: &str) -> Vec<(String, Vec<u8>)> {
    let cut = format!("\r\n--{boundary}");
    let at = |from: usize| form[from..].windows(cut.len()).position(|window| window == cut.as_bytes());
    let (mut parts, mut from) = (Vec::new(), cut.len() - 2);
    while let Some(length) = at(from) {
        let part = &form[from..from + length];
        let head = part.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let lines = String::from_utf8(part[..head].to_vec()).unwrap();
        let name = lines.split(" name=\"").nth(1).unwrap().split('"').next().unwrap();
        parts.push((name.to_owned(), part[head + 4..].to_vec()));
        from += length + cut.len();
    }
    parts
}

#[test]
fn a_form_reaches_the_upstream_unchanged_except_its_model() {
    let (case, input) =
        cases("audio", "request").into_iter().find(|(case, _)| case["id"] == "multipart").unwrap();
    let (expect, boundary) = (&case["expect"], case["boundary"].as_str().unwrap());
    let content_type = format!("multipart/form-data; boundary={boundary}");
    assert_eq!(wire::multipart::boundary(&content_type).as_deref(), Some(boundary));
    let sent = parts(&input, boundary);
    let names: Vec<&str> = sent.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(json!(names), expect["fields"]);
    assert_eq!(sent[2].1.len() as u64, expect["file_len"].as_u64().unwrap());
    for pieces in cuttings(&input) {
        let mut scan = FormScan::new(boundary);
        pieces.iter().for_each(|piece| scan.push(piece).unwrap());
        let form: FormFields = scan.finish().unwrap();
        assert_eq!((form.model.as_str(), form.stream), (expect["model"].as_str().unwrap(), false));
        let head = Head::of_form(form);
        let segments: Vec<Bytes> = pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
        let out = build(&segments, &head, Naming::Model("other-model"), false, None).concat();
        let mut want = sent.clone();
        want[0].1 = b"other-model".to_vec();
        assert_eq!(parts(&out, boundary), want, "cut at {}", pieces[0].len());
        let text =
            String::from_utf8_lossy(&input).replacen("\r\n\r\nwhisper\r\n", "\r\n\r\nother-model\r\n", 1);
        assert!(text == String::from_utf8_lossy(&out), "nothing else is different");
    }
}

#[test]
fn whole_responses_report_their_usage() {
    let tokens = |input, output| TokenCounts { input, output, ..TokenCounts::default() };
    let rows = [
        ("audio", "transcription_json", Some(TokenCounts { audio_input: 14, ..tokens(0, 5) }), 0),
        // Usage in seconds counts as audio time, not as tokens.
        ("audio", "transcription_verbose", None, 2_000),
        ("embeddings", "response", Some(tokens(2, 0)), 0),
        ("embeddings", "response_base64", Some(tokens(2, 0)), 0),
    ];
    for (folder, id, want, audio_ms) in rows {
        let (_, input) = cases(folder, "response").into_iter().find(|(case, _)| case["id"] == id).unwrap();
        let read = |pieces: &[&[u8]]| -> WholeAnswer {
            let mut scan = WholeScan::new(Dialect::Chat);
            pieces.iter().for_each(|piece| scan.push(piece));
            scan.finish()
        };
        let whole = read(&[&input]);
        assert!(whole.is_json && whole.error.is_none(), "{id}");
        assert_eq!((whole.usage, whole.extras.units.audio_ms), (want, audio_ms), "{id}");
        assert_eq!(whole_answer(Dialect::Chat, &input).usage, want, "{id}");
        for pieces in cuttings(&input) {
            assert_eq!(read(&pieces), whole, "{id} cut at {}", pieces[0].len());
        }
    }
}

#[test]
fn base64_embeddings_equal_the_float_embeddings() {
    let by_id =
        |id: &str| cases("embeddings", "response").into_iter().find(|(case, _)| case["id"] == id).unwrap();
    let (floats, (case, packed)) = (by_id("response").1, by_id("response_base64"));
    let floats: Value = serde_json::from_slice(&floats).unwrap();
    let packed: Value = serde_json::from_slice(&packed).unwrap();
    for (n, want) in case["expect"]["floats"].as_array().unwrap().iter().enumerate() {
        assert_eq!(floats["data"][n]["embedding"], *want);
        let bytes = base64::prelude::BASE64_STANDARD.decode(packed["data"][n]["embedding"].as_str().unwrap());
        let numbers: Vec<f32> =
            bytes.unwrap().chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
        assert_eq!(json!(numbers), *want);
    }
}

fn relay(mut stream: impl AnswerStream, pieces: &[&[u8]]) -> (Vec<u8>, StreamState) {
    let mut out = Vec::new();
    for piece in pieces {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
    }
    stream.end(&mut out);
    (out.concat(), stream.state().clone())
}

fn relay_events(pieces: &[&[u8]]) -> (Vec<u8>, StreamState) {
    let options = StreamOptions { secrets: vec!["s3cr3t".to_owned()], ..StreamOptions::default() };
    relay(audio::AudioStream::new(options), pieces)
}

fn events(stream: &[u8]) -> Vec<Value> {
    let mut decoder = SseDecoder::default();
    decoder.push(stream).unwrap();
    let events = std::iter::from_fn(|| decoder.next_event());
    events.filter_map(|event| serde_json::from_str(&event.data).ok()).collect()
}

#[test]
fn sound_and_subtitles_pass_at_any_split() {
    for file in ["transcription.srt", "transcription.vtt"] {
        let input = fixture(&format!("audio/{file}"));
        for pieces in cuttings(&input) {
            let (out, state) = relay(Opaque::default(), &pieces);
            assert!(out == input, "{file} cut at {}", pieces[0].len());
            assert!(state.content && state.finished && state.error.is_none());
        }
    }
}

#[test]
fn audio_events_pass_and_report_their_usage_at_any_split() {
    let spoken = Some(TokenCounts { input: 3, audio_output: 20, ..TokenCounts::ZERO });
    let used = Some(TokenCounts { input: 14, output: 5, ..TokenCounts::ZERO });
    for (case, input) in cases("audio", "stream") {
        let want = if case["id"] == "speech_stream" { spoken } else { used };
        for pieces in cuttings(&input) {
            let (out, state) = relay_events(&pieces);
            assert!(out == input, "{} cut at {}", case["id"], pieces[0].len());
            assert!(state.content && state.finished && state.error.is_none());
            assert_eq!((state.usage, state.content_events), (want, 2), "{}", case["id"]);
        }
    }
}

#[test]
fn recorded_audio_and_text_streams_match_their_vectors() {
    for (case, input) in cases("audio", "stream") {
        let events = events(&relay_events(&[&input]).0);
        let all = |member: &str| -> Vec<&str> {
            events.iter().filter_map(|event| event[member].as_str()).collect()
        };
        if case["id"] == "speech_stream" {
            let pieces = all("audio").into_iter().map(|piece| base64::prelude::BASE64_STANDARD.decode(piece));
            let sound: Vec<u8> = pieces.flat_map(Result::unwrap).collect();
            let hex: String = sound.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(case["expect"]["audio_hex"], hex);
        } else {
            assert_eq!(case["expect"]["text"], all("delta").concat());
            assert_eq!(json!(all("text")), json!([case["expect"]["text"]]));
        }
    }
}

#[test]
fn a_cut_speech_stream_is_not_finished() {
    for (_, input) in cases("audio", "stream") {
        let first = input.windows(2).position(|end| end == b"\n\n").unwrap() + 2;
        let (out, state) = relay_events(&[&input[..first]]);
        assert_eq!(out, &input[..first]);
        assert!(state.content && !state.finished && state.error.is_none());
    }
    // A stream of unknown events is finished when the connection ends.
    let (_, state) = relay_events(&[b"data: {\"text\":\"hi\"}\n\n"]);
    assert!(state.content && state.finished);
}

#[test]
fn an_error_in_a_speech_stream_ends_it_and_is_redacted() {
    for error in [
        r#"data: {"type":"error","error":{"message":"no s3cr3t","code":"rate_limit_exceeded"}}"#,
        r#"data: {"error":{"message":"no s3cr3t","code":"rate_limit_exceeded"}}"#,
        "event: error\ndata: {\"message\":\"no s3cr3t\",\"code\":\"rate_limit_exceeded\"}",
    ] {
        let sound = "data: {\"type\":\"speech.audio.delta\",\"audio\":\"AAEC\"}\n\n";
        let (out, state) = relay_events(&[format!("{sound}{error}\n\n{sound}").as_bytes()]);
        let out = String::from_utf8(out).unwrap();
        assert!(out.starts_with(sound) && !out.contains("s3cr3t"), "{out}");
        assert_eq!(out.matches("AAEC").count(), 1, "nothing follows an error");
        let error = state.error.unwrap();
        assert_eq!(error.code.as_deref(), Some("rate_limit_exceeded"), "{out}");
        let before = relay_events(&[format!("{}\n\n", r#"data: {"error":{"message":"busy"}}"#).as_bytes()]).1;
        assert!(!before.content && before.error.is_some());
    }
}
