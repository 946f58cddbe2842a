//! Features of a Responses request that some native targets lack: stored state, encrypted reasoning, built-in tools,
//! values of `include` (RESP-2).

use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem::Finder;
use shared::reasoning_seal::PREFIX;

use super::Rejection;
use crate::json::{JsonPlace, JsonSink, KEY_BYTES_MAX, Scanner, unescape};
use crate::request::Head;

/// Returns the rejection for the first feature that the request needs and `lacks` contains. `lacks` holds names of
/// members, types of built-in tools and values of `include`; `tools` and `include` cover all of their types and values.
pub fn lacking<'a>(
    head: &Head,
    segments: &[Bytes],
    lacks: &(impl Iterator<Item = &'a str> + Clone),
) -> Option<Rejection> {
    let is_lacking = |name: &str| lacks.clone().any(|lacking| lacking == name);
    let state = &head.state;
    let members = [
        ("previous_response_id", state.previous_response_id.is_some()),
        ("conversation", state.conversation.is_some()),
        ("store", state.store == Some(true)),
        ("prompt", state.prompt),
    ];
    if let Some((name, _)) = members.into_iter().find(|(name, is_needed)| *is_needed && is_lacking(name)) {
        return Some(rejection(name));
    }
    if state.encrypted_content && is_lacking("encrypted_content") {
        return Some(rejection("input"));
    }
    if !state.include && !head.has_tools {
        return None;
    }
    let (mut scanner, mut named) = (Scanner::new(), NamedFeatures::default());
    let is_read = segments.iter().all(|segment| scanner.push(segment, &mut named).is_ok());
    let lacking = named.names.iter().filter(|_| is_read).find(|(list, name, _)| match list {
        FeatureList::Tools => {
            let is_built_in = !matches!(name.as_str(), "function" | "custom" | "namespace");
            is_built_in && (is_lacking("tools") || is_lacking(name))
        }
        FeatureList::Include => is_lacking("include") || is_lacking(name),
    });
    lacking.map(|(list, _, index)| match list {
        FeatureList::Tools => rejection(&format!("tools.{index}.type")),
        FeatureList::Include => rejection(&format!("include.{index}")),
    })
}

/// Returns the rejection of a request for a native target, if it contains reasoning that the gateway sealed for a target
/// of another protocol.
pub fn sealed_elsewhere(head: &Head, segments: &[Bytes]) -> Option<Rejection> {
    if !head.state.encrypted_content {
        return None;
    }
    let is_sealed = |after: &[u8]| {
        let value = after.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        value
            .and_then(|value| value.strip_prefix(b"\""))
            .is_some_and(|text| text.starts_with(PREFIX.as_bytes()))
    };
    let body = segments.iter().any(|segment| {
        ENCRYPTED
            .find_iter(segment)
            .any(|at| is_sealed(segment.get(at.saturating_add(NAME.len())..).unwrap_or_default()))
    });
    body.then(|| {
        Rejection::new(
            "input",
            "contains reasoning that the gateway sealed for a model without the Responses API. Continue with that \
             model, remove the reasoning items, or begin a new conversation.",
        )
    })
}

const NAME: &[u8] = br#""encrypted_content""#;
static ENCRYPTED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(NAME));

fn rejection(param: &str) -> Rejection {
    Rejection::new(
        param,
        "requires a feature of the Responses API that this model's provider does not support.",
    )
}

/// Collects the types of tools and the values of `include`, with their indices.
#[derive(Debug, Default)]
struct NamedFeatures {
    names: Vec<(FeatureList, String, usize)>,
    /// The open list.
    list: Option<FeatureList>,
    /// The index of the open or next element.
    index: usize,
    /// True if the last member name of a tool was `type`.
    is_type: bool,
    /// The beginning of the open string.
    text: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FeatureList {
    Tools,
    Include,
}

impl JsonSink for NamedFeatures {
    fn skips(&self, at: JsonPlace, _object: bool) -> bool {
        match at.depth {
            0 => false,
            1 => self.list.is_none(),
            2 => self.list != Some(FeatureList::Tools),
            _ => true,
        }
    }

    fn close(&mut self, at: JsonPlace) {
        if at.depth == 1 {
            self.list = None;
        }
    }

    fn comma(&mut self, at: JsonPlace) {
        if at.depth == 2 {
            self.index = self.index.saturating_add(1);
        }
    }

    fn text_start(&mut self, _at: JsonPlace, _key: bool) {
        self.text.clear();
    }

    fn piece(&mut self, bytes: &[u8]) {
        let room = KEY_BYTES_MAX.saturating_sub(self.text.len());
        self.text.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    fn text_end(&mut self, at: JsonPlace, key: bool) {
        let text = || unescape(&self.text).unwrap_or_default();
        match (at.depth, key, self.list) {
            (1, true, _) => {
                self.index = 0;
                self.list = match text().as_str() {
                    "tools" => Some(FeatureList::Tools),
                    "include" => Some(FeatureList::Include),
                    _ => None,
                };
            }
            (3, true, _) => self.is_type = text() == "type",
            (3, false, Some(FeatureList::Tools)) if self.is_type => self.add(FeatureList::Tools),
            (2, false, Some(FeatureList::Include)) => self.add(FeatureList::Include),
            _ => {}
        }
    }

    fn scalar_start(&mut self, _at: JsonPlace) {
        self.text.clear();
    }
}

impl NamedFeatures {
    fn add(&mut self, list: FeatureList) {
        if self.names.len() < NAMES_MAX {
            self.names.push((list, unescape(&self.text).unwrap_or_default(), self.index));
        }
    }
}

/// The maximum number of tools and values that are checked.
const NAMES_MAX: usize = 1_024;
