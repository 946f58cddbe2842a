//! Answers whose output ended as a failure: the error that stands for the end, and the ends of streamed answers.

use serde_json::Value;
use shared::usage::Finish;

use super::{AnswerText, ChatSink, ClientUsage};
use crate::envelope::StreamError;
use crate::finish_word::failed_end;

/// The end of a choice in its vendor's words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChoiceEnd<'a> {
    /// The `finish_reason`.
    pub(crate) reason: &'a str,
    /// OpenRouter's `native_finish_reason`: the word of the vendor behind it.
    pub(crate) native: &'a str,
    /// The error within the choice.
    pub(crate) error: Option<&'a Value>,
    /// The vendor's own words about the end.
    pub(crate) words: &'a str,
    /// The content of the chunk, or of the whole answer. Some vendors send the text of the error there.
    pub(crate) content: AnswerText<'a>,
}

impl ChoiceEnd<'_> {
    /// Returns the error of an end that is a failure.
    pub(crate) fn failure(&self) -> Option<StreamError> {
        let ends = [self.reason, self.native].map(|word| (word, failed_end(word.as_bytes())));
        // The word of the vendor that ran the model says more than that of the one in front of it.
        let (word, end) = ends.into_iter().rev().find_map(|(word, end)| Some((word, end?))).unzip();
        match (self.error.map(StreamError::of_member), word.zip(end)) {
            (Some(error), end) => {
                let status = error.status.or_else(|| end.map(|(_, end)| end.status)).or(Some(502));
                Some(StreamError { status, ..error })
            }
            (None, Some((word, end))) => {
                let content = self.content.plain();
                let words = if end.content_is_error { &content } else { self.words };
                Some(StreamError::of_failed_end(end, word, words))
            }
            (None, None) => None,
        }
    }

    /// Returns the failure of the first choice in `document` that failed.
    pub(super) fn failure_in(document: &Value) -> Option<StreamError> {
        let choices = document["choices"].as_array()?;
        choices.iter().find_map(|choice| {
            let content =
                [&choice["message"], &choice["delta"]].into_iter().find_map(|of| of["content"].as_str());
            let end = ChoiceEnd {
                reason: choice["finish_reason"].as_str().unwrap_or_default(),
                native: choice["native_finish_reason"].as_str().unwrap_or_default(),
                error: Some(&choice["error"]).filter(|error| StreamError::is_error(error)),
                words: "",
                content: AnswerText::Plain(content.unwrap_or_default()),
            };
            end.failure()
        })
    }
}

/// Ends a choice of a streamed answer. A failure is kept until the answer ends, because its usage may follow.
pub(crate) fn end_choice(sink: &mut dyn ChatSink, choice: u64, end: &ChoiceEnd<'_>, stop: Option<&str>) {
    match end.failure() {
        Some(failure) => fail_at_end(sink, failure),
        None if end.reason.is_empty() => {}
        None => sink.finish(choice, end.reason, stop),
    }
}

fn fail_at_end(sink: &mut dyn ChatSink, failure: StreamError) {
    let facts = sink.facts();
    facts.finished = true;
    facts.finish = Some(Finish::Error);
    facts.failure.get_or_insert_with(|| Box::new(failure));
}

/// Ends a streamed answer: as complete, or with the failure of a choice.
pub(crate) fn end_answer(sink: &mut dyn ChatSink) {
    match sink.facts().failure.take() {
        Some(failure) => sink.fail(&failure),
        None => sink.done(),
    }
}

/// Ends a streamed answer with the usage that it has reported, if any.
pub(crate) fn end_with_usage(sink: &mut dyn ChatSink) {
    if let Some(counts) = sink.state().usage {
        sink.usage(ClientUsage::with_reasoning(counts));
    }
    end_answer(sink);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_vendors_failed_end_is_an_error() {
        let malformed = "The model wrote a malformed tool call.";
        let aborted = "The upstream aborted its response. Finish reason: abort.";
        for (choice, message, status) in [
            (json!({"finish_reason": "stop"}), None, None),
            (json!({"finish_reason": "content_filter"}), None, None),
            (json!({"finish_reason": "length", "native_finish_reason": "MAX_TOKENS"}), None, None),
            (json!({"finish_reason": "stop", "error": null}), None, None),
            (json!({"finish_reason": "something_new"}), None, None),
            (
                json!({"finish_reason": "error"}),
                Some("The upstream ended its response with an error. Finish reason: error.".to_owned()),
                Some(502),
            ),
            (json!({"finish_reason": "abort", "message": {"content": "secret"}}), Some(aborted.to_owned()), Some(502)),
            (
                json!({"finish_reason": "insufficient_system_resource"}),
                Some(
                    "The upstream ran out of resources in the middle of its response. Finish reason: \
                     insufficient_system_resource."
                        .to_owned(),
                ),
                Some(503),
            ),
            (
                json!({"finish_reason": "error", "native_finish_reason": "MALFORMED_FUNCTION_CALL"}),
                Some(format!("{malformed} Finish reason: MALFORMED_FUNCTION_CALL.")),
                Some(502),
            ),
            (
                json!({"finish_reason": "stop", "native_finish_reason": "network_error"}),
                Some("The upstream's response was interrupted. Finish reason: network_error.".to_owned()),
                Some(502),
            ),
            (
                json!({"finish_reason": "error", "error": {"code": 429, "message": "slow down"}}),
                Some("slow down".to_owned()),
                Some(429),
            ),
            (
                json!({"finish_reason": "error_finish", "delta": {"content": "Throttling: TPM"}}),
                Some(
                    "The upstream ended its response with an error. Finish reason: error_finish. Throttling: TPM"
                        .to_owned(),
                ),
                Some(502),
            ),
        ] {
            let failure = ChoiceEnd::failure_in(&json!({"choices": [choice]}));
            let read = failure.map(|failure| (failure.message, failure.status)).unzip();
            assert_eq!(read, (message, status.map(Some)), "{choice}");
        }
    }
}
