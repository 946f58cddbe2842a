//! Functions that run an adaptation on a fixture.

use bytes::Bytes;
use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::id::KeyId;
use shared::model_rules::ModelRules;
use shared::operation::Dialect;
use shared::operation_id::Owner;
use shared::reasoning_seal::{ReasoningKey, ReasoningSeal};
use shared::secret::Secret;
use wire::adapt::{Adaptation, Answers, Asking, EmbeddingForm, Prepared, Rejection, Traits};
use wire::stream::{AnswerStream, StreamState, Trouble};

use crate::known_rules::known;

/// The relay's error message for a truncated stream.
pub(crate) const BROKEN: &str = "upstream stream ended before completion";

pub(crate) fn fixture(path: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/");
    std::fs::read(format!("{folder}{path}")).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn fixture_json(path: &str) -> Value {
    serde_json::from_slice(&fixture(path)).unwrap()
}

/// Returns the traits that a fixture sets; the others have the defaults of the reference.
pub(crate) fn traits(flags: &Value) -> Traits<'_> {
    let mut traits = Traits::of("target-model");
    for (name, flag) in flags.as_object().into_iter().flatten() {
        let on = || flag.as_bool().unwrap_or_else(|| panic!("{name} is no flag"));
        match name.as_str() {
            "model" => {
                let known = known(flag.as_str().unwrap());
                (traits.model, traits.rules) = (known.model, known.rules);
            }
            "reasoning" => traits.reasoning = on(),
            "json_schema" => traits.json_schema = on(),
            "strict" => traits.strict_tools = on(),
            "root_unions" => traits.root_unions = on(),
            "top_k" => traits.top_k = on(),
            "refusals" => traits.refusals = on(),
            "word_tool_names" => traits.word_tool_names = on(),
            "token_field" => traits.output_limit_field = flag.as_str().unwrap(),
            "embeddings" => {
                traits.embeddings = match flag.as_str() {
                    Some("vertex") => EmbeddingForm::Vertex,
                    Some("predict") => EmbeddingForm::Predict,
                    _ => panic!("{flag} is no form of embeddings"),
                };
            }
            "developer" => traits.developer_role = on(),
            "custom_tools" => traits.custom_tools = on(),
            "files" => traits.files = on(),
            "agents" if on() => traits.agents = Some(Box::leak(Box::new(seal_of("owner")))),
            "leading_system" => traits.leading_system = on(),
            "images" => traits.images = on(),
            "rules" => traits.rules = Box::leak(Box::new(rules(flag).clone().or(traits.rules))),
            "stops_max" => traits.stops_max = flag.as_u64().map(|most| usize::try_from(most).unwrap()),
            "default_max_tokens" => traits.output_tokens_default = flag.as_u64().unwrap(),
            other => panic!("no trait is called {other}: add it to tests/adapt/pair.rs"),
        }
    }
    traits
}

/// Returns the seal of the reasoning of this owner.
pub(crate) fn seal_of(owner: &str) -> ReasoningSeal {
    ReasoningKey::new(&Secret::new([5; 32])).seal_of(&Owner::Key(KeyId::new(owner))).unwrap()
}

/// Returns the rules that a test sets; they live until its end.
pub(crate) fn rules(flags: &Value) -> &'static ModelRules {
    Box::leak(Box::new(serde_json::from_value(flags.clone()).unwrap()))
}

pub(crate) fn prepare(pair: &Adaptation, body: &[u8], target: &Traits<'_>) -> Result<Prepared, Rejection> {
    (pair.prepare)(&Asking { body, target, selector: "selector", seed: "T", now_s: 1, input_tokens: 0 })
}

/// Returns the reader of the answers to a plain request of the pair's client, with the options in the vector's `args`.
pub(crate) fn answers(pair: &Adaptation, args: &Value, stream: bool) -> Box<dyn Answers> {
    answers_of(pair, args, stream, &Traits::of("target-model"))
}

/// As `answers`, for a target with the given traits.
pub(crate) fn answers_of(
    pair: &Adaptation,
    args: &Value,
    stream: bool,
    target: &Traits<'_>,
) -> Box<dyn Answers> {
    let body = match args["request"].as_str() {
        Some(path) => fixture_json(path),
        None => plain_request(pair.client, args, stream),
    };
    let body = body.to_string();
    let asking = Asking {
        body: body.as_bytes(),
        target,
        selector: args["model"].as_str().unwrap_or("selector"),
        seed: "T",
        now_s: args["created"].as_u64().unwrap_or(1),
        input_tokens: 0,
    };
    (pair.prepare)(&asking).unwrap().answers
}

fn plain_request(client: Dialect, args: &Value, stream: bool) -> Value {
    let model = args["model"].clone();
    let messages = json!([{"role": "user", "content": "x"}]);
    match client {
        Dialect::Messages => {
            let mut body =
                json!({"model": model, "max_tokens": 2048, "stream": stream, "messages": messages});
            if args["thinking"] == true {
                body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
            }
            body
        }
        Dialect::Chat => {
            let mut body = json!({"model": model, "stream": stream, "messages": messages});
            if stream && args["include_usage"] == true {
                body["stream_options"] = json!({"include_usage": true});
            }
            body
        }
        Dialect::Responses => json!({"model": model, "stream": stream, "input": "x"}),
        Dialect::Gemini => json!({"stream": stream, "contents": [{"parts": [{"text": "x"}]}],
            "generationConfig": {"thinkingConfig": {"includeThoughts": args["thoughts"]}}}),
        other => panic!("no client speaks {other:?}"),
    }
}

/// Returns the input first whole, then cut in two at every byte, then in pieces of one and of seven bytes.
pub(crate) fn cuttings(input: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut cuttings: Vec<Vec<&[u8]>> = vec![vec![input]];
    cuttings.extend((0..=input.len()).map(|at| vec![&input[..at], &input[at..]]));
    cuttings.push(input.chunks(1).collect());
    cuttings.push(input.chunks(7).collect());
    cuttings
}

/// Returns the client's stream and the final state. A truncated stream ends with the relay's error event.
pub(crate) fn relay(answers: &dyn Answers, pieces: &[&[u8]]) -> (Vec<u8>, StreamState) {
    let (mut stream, mut out) = (answers.stream(Vec::new()), Vec::new());
    for piece in pieces {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
    }
    finish(&mut *stream, &mut out);
    (out.concat(), stream.state().clone())
}

fn finish(stream: &mut dyn AnswerStream, out: &mut Vec<Bytes>) {
    stream.end(out);
    let state = stream.state();
    if state.error.is_none() && !state.done {
        let trouble = Trouble { row: ErrorKind::UpstreamCut.row(), message: BROKEN, request_id: "req_T" };
        out.push(stream.trouble(trouble));
    }
}
