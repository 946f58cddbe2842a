//! How a target of another dialect is asked how many tokens a request has (MSG-3): the adapted request, in the form in
//! which the target takes it for counting, and the number in its answer.

use bytes::Bytes;
use serde_json::Value;
use shared::operation::Dialect;

use crate::json::{parse, quote, write};

/// How a target wants to be asked.
#[derive(Clone, Copy, Debug)]
pub struct Counting<'a> {
    /// The protocol of the target.
    pub target: Dialect,
    /// The target's model.
    pub model: &'a str,
    /// A Gemini target takes the whole request, in `generateContentRequest`. Otherwise it takes some of its members.
    pub takes_whole: bool,
}

impl Counting<'_> {
    /// The request to count tokens that `body`, a request for an answer, has. `None` if the target's protocol has none.
    pub fn request(&self, body: &[u8]) -> Option<Bytes> {
        let asked = match self.target {
            Dialect::Gemini if self.takes_whole => {
                let model = quote(&format!("models/{}", self.model));
                let head = format!(r#"{{"generateContentRequest":{{"model":{model},"#);
                [head.as_bytes(), body.strip_prefix(b"{")?, b"}"].concat()
            }
            Dialect::Gemini => only(body, &GEMINI_COUNTED)?,
            Dialect::Bedrock => {
                [br#"{"input":{"converse":"#.as_slice(), &only(body, &BEDROCK_COUNTED)?, b"}}"].concat()
            }
            Dialect::Chat
            | Dialect::Responses
            | Dialect::Messages
            | Dialect::Embeddings
            | Dialect::Speech
            | Dialect::Transcription
            | Dialect::Images
            | Dialect::Videos => return None,
        };
        Some(asked.into())
    }

    /// The number of tokens in the target's answer.
    pub fn tokens(&self, answer: &[u8]) -> Option<u64> {
        let name = if self.target == Dialect::Bedrock { "inputTokens" } else { "totalTokens" };
        serde_json::from_slice::<Value>(answer).ok()?.get(name)?.as_u64()
    }
}

/// Members of a request to Vertex AI, and of one to Bedrock, that may stand in a request to count.
const GEMINI_COUNTED: [&str; 3] = ["contents", "systemInstruction", "tools"];
const BEDROCK_COUNTED: [&str; 4] = ["messages", "system", "toolConfig", "additionalModelRequestFields"];

/// The members of an object that have one of these names.
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
