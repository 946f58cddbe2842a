//! Builds the body for a native target: the client's own bytes with a few edits.

use std::ops::Range;

use bytes::Bytes;

use super::fields::{BodyChange, BodyEdit, System};
use super::head::Head;
use super::shape::{RequestShape, SystemText};
use crate::json::quote;

/// The members of a request body that identify the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming<'a> {
    /// The model's name.
    Model(&'a str),
    /// The model's name, and the version of the protocol as `anthropic_version`.
    ModelAndVersion(&'a str, &'a str),
    /// The version only: the path contains the model.
    Version(&'a str),
}

impl<'a> Naming<'a> {
    /// Returns the model if the body contains it.
    fn model(self) -> Option<&'a str> {
        match self {
            Self::Model(model) | Self::ModelAndVersion(model, _) => Some(model),
            Self::Version(_) => None,
        }
    }

    /// Returns the version member with a comma before it, if the body needs one.
    fn version(self) -> Option<String> {
        match self {
            Self::Model(_) => None,
            Self::ModelAndVersion(_, version) | Self::Version(version) => {
                Some(format!(",{VERSION_NAME}:{}", quote(version)))
            }
        }
    }
}

const VERSION_NAME: &str = r#""anthropic_version""#;

/// Returns the upstream body as slices of `segments`, from which `head` was read. Each `model` is replaced according to
/// `naming`, the gateway's own members are removed, and `preamble`, the gateway's own system text, is inserted before
/// the request's. If `asks`, options that the dialect needs are added (the usage of a stream, inline images). All other
/// bytes are unchanged.
pub fn build(
    segments: &[Bytes],
    head: &Head,
    naming: Naming<'_>,
    asks: bool,
    preamble: Option<&str>,
) -> Vec<Bytes> {
    let shape = RequestShape::of(head.dialect);
    let ask = asks && (shape.asks_inline || (head.stream && shape.asks_usage));
    let quoted = preamble.filter(|text| !text.is_empty()).map(quote);
    let mut model = naming.model().map(quote);
    let version = naming.version().unwrap_or_default();
    let is_model = |edit: &&BodyEdit| matches!(edit.change, BodyChange::Model { .. });
    let mut last_model = head.edits.iter().filter(is_model).count();
    let mut edits = Vec::with_capacity(head.edits.len());
    for edit in &head.edits {
        let mut span = edit.span.clone();
        let text: Bytes = match (edit.change, &quoted) {
            (BodyChange::Model { key_bytes }, _) => {
                last_model -= 1;
                let is_last = last_model == 0;
                let missing =
                    if is_last { missing(shape, head, ask, quoted.as_deref()) } else { String::new() };
                match &mut model {
                    Some(model) if is_last => {
                        model.extend([version.as_str(), &missing]);
                        std::mem::take(model).into()
                    }
                    Some(model) => Bytes::copy_from_slice(model.as_bytes()),
                    None => {
                        span.start -= key_bytes;
                        [version.trim_start_matches(','), &missing].concat().into()
                    }
                }
            }
            (BodyChange::PlainModel, _) => {
                Bytes::copy_from_slice(naming.model().unwrap_or_default().as_bytes())
            }
            (BodyChange::Removed, _) => Bytes::new(),
            (BodyChange::Usage(text), _) if ask => Bytes::from_static(text.as_bytes()),
            (BodyChange::System(place), Some(quoted)) => place.insertion(quoted).into(),
            (BodyChange::Usage(_) | BodyChange::System(_), _) => continue,
        };
        edits.push((span, text));
    }
    splice(segments, edits)
}

/// Returns the members that the target needs and the request lacks, each with a comma before it.
fn missing(shape: &RequestShape, head: &Head, ask: bool, quoted: Option<&str>) -> String {
    let mut members = String::new();
    if ask && shape.asks_inline {
        members.push_str(r#","response_format":"b64_json""#);
    } else if ask && !head.has_options {
        members.push_str(r#","stream_options":{"include_usage":true}"#);
    }
    if let Some(quoted) = quoted
        && let SystemText::Member(name) = shape.system
        && !head.has_system
    {
        members.extend([",\"", name, "\":", quoted]);
    }
    members
}

impl System {
    /// Returns the system text, given as a JSON string, in the form for this position.
    fn insertion(self, quoted: &str) -> String {
        let comma = |only| if only { "" } else { "," };
        match self {
            Self::Message { only } => {
                format!(r#"{{"role":"system","content":{quoted}}}{}"#, comma(only))
            }
            Self::Block { only } => format!(r#"{{"type":"text","text":{quoted}}}{}"#, comma(only)),
            Self::Text { only } => {
                let inside = &quoted[1..quoted.len() - 1];
                format!("{inside}{}", if only { "" } else { r"\n\n" })
            }
            Self::Null => quoted.to_owned(),
            Self::NullObject => format!(r#"{{"parts":[{{"text":{quoted}}}]}}"#),
            Self::Part { only } => format!(r#"{{"text":{quoted}}}{}"#, comma(only)),
            Self::BeforePart => format!(r#"[{{"text":{quoted}}},"#),
            Self::AfterPart => "]".to_owned(),
            Self::Parts { only } => format!(r#""parts":[{{"text":{quoted}}}]{}"#, comma(only)),
            Self::First => format!(r#""systemInstruction":{{"parts":[{{"text":{quoted}}}]}},"#),
        }
    }
}

/// Replaces ranges of a document, given as `segments`. The ranges must be sorted and must not overlap.
pub(crate) fn splice(segments: &[Bytes], edits: Vec<(Range<usize>, Bytes)>) -> Vec<Bytes> {
    let mut source = SegmentCursor { segments: segments.iter(), current: Bytes::new(), offset: 0 };
    let mut out = Vec::with_capacity(segments.len() + 2 * edits.len());
    for (span, text) in edits {
        source.advance(span.start, |slice| out.push(slice));
        if !text.is_empty() {
            out.push(text);
        }
        source.advance(span.end, drop);
    }
    source.advance(usize::MAX, |slice| out.push(slice));
    out
}

/// A cursor over a document in segments.
struct SegmentCursor<'a> {
    segments: std::slice::Iter<'a, Bytes>,
    /// The rest of the current segment.
    current: Bytes,
    /// The cursor's offset in the document.
    offset: usize,
}

impl SegmentCursor<'_> {
    /// Advances to `end`, or to the end of the document, and passes the bytes in between to `slice`.
    fn advance(&mut self, end: usize, mut slice: impl FnMut(Bytes)) {
        while self.offset < end {
            if self.current.is_empty() {
                let Some(segment) = self.segments.next() else { return };
                self.current = segment.clone();
                continue;
            }
            let wanted = (end - self.offset).min(self.current.len());
            slice(self.current.split_to(wanted));
            self.offset += wanted;
        }
    }
}
