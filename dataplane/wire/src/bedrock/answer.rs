//! Complete answers, and the events of a stream.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::usage::TokenCounts;

use super::usage::{ConverseUsage, tier};
use crate::chat::OutputMedia;
use crate::extras::Extras;
use crate::json::BorrowedText;

/// A complete answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConverseAnswer<'a> {
    #[serde(borrow)]
    pub(crate) output: Option<ConverseOutput<'a>>,
    #[serde(borrow)]
    pub(crate) stop_reason: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) usage: Option<ConverseUsage<'a>>,
    #[serde(borrow)]
    service_tier: Option<&'a RawValue>,
    #[serde(borrow)]
    performance_config: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ConverseOutput<'a> {
    #[serde(borrow)]
    pub(crate) message: Option<ConverseMessage<'a>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ConverseMessage<'a> {
    #[serde(borrow)]
    pub(crate) content: Option<Vec<ConverseBlock<'a>>>,
}

/// A content block of a complete answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConverseBlock<'a> {
    #[serde(borrow)]
    pub(crate) text: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) tool_use: Option<ConverseToolUse<'a>>,
    #[serde(borrow)]
    pub(crate) reasoning_content: Option<Reasoning<'a>>,
    #[serde(borrow)]
    pub(crate) citations_content: Option<Cited<'a>>,
    #[serde(borrow)]
    image: Option<ConverseMedia<'a>>,
    #[serde(borrow)]
    audio: Option<ConverseMedia<'a>>,
    #[serde(borrow)]
    video: Option<ConverseMedia<'a>>,
    #[serde(borrow)]
    document: Option<ConverseMedia<'a>>,
}

/// Media of an answer, or a piece of them.
#[derive(Debug, Deserialize)]
pub(crate) struct ConverseMedia<'a> {
    #[serde(borrow)]
    pub(crate) format: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) source: Option<ConverseMediaSource<'a>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ConverseMediaSource<'a> {
    #[serde(borrow)]
    pub(crate) bytes: Option<BorrowedText<'a>>,
}

/// Text with citations of its sources.
#[derive(Debug, Deserialize)]
pub(crate) struct Cited<'a> {
    #[serde(borrow)]
    pub(crate) content: Option<Vec<ConverseTextDelta<'a>>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ConverseTextDelta<'a> {
    #[serde(borrow)]
    pub(crate) text: Option<BorrowedText<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConverseToolUse<'a> {
    #[serde(borrow)]
    pub(crate) tool_use_id: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) name: Option<BorrowedText<'a>>,
    /// The arguments; present in complete answers only.
    #[serde(borrow)]
    pub(crate) input: Option<&'a RawValue>,
    /// Present only for a tool that the target runs itself.
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Option<BorrowedText<'a>>,
}

/// Signed reasoning, in a complete answer or in a stream.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reasoning<'a> {
    #[serde(borrow)]
    pub(crate) reasoning_text: Option<ReasoningText<'a>>,
    #[serde(borrow)]
    pub(crate) text: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) signature: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) redacted_content: Option<BorrowedText<'a>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ReasoningText<'a> {
    #[serde(borrow)]
    pub(crate) text: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) signature: Option<BorrowedText<'a>>,
}

/// The payload of any stream event.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConverseEvent<'a> {
    #[serde(default)]
    pub(crate) content_block_index: u64,
    #[serde(borrow)]
    pub(crate) start: Option<ConverseBlockStart<'a>>,
    #[serde(borrow)]
    pub(crate) delta: Option<ConverseDelta<'a>>,
    #[serde(borrow)]
    pub(crate) stop_reason: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) usage: Option<ConverseUsage<'a>>,
    #[serde(borrow)]
    service_tier: Option<&'a RawValue>,
    #[serde(borrow)]
    performance_config: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConverseBlockStart<'a> {
    #[serde(borrow)]
    pub(crate) tool_use: Option<ConverseToolUse<'a>>,
    #[serde(borrow)]
    pub(crate) image: Option<ConverseMedia<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConverseDelta<'a> {
    #[serde(borrow)]
    pub(crate) text: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) image: Option<ConverseMedia<'a>>,
    #[serde(borrow)]
    pub(crate) tool_use: Option<ConverseInputDelta<'a>>,
    #[serde(borrow)]
    pub(crate) reasoning_content: Option<Reasoning<'a>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ConverseInputDelta<'a> {
    #[serde(borrow)]
    pub(crate) input: Option<BorrowedText<'a>>,
}

/// Returns the usage in a body, which may be an error.
pub(crate) fn usage_in(body: &[u8]) -> Option<TokenCounts> {
    let answer: ConverseUsageOnly<'_> = serde_json::from_slice(body).ok()?;
    answer.usage.as_ref().map(ConverseUsage::counts)
}

#[derive(Deserialize)]
struct ConverseUsageOnly<'a> {
    #[serde(borrow)]
    usage: Option<ConverseUsage<'a>>,
}

impl ConverseAnswer<'_> {
    /// Returns the reported usage other than tokens.
    pub(crate) fn extras(&self) -> Extras {
        Extras { tier: tier(self.service_tier, self.performance_config), ..Extras::default() }
    }
}

impl ConverseEvent<'_> {
    /// Returns the reported usage other than tokens.
    pub(crate) fn extras(&self) -> Extras {
        Extras { tier: tier(self.service_tier, self.performance_config), ..Extras::default() }
    }
}

impl<'a> ConverseDelta<'a> {
    /// Returns the text, borrowed from the event, if the delta holds nothing else. `None` if the text contains
    /// escapes.
    pub(crate) fn only_text(&self) -> Option<&'a str> {
        let alone = self.tool_use.is_none() && self.reasoning_content.is_none() && self.image.is_none();
        match self.text.as_ref().filter(|_| alone)?.0 {
            Cow::Borrowed(text) => Some(text),
            Cow::Owned(_) => None,
        }
    }
}

impl<'a> ConverseBlock<'a> {
    /// Returns the media of the block.
    pub(crate) fn media(&mut self) -> impl Iterator<Item = OutputMedia<'a>> + use<'a> {
        let kinds = [
            ("image", self.image.take()),
            ("audio", self.audio.take()),
            ("video", self.video.take()),
            ("application", self.document.take()),
        ];
        kinds.into_iter().filter_map(|(kind, media)| media?.output(kind, None))
    }
}

impl<'a> ConverseMedia<'a> {
    /// Returns the media, whose type begins with `kind`. `format` is that of an earlier event.
    pub(crate) fn output(self, kind: &str, format: Option<&str>) -> Option<OutputMedia<'a>> {
        let base64 = self.source?.bytes?.0;
        let own = self.format.map(|format| format.0);
        let format = own.as_deref().or(format).unwrap_or("png");
        (!base64.is_empty())
            .then(|| OutputMedia::Inline { media_type: format!("{kind}/{format}").into(), base64 })
    }
}

impl ConverseToolUse<'_> {
    /// True if the client has to run the tool; false if the target runs it.
    pub(crate) fn is_for_the_client(&self) -> bool {
        self.kind.is_none()
    }
}
