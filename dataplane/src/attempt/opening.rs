//! The first bytes of an answer, which decide what it is. Its content type decides only where they do not.

use bytes::Bytes;
use shared::error_kind::ErrorKind;
use shared::routing::ProviderInstance;
use shared::usage::StepResult;
use wire::answer_shape::AnswerShape;
use wire::envelope::UpstreamAnswer;

use super::failure::{Failure, broke_off, secrets};
use super::timeouts::AttemptTimeouts;
use crate::upstream::{Broken, UpstreamBody};

/// An answer of which only the beginning has been read.
pub(super) struct Opening {
    /// The bytes that have been read, until they are taken.
    first: Option<Bytes>,
    pub(super) shape: AnswerShape,
    pub(super) body: UpstreamBody,
}

/// The maximum length of white space and the like before an answer, by which some upstreams keep connections open.
const UNDECIDED_BYTES_MAX: usize = 64 << 10;

impl Opening {
    /// An answer of which nothing is to be known in advance.
    pub(super) fn unread(body: UpstreamBody) -> Self {
        Self { first: None, shape: AnswerShape::Unknown, body }
    }

    /// Reads until the shape of the answer is known.
    pub(super) async fn read(
        mut body: UpstreamBody,
        provider: &ProviderInstance,
        timeouts: &mut AttemptTimeouts<'_>,
    ) -> Result<Self, Failure> {
        let mut first = Bytes::new();
        loop {
            let bytes = match timeouts.piece(&mut body).await? {
                Some(Ok(bytes)) => bytes,
                Some(Err(Broken)) => return Err(broke_off(provider)),
                None => break,
            };
            first = if first.is_empty() { bytes } else { [first, bytes].concat().into() };
            if let Some(shape) = AnswerShape::of(&first) {
                return Ok(Self { first: Some(first), shape, body });
            }
            if first.len() > UNDECIDED_BYTES_MAX {
                break;
            }
        }
        Ok(Self { first: Some(first).filter(|first| !first.is_empty()), shape: AnswerShape::Unknown, body })
    }

    /// Returns the next piece of the answer, or `None` after its end.
    pub(super) async fn next(
        &mut self,
        timeouts: &mut AttemptTimeouts<'_>,
    ) -> Result<Option<Result<Bytes, Broken>>, Failure> {
        match self.first.take() {
            Some(first) => Ok(Some(Ok(first))),
            None => timeouts.piece(&mut self.body).await,
        }
    }

    /// Returns the failure for an answer that is a web page: the words of a proxy in front of the upstream.
    pub(super) fn page(&self, provider: &ProviderInstance, status: u16) -> Failure {
        let body = self.first.as_deref().unwrap_or_default();
        let page = UpstreamAnswer { status, content_type: None, body, secrets: &secrets(provider) };
        let words = page.diagnosis().message;
        let message = format!("The provider '{}' sent a web page instead of an answer. {words}", provider.id);
        Failure::new(StepResult::Invalid, ErrorKind::UpstreamInvalid, message)
    }
}

/// Returns the failure for a compressed answer. One that cannot be read cannot be accounted for, and decompressing it
/// would allow an upstream to exhaust memory.
pub(super) fn compressed(provider: &ProviderInstance) -> Failure {
    let message =
        format!("The provider '{}' sent a compressed response, which llmgw did not request.", provider.id);
    Failure::new(StepResult::Invalid, ErrorKind::UpstreamInvalid, message)
}
