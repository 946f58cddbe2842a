//! OpenAI's names of the counts in a `usage` object (CHAT-3). A count that a vendor reports only under another name is
//! added under OpenAI's name; the vendor's members keep their bytes.

use std::ops::Range;

use serde_json::Value;

use super::{ChatCount, UsageReader};
use crate::json::{JsonPlace, JsonSink, JsonText, JsonWord, Scanner, unescape};

impl UsageReader {
    /// Returns true if a count is reported only under names other than OpenAI's.
    pub(crate) fn lacks_names(&self) -> bool {
        let is_renamed = |count: ChatCount| self.ranks.get(count as usize).is_some_and(|rank| *rank > 1);
        [ChatCount::Prompt, ChatCount::Completion, ChatCount::CacheRead, ChatCount::Reasoning]
            .into_iter()
            .any(is_renamed)
    }
}

/// Returns `usage` with the missing names added. `None` if it is not a readable object.
#[cold]
pub(crate) fn named(usage: &[u8]) -> Option<Vec<u8>> {
    let mut members = UsageMembers::default();
    Scanner::new().push(usage, &mut members).ok()?;
    let reader = UsageReader::of(&serde_json::from_slice::<Value>(usage).ok()?);
    let (mut patches, mut added) = (Vec::new(), String::new());
    for (name, value) in reader.totals() {
        match members.outer.iter().find(|member| member.name == name) {
            None => added.push_str(&format!(r#""{name}":{value},"#)),
            Some(UsageMember { span, kind: UsageValueKind::Null, .. }) => {
                patches.push((span.clone(), value.to_string()))
            }
            Some(_) => {}
        }
    }
    for (object, name, value) in reader.details() {
        match members.outer.iter().find(|member| member.name == object) {
            None => added.push_str(&format!(r#""{object}":{{"{name}":{value}}},"#)),
            Some(UsageMember { span, kind: UsageValueKind::Null, .. }) => {
                patches.push((span.clone(), format!(r#"{{"{name}":{value}}}"#)));
            }
            Some(UsageMember { span, kind: UsageValueKind::Object, .. }) => {
                patches.extend(members.within(span, name, value))
            }
            Some(UsageMember { kind: UsageValueKind::Other, .. }) => {}
        }
    }
    patches.push((1..1, added));
    patches.sort_by_key(|(span, _)| span.start);
    let (mut out, mut from) = (Vec::with_capacity(usage.len().saturating_add(256)), 0);
    for (span, text) in patches {
        out.extend_from_slice(usage.get(from..span.start)?);
        out.extend_from_slice(text.as_bytes());
        from = span.end;
    }
    out.extend_from_slice(usage.get(from..)?);
    Some(out)
}

impl UsageReader {
    /// Returns the totals reported only under other names, with OpenAI's names. If one of the parts is renamed and no
    /// `total_tokens` is reported, the sum is included too.
    fn totals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let renamed = |count: ChatCount| self.get(count).filter(|_| self.rank(count) > 1);
        let (prompt, completion) = (renamed(ChatCount::Prompt), renamed(ChatCount::Completion));
        let is_renamed = prompt.or(completion).is_some() && self.rank(ChatCount::Total) == 0;
        let total = self.counts().filter(|_| is_renamed).map(|counts| counts.total());
        let named = [("prompt_tokens", prompt), ("completion_tokens", completion), ("total_tokens", total)];
        named.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// Like `totals`, for details: the enclosing object, the name and the value of each.
    fn details(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        [
            ("prompt_tokens_details", "cached_tokens", ChatCount::CacheRead),
            ("completion_tokens_details", "reasoning_tokens", ChatCount::Reasoning),
        ]
        .into_iter()
        .filter(|(_, _, count)| self.rank(*count) > 1)
        .filter_map(|(object, name, count)| Some((object, name, self.get(count)?)))
    }

    /// Returns 0 if the count is not reported, 1 if it is under OpenAI's name, and more for other names.
    fn rank(&self, count: ChatCount) -> u8 {
        self.ranks.get(count as usize).copied().unwrap_or(0)
    }
}

/// The members of a `usage` object and of the objects directly in it.
#[derive(Debug, Default)]
struct UsageMembers {
    outer: Vec<UsageMember>,
    inner: Vec<UsageMember>,
    name: String,
}

#[derive(Debug)]
struct UsageMember {
    name: String,
    /// The range of its value.
    span: Range<usize>,
    kind: UsageValueKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UsageValueKind {
    Null,
    Object,
    Other,
}

impl UsageMembers {
    /// Returns the edit that adds `name` to the object at `object`. `None` if the name has a value there.
    fn within(&self, object: &Range<usize>, name: &str, value: u64) -> Option<(Range<usize>, String)> {
        let mut inside = self.inner.iter().filter(|member| object.contains(&member.span.start)).peekable();
        let first = object.start.saturating_add(1);
        let comma = if inside.peek().is_some() { "," } else { "" };
        match inside.find(|member| member.name == name) {
            None => Some((first..first, format!(r#""{name}":{value}{comma}"#))),
            Some(UsageMember { span, kind: UsageValueKind::Null, .. }) => {
                Some((span.clone(), value.to_string()))
            }
            Some(_) => None,
        }
    }

    fn add(&mut self, depth: u32, span: Range<usize>, kind: UsageValueKind) {
        let name = std::mem::take(&mut self.name);
        match depth {
            1 => self.outer.push(UsageMember { name, span, kind }),
            2 => self.inner.push(UsageMember { name, span, kind }),
            _ => {}
        }
    }
}

impl JsonSink for UsageMembers {
    fn open(&mut self, at: JsonPlace, object: bool) {
        self.add(
            at.depth,
            at.offset..at.offset,
            if object { UsageValueKind::Object } else { UsageValueKind::Other },
        );
    }

    fn close(&mut self, at: JsonPlace) {
        if at.depth == 1
            && let Some(member) = self.outer.last_mut()
        {
            member.span.end = at.offset;
        }
    }

    fn whole_key(&mut self, text: JsonText<'_>) {
        self.name = unescape(text.raw).unwrap_or_default();
    }

    fn whole_text(&mut self, text: JsonText<'_>) {
        self.add(text.start.depth, text.start.offset..text.end().offset, UsageValueKind::Other);
    }

    fn whole_scalar(&mut self, word: JsonWord<'_>) {
        let kind = if word.raw == b"null" { UsageValueKind::Null } else { UsageValueKind::Other };
        self.add(word.start.depth, word.start.offset..word.end().offset, kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_usage_names_are_added_beside_the_vendors_names() {
        let rows = [
            (
                "other names",
                r#"{ "input_tokens": 7, "output_tokens": 2 }"#,
                r#"{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9, "input_tokens": 7, "output_tokens": 2 }"#,
            ),
            (
                "DeepSeek",
                r#"{"prompt_tokens":30,"completion_tokens":5,"total_tokens":35,"prompt_cache_hit_tokens":20}"#,
                r#"{"prompt_tokens_details":{"cached_tokens":20},"prompt_tokens":30,"completion_tokens":5,"total_tokens":35,"prompt_cache_hit_tokens":20}"#,
            ),
            (
                "the names of Responses",
                r#"{"input_tokens":7,"output_tokens":2,"total_tokens":9,"input_tokens_details":{"cached_tokens":3},"output_tokens_details":{"reasoning_tokens":1}}"#,
                r#"{"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":{"reasoning_tokens":1},"input_tokens":7,"output_tokens":2,"total_tokens":9,"input_tokens_details":{"cached_tokens":3},"output_tokens_details":{"reasoning_tokens":1}}"#,
            ),
            (
                "details that hold something else",
                r#"{"prompt_tokens":30,"completion_tokens":5,"cached_tokens":8,"prompt_tokens_details":{"audio_tokens":1.0}}"#,
                r#"{"prompt_tokens":30,"completion_tokens":5,"cached_tokens":8,"prompt_tokens_details":{"cached_tokens":8,"audio_tokens":1.0}}"#,
            ),
            (
                "empty details",
                r#"{"prompt_tokens":30,"completion_tokens":5,"cached_tokens":8,"prompt_tokens_details":{}}"#,
                r#"{"prompt_tokens":30,"completion_tokens":5,"cached_tokens":8,"prompt_tokens_details":{"cached_tokens":8}}"#,
            ),
            (
                "null in place of details, and of a count",
                r#"{"input_tokens":3,"prompt_tokens":null,"completion_tokens":5,"reasoning_tokens":4,"total_tokens":8,"completion_tokens_details":null}"#,
                r#"{"input_tokens":3,"prompt_tokens":3,"completion_tokens":5,"reasoning_tokens":4,"total_tokens":8,"completion_tokens_details":{"reasoning_tokens":4}}"#,
            ),
            (
                "null in the details",
                r#"{"prompt_tokens":3,"completion_tokens":5,"cached_tokens":1,"prompt_tokens_details":{"cached_tokens":null}}"#,
                r#"{"prompt_tokens":3,"completion_tokens":5,"cached_tokens":1,"prompt_tokens_details":{"cached_tokens":1}}"#,
            ),
        ];
        for (name, usage, want) in rows {
            assert!(UsageReader::of(&serde_json::from_str(usage).unwrap()).lacks_names(), "{name}");
            assert_eq!(String::from_utf8(named(usage.as_bytes()).unwrap()).unwrap(), want, "{name}");
        }
    }

    #[test]
    fn a_usage_object_with_all_names_needs_no_addition() {
        for usage in [
            r#"{"prompt_tokens":7,"completion_tokens":2}"#,
            r#"{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"input_tokens":7,"output_tokens":2}"#,
            r#"{"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0},"prompt_cache_hit_tokens":3}"#,
            r#"{"prompt_tokens":7,"total_tokens":7}"#,
            "{}",
        ] {
            assert!(!UsageReader::of(&serde_json::from_str(usage).unwrap()).lacks_names(), "{usage}");
        }
    }
}
