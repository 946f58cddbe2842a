//! The client's view of a video operation, in one format for all providers.

use bytes::Bytes;

use crate::envelope::StreamError;
use crate::json::JsonWriter;

/// The properties of an operation that its client receives.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The sealed operation id.
    pub operation: &'a str,
    /// The start time in seconds since the Unix epoch.
    pub created_at: u64,
    /// The provider instance that runs the operation.
    pub provider: &'a str,
    /// The requested model.
    pub model: &'a str,
}

impl About<'_> {
    /// Returns the answer for an operation that has just been started.
    pub fn started(&self) -> Bytes {
        self.whole("queued", |_| {})
    }

    /// Returns the answer for an unfinished operation, with its progress in percent if known.
    pub fn running(&self, progress: Option<u64>) -> Bytes {
        self.whole("running", |out| {
            if let Some(progress) = progress {
                out.name("progress").number(progress);
            }
        })
    }

    /// Returns the answer for a failed operation. `error` must be sanitized.
    pub fn failed(&self, error: &StreamError) -> Bytes {
        self.whole("failed", |out| {
            out.name("error").object().name("message").text(&error.message);
            out.name("type").text("upstream_error").name("param").raw(b"null").name("code");
            match &error.code {
                Some(code) => out.text(code),
                None => out.raw(b"null"),
            };
            out.end_object();
        })
    }

    /// Returns the answer for a video at an address that the client itself can read.
    pub fn at(&self, address: &str, media_type: &str) -> Bytes {
        self.whole("completed", |out| {
            out.name("video")
                .object()
                .name("url")
                .text(address)
                .name("mime_type")
                .text(media_type)
                .end_object();
        })
    }

    /// Returns the parts of the answer before and after the base64 of the video.
    pub fn around(&self, media_type: &str) -> (Bytes, Bytes) {
        let mut out = self.begun("completed");
        out.name("video").object().name("mime_type").text(media_type).name("b64_json").bytes(b"\"");
        (out.finish().into(), Bytes::from_static(b"\"}}"))
    }

    fn whole(&self, status: &str, more: impl FnOnce(&mut JsonWriter)) -> Bytes {
        let mut out = self.begun(status);
        more(&mut out);
        out.end_object();
        out.finish().into()
    }

    fn begun(&self, status: &str) -> JsonWriter {
        let mut out = JsonWriter::default();
        out.object().name("id").text(self.operation).name("object").text("video.operation");
        out.name("operation").text(self.operation).name("status").text(status);
        out.name("created_at").number(self.created_at);
        out.name("provider").text(self.provider).name("model").text(self.model);
        out
    }
}
