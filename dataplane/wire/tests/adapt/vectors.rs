//! Runs the conversion vectors of `fixtures/conv`: requests, rejections, whole answers and streams.

use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::{Adaptation, Flaw, find};

use crate::normal::normal;
use crate::pair::{answers, cuttings, fixture, fixture_json, prepare, relay, traits};

/// Names of conversions that have no adaptation yet. Remove the names of a conversion when its adaptation is added.
const WAITING: &[&str] = &[];

/// A vector whose pair is in `ADAPTATIONS`.
struct Vector {
    case: Value,
    pair: &'static Adaptation,
}

impl Vector {
    fn name(&self) -> &str {
        self.case["id"].as_str().unwrap()
    }

    fn input(&self) -> Vec<u8> {
        fixture(self.case["input"].as_str().unwrap())
    }

    fn output(&self) -> Vec<u8> {
        fixture(self.case["output"].as_str().unwrap())
    }

    fn of_answers(&self) -> bool {
        self.case["conv"].as_str().unwrap().ends_with(" response")
    }
}

/// Returns the vectors of `kind` that have an adaptation. Panics if a conversion is in neither `ADAPTATIONS` nor
/// `WAITING`, or in both.
fn vectors(kind: &str) -> Vec<Vector> {
    let index = fixture_json("conv/index.json");
    let of_kind = index["cases"].as_array().unwrap().iter().filter(|case| case["kind"] == kind);
    of_kind
        .filter_map(|case| {
            let conv = case["conv"].as_str().unwrap();
            let pair = pair_of(conv);
            assert_eq!(
                pair.is_none(),
                WAITING.contains(&conv),
                "{}: {conv} must be either in ADAPTATIONS or in WAITING",
                case["id"]
            );
            Some(Vector { case: case.clone(), pair: pair? })
        })
        .collect()
}

/// Returns the pair of a conversion: `messages->chat` is the request of a client that speaks Messages, and
/// `chat->messages stream` is an answer to it.
fn pair_of(conv: &str) -> Option<&'static Adaptation> {
    let (pair, part) = conv.split_once(' ').unwrap_or((conv, "request"));
    let (from, to) = pair.split_once("->").unwrap();
    let dialect = |name: &str| Dialect::ALL.into_iter().find(|dialect| dialect.name() == name).unwrap();
    match part {
        "request" => find(dialect(from), dialect(to)),
        "response" | "stream" => find(dialect(to), dialect(from)),
        other => panic!("{other} is no part of an exchange"),
    }
}

#[test]
fn every_vector_is_of_a_known_kind() {
    let index = fixture_json("conv/index.json");
    for case in index["cases"].as_array().unwrap() {
        let kind = case["kind"].as_str().unwrap();
        assert!(["conversion", "rejection", "stream_conversion"].contains(&kind), "{kind}");
    }
}

#[test]
fn requests_become_what_the_target_expects() {
    for vector in vectors("conversion").iter().filter(|vector| !vector.of_answers()) {
        let target = traits(&vector.case["target"]);
        let prepared = prepare(vector.pair, &vector.input(), &target)
            .unwrap_or_else(|rejection| panic!("{}: {rejection:?}", vector.name()));
        let got: Value = serde_json::from_slice(&prepared.body).unwrap();
        let want: Value = serde_json::from_slice(&vector.output()).unwrap();
        assert_eq!(got, want, "{}", vector.name());
    }
}

#[test]
fn unsupported_members_are_rejected_by_path() {
    for vector in vectors("rejection") {
        let target = traits(&vector.case["target"]);
        let rejection = match prepare(vector.pair, &vector.input(), &target) {
            Ok(prepared) => panic!("{}: {}", vector.name(), String::from_utf8_lossy(&prepared.body)),
            Err(rejection) => rejection,
        };
        assert_eq!(rejection.param, vector.case["reject_param"], "{}", vector.name());
        let flaw = if vector.case["malformed"] == true { Flaw::Malformed } else { Flaw::Unsupported };
        assert_eq!(rejection.flaw, flaw, "{}: {}", vector.name(), rejection.message);
        assert!(rejection.message.contains(&rejection.param), "{}: {}", vector.name(), rejection.message);
    }
}

#[test]
fn whole_answers_become_what_the_client_expects() {
    for vector in vectors("conversion").iter().filter(|vector| vector.of_answers()) {
        let args = &vector.case["args"];
        let whole = answers(vector.pair, args, false).whole(&vector.input());
        let whole = whole.unwrap_or_else(|bad| panic!("{}: {bad:?}", vector.name()));
        let mut got: Value = serde_json::from_slice(&whole.body).unwrap();
        let mut want: Value = serde_json::from_slice(&vector.output()).unwrap();
        remove_generated_values(&mut got, args);
        remove_generated_values(&mut want, args);
        assert_eq!(got, want, "{}", vector.name());
        assert!(whole.usage.is_some(), "{}", vector.name());
        assert!(whole.output_bytes > 0 || vector.case["empty"] == true, "{}", vector.name());
    }
}

#[test]
fn streams_become_what_the_client_expects_at_any_split() {
    for vector in vectors("stream_conversion") {
        let (input, name) = (vector.input(), vector.name());
        let args = &vector.case["args"];
        let protocol = vector.case["protocol_out"].as_str().unwrap();
        let answers = answers(vector.pair, args, true);
        let want = seen(protocol, &vector.output(), args);
        let (whole, whole_state) = relay(&*answers, &[&input]);
        assert_eq!(seen(protocol, &whole, args), want, "{name}");
        assert!(whole_state.content || whole_state.error.is_some(), "{name}");
        for pieces in cuttings(&input) {
            let (out, state) = relay(&*answers, &pieces);
            assert!(out == whole, "{name} cut at {}", pieces.first().map_or(0, |piece| piece.len()));
            assert_eq!(state, whole_state, "{name}");
        }
    }
}

fn seen(protocol: &str, stream: &[u8], args: &Value) -> Vec<Value> {
    let mut events = normal(protocol, stream);
    events.iter_mut().for_each(|event| remove_generated_values(event, args));
    events
}

/// Removes generated values: the creation time, unless the vector sets it, and the middle part of the ids that the
/// gateway generates for calls without an id.
fn remove_generated_values(value: &mut Value, args: &Value) {
    if args.get("created").is_none()
        && let Some(members) = value.as_object_mut()
    {
        members.remove("created");
    }
    let text = value.to_string();
    if text.contains("call_T_") {
        *value = serde_json::from_str(&text.replace("call_T_", "call_")).unwrap();
    }
}

#[test]
fn the_normal_form_joins_text_and_keeps_its_order() {
    let stream = |texts: &[&str]| -> Vec<u8> {
        let event = |text: &&str| {
            let data = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
            format!("event: content_block_delta\ndata: {data}\n\n")
        };
        texts.iter().map(event).collect::<String>().into_bytes()
    };
    assert_eq!(normal("messages", &stream(&["a", "", "b"])), normal("messages", &stream(&["ab"])));
    assert_ne!(normal("messages", &stream(&["a", "b"])), normal("messages", &stream(&["ba"])));
}
