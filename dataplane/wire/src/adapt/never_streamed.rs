//! Placeholder for streams of answers that targets send in one piece only. Any chunk sets an error.

use bytes::Bytes;

use crate::envelope::{StreamError, chat_stream_error};
use crate::stream::{AnswerStream, StreamState, Trouble};

/// The stream of an answer that is never streamed.
#[derive(Debug, Default)]
pub(super) struct NeverStreamed {
    state: StreamState,
}

impl AnswerStream for NeverStreamed {
    fn push(&mut self, _chunk: Bytes, _out: &mut Vec<Bytes>) {
        let error = || StreamError::unreadable_stream("this target sends no streams");
        self.state.error.get_or_insert_with(error);
    }

    fn end(&mut self, _out: &mut Vec<Bytes>) {}

    fn state(&self) -> &StreamState {
        &self.state
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        chat_stream_error(trouble.row, trouble.message, trouble.request_id)
    }
}
