//! Invariants that hold for any input. The fuzz targets and the replay of their corpora call these functions; each
//! panics if its invariant is violated. The first byte of an input determines how the rest is cut.

#[allow(dead_code, reason = "the tests of adaptations use all of it")]
mod chat_client;
pub(crate) mod gemini_over_chat;
pub(crate) mod images_over_gemini;
mod json_scan;
mod known_rules;
pub(crate) mod messages_over_chat;
pub(crate) mod responses;
#[allow(dead_code, reason = "the tests of adaptations use all of it")]
mod responses_reader;

use bytes::Bytes;
use known_rules::known;
use serde_json::Value;
use serde_json::value::RawValue;
use shared::id::{KeyId, ModelId, ProviderId};
use shared::operation::Dialect;
use shared::operation_id::{OperationIds, Owner, Started};
use shared::secret::Secret;
use wire::adapt::{Answers, Asking, Prepared, Rejection, Traits};
use wire::media::videos::{About, Vendor, Video, VideoState, polled};
use wire::multipart::FormScan;
use wire::native::WholeScan;
use wire::request::{HeadScan, Naming};
use wire::sse::{Blocks, SseDecoder, SseEvent};
use wire::stream::{StreamOptions, StreamState};

/// Cuts the input, without its first byte, into pieces of 1 to 17 bytes; the first byte determines their sizes.
fn pieces(input: &[u8]) -> Vec<&[u8]> {
    let Some((&seed, rest)) = input.split_first() else { return Vec::new() };
    let (mut pieces, mut rest, mut size) = (Vec::new(), rest, usize::from(seed));
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((size % 17 + 1).min(rest.len()));
        pieces.push(piece);
        rest = after;
        size = (size * 5 + 3) % 1009;
    }
    pieces
}

fn decode(pieces: &[&[u8]]) -> Vec<SseEvent> {
    let (mut decoder, mut events) = (SseDecoder::new(1 << 20), Vec::new());
    for piece in pieces {
        decoder.push(piece).unwrap();
        events.extend(std::iter::from_fn(|| decoder.next_event()));
    }
    events
}

/// Asserts that the decoder's events do not depend on the cuts and agree with the blocks that `Blocks` finds.
pub(crate) fn sse_decoder(input: &[u8]) {
    let pieces = pieces(input);
    let whole = pieces.concat();
    let want = decode(&[&whole]);
    assert_eq!(decode(&pieces), want);
    let mut blocks = Blocks::default();
    let (mut rest, mut found) = (whole.as_slice(), 0);
    while let Some(length) = blocks.find(rest) {
        let block = &rest[..length];
        let block = if found == 0 && rest.len() == whole.len() {
            block.strip_prefix(b"\xef\xbb\xbf").unwrap_or(block)
        } else {
            block
        };
        if let Some(data) = wire::sse::data_of(block).text {
            assert_eq!(String::from_utf8_lossy(&data), want[found].data);
            found += 1;
        }
        rest = &rest[length..];
    }
    assert_eq!(found, want.len());
}

/// Asserts that the JSON scanner agrees with serde_json.
pub(crate) fn json_scan(input: &[u8]) {
    json_scan::json_scan(&pieces(input));
}

/// Asserts that an accepted chat request goes upstream with only the necessary changes.
pub(crate) fn chat_splice(input: &[u8]) {
    splice(Dialect::Chat, input);
}

/// Asserts the same for a Messages request if the first byte is even, and for a Responses request if not.
pub(crate) fn native_splice(input: &[u8]) {
    let dialect =
        if input.first().is_some_and(|seed| seed % 2 == 0) { Dialect::Messages } else { Dialect::Responses };
    splice(dialect, input);
}

fn splice(dialect: Dialect, input: &[u8]) {
    let pieces = pieces(input);
    let whole = pieces.concat();
    let scan = |pieces: &[&[u8]]| {
        let mut scan = HeadScan::new(dialect);
        pieces.iter().try_for_each(|piece| scan.push(piece))?;
        scan.finish()
    };
    let head = scan(&pieces);
    let Ok(head) = head else {
        assert_eq!(head.map(drop), scan(&[&whole]).map(drop));
        return;
    };
    let segments: Vec<Bytes> = pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
    let Ok(body) = serde_json::from_slice::<Value>(&whole) else { return };
    for preamble in [None, Some("First \"x\".")] {
        let built = wire::request::build(&segments, &head, Naming::Model("a\"b"), true, preamble).concat();
        let at_once = scan(&[&whole]).unwrap();
        let whole = [Bytes::from(whole.clone())];
        assert_eq!(
            built,
            wire::request::build(&whole, &at_once, Naming::Model("a\"b"), true, preamble).concat()
        );
        let mut got: Value = serde_json::from_slice(&built).unwrap();
        if let Some(preamble) = preamble {
            take_preamble(dialect, &mut got, &body, preamble);
        }
        assert_eq!(got, expected_upstream(dialect, &mut body.clone(), "a\"b", &head.model));
    }
}

/// Removes the gateway's preamble from the body, if the request had a place for it.
fn take_preamble(dialect: Dialect, got: &mut Value, body: &Value, preamble: &str) {
    let name = match dialect {
        Dialect::Chat => "messages",
        Dialect::Messages => "system",
        _ => "instructions",
    };
    match (&body[name], &mut got[name]) {
        (Value::Array(_), Value::Array(items)) => {
            let first = items.remove(0);
            assert!([&first["content"], &first["text"]].iter().any(|text| *text == preamble));
        }
        (Value::String(own), text) => {
            let before = if own.is_empty() { preamble.to_owned() } else { format!("{preamble}\n\n") };
            assert_eq!(*text, Value::from(before + own));
            *text = own.as_str().into();
        }
        (Value::Null, text) => {
            assert_eq!(*text, preamble);
            if body.get(name).is_some() {
                *text = Value::Null;
            } else {
                got.as_object_mut().unwrap().remove(name);
            }
        }
        (own, text) => assert_eq!(own, text),
    }
}

/// Computes the expected upstream body from the parsed request.
pub(crate) fn expected_upstream(dialect: Dialect, body: &mut Value, model: &str, selector: &str) -> Value {
    assert_eq!(body["model"], *selector);
    body["model"] = model.into();
    let stream = dialect == Dialect::Chat && body.get("stream") == Some(&Value::Bool(true));
    let members = body.as_object_mut().unwrap();
    members.remove("fallback_timeout_ms");
    members.remove("affinity_key");
    if stream {
        let options = members.entry("stream_options").or_insert(Value::Null);
        if options.is_null() {
            *options = serde_json::json!({});
        }
        if let Some(options) = options.as_object_mut() {
            options.insert("include_usage".to_owned(), true.into());
        }
    }
    body.take()
}

fn relay(dialect: Dialect, pieces: &[&[u8]], drop_usage_only: bool) -> (Vec<u8>, StreamState) {
    let options = StreamOptions { drop_usage_only, secrets: vec!["canary-secret".to_owned()] };
    let (mut stream, mut out) = (wire::native::stream(dialect, options), Vec::new());
    for piece in pieces {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
    }
    stream.end(&mut out);
    (out.concat(), stream.state().clone())
}

/// Asserts that a relayed chat stream does not depend on the cuts, that all dispatched events of a stream without an
/// error pass, and that an error body contains no secret.
pub(crate) fn chat_stream(input: &[u8]) {
    answer(Dialect::Chat, input);
    let pieces = pieces(input);
    let whole = pieces.concat();
    assert_eq!(relay(Dialect::Chat, &pieces, true), relay(Dialect::Chat, &[&whole], true));
    let answer = wire::envelope::UpstreamAnswer {
        status: 500,
        content_type: None,
        body: &whole,
        secrets: &["canary-secret"],
    };
    let error = wire::envelope::upstream_error(wire::envelope::EnvelopeFamily::OpenAi, answer, "req_1");
    assert!(!String::from_utf8_lossy(&error).contains("canary-secret"));
}

/// Asserts that a relayed Messages stream does not depend on the cuts, and that all dispatched events pass if it has no
/// error.
pub(crate) fn messages_stream(input: &[u8]) {
    answer(Dialect::Messages, input);
}

/// Asserts that a relayed Responses stream does not depend on the cuts, and that all dispatched events pass if it has no
/// error.
pub(crate) fn responses_stream(input: &[u8]) {
    answer(Dialect::Responses, input);
}

fn answer(dialect: Dialect, input: &[u8]) {
    let pieces = pieces(input);
    let whole = pieces.concat();
    let (out, state) = relay(dialect, &pieces, false);
    let (whole_out, whole_state) = relay(dialect, &[&whole], false);
    assert_eq!(state, whole_state);
    assert_eq!(out, whole_out);
    if state.error.is_none() && !out.windows(10).any(|part| part == b"[redacted]") && !state.done {
        assert!(whole.starts_with(&out));
        assert_eq!(decode(&[&out]), decode(&[&whole]));
    }
    let mut scan = WholeScan::new(dialect);
    pieces.iter().for_each(|piece| scan.push(piece));
    let in_pieces = scan.finish();
    scan.push(&whole);
    assert_eq!(in_pieces, scan.finish());
    if let Some(stream) = wire::native::synthesize_stream(dialect, &whole, true) {
        let (out, state) = relay(dialect, &[&stream], false);
        assert!(
            state.error.is_some() || (state.done && out == stream),
            "{}",
            String::from_utf8_lossy(&stream)
        );
    }
}

/// Asserts, for a chat client over a Messages target, that a prepared body is a valid request, that the answer does not
/// depend on the cuts, and that the client can parse its events.
pub(crate) fn chat_over_messages(input: &[u8]) {
    let pieces = pieces(input);
    let whole = pieces.concat();
    let own = br#"{"messages":[{"role":"user","content":"x"}],"stream_options":{"include_usage":true},"thinking":{}}"#;
    for reasoning in [false, true] {
        // A model that thinks by a budget, and one of which nothing is known.
        let target = Traits { reasoning, ..known(if reasoning { "claude-sonnet-4-5" } else { "target" }) };
        if let Ok(prepared) = prepared(Dialect::Chat, Dialect::Messages, &whole, &target) {
            let body: Value = serde_json::from_slice(&prepared.body).unwrap();
            assert!(
                body["messages"].is_array() && body["model"] == target.model && body["max_tokens"].is_u64()
            );
        }
        let body: &[u8] =
            if reasoning { own } else { br#"{"messages":[{"role":"user","content":"x"}],"functions":[]}"# };
        let answers = prepared(Dialect::Chat, Dialect::Messages, body, &target).unwrap().answers;
        let (out, state) = answered(&*answers, &pieces);
        assert_eq!(answered(&*answers, &[&whole]), (out.clone(), state.clone()));
        let events = decode(&[&out]);
        assert_eq!(state.done, events.last().is_some_and(|event| event.data == "[DONE]"));
        for event in events.iter().filter(|event| event.data != "[DONE]") {
            assert!(serde_json::from_str::<&RawValue>(&event.data).unwrap().get().starts_with('{'));
        }
        if state.error.is_some() {
            assert!(!events.last().unwrap().data.contains("canary-secret"));
        }
        if let Ok(answer) = answers.whole(&whole) {
            assert!(serde_json::from_slice::<&RawValue>(&answer.body).unwrap().get().starts_with('{'));
        }
    }
}

/// Asserts that the decoder of binary frames does not depend on the cuts, and that the push after a fault
/// returns the same fault.
pub(crate) fn event_stream(input: &[u8]) {
    let pieces = pieces(input);
    let whole = pieces.concat();
    let read = |pieces: &[&[u8]]| {
        let (mut decoder, mut seen) = (wire::eventstream::EventStreamDecoder::default(), Vec::new());
        for piece in pieces {
            let mut see = |message: wire::eventstream::EventStreamMessage<'_>| {
                let kind = message.header(":event-type").map(str::to_owned);
                seen.push((kind, message.payload().to_vec()));
                true
            };
            if let Err(fault) = decoder.push(piece, &mut see) {
                assert_eq!(decoder.push(b"", &mut |_| true), Err(fault));
                return (seen, Err(fault));
            }
        }
        (seen, Ok(decoder.is_between()))
    };
    let (seen, result) = read(&pieces);
    assert_eq!((&seen, result), (&read(&[&whole]).0, read(&[&whole]).1));
    let bytes: usize = seen.iter().map(|(_, payload)| payload.len() + 16).sum();
    assert!(bytes <= whole.len());
}

/// Asserts for a chat client over a Gemini target what `chat_over_messages` asserts over a Messages target.
pub(crate) fn chat_over_gemini(input: &[u8]) {
    let pieces = pieces(input);
    let whole = pieces.concat();
    for (model, reasoning) in [("gemini-2.5-pro", true), ("gemini-3-pro", false)] {
        let target = Traits { reasoning, ..known(model) };
        if let Ok(prepared) = prepared(Dialect::Chat, Dialect::Gemini, &whole, &target) {
            let body: Value = serde_json::from_slice(&prepared.body).unwrap();
            assert!(body["contents"].is_array());
        }
        check_answers(Dialect::Gemini, &target, &pieces, &whole);
    }
}

/// Asserts the same for a chat client over a Bedrock target. The input is also sent with each line wrapped in a frame,
/// to test events with correct checksums.
pub(crate) fn chat_over_bedrock(input: &[u8]) {
    let pieces = pieces(input);
    let whole = pieces.concat();
    for (model, reasoning) in [("anthropic.claude", true), ("other", false)] {
        let target = Traits { reasoning, ..known(model) };
        if let Ok(prepared) = prepared(Dialect::Chat, Dialect::Bedrock, &whole, &target) {
            let body: Value = serde_json::from_slice(&prepared.body).unwrap();
            assert!(body["messages"].is_array());
        }
        check_answers(Dialect::Bedrock, &target, &pieces, &whole);
        let frames: Vec<u8> = whole.split(|byte| *byte == b'\n').flat_map(frame).collect();
        check_answers(Dialect::Bedrock, &target, &frames.chunks(7).collect::<Vec<_>>(), &frames);
    }
}

/// Asserts that a translated video request is JSON, that the client gets JSON for any answer of the vendor, and that
/// operation ids open only as they were sealed.
pub(crate) fn videos(input: &[u8]) {
    let Some((&seed, rest)) = input.split_first() else { return };
    let answer = Bytes::copy_from_slice(rest);
    for vendor in [Vendor::OpenAi, Vendor::Google] {
        if let Ok(name) = vendor.started(rest) {
            assert!((1..=1024).contains(&name.len()));
        }
        if let Ok(state) = vendor.state(&answer) {
            check_state(state);
        }
        if let Ok(body) = vendor.start(&mut rest.to_vec()) {
            let sent: Value = serde_json::from_slice(&body).unwrap();
            let prompt = if vendor == Vendor::OpenAi { &sent } else { &sent["instances"][0] };
            assert!(!prompt["prompt"].as_str().unwrap().trim().is_empty());
        }
    }
    if let Ok(operation) = polled(&mut rest.to_vec()) {
        assert_eq!(operation_ids().open(&operation), None);
    }
    check_ids(seed, rest);
}

const OPERATION: About<'_> =
    About { operation: "vop_1", created_at: 1_795_000_000, provider: "p", model: "m\"" };

fn check_state(state: VideoState) {
    let read = match state {
        VideoState::Running(progress) => {
            assert!(progress.is_none_or(|progress| progress <= 100));
            OPERATION.running(progress)
        }
        VideoState::Failed(error) => OPERATION.failed(&error.sanitized(&[])),
        VideoState::Done(Video::At { address, media_type }) => OPERATION.at(&address, &media_type),
        VideoState::Done(Video::Inline { base64, media_type }) => {
            let (head, tail) = OPERATION.around(&media_type);
            [head, base64, tail].concat().into()
        }
        VideoState::Done(Video::Kept) => return,
    };
    let read: Value = serde_json::from_slice(&read).unwrap();
    assert_eq!(read["operation"], "vop_1");
}

fn operation_ids() -> OperationIds {
    OperationIds::new(&Secret::new([9; 32]))
}

/// Asserts that an id sealed from these bytes opens to the same value, and that neither a changed id nor the bytes
/// themselves open.
fn check_ids(seed: u8, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    assert_eq!(operation_ids().open(&text), None);
    assert_eq!(operation_ids().open(&format!("vop_{text}")), None);
    let started = Started {
        provider: ProviderId::new("p"),
        model: ModelId::new("m"),
        name: text.as_ref().into(),
        owner: Owner::Key(KeyId::new("k")),
        at_s: u64::from(seed),
        credential: seed.is_multiple_of(2).then_some(u64::from(seed)),
    };
    let Some(id) = operation_ids().seal(&started) else { return };
    assert_eq!(operation_ids().open(&id), Some(started));
    let mut changed = id.into_bytes();
    let at = 4 + usize::from(seed) % (changed.len() - 4);
    changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
    assert_eq!(operation_ids().open(&String::from_utf8(changed).unwrap()), None);
}

/// Wraps a line such as `messageStop {..}` in a frame: event type up to the first space, then the payload.
fn frame(line: &[u8]) -> Vec<u8> {
    let at = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len()).min(255);
    let (kind, payload) = line.split_at(at);
    let mut headers = b"\x0b:event-type\x07\0".to_vec();
    headers.push(u8::try_from(kind.len()).unwrap());
    headers.extend(kind);
    let total = u32::try_from(16 + headers.len() + payload.len()).unwrap();
    let mut bytes = [total.to_be_bytes(), u32::try_from(headers.len()).unwrap().to_be_bytes()].concat();
    bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
    bytes.extend(headers);
    bytes.extend(payload);
    bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
    bytes
}

/// Asserts that the answer of a target to a chat client does not depend on the cuts, and that the client can parse its
/// events.
fn check_answers(target: Dialect, traits: &Traits<'_>, pieces: &[&[u8]], whole: &[u8]) {
    let own = br#"{"messages":[{"role":"user","content":"x"}],"stream_options":{"include_usage":true},"thinking":{}}"#;
    let answers = prepared(Dialect::Chat, target, own, traits).unwrap().answers;
    let (out, state) = answered(&*answers, pieces);
    assert_eq!(answered(&*answers, &[whole]), (out.clone(), state.clone()));
    let events = decode(&[&out]);
    assert_eq!(state.done, events.last().is_some_and(|event| event.data == "[DONE]"));
    for event in events.iter().filter(|event| event.data != "[DONE]") {
        assert!(serde_json::from_str::<Value>(&event.data).unwrap().is_object());
    }
    assert!(state.error.is_none() || !events.last().unwrap().data.contains("canary-secret"));
    if let Ok(answer) = answers.whole(whole) {
        assert!(serde_json::from_slice::<Value>(&answer.body).unwrap()["choices"].is_array());
    }
}

fn prepared(
    client: Dialect,
    target: Dialect,
    body: &[u8],
    traits: &Traits<'_>,
) -> Result<Prepared, Rejection> {
    let pair = wire::adapt::find(client, target).unwrap();
    (pair.prepare)(&Asking { body, target: traits, selector: "fast", seed: "T", now_s: 1, input_tokens: 0 })
}

fn answered(answers: &dyn Answers, pieces: &[&[u8]]) -> (Vec<u8>, StreamState) {
    let (mut stream, mut out) = (answers.stream(vec!["canary-secret".to_owned()]), Vec::new());
    for piece in pieces {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
    }
    stream.end(&mut out);
    (out.concat(), stream.state().clone())
}

/// Asserts that sanitizing removes a known secret of at least 6 bytes, and that a second pass changes nothing.
pub(crate) fn sanitize(input: &[u8]) {
    let Some((&seed, rest)) = input.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let split = text.floor_char_boundary(usize::from(seed).min(text.len()));
    let (secret, text) = text.split_at(split);
    let clean = shared::sanitize::diagnostic(text, &[secret]);
    assert_eq!(shared::sanitize::diagnostic(&clean, &[secret]), clean);
    let secret = secret.trim();
    if secret.len() >= 6 && !shared::sanitize::MARK.contains(secret) {
        let text = format!("{text}{secret}{text}");
        assert!(!shared::sanitize::diagnostic(&text, &[secret]).contains(secret));
    }
}

/// Asserts that the fields of a form do not depend on the cuts, and that its model equals the bytes at the last of the
/// reported ranges.
pub(crate) fn multipart(input: &[u8]) {
    let pieces = pieces(input);
    let whole = pieces.concat();
    let read = |pieces: &[&[u8]]| {
        let mut scan = FormScan::new("b");
        pieces.iter().try_for_each(|piece| scan.push(piece)).and_then(|()| scan.finish())
    };
    let form = read(&pieces);
    assert_eq!(form, read(&[&whole]));
    if let Ok(form) = form {
        assert_eq!(whole.get(form.models.last().unwrap().clone()), Some(form.model.as_bytes()));
    }
}
