//! Reads the id of a response from its place in the protocol. An id elsewhere in an answer, such as in metadata set by
//! the client, is not the response's.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::Deserializer as _;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};

/// The maximum length in bytes of an id; longer ones are ignored.
const ID_BYTES_MAX: usize = 256;

/// Returns the `id` of a whole answer, whose end may be missing.
pub fn of_answer(answer: &[u8]) -> Option<String> {
    member(answer, &["id"])
}

/// Returns the `response.id` of the first event that has one. `events` must start at the beginning of a stream.
pub fn of_events(events: &[Bytes]) -> Option<String> {
    let lines = events.iter().flat_map(|bytes| bytes.split(|byte| *byte == b'\n'));
    lines.filter_map(|line| line.strip_prefix(b"data:")).find_map(|data| member(data, &["response", "id"]))
}

/// Returns the text at `path`. Nothing after it is parsed.
fn member(document: &[u8], path: &[&str]) -> Option<String> {
    let mut found = None;
    let mut reader = serde_json::Deserializer::from_slice(document);
    // The error that stops the parser early is the usual case.
    reader.deserialize_map(Seeker { path, found: &mut found }).ok();
    found.filter(|id| !id.is_empty() && id.len() <= ID_BYTES_MAX)
}

/// Looks for the first member of the path and stops the parser with an error after reading it.
struct Seeker<'p, 'f> {
    path: &'p [&'p str],
    found: &'f mut Option<String>,
}

impl<'de> Visitor<'de> for Seeker<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Some((name, rest)) = self.path.split_first() else { return Ok(()) };
        while let Some(key) = members.next_key::<Cow<'de, str>>()? {
            if key != *name {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            if rest.is_empty() {
                *self.found = Some(members.next_value::<Cow<'de, str>>()?.into_owned());
            } else {
                members.next_value_seed(Seeker { path: rest, found: self.found })?;
            }
            return Err(A::Error::custom("found"));
        }
        Ok(())
    }
}

impl<'de> serde::de::DeserializeSeed<'de> for Seeker<'_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_map(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_id_is_read_from_its_top_level_member_only() {
        for (answer, want) in [
            (r#"{"id":"resp_1","object":"response"}"#, Some("resp_1")),
            (r#"{"metadata":{"id":"resp_2"},"id": "\u0072esp_1"}"#, Some("resp_1")),
            (r#"{"id":"resp_1","output":[{"id":"msg_1","con"#, Some("resp_1")),
            (r#"{"metadata":{"k":"resp_2","id":"resp_2"}}"#, None),
            (r#"{"id":7}"#, None),
            (r#"{"id":""}"#, None),
            (r#"["id"]"#, None),
            ("", None),
        ] {
            assert_eq!(of_answer(answer.as_bytes()).as_deref(), want, "{answer}");
        }
        let long = format!(r#"{{"id":"{}"}}"#, "r".repeat(ID_BYTES_MAX + 1));
        assert_eq!(of_answer(long.as_bytes()), None);
    }

    #[test]
    fn the_id_of_a_stream_is_that_of_its_response() {
        for (events, want) in [
            (
                &[
                    "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}\n\n",
                ][..],
                Some("resp_1"),
            ),
            (
                &[
                    ": hello\n\n",
                    "data: {\"response\":{\"metadata\":{\"id\":\"resp_2\"},\"id\":\"uuid\"}}\r\n\r\n",
                ],
                Some("uuid"),
            ),
            (&["data: {\"id\":\"resp_2\",\"item\":{\"id\":\"resp_2\"}}\n\n"], None),
            (&[], None),
        ] {
            let events: Vec<Bytes> =
                events.iter().map(|event| Bytes::from_static(event.as_bytes())).collect();
            assert_eq!(of_events(&events).as_deref(), want, "{events:?}");
        }
    }
}
