//! Changes the top-level members of a JSON request for its upstream. All other bytes are unchanged.

use std::ops::Range;

use bytes::Bytes;
use shared::body_members::{BodyMember, BodyMembers, MemberChange};

use super::splice;
use crate::json::{JsonPlace, JsonSink, Scanner, quote, unescape};

/// A request with changed members.
#[derive(Debug)]
pub struct ChangedRequest {
    /// The body.
    pub segments: Vec<Bytes>,
    /// The changes that were made, as `temperature: set`.
    pub changes: Vec<String>,
}

/// Applies the changes of a model and of its provider instance to the request in `segments`; those of the model take
/// precedence. Returns `None` if nothing changes.
pub fn with_members(
    segments: &[Bytes],
    model: Option<&BodyMembers>,
    provider: Option<&BodyMembers>,
) -> Option<ChangedRequest> {
    let (mut scanner, mut seen) = (Scanner::<false>::new(), MemberScan::default());
    // The body has already been scanned or was written by the gateway, so it is valid JSON.
    if !segments.iter().all(|segment| scanner.push(segment, &mut seen).is_ok()) {
        return None;
    }
    let change_of =
        |name: &str| model.and_then(|own| own.of(name)).or_else(|| provider.and_then(|all| all.of(name)));
    let mut request = MemberEdits::default();
    let changes: Vec<Option<&MemberChange>> =
        seen.members.iter().map(|member| member.name.as_deref().and_then(change_of)).collect();
    let is_removed = |change: &Option<&MemberChange>| matches!(change, Some(MemberChange::Remove));
    let kept = changes.iter().filter(|change| !is_removed(change)).count();
    let own = model.map(BodyMembers::all).unwrap_or_default();
    let others = provider.map(BodyMembers::all).unwrap_or_default();
    let others = others.iter().filter(|other| model.is_none_or(|own| own.of(&other.name).is_none()));
    let has = |name: &str| seen.members.iter().any(|member| member.name.as_deref() == Some(name));
    let missing = own.iter().chain(others).filter(|member| !has(&member.name));
    request.insert(seen.first, missing, kept > 0);
    let mut has_kept = false;
    for (place, (member, change)) in seen.members.iter().zip(&changes).enumerate() {
        let name = member.name.as_deref().unwrap_or_default();
        match change {
            Some(MemberChange::Remove) => {
                let before = place.checked_sub(1).and_then(|before| seen.members.get(before));
                let after = seen.members.get(place + 1);
                let span = match (before.filter(|_| has_kept), after) {
                    (Some(before), _) => before.value.end..member.value.end,
                    (None, Some(after)) => member.start..after.start,
                    (None, None) => member.start..member.value.end,
                };
                request.edit(name, "removed", span, Bytes::new());
            }
            Some(change @ (MemberChange::Set(_) | MemberChange::Default(_))) => {
                has_kept = true;
                let applies = matches!(change, MemberChange::Set(_)) || member.is_null;
                if let Some(value) = change.value().filter(|_| applies) {
                    let json = Bytes::copy_from_slice(value.json.as_bytes());
                    request.edit(name, change.name(), member.value.clone(), json);
                }
            }
            None => has_kept = true,
        }
    }
    (!request.edits.is_empty())
        .then(|| ChangedRequest { segments: splice(segments, request.edits), changes: request.changes })
}

/// The changes of one request.
#[derive(Debug, Default)]
struct MemberEdits {
    edits: Vec<(Range<usize>, Bytes)>,
    changes: Vec<String>,
}

impl MemberEdits {
    /// Adds members at the beginning. `has_more` is true if other members follow.
    fn insert<'a>(&mut self, at: usize, members: impl Iterator<Item = &'a BodyMember>, has_more: bool) {
        let mut text = String::new();
        for BodyMember { name, change } in members {
            let Some(value) = change.value() else { continue };
            let comma = if text.is_empty() { "" } else { "," };
            text.extend([comma, &quote(name), ":", &value.json]);
            self.changes.push(format!("{name}: {}", change.name()));
        }
        if !text.is_empty() {
            text.push_str(if has_more { "," } else { "" });
            self.edits.push((at..at, text.into()));
        }
    }

    fn edit(&mut self, name: &str, change: &str, span: Range<usize>, text: Bytes) {
        self.edits.push((span, text));
        self.changes.push(format!("{name}: {change}"));
    }
}

/// A top-level member.
#[derive(Debug)]
struct MemberSpan {
    /// `None` for a name that is too long to be one that is changed.
    name: Option<String>,
    /// The offset of the quote before the name.
    start: usize,
    value: Range<usize>,
    is_null: bool,
}

/// Finds the top-level members.
#[derive(Debug, Default)]
struct MemberScan {
    /// The offset after the opening brace of the document.
    first: usize,
    members: Vec<MemberSpan>,
    /// The last top-level name, read in one or several pieces.
    name: Vec<u8>,
    name_start: usize,
    is_name: bool,
    value_start: usize,
    /// The first byte of a number or word.
    word_start: Option<u8>,
    is_word: bool,
}

impl MemberScan {
    fn begin(&mut self, at: JsonPlace) {
        if at.depth == 1 {
            self.value_start = at.offset;
            self.word_start = None;
        }
    }

    fn end(&mut self, at: JsonPlace) {
        if at.depth == 1 {
            let name = if self.name.len() < NAME_BYTES_MAX { unescape(&self.name) } else { None };
            let value = self.value_start..at.offset;
            let is_null = self.word_start == Some(b'n');
            self.members.push(MemberSpan { name, start: self.name_start, value, is_null });
        }
    }
}

impl JsonSink for MemberScan {
    fn open(&mut self, at: JsonPlace, _object: bool) {
        if at.depth == 0 {
            self.first = at.offset + 1;
        }
        self.begin(at);
    }

    fn skips(&self, at: JsonPlace, _object: bool) -> bool {
        at.depth > 0
    }

    fn close(&mut self, at: JsonPlace) {
        self.end(at);
    }

    fn text_start(&mut self, at: JsonPlace, key: bool) {
        self.is_name = key && at.depth == 1;
        if self.is_name {
            self.name.clear();
            self.name_start = at.offset;
        } else {
            self.begin(at);
        }
    }

    fn piece(&mut self, bytes: &[u8]) {
        if self.is_name {
            let room = NAME_BYTES_MAX - self.name.len();
            self.name.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        } else if self.is_word && self.word_start.is_none() {
            self.word_start = bytes.first().copied();
        }
    }

    fn text_end(&mut self, at: JsonPlace, key: bool) {
        if !key {
            self.end(at);
        }
        self.is_name = false;
    }

    fn scalar_start(&mut self, at: JsonPlace) {
        self.begin(at);
        self.is_word = true;
    }

    fn scalar_end(&mut self, at: JsonPlace) {
        self.is_word = false;
        self.end(at);
    }
}

/// The length at which a name is too long, in bytes: every character of a changed one may be escaped as `\u....`.
const NAME_BYTES_MAX: usize = 6 * BodyMembers::NAME_BYTES_MAX + 1;

#[cfg(test)]
mod tests {
    use shared::body_members::MemberValue;

    use super::*;

    fn members(text: &str) -> Option<BodyMembers> {
        let member = |part: &str| {
            let (change, rest) = part.split_once(' ').unwrap();
            let (name, json) = rest.split_once('=').unwrap_or((rest, ""));
            let value = MemberValue { json: json.into(), shown: json.into() };
            let change = match change {
                "set" => MemberChange::Set(value),
                "default" => MemberChange::Default(value),
                _ => MemberChange::Remove,
            };
            BodyMember { name: name.into(), change }
        };
        BodyMembers::new(text.split("; ").filter(|part| !part.is_empty()).map(member).collect())
    }

    /// The body at every cut, and the changes.
    fn changed(request: &str, model: &str, provider: &str) -> Option<(String, String)> {
        let (model, provider) = (members(model), members(provider));
        let mut found = None;
        for cut in 0..request.len() {
            let pieces = [&request.as_bytes()[..cut], &request.as_bytes()[cut..]].map(Bytes::copy_from_slice);
            let one = with_members(&pieces, model.as_ref(), provider.as_ref());
            let one =
                one.map(|one| (String::from_utf8(one.segments.concat()).unwrap(), one.changes.join(", ")));
            assert!(cut == 0 || found == one, "cut at {cut}: {found:?} {one:?}");
            found = one;
        }
        found
    }

    #[test]
    fn members_are_set_added_and_removed_and_all_other_bytes_stay() {
        for (request, model, provider, want, changes) in [
            (r#"{"a":1}"#, "", "set b=2", r#"{"b":2,"a":1}"#, "b: set"),
            (r#"{"a":1}"#, "", "set a={\"x\":[1]}", r#"{"a":{"x":[1]}}"#, "a: set"),
            (r#"{ "a" : [1, {"a":2}] , "c":"x" }"#, "", "set a=0", r#"{ "a" : 0 , "c":"x" }"#, "a: set"),
            (r#"{"a":1,"b":2,"c":3}"#, "", "remove a", r#"{"b":2,"c":3}"#, "a: removed"),
            (r#"{"a":1,"b":2,"c":3}"#, "", "remove b", r#"{"a":1,"c":3}"#, "b: removed"),
            (r#"{"a":1, "b":2 , "c":3 }"#, "", "remove c", r#"{"a":1, "b":2 }"#, "c: removed"),
            (r#"{"a":1,"b":2,"c":3}"#, "", "remove a; remove b", r#"{"c":3}"#, "a: removed, b: removed"),
            (r#"{"a":1,"b":2,"c":3}"#, "", "remove b; remove c", r#"{"a":1}"#, "b: removed, c: removed"),
            (r#"{"a":1,"b":2,"c":3}"#, "", "remove a; remove c", r#"{"b":2}"#, "a: removed, c: removed"),
            (r#"{ "a":1,"b":2 }"#, "", "remove a; remove b", "{  }", "a: removed, b: removed"),
            (r#"{"a":1}"#, "", "remove a; set z=\"q\"", r#"{"z":"q"}"#, "z: set, a: removed"),
            ("{}", "", "set z=1; default y=2", r#"{"z":1,"y":2}"#, "z: set, y: default"),
            (r#"{"a":1,"a":2}"#, "", "set a=3", r#"{"a":3,"a":3}"#, "a: set, a: set"),
            (r#"{"a":null}"#, "", "default a=3", r#"{"a":3}"#, "a: default"),
            (r#"{"\u0061":1,"b":true}"#, "", "set a=3", r#"{"\u0061":3,"b":true}"#, "a: set"),
            (r#"{"a":1,"b":2}"#, "set a=7", "set a=3; remove b", r#"{"a":7}"#, "a: set, b: removed"),
            (r#"{"b":2}"#, "remove a", "set a=3; set c=4", r#"{"c":4,"b":2}"#, "c: set"),
        ] {
            let got = changed(request, model, provider);
            assert_eq!(got, Some((want.to_owned(), changes.to_owned())), "{request} {model} {provider}");
        }
    }

    #[test]
    fn a_request_that_nothing_concerns_is_not_touched() {
        for (request, model, provider) in [
            (r#"{"a":1}"#, "", "default a=2"),
            (r#"{"a":false}"#, "", "default a=2"),
            (r#"{"a":{"b":1},"c":["b"]}"#, "", "remove b"),
            (r#"{"a":"b"}"#, "default a=1", "remove a"),
            (r#"{"a":1}"#, "", ""),
        ] {
            assert_eq!(changed(request, model, provider), None, "{request} {model} {provider}");
        }
        let long = format!(r#"{{"{}":1,"b":2}}"#, "x".repeat(1_000));
        assert_eq!(changed(&long, "", "remove b").unwrap().0, long.replace(r#","b":2"#, ""));
    }
}
