//! Requests and stream events of a connection test, in each dialect that a test can use.

use serde_json::{Value, json};
use shared::operation::Dialect;
use shared::routing::Target;

/// The dialect of a test request to the data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestProtocol {
    Chat,
    Responses,
    Messages,
}

/// The content of a test request.
#[derive(Debug)]
pub(crate) struct TestQuestion<'a> {
    pub(crate) selector: &'a str,
    /// Messages with roles and plain texts, valid in every dialect.
    pub(crate) messages: &'a Value,
    pub(crate) output_tokens_max: u32,
    /// The field of a chat request that limits the output tokens.
    pub(crate) chat_bound: &'a str,
}

/// The content of one stream event.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TestEvent<'e> {
    pub(crate) text: Option<&'e str>,
    /// True if the event carries reasoning, which counts as content.
    pub(crate) is_thought: bool,
    pub(crate) model: Option<&'e str>,
    pub(crate) usage: Option<&'e Value>,
    pub(crate) error: Option<&'e str>,
    pub(crate) is_end: bool,
}

impl TestProtocol {
    /// Returns the dialect for `target`: a native one if possible, otherwise one that an adaptation translates. `None`
    /// if the target serves no conversations.
    pub(crate) fn of(target: &Target) -> Option<Self> {
        let speaks = |dialect| target.speaks(dialect);
        if speaks(Dialect::Chat) {
            Some(Self::Chat)
        } else if speaks(Dialect::Messages) {
            Some(Self::Messages)
        } else if speaks(Dialect::Responses) {
            Some(Self::Responses)
        } else {
            (speaks(Dialect::Gemini) || speaks(Dialect::Bedrock)).then_some(Self::Chat)
        }
    }

    /// Returns the dialect for a list of targets: Chat, unless Responses is the only dialect of its targets. `None` if
    /// no target serves conversations.
    pub(crate) fn of_line(targets: &[Target]) -> Option<Self> {
        let each = || targets.iter().filter_map(Self::of);
        each().find(|protocol| *protocol != Self::Responses).map(|_| Self::Chat).or_else(|| each().next())
    }

    /// Returns the display name.
    pub(crate) fn name(self) -> &'static str {
        self.dialect().name()
    }

    fn dialect(self) -> Dialect {
        match self {
            Self::Chat => Dialect::Chat,
            Self::Responses => Dialect::Responses,
            Self::Messages => Dialect::Messages,
        }
    }

    /// Returns the data-plane path.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    /// Builds the body of a streaming request.
    pub(crate) fn body(self, question: &TestQuestion<'_>) -> Value {
        let TestQuestion { selector, messages, output_tokens_max, chat_bound } = question;
        match self {
            Self::Chat => json!({
                "model": selector, "messages": messages, "stream": true,
                "stream_options": {"include_usage": true}, *chat_bound: output_tokens_max,
            }),
            Self::Responses => json!({
                "model": selector, "input": messages, "stream": true, "store": false,
                "max_output_tokens": output_tokens_max,
            }),
            Self::Messages => json!({
                "model": selector, "messages": messages, "stream": true, "max_tokens": output_tokens_max,
            }),
        }
    }

    /// Extracts the content of `event`.
    pub(crate) fn read(self, event: &Value) -> TestEvent<'_> {
        let event = match self {
            Self::Chat => chat(event),
            Self::Responses => responses(event),
            Self::Messages => messages(event),
        };
        let usage = event.usage.filter(|usage| usage.is_object());
        TestEvent { usage, text: event.text.filter(|text| !text.is_empty()), ..event }
    }
}

fn text<'e>(event: &'e Value, place: &str) -> Option<&'e str> {
    event.pointer(place).and_then(Value::as_str)
}

fn chat(event: &Value) -> TestEvent<'_> {
    let thought = ["/choices/0/delta/reasoning_content", "/choices/0/delta/reasoning"];
    TestEvent {
        text: text(event, "/choices/0/delta/content"),
        is_thought: thought.iter().any(|place| text(event, place).is_some_and(|text| !text.is_empty())),
        model: text(event, "/model"),
        usage: event.get("usage"),
        error: event.get("error").filter(|error| !error.is_null()).map(|_| message(event)),
        is_end: text(event, "/choices/0/finish_reason").is_some(),
    }
}

fn responses(event: &Value) -> TestEvent<'_> {
    let kind = text(event, "/type").unwrap_or_default();
    let whole = TestEvent {
        model: text(event, "/response/model"),
        usage: event.pointer("/response/usage"),
        ..TestEvent::default()
    };
    match kind {
        "response.output_text.delta" => TestEvent { text: text(event, "/delta"), ..whole },
        "response.completed" | "response.incomplete" => TestEvent { is_end: true, ..whole },
        "response.failed" | "error" => TestEvent { error: Some(message(event)), is_end: true, ..whole },
        _ => TestEvent { is_thought: kind.contains("reasoning") && kind.ends_with(".delta"), ..whole },
    }
}

fn messages(event: &Value) -> TestEvent<'_> {
    match text(event, "/type").unwrap_or_default() {
        "message_start" => TestEvent {
            model: text(event, "/message/model"),
            usage: event.pointer("/message/usage"),
            ..TestEvent::default()
        },
        "content_block_delta" => TestEvent {
            text: text(event, "/delta/text"),
            is_thought: text(event, "/delta/thinking").is_some_and(|text| !text.is_empty()),
            ..TestEvent::default()
        },
        "message_delta" => TestEvent { usage: event.get("usage"), ..TestEvent::default() },
        "message_stop" => TestEvent { is_end: true, ..TestEvent::default() },
        "error" => TestEvent { error: Some(message(event)), is_end: true, ..TestEvent::default() },
        _ => TestEvent::default(),
    }
}

/// Returns the error message of an event or response body, from any of the places that the dialects use.
pub(crate) fn message(event: &Value) -> &str {
    let places = ["/error/message", "/response/error/message", "/message"];
    let message = places.iter().find_map(|place| text(event, place));
    message.unwrap_or("The gateway returned an unexpected response.")
}
