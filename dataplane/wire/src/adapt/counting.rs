//! Token counting at a target of another dialect (MSG-3): wraps the adapted request for the target's counting call and
//! reads the number from its answer.

use bytes::Bytes;
use serde_json::Value;
use shared::operation::Dialect;

use crate::json::{parse, quote, write};

/// The form in which a target accepts a counting request.
#[derive(Clone, Copy, Debug)]
pub struct Counting<'a> {
    /// The target's dialect.
    pub target: Dialect,
    /// The target's model.
    pub model: &'a str,
    /// True if a Gemini target takes the whole request, in `generateContentRequest`, false if only some of its members.
    pub takes_whole: bool,
}

impl Counting<'_> {
    /// Returns the counting request for `body`, an answer request. `None` if the target's protocol has no token
    /// counting.
    pub fn request(&self, body: &[u8]) -> Option<Bytes> {
        let request = match self.target {
            Dialect::Gemini if self.takes_whole => {
                let model = quote(&format!("models/{}", self.model));
                let head = format!(r#"{{"generateContentRequest":{{"model":{model},"#);
                [head.as_bytes(), body.strip_prefix(b"{")?, b"}"].concat()
            }
            Dialect::Gemini => only(body, &GEMINI_COUNTED)?,
            Dialect::Bedrock => {
                [br#"{"input":{"converse":"#.as_slice(), &only(body, &BEDROCK_COUNTED)?, b"}}"].concat()
            }
            Dialect::Messages => only(body, &MESSAGES_COUNTED)?,
            Dialect::Chat
            | Dialect::Responses
            | Dialect::Embeddings
            | Dialect::GeminiEmbeddings
            | Dialect::Speech
            | Dialect::Transcription
            | Dialect::Images
            | Dialect::Videos => return None,
        };
        Some(request.into())
    }

    /// Returns the number of tokens in the target's answer.
    pub fn tokens(&self, answer: &[u8]) -> Option<u64> {
        let names = [(Dialect::Bedrock, "inputTokens"), (Dialect::Messages, "input_tokens")];
        let name = names.into_iter().find(|(target, _)| *target == self.target);
        let name = name.map_or("totalTokens", |(_, name)| name);
        serde_json::from_slice::<Value>(answer).ok()?.get(name)?.as_u64()
    }
}

/// The members of a Vertex AI request, of a Bedrock request and of a Messages request that a counting request may contain.
const GEMINI_COUNTED: [&str; 3] = ["contents", "systemInstruction", "tools"];
const BEDROCK_COUNTED: [&str; 4] = ["messages", "system", "toolConfig", "additionalModelRequestFields"];

const MESSAGES_COUNTED: [&str; 6] = ["model", "messages", "system", "tools", "tool_choice", "thinking"];

/// Returns an object of only those members that have one of these names.
fn only(body: &[u8], names: &[&str]) -> Option<Vec<u8>> {
    let mut bytes = body.to_vec();
    let tape = parse(&mut bytes).ok()?;
    let mut out = Vec::with_capacity(body.len());
    for (name, value) in tape.as_value().as_object()?.iter().filter(|(name, _)| names.contains(name)) {
        out.push(if out.is_empty() { b'{' } else { b',' });
        out.extend_from_slice(quote(name).as_bytes());
        out.push(b':');
        write(value, &mut out);
    }
    out.push(b'}');
    Some(out)
}
