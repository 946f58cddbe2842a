//! Property tests over all pairs of a client and a target: no content of a request or an answer is lost without a name.
//! Each piece of content contains a marker of its own. It arrives at the other side, or the request is rejected with the
//! path of a member, or the kind of content is named among what was dropped, or a mark such as `[image]` takes its place.

mod answers;
mod requests;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use shared::model_rules::{ModelRules, ReasoningBack};
use shared::operation::Dialect;
use wire::adapt::{ADAPTATIONS, Adaptation, BadAnswer, Traits};

use crate::known_rules::known;
use crate::pair::{prepare, relay};

/// A kind of content, before it gets its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Image,
    ImageUrl,
    File,
    Audio,
    Refusal,
    Reasoning,
    SignedReasoning,
}

/// A turn of a conversation.
#[derive(Clone, Debug)]
enum Turn {
    System,
    User(Vec<Kind>),
    /// The assistant's content, and the content of the results of its calls.
    Assistant(Vec<Kind>, Vec<Vec<Kind>>),
}

/// Numbers the markers. A marker is text in base64, so that it can also be the bytes of media.
#[derive(Default)]
struct Markers(usize);

impl Markers {
    fn next(&mut self) -> String {
        self.0 += 1;
        marker(self.0)
    }
}

/// The rules of a model that needs its reasoning back within a tool loop.
static IN_TOOL_LOOPS: ModelRules =
    ModelRules { reasoning_back: Some(ReasoningBack::ToolLoop), ..ModelRules::UNKNOWN };

fn marker(number: usize) -> String {
    format!("mark{number:04}")
}

fn conversations() -> impl Iterator<Item = &'static Adaptation> {
    ADAPTATIONS.iter().filter(|pair| pair.client.is_conversation())
}

/// Returns targets of the pair's dialect that differ in what they take.
fn targets(pair: &Adaptation) -> Vec<Traits<'static>> {
    let models = match pair.target {
        Dialect::Bedrock => ["anthropic.claude-sonnet-4-5", "meta.llama4"],
        Dialect::Messages => ["claude-sonnet-5", "claude-sonnet-4-5"],
        Dialect::Gemini => ["gemini-3-pro", "gemini-2.5-pro"],
        _ => ["m", "m"],
    };
    let [able, plain] = models.map(known);
    vec![
        Traits { images: true, files: true, custom_tools: true, reasoning: true, ..able },
        Traits { leading_system: true, rules: &IN_TOOL_LOOPS, refusals: false, root_unions: false, ..plain },
    ]
}

fn user() -> impl Strategy<Value = Turn> {
    let kind = prop_oneof![
        4 => Just(Kind::Text), 2 => Just(Kind::Image), 1 => Just(Kind::ImageUrl), 1 => Just(Kind::File),
        1 => Just(Kind::Audio)];
    vec(kind, 1..4).prop_map(Turn::User)
}

fn assistant() -> impl Strategy<Value = Turn> {
    let said = proptest::sample::subsequence(
        vec![Kind::SignedReasoning, Kind::Reasoning, Kind::Text, Kind::Refusal, Kind::Image],
        0..4,
    );
    let part = prop_oneof![4 => Just(Kind::Text), 2 => Just(Kind::Image), 1 => Just(Kind::File), 1 => Just(Kind::Audio)];
    (said, vec(vec(part, 1..3), 0..3)).prop_map(|(kinds, results)| Turn::Assistant(kinds, results))
}

/// Generates conversations that begin and end with the user.
fn conversation() -> impl Strategy<Value = Vec<Turn>> {
    let system = prop_oneof![Just(Vec::new()), Just(vec![Turn::System])];
    let exchange = (user(), assistant(), system.clone())
        .prop_map(|(user, assistant, system)| [vec![user, assistant], system].concat());
    (system, vec(exchange, 0..3), user()).prop_map(|(system, exchanges, last)| {
        let mut turns = [system, exchanges.concat()].concat();
        turns.push(last);
        turns
    })
}

/// Returns the member of the content that a name of dropped content covers.
fn covered(dropped: &str) -> &'static str {
    match dropped {
        "messages.images" => "images",
        "input.image_generation_call" => "result",
        "contents.parts.inlineData" => "inlineData",
        other => panic!("{other} names no content"),
    }
}

/// Members with reasoning of earlier turns. It is a hint in every table: the answer means the same without it, and most
/// targets accept only their own.
const REASONING: [&str; 4] = ["reasoning_content", "thinking_blocks", "thinking", "summary"];

/// Calls `each` with the path of every string that contains a marker.
fn marked<'v>(value: &'v Value, path: &mut Vec<String>, each: &mut impl FnMut(&[String], &'v str)) {
    match value {
        Value::String(text) if text.contains("mark0") => each(path, text),
        Value::Array(list) => {
            for (position, value) in list.iter().enumerate() {
                path.push(position.to_string());
                marked(value, path, each);
                path.pop();
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                path.push(name.clone());
                marked(value, path, each);
                path.pop();
            }
        }
        _ => {}
    }
}

fn check_request(pair: &Adaptation, target: &Traits<'_>, turns: &[Turn]) -> Result<(), TestCaseError> {
    let (request, count) = requests::of(pair.client, turns);
    let name = format!("{:?} over {:?}", pair.client, pair.target);
    let prepared = match prepare(pair, request.to_string().as_bytes(), target) {
        Ok(prepared) => prepared,
        Err(rejection) => {
            let place = format!("/{}", rejection.param.replace('.', "/"));
            prop_assert!(
                !rejection.param.is_empty() && request.pointer(&place).is_some(),
                "{name}: {rejection:?} names no member of {request}"
            );
            return Ok(());
        }
    };
    let body = String::from_utf8(prepared.body.to_vec()).unwrap();
    let mut seen = 0;
    let mut lost = Vec::new();
    marked(&request, &mut Vec::new(), &mut |path, text| {
        seen += 1;
        let at = text.find("mark0").unwrap();
        let mark = &text[at..at + 8];
        let is_in = |name: &str| path.iter().any(|step| step == name);
        let is_named = prepared.dropped.iter().any(|dropped| is_in(covered(dropped)));
        if !body.contains(mark) && !is_named && !REASONING.iter().any(|name| is_in(name)) {
            lost.push(format!("{} ({mark})", path.join(".")));
        }
    });
    prop_assert_eq!(seen, count);
    prop_assert!(
        lost.is_empty(),
        "{}: {:?} lost, {:?} named\n{}\n{}",
        name,
        lost,
        prepared.dropped,
        request,
        body
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_content_of_a_request_is_lost_without_a_name(turns in conversation()) {
        for pair in conversations() {
            for target in targets(pair) {
                check_request(pair, &target, &turns)?;
            }
        }
    }

    #[test]
    fn no_content_of_an_answer_is_lost_without_a_name(kinds in answer()) {
        for pair in conversations() {
            check_answer(pair, &kinds)?;
        }
    }
}

/// A piece of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Reasoning,
    Text,
    Refusal,
    Image,
    ImageUrl,
    Call,
}

fn answer() -> impl Strategy<Value = Vec<Said>> {
    let said = [Said::Reasoning, Said::Text, Said::Refusal, Said::Image, Said::ImageUrl, Said::Call];
    vec(proptest::sample::select(said.to_vec()), 1..6)
}

/// Returns true if the dialect's answers may contain such a piece.
fn says(target: Dialect, said: Said) -> bool {
    match said {
        Said::Reasoning | Said::Text | Said::Image | Said::Call => true,
        Said::Refusal => matches!(target, Dialect::Chat | Dialect::Responses),
        Said::ImageUrl => matches!(target, Dialect::Chat | Dialect::Messages),
    }
}

/// Returns a request of the client that wants everything that an answer may contain.
fn asking(client: Dialect, stream: bool) -> Value {
    let ask = json!([{"role": "user", "content": "x"}]);
    match client {
        Dialect::Chat => json!({"model": "m", "messages": ask, "stream": stream}),
        Dialect::Responses => json!({"model": "m", "input": ask, "stream": stream}),
        Dialect::Gemini => json!({"contents": [{"parts": [{"text": "x"}]}], "stream": stream,
            "generationConfig": {"thinkingConfig": {"includeThoughts": true}}}),
        _ => json!({"model": "m", "max_tokens": 9000, "messages": ask, "stream": stream,
            "thinking": {"type": "enabled", "budget_tokens": 2000}}),
    }
}

fn check_answer(pair: &Adaptation, said: &[Said]) -> Result<(), TestCaseError> {
    let said: Vec<Said> = said.iter().copied().filter(|said| says(pair.target, *said)).collect();
    if said.is_empty() {
        return Ok(());
    }
    let (whole, stream) = answers::of(pair.target, &said);
    let target = Traits { reasoning: true, ..targets(pair).remove(0) };
    let reader = |streams| {
        prepare(pair, asking(pair.client, streams).to_string().as_bytes(), &target).unwrap().answers
    };
    let name = format!("{:?} over {:?}", pair.client, pair.target);
    let translated = match reader(false).whole(whole.to_string().as_bytes()) {
        Ok(translated) => translated,
        Err(BadAnswer::Invalid(why)) => return Err(TestCaseError::fail(format!("{name}: {why}: {whole}"))),
        Err(other) => return Err(TestCaseError::fail(format!("{name}: {other:?}: {whole}"))),
    };
    let (streamed, state) = relay(&*reader(true), &[&stream]);
    prop_assert!(state.done && state.error.is_none(), "{}: {:?}", name, state);
    for (form, text) in [("whole", translated.body.to_vec()), ("stream", streamed)] {
        let text = String::from_utf8(text).unwrap();
        for (position, said) in said.iter().enumerate() {
            let mark = marker(position + 1);
            let is_media = matches!(said, Said::Image | Said::ImageUrl);
            let is_named =
                is_media && text.contains("[image]") && (form == "stream" || translated.dropped == ["image"]);
            prop_assert!(
                text.contains(&mark) || is_named,
                "{}, {}: {:?} ({}) is lost\n{}\n{}",
                name,
                form,
                said,
                mark,
                whole,
                text
            );
        }
    }
    Ok(())
}

/// Each kind of content alone, so that every pair meets each of them.
#[test]
fn each_kind_of_content_alone_is_sent_or_named() {
    let user = [Kind::Text, Kind::Image, Kind::ImageUrl, Kind::File, Kind::Audio];
    let assistant = [Kind::Text, Kind::Refusal, Kind::Reasoning, Kind::SignedReasoning, Kind::Image];
    let last = || Turn::User(vec![Kind::Text]);
    let mut conversations_of_one: Vec<Vec<Turn>> = vec![vec![Turn::System, last()]];
    conversations_of_one.extend(user.map(|kind| vec![Turn::User(vec![kind])]));
    conversations_of_one
        .extend(user.map(|kind| vec![last(), Turn::Assistant(vec![], vec![vec![kind]]), last()]));
    conversations_of_one
        .extend(assistant.map(|kind| vec![last(), Turn::Assistant(vec![kind], vec![]), last()]));
    for turns in &conversations_of_one {
        for pair in conversations() {
            for target in targets(pair) {
                check_request(pair, &target, turns).unwrap();
            }
        }
    }
    for said in [Said::Reasoning, Said::Text, Said::Refusal, Said::Image, Said::ImageUrl, Said::Call] {
        for pair in conversations() {
            check_answer(pair, &[said]).unwrap();
        }
    }
}
