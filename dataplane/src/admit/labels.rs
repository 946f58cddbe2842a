//! Labels of a request from the client: the tags in its header, which are only recorded, the end user in its body, and
//! the client's software and session.

use std::cell::RefCell;
use std::sync::Arc;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, HeaderValue};
use shared::error_kind::ErrorKind;
use shared::key_hash::KeyHasher;
use shared::tags;
use shared::usage::EndUsers;

use crate::error::Fault;

const X_TAGS: HeaderName = HeaderName::from_static("x-llmgw-tags");

/// The labels of a request that its header fields contain.
#[derive(Debug)]
pub(crate) struct FieldLabels<'a> {
    pub(crate) client: Arc<str>,
    /// The ID of the session that an agent sends.
    pub(crate) session: Option<&'a HeaderValue>,
    /// True if any field is meant for the gateway. Few requests have one.
    pub(crate) has_own: bool,
}

/// The client that last sent a request on a connection: the next request nearly always has the same `User-Agent`.
#[derive(Debug, Default)]
pub(crate) struct LastClient(RefCell<Option<KnownClient>>);

#[derive(Debug)]
struct KnownClient {
    agent: Box<[u8]>,
    client: Arc<str>,
}

impl LastClient {
    /// Returns the labels of a request. One pass over the fields is cheaper than a look-up of each name.
    pub(crate) fn labels<'a>(&self, headers: &'a HeaderMap) -> FieldLabels<'a> {
        let (mut agent, mut session, mut has_own, mut harness) = (None, None, false, None);
        for (name, value) in headers {
            if *name == USER_AGENT {
                agent = agent.or(Some(value));
                continue;
            }
            let name = name.as_str();
            has_own |= name.starts_with("x-llmgw-");
            harness = harness.or_else(|| harness_of(name));
            if session.is_none() && is_session(name) && !value.is_empty() {
                session = Some(value);
            }
        }
        let agent = harness.unwrap_or_else(|| agent.map_or(&[][..], HeaderValue::as_bytes));
        FieldLabels { client: self.client(agent), session, has_own }
    }

    fn client(&self, agent: &[u8]) -> Arc<str> {
        let mut last = self.0.borrow_mut();
        match &*last {
            Some(known) if *known.agent == *agent => Arc::clone(&known.client),
            _ => {
                let client = client(agent);
                *last = Some(KnownClient { agent: agent.into(), client: Arc::clone(&client) });
                client
            }
        }
    }
}

/// Returns the tags of a request as recorded: those of its header, and of `defaults`, the key's tags, those with other
/// names. `has_own` is that of [`FieldLabels`].
pub(crate) fn tags(
    headers: &HeaderMap,
    has_own: bool,
    defaults: Option<&str>,
) -> Result<Option<Box<str>>, Fault> {
    if !has_own {
        return Ok(defaults.map(Into::into));
    }
    let mut tags = Vec::new();
    for line in headers.get_all(X_TAGS) {
        let line = line.to_str().map_err(|_| unfit("it contains non-ASCII characters"))?;
        tags::read(line, &mut tags).map_err(|why| unfit(&why))?;
    }
    tags::add_defaults(&mut tags, defaults.unwrap_or_default());
    Ok(tags::text(tags))
}

/// Returns the family and version of the client's software: the first word of its `User-Agent`, and the second one if
/// it starts with a digit (`claude-cli/2.1.329`, `OpenAI/Python 2.8.1`). A first word that names only the language
/// (`Python/3.11 aiohttp/3.14.5`) is left out. Only printable ASCII is kept.
fn client(agent: &[u8]) -> Arc<str> {
    let agent = agent.trim_ascii();
    let agent = after_language(agent).unwrap_or(agent);
    let word = |text: &[u8]| text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    let family = word(agent);
    let rest = agent.get(family + 1..).unwrap_or_default();
    let has_version = rest.first().is_some_and(u8::is_ascii_digit);
    let bytes = if has_version { family + 1 + word(rest) } else { family };
    let text = agent.split_at(bytes.min(CLIENT_BYTES_MAX)).0;
    let is_printable = |byte: &u8| (b' '..=b'~').contains(byte);
    match std::str::from_utf8(text) {
        Ok(plain) if text.iter().all(is_printable) => plain.into(),
        _ => text.iter().copied().filter(is_printable).map(char::from).collect::<String>().into(),
    }
}

/// Returns the words of a `User-Agent` after the language that its first word names, if there are any.
fn after_language(agent: &[u8]) -> Option<&[u8]> {
    let rest = agent.strip_prefix(b"Python/")?;
    let words = rest.splitn(2, |byte| *byte == b' ').nth(1)?.trim_ascii();
    words.first().is_some_and(u8::is_ascii_alphabetic).then_some(words)
}

/// Returns the name of the benchmark harness that sends a header field of this name. inspect-ai numbers its requests
/// and has the `User-Agent` of the SDK that it uses.
fn harness_of(name: &str) -> Option<&'static [u8]> {
    (name == "x-irid").then_some(b"inspect-ai")
}

/// Returns the pseudonym of the client's session: of the ID that an agent sends in a header, or else of the affinity key.
pub(crate) fn session(
    field: Option<&HeaderValue>,
    affinity_key: Option<&str>,
    hasher: &KeyHasher,
) -> Option<Box<str>> {
    let own = field.and_then(|value| value.to_str().ok());
    own.or(affinity_key).map(|name| hasher.session(name))
}

/// Returns true for the headers in which Claude Code, Codex, opencode and others send the ID of a session.
fn is_session(name: &str) -> bool {
    matches!(
        name,
        "x-claude-code-session-id"
            | "session-id"
            | "session_id"
            | "x-session-affinity"
            | "x-opencode-session"
            | "x-session-id"
    )
}

fn unfit(why: &str) -> Fault {
    Fault::new(ErrorKind::InvalidRequest, format!("The X-LLMGW-Tags header is invalid: {why}."))
        .param("X-LLMGW-Tags")
}

/// Returns the end user as recorded.
pub(crate) fn end_user(name: Option<&str>, kept: EndUsers, hasher: &KeyHasher) -> Option<Box<str>> {
    let name = name?;
    match kept {
        EndUsers::Hashed => Some(hasher.pseudonym(name)),
        EndUsers::Plain => {
            let cut = name.floor_char_boundary(END_USER_BYTES_MAX);
            name.get(..cut).map(Into::into)
        }
        EndUsers::Off => None,
    }
}

/// The maximum length of the client's family and version in bytes.
const CLIENT_BYTES_MAX: usize = 64;
/// The maximum recorded length of an end user's name in bytes.
const END_USER_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use shared::secret::Secret;

    use super::*;

    #[test]
    fn tags_come_from_the_header_and_then_from_the_key() {
        let read = |lines: &[&str], defaults| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(X_TAGS, HeaderValue::from_str(line).unwrap());
            }
            tags(&headers, !headers.is_empty(), defaults).map_err(|fault| fault.message.to_string())
        };
        for (lines, defaults, want) in [
            (&["team=a", "job=7"][..], None, Some("job=7,team=a")),
            (&["run=b"], Some("run=a,team=c"), Some("run=b,team=c")),
            (&[], Some("run=a"), Some("run=a")),
            (&[], None, None),
        ] {
            assert_eq!(read(lines, defaults).unwrap().as_deref(), want, "{lines:?}");
        }
        for (line, why) in [("team=a,team=b", "'team' occurs twice"), ("team=\u{e4}", "non-ASCII")] {
            let fault = read(&[line], None).unwrap_err();
            assert!(
                fault.starts_with("The X-LLMGW-Tags header is invalid") && fault.contains(why),
                "{fault}"
            );
        }
    }

    #[test]
    fn a_client_is_its_family_and_version_in_printable_characters() {
        let (long, last) = ("x".repeat(70), LastClient::default());
        for (agent, want) in [
            (&b"claude-cli/2.1.329 (external, cli)"[..], "claude-cli/2.1.329"),
            (b"OpenAI/Python 2.8.1", "OpenAI/Python 2.8.1"),
            (b"codex_cli_rs/0.46.0 (Mac OS 15; arm64)", "codex_cli_rs/0.46.0"),
            (b" curl/8.5.0 ", "curl/8.5.0"),
            (b"Python/3.11 aiohttp/3.14.5", "aiohttp/3.14.5"),
            (b"Python/3.11", "Python/3.11"),
            (b"Python/3.11 2", "Python/3.11 2"),
            (b"a\tb\xe2\x80\xaec \xff", "abc"),
            (long.as_bytes(), &long[..64]),
            (b"", ""),
        ] {
            let headers = [(USER_AGENT, HeaderValue::from_bytes(agent).unwrap())].into_iter().collect();
            // The second request on the connection has the same client, and the last one another.
            for _ in 0..2 {
                assert_eq!(&*last.labels(&headers).client, want, "{agent:?}");
            }
        }
        assert_eq!(&*last.labels(&HeaderMap::new()).client, "");
    }

    #[test]
    fn a_harness_is_recognized_behind_the_sdk_that_it_uses() {
        let fields = [("user-agent", "AsyncOpenAI/Python 3.57.0"), ("x-irid", "KRS96XFfbXYXx9GfxAMDVf")];
        let fields =
            fields.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        assert_eq!(&*LastClient::default().labels(&fields.into_iter().collect()).client, "inspect-ai");
    }

    #[test]
    fn a_session_is_a_pseudonym_of_the_agents_header_or_else_of_the_affinity_key() {
        let hasher = KeyHasher::new(&Secret::new([7; 32]));
        let of = |name: &'static str, value, key| {
            let headers = [(HeaderName::from_static(name), HeaderValue::from_static(value))];
            session(LastClient::default().labels(&headers.into_iter().collect()).session, key, &hasher)
        };
        let known = hasher.session("s-1");
        assert_eq!(known.len(), 16);
        assert_ne!(known, hasher.pseudonym("s-1"));
        for name in ["x-claude-code-session-id", "session-id", "session_id", "x-opencode-session"] {
            assert_eq!(of(name, "s-1", Some("key")).as_ref(), Some(&known), "{name}");
        }
        assert_eq!(of("session-id", "", Some("s-1")), Some(known));
        assert_eq!(of("x-session", "s-1", None), None);
    }

    #[test]
    fn an_end_user_is_a_pseudonym_unless_it_is_configured() {
        let hasher = KeyHasher::new(&Secret::new([7; 32]));
        let of = |name: Option<&str>, kept| end_user(name, kept, &hasher);
        let anna = of(Some("anna"), EndUsers::Hashed).unwrap();
        assert!(anna.len() == 16 && anna.bytes().all(|byte| byte.is_ascii_hexdigit()), "{anna}");
        assert_eq!(of(Some("anna"), EndUsers::Hashed), Some(anna.clone()), "always the same");
        assert_ne!(of(Some("bob"), EndUsers::Hashed), Some(anna));
        assert_eq!(of(Some("anna"), EndUsers::Plain).as_deref(), Some("anna"));
        let long = "\u{e4}".repeat(200);
        assert_eq!(of(Some(&long), EndUsers::Plain).unwrap().len(), 256);
        assert_eq!(of(Some("anna"), EndUsers::Off), None);
        assert_eq!(of(None, EndUsers::Plain), None);
    }
}
