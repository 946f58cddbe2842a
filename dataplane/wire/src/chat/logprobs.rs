//! Log probabilities of an answer's tokens as typed values, and their form in chat.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::{JsonWriter, parse_raw};

/// A token that the model chose, and the likeliest tokens at its place.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(crate) struct ChosenToken {
    #[serde(flatten)]
    pub(crate) token: TokenLogprob,
    /// The likeliest tokens, the likeliest first. Absent or empty if the client did not ask for them.
    #[serde(rename = "top_logprobs")]
    pub(crate) top: Option<Vec<TokenLogprob>>,
}

/// A token with the logarithm of its probability.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(crate) struct TokenLogprob {
    pub(crate) token: String,
    pub(crate) logprob: f64,
    /// The bytes of the token, if the target reports them.
    pub(crate) bytes: Option<Vec<u8>>,
}

/// The member `logprobs` of a choice.
#[derive(Deserialize)]
struct ChatLogprobs {
    content: Option<Vec<ChosenToken>>,
    refusal: Option<Vec<ChosenToken>>,
}

impl ChosenToken {
    /// Returns the likeliest tokens at its place.
    pub(crate) fn top(&self) -> &[TokenLogprob] {
        self.top.as_deref().unwrap_or_default()
    }
}

/// Reads the tokens of a choice's `logprobs`. Those that cannot be read are left out.
pub(super) fn read_logprobs(logprobs: Option<&RawValue>) -> Vec<ChosenToken> {
    let Some(read) = parse_raw::<ChatLogprobs>(logprobs) else { return Vec::new() };
    [read.content, read.refusal].into_iter().flatten().flatten().collect()
}

/// Writes tokens as the value of a choice's `logprobs`.
pub(super) fn write_logprobs(tokens: &[ChosenToken], json: &mut JsonWriter) {
    json.object().name("content").list();
    for chosen in tokens {
        write_token(&chosen.token, json);
        json.name("top_logprobs").list();
        for token in chosen.top() {
            write_token(token, json);
            json.end_object();
        }
        json.end_list().end_object();
    }
    json.end_list().name("refusal").raw(b"null").end_object();
}

/// Writes a token, without the end of its object.
fn write_token(token: &TokenLogprob, json: &mut JsonWriter) {
    json.object().name("token").text(&token.token).name("logprob").float(token.logprob).name("bytes");
    match &token.bytes {
        Some(bytes) => {
            json.list();
            for byte in bytes {
                json.number(u64::from(*byte));
            }
            json.end_list();
        }
        None => drop(json.raw(b"null")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logprobs_of_chat_are_read_and_written_alike() {
        let written = concat!(
            r#"{"content":[{"token":"\"a","logprob":-0.5,"bytes":[34,97],"top_logprobs":[{"token":"\"a","#,
            r#""logprob":-0.5,"bytes":null}]},{"token":"b","logprob":-9999.0,"bytes":null,"top_logprobs":[]}],"refusal":null}"#,
        );
        let raw: &RawValue = serde_json::from_str(written).unwrap();
        let read = read_logprobs(Some(raw));
        let mut json = JsonWriter::default();
        write_logprobs(&read, &mut json);
        assert_eq!(String::from_utf8(json.finish()).unwrap(), written);
        for (name, raw) in [
            ("null", "null"),
            ("the old form", r#"{"tokens":["a"],"token_logprobs":[-0.1]}"#),
            ("other types", r#"{"content":[{"token":1,"logprob":"x"}]}"#),
        ] {
            assert_eq!(read_logprobs(serde_json::from_str(raw).ok()), [], "{name}");
        }
    }
}
