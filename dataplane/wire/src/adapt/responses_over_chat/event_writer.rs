//! Writes the events of a Responses stream, with their names and consecutive sequence numbers.

use bytes::{BufMut, Bytes, BytesMut};
use shared::usage::TokenCounts;

use super::echo::EchoedRequest;

/// Buffers events that are ready for the client.
#[derive(Debug, Default)]
pub(super) struct ResponseEventWriter {
    out: BytesMut,
    sequence: u64,
}

impl ResponseEventWriter {
    /// Reserves room for the events of a read of `bytes` bytes; they are rarely larger than twice that.
    pub(super) fn reserve(&mut self, bytes: usize) {
        self.out.reserve(bytes.saturating_mul(2));
    }

    /// Writes one event. `fill` writes members, each preceded by its comma.
    pub(super) fn event(&mut self, name: &str, fill: impl FnOnce(&mut BytesMut)) {
        event_head(name, &mut self.out);
        fill(&mut self.out);
        self.event_ends();
    }

    /// Writes one event from a prepared beginning.
    #[inline]
    pub(super) fn delta(&mut self, head: &[u8], raw: &[u8], tail: &[u8]) {
        self.out.put_slice(head);
        self.out.put_slice(raw);
        self.out.put_slice(tail);
        self.event_ends();
    }

    #[inline]
    fn event_ends(&mut self) {
        self.out.put_slice(b",\"sequence_number\":");
        number(&mut self.out, self.sequence);
        self.out.put_slice(b"}\n\n");
        self.sequence = self.sequence.saturating_add(1);
    }

    /// Returns the buffered events, if there are any.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        if self.out.is_empty() { None } else { Some(self.out.split().freeze()) }
    }
}

/// Writes the beginning of an event, up to its type.
pub(super) fn event_head(name: &str, out: &mut BytesMut) {
    for part in ["event: ", name, "\ndata: {\"type\":\"", name, "\""] {
        out.put_slice(part.as_bytes());
    }
}

/// The status of a response.
#[derive(Clone, Copy, Debug)]
pub(super) enum Status<'a> {
    InProgress,
    Completed,
    /// The response ended early, for this reason.
    Incomplete(&'static str),
    Failed {
        code: &'a str,
        message: &'a str,
    },
}

impl Status<'_> {
    /// The name of the status, which is also that of its event.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete(_) => "incomplete",
            Self::Failed { .. } => "failed",
        }
    }
}

/// Writes a complete response object around its output.
pub(super) fn write_response(
    echo: &EchoedRequest,
    status: Status<'_>,
    usage: Option<TokenCounts>,
    output: impl FnOnce(&mut BytesMut),
    out: &mut BytesMut,
) {
    out.put_u8(b'{');
    out.put_slice(&echo.head);
    for part in [",\"status\":\"", status.name(), "\",\"error\":"] {
        out.put_slice(part.as_bytes());
    }
    match status {
        Status::Failed { code, message } => {
            let error = serde_json::json!({"code": code, "message": message});
            out.put_slice(error.to_string().as_bytes());
        }
        Status::InProgress | Status::Completed | Status::Incomplete(_) => out.put_slice(b"null"),
    }
    out.put_slice(b",\"incomplete_details\":");
    match status {
        Status::Incomplete(reason) => {
            for part in ["{\"reason\":\"", reason, "\"}"] {
                out.put_slice(part.as_bytes());
            }
        }
        Status::InProgress | Status::Completed | Status::Failed { .. } => out.put_slice(b"null"),
    }
    out.put_slice(&echo.middle);
    out.put_slice(b",\"output\":[");
    output(out);
    out.put_u8(b']');
    out.put_slice(&echo.tail);
    out.put_slice(b",\"usage\":");
    match usage {
        Some(usage) => write_usage(usage, out),
        None => out.put_slice(b"null"),
    }
    out.put_u8(b'}');
}

/// Writes a `usage` object. Input includes cached and audio input, output includes reasoning and audio.
fn write_usage(usage: TokenCounts, out: &mut BytesMut) {
    let (input, output) = (usage.input_total(), usage.output_total());
    let written = usage.cache_write.saturating_add(usage.cache_write_1h);
    let some = |name: &'static str, count: u64| Some((name, count)).filter(|_| count > 0);
    let members = [
        Some(("{\"input_tokens\":", input)),
        Some((",\"input_tokens_details\":{\"cached_tokens\":", usage.cache_read)),
        Some((",\"cache_write_tokens\":", written)),
        some(",\"audio_tokens\":", usage.audio_input),
        Some(("},\"output_tokens\":", output)),
        Some((",\"output_tokens_details\":{\"reasoning_tokens\":", usage.reasoning)),
        some(",\"audio_tokens\":", usage.audio_output),
        some(",\"image_tokens\":", usage.image_output),
        Some(("},\"total_tokens\":", input.saturating_add(output))),
    ];
    for (name, count) in members.into_iter().flatten() {
        out.put_slice(name.as_bytes());
        number(out, count);
    }
    out.put_u8(b'}');
}

/// Writes `number` in decimal digits.
#[inline]
pub(super) fn number(out: &mut impl BufMut, number: u64) {
    out.put_slice(itoa::Buffer::new().format(number).as_bytes());
}
