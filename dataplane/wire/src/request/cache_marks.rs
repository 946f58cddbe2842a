//! Adds cache marks to requests of clients that send none. All other bytes are unchanged.

use bytes::Bytes;
use shared::routing::PromptCache;

use super::splice;
use crate::json::{JsonPlace, JsonSink, Scanner, unescape};

/// Returns the Messages request in `segments` with a mark at its top level, by which the vendor marks the last block that
/// can be cached. Returns `None` if the client has marked something itself.
pub fn with_cache_mark(segments: &[Bytes], lifetime: PromptCache) -> Option<Vec<Bytes>> {
    let seen = MarkScan::of(segments)?;
    let mark = match lifetime {
        PromptCache::Auto => r#""cache_control":{"type":"ephemeral"}"#,
        PromptCache::Hour => r#""cache_control":{"type":"ephemeral","ttl":"1h"}"#,
    };
    let comma = if seen.has_members { "," } else { "" };
    Some(splice(segments, vec![(seen.first..seen.first, format!("{mark}{comma}").into())]))
}

/// The cache points that a model of Bedrock takes.
#[derive(Clone, Copy, Debug)]
pub struct CachePoints {
    /// The lifetime.
    pub lifetime: PromptCache,
    /// True if a point may follow the tools.
    pub tools: bool,
}

/// Returns the Converse request in `segments` with cache points after the system text, the tools and the last message.
/// Returns `None` if it has any already, or no place for one.
pub fn with_cache_points(segments: &[Bytes], points: CachePoints) -> Option<Vec<Bytes>> {
    let seen = MarkScan::of(segments)?;
    let point = match points.lifetime {
        PromptCache::Auto => r#",{"cachePoint":{"type":"default"}}"#,
        PromptCache::Hour => r#",{"cachePoint":{"type":"default","ttl":"1h"}}"#,
    };
    let mut places: Vec<usize> =
        [seen.system, seen.tools.filter(|_| points.tools), seen.message].into_iter().flatten().collect();
    places.sort_unstable();
    let edits = places.iter().map(|&at| (at..at, Bytes::from_static(point.as_bytes()))).collect();
    (!places.is_empty()).then(|| splice(segments, edits))
}

/// Finds marks, and the places for new ones.
#[derive(Debug, Default)]
struct MarkScan {
    is_marked: bool,
    has_members: bool,
    /// The offset after the opening brace of the document.
    first: usize,
    /// The offsets of the ends of the lists to which a point can be added: of the system text, of the tools, and of the
    /// content of the last message.
    system: Option<usize>,
    tools: Option<usize>,
    message: Option<usize>,
    /// The names of the open containers, from the document itself.
    path: Vec<Container>,
    /// The last name.
    name: Vec<u8>,
    is_name: bool,
    /// True if the innermost container is empty so far.
    is_empty: bool,
}

/// A container, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    System,
    ToolConfig,
    Tools,
    Messages,
    Content,
    Other,
}

impl MarkScan {
    /// Reads a request; `None` if it has a mark.
    fn of(segments: &[Bytes]) -> Option<Self> {
        let (mut scanner, mut seen) = (Scanner::<false>::new(), Self::default());
        // The body has already been scanned or was written by the gateway, so it is valid JSON.
        let is_read = segments.iter().all(|segment| scanner.push(segment, &mut seen).is_ok());
        (is_read && !seen.is_marked).then_some(seen)
    }

    fn container(&mut self) -> Container {
        let container = match &*self.name {
            b"system" => Container::System,
            b"toolConfig" => Container::ToolConfig,
            b"tools" => Container::Tools,
            b"messages" => Container::Messages,
            b"content" => Container::Content,
            _ => Container::Other,
        };
        self.name.clear();
        container
    }
}

impl JsonSink for MarkScan {
    fn open(&mut self, at: JsonPlace, _object: bool) {
        if at.depth == 0 {
            self.first = at.offset + 1;
        }
        let container = self.container();
        self.path.push(container);
        self.is_empty = true;
    }

    fn close(&mut self, at: JsonPlace) {
        use Container::{Content, Messages, Other, System, ToolConfig, Tools};
        let end = Some(at.offset - 1).filter(|_| !self.is_empty);
        match self.path.as_slice() {
            [_, System] => self.system = end,
            [_, ToolConfig, Tools] => self.tools = end,
            [_, Messages, Other, Content] => self.message = end,
            _ => {}
        }
        self.path.pop();
        self.is_empty = false;
        self.name.clear();
    }

    fn text_start(&mut self, at: JsonPlace, key: bool) {
        self.is_name = key;
        self.is_empty = false;
        self.has_members |= at.depth == 1;
        self.name.clear();
    }

    fn piece(&mut self, bytes: &[u8]) {
        if self.is_name {
            let room = NAME_BYTES_MAX.saturating_sub(self.name.len());
            self.name.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        }
    }

    fn text_end(&mut self, _at: JsonPlace, key: bool) {
        if key {
            let is_mark = |name: &str| matches!(name, "cache_control" | "cachePoint");
            self.is_marked |= unescape(&self.name).as_deref().is_some_and(is_mark);
        }
        self.is_name = false;
    }

    fn scalar_start(&mut self, _at: JsonPlace) {
        self.is_empty = false;
        self.name.clear();
    }
}

/// The maximum length of a name that is examined, in bytes: `cache_control` with every letter escaped has 78.
const NAME_BYTES_MAX: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    /// The body at every cut.
    fn marked(request: &str, mark: impl Fn(&[Bytes]) -> Option<Vec<Bytes>>) -> Option<String> {
        let mut found = None;
        for cut in 0..request.len() {
            let pieces = [&request.as_bytes()[..cut], &request.as_bytes()[cut..]].map(Bytes::copy_from_slice);
            let one = mark(&pieces).map(|body| String::from_utf8(body.concat()).unwrap());
            assert!(cut == 0 || found == one, "cut at {cut}: {found:?} {one:?}");
            found = one;
        }
        found
    }

    #[test]
    fn a_messages_request_gets_one_member_unless_its_client_has_marked_something() {
        for (request, want) in [
            (r#"{"model":"m"}"#, Some(r#"{"cache_control":{"type":"ephemeral"},"model":"m"}"#)),
            (
                r#" { "x":[{"a":"cache_control"}]}"#,
                Some(r#" {"cache_control":{"type":"ephemeral"}, "x":[{"a":"cache_control"}]}"#),
            ),
            (
                r#"{"x":"\"cache_control\":1"}"#,
                Some(r#"{"cache_control":{"type":"ephemeral"},"x":"\"cache_control\":1"}"#),
            ),
            ("{}", Some(r#"{"cache_control":{"type":"ephemeral"}}"#)),
            (r#"{"cache_control":null}"#, None),
            (r#"{"x":[1,{"y":{"cache_control":{}}}]}"#, None),
            (r#"{"x":[{"c\u0061che_control":{}}]}"#, None),
        ] {
            let got = marked(request, |pieces| with_cache_mark(pieces, PromptCache::Auto));
            assert_eq!(got.as_deref(), want, "{request}");
        }
        let hour = marked(r#"{"a":1}"#, |pieces| with_cache_mark(pieces, PromptCache::Hour));
        assert_eq!(hour.as_deref(), Some(r#"{"cache_control":{"type":"ephemeral","ttl":"1h"},"a":1}"#));
    }

    #[test]
    fn a_converse_request_gets_points_after_system_tools_and_the_last_message() {
        const POINT: &str = r#",{"cachePoint":{"type":"default"}}"#;
        let request = |[system, tools, first, last]: [&str; 4]| {
            format!(
                r#"{{"messages":[{{"role":"user","content":[{{"text":"a","content":[1]}}{first}]}},{{"content":[{{"toolResult":{{"content":[{{"text":"]"}}]}}}}{last}],"role":"user"}}],"system":[{{"text":"s"}}{system}],"toolConfig":{{"tools":[{{"toolSpec":{{"name":"content","inputSchema":{{"json":{{"system":[]}}}}}}}}{tools}],"toolChoice":{{"auto":{{}}}}}}}}"#
            )
        };
        for (tools, want) in [(true, [POINT, POINT, "", POINT]), (false, [POINT, "", "", POINT])] {
            let points = CachePoints { lifetime: PromptCache::Auto, tools };
            let got = marked(&request([""; 4]), |pieces| with_cache_points(pieces, points));
            assert_eq!(got, Some(request(want)), "tools: {tools}");
            for place in 0..4 {
                let mut has = [""; 4];
                has[place] = POINT;
                assert_eq!(
                    marked(&request(has), |pieces| with_cache_points(pieces, points)),
                    None,
                    "{place}"
                );
            }
        }
        let points = CachePoints { lifetime: PromptCache::Hour, tools: true };
        let small = marked(r#"{"messages":[{"content":[]}],"system":[]}"#, |pieces| {
            with_cache_points(pieces, points)
        });
        assert_eq!(small, None, "nothing to cache");
        let hour = marked(r#"{"messages":[{"content":[1]}]}"#, |pieces| with_cache_points(pieces, points));
        let want = r#"{"messages":[{"content":[1,{"cachePoint":{"type":"default","ttl":"1h"}}]}]}"#;
        assert_eq!(hour.as_deref(), Some(want));
    }
}
