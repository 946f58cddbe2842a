//! A request to the admin API as handlers see it: arguments, query, body, and helpers that build the response.

use std::sync::Mutex;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG, IF_MATCH};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use ring::digest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shared::error_kind::ErrorKind;
use shared::port::{Body, full};

use super::authorize::refusal;
use super::dry_run::{self, DryRunQuery};
use super::in_flight::InFlight;
use super::query::Query;
use super::reach::{PUBLISHED, Reach};
use super::{ApiError, App};
use crate::admin::permission::{Object, Permission, Standing, may};
use crate::common::actor::Actor;
use crate::db::audit::AuditEntry;
use crate::db::engine::{Db, DbResult};
use crate::usage::scope::UsageScope;
use crate::writer::command::audit_only::AuditOnly;
use crate::writer::command::{
    AdminWrite, Answer, Command, CommandRefusal, Done, Idempotency, Write, WriteOutcome,
};

/// One request, authenticated.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) app: &'a App,
    pub(crate) actor: &'a Actor,
    pub(crate) standing: &'a Standing,
    pub(crate) parts: &'a Parts,
    pub(crate) body: &'a Bytes,
    /// The body of a run.
    pub(super) unread: &'a Mutex<Option<Body>>,
    /// The decoded path segments that match the `{}` of the route's pattern.
    pub(super) arguments: &'a [String],
    /// True if the write is to be applied and rolled back.
    pub(super) dry_run: bool,
    /// Prevents a concurrent run of the same request, once [`Call::replayed`] has been called.
    pub(super) under_way: Option<InFlight>,
}

impl Call<'_> {
    /// Decides about an object that only the body names. Objects of the path were decided before the body was read.
    pub(crate) fn permit(&self, permission: Permission, object: &Object) -> Result<(), ApiError> {
        may(self.standing, permission, object).map_err(|denial| refusal(denial, permission))
    }

    /// Returns the exchanges that the caller may see.
    pub(crate) fn usage_scope(&self) -> UsageScope {
        UsageScope::of(self.standing.projects())
    }

    /// Returns the segment that matches the first `{}` of the pattern.
    pub(crate) fn argument(&self) -> &str {
        self.arguments.first().map_or("", |argument| argument)
    }

    /// Returns the segment that matches the second `{}` of the pattern.
    pub(crate) fn second_argument(&self) -> &str {
        self.arguments.get(1).map_or("", |argument| argument)
    }

    /// Returns the query parameters; rejects any that `Q` does not have.
    pub(crate) fn query<Q: DeserializeOwned>(&self) -> Result<Q, ApiError> {
        let mut query = Query::parse(self.parts.uri.query().unwrap_or_default())?;
        if !self.parts.method.is_safe() {
            // It has been read before the route's handler was called.
            query.take::<DryRunQuery>()?;
        }
        query.take_all()
    }

    /// Returns the object that the path names. If it does not exist, the error names it as `what`.
    pub(crate) async fn found<T: Send + 'static>(
        &self,
        what: &'static str,
        find: impl FnOnce(&Db, &str) -> DbResult<Option<T>> + Send + 'static,
    ) -> Result<T, ApiError> {
        let id = self.argument().to_owned();
        let found = self.app.readers.ask(move |db| find(db, &id)).await?;
        found.ok_or_else(|| ApiError::new(ErrorKind::NotFound, format!("There is no such {what}.")))
    }

    /// Rejects any query parameter, for routes that take none.
    pub(crate) fn no_query(&self) -> Result<(), ApiError> {
        self.query()
    }

    /// Parses the body as JSON. The error names an unknown or missing field.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        parse(self.body)
    }

    /// Rejects any field in the body, for routes that take none.
    pub(crate) fn no_fields(&self) -> Result<(), ApiError> {
        self.json::<EmptyBody>().map(|EmptyBody {}| ())
    }

    /// Returns the version in `If-Match`; `None` if the header is absent or `*` (RFC 9110 section 13.1.1).
    pub(crate) fn if_match(&self) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.parts.headers.get(IF_MATCH) else { return Ok(None) };
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(None);
        }
        let number =
            text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).and_then(|n| n.parse().ok());
        number.map(Some).ok_or_else(|| {
            ApiError::parameter("If-Match", "If-Match must be the ETag of the object, such as \"3\", or *.")
        })
    }

    /// Executes `command` and answers with `status` and the command's output. In a dry run, answers with its effects.
    pub(crate) async fn execute(
        &self,
        status: StatusCode,
        command: impl Command,
    ) -> Result<Response<Body>, ApiError> {
        if self.dry_run {
            return dry_run::answer(self, command).await;
        }
        Ok(self.answered(self.write(status, command, self.idempotency()?).await?).await)
    }

    /// Same as `execute`, but ignores `Idempotency-Key` and never replays a stored answer.
    pub(crate) async fn execute_each_time(
        &self,
        status: StatusCode,
        command: impl Command,
    ) -> Result<Response<Body>, ApiError> {
        Ok(self.answered(self.write(status, command, None).await?).await)
    }

    /// Builds the response to a change, after the other nodes have had time to see it.
    async fn answered(&self, answer: Answer) -> Response<Body> {
        let reach = match answer.awaited {
            Some(awaited) => Some(Reach::wait(&self.app.readers, awaited).await),
            None => None,
        };
        let mut response = response(answer);
        if let Some(reach) = reach {
            reach.show(response.headers_mut());
        }
        response
    }

    /// Writes `entry` to the audit.
    pub(crate) async fn record(&self, entry: AuditEntry) -> Result<(), ApiError> {
        self.write(StatusCode::NO_CONTENT, AuditOnly::of(entry), None).await?;
        Ok(())
    }

    /// Returns the stored answer to an earlier request with the same `Idempotency-Key`. For routes that act on
    /// external systems before their result is stored. Fails with a conflict while the earlier request is still
    /// running.
    pub(crate) async fn replayed(&mut self) -> Result<Option<Response<Body>>, ApiError> {
        let Some(idempotency) = self.idempotency()? else { return Ok(None) };
        let name = (self.actor.who.name().to_string(), idempotency.key.clone());
        let message = "A request with this Idempotency-Key is still running. Retry after it has ended.";
        let under_way = self.app.running.begin(name);
        let busy = || ApiError::new(ErrorKind::Conflict, message).retry_after(RETRY_SECONDS);
        self.under_way = Some(under_way.ok_or_else(busy)?);
        match self.write(StatusCode::OK, FirstTime, Some(idempotency)).await {
            Ok(answer) => Ok(Some(response(answer))),
            Err(CommandRefusal::Reported { kind: ErrorKind::NotFound, .. }) => Ok(None),
            Err(refusal) => Err(refusal.into()),
        }
    }

    pub(super) async fn write(
        &self,
        status: StatusCode,
        command: impl Command,
        idempotency: Option<Idempotency>,
    ) -> WriteOutcome {
        let (command, actor) = (Box::new(command), self.actor.clone());
        self.app.writer.write(AdminWrite { command, actor, status, idempotency }).await
    }

    /// Returns the request's `Idempotency-Key`, which applies to POST only
    /// (draft-ietf-httpapi-idempotency-key-header).
    fn idempotency(&self) -> Result<Option<Idempotency>, ApiError> {
        let Some(value) = self.parts.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
        if self.parts.method != Method::POST {
            return Ok(None);
        }
        let key = value.to_str().unwrap_or_default().trim();
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(ApiError::parameter(
                "Idempotency-Key",
                format!("Idempotency-Key must be 1 to {KEY_BYTES_MAX} visible ASCII characters."),
            ));
        }
        let mut context = digest::Context::new(&digest::SHA256);
        for part in [self.parts.uri.path().as_bytes(), b"\0", self.body] {
            context.update(part);
        }
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(context.finish().as_ref());
        Ok(Some(Idempotency { key: key.to_owned(), fingerprint }))
    }
}

/// Changes nothing. It is applied only if no earlier answer is stored, and then reports "not found".
#[derive(Debug)]
struct FirstTime;

impl Command for FirstTime {
    fn apply(&self, _: &Write<'_>) -> Result<Done, CommandRefusal> {
        Err(CommandRefusal::not_found("answer", "of before"))
    }
}

/// Builds a JSON response.
pub(crate) fn json(value: &impl Serialize) -> Result<Response<Body>, ApiError> {
    let body = serde_json::to_vec(value)
        .map_err(|_| ApiError::new(ErrorKind::Internal, "The response could not be serialized."))?;
    Ok(response(Answer {
        status: StatusCode::OK,
        body,
        version: None,
        replayed: false,
        published: true,
        awaited: None,
    }))
}

/// Builds a JSON response for a versioned object, with its `ETag`.
pub(crate) fn json_of_version(value: &impl Serialize, version: u64) -> Result<Response<Body>, ApiError> {
    let mut response = json(value)?;
    response.headers_mut().insert(ETAG, etag(version));
    Ok(response)
}

fn response(answer: Answer) -> Response<Body> {
    let mut response = Response::new(full(answer.body));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    if answer.status != StatusCode::NO_CONTENT {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    if let Some(version) = answer.version {
        headers.insert(ETAG, etag(version));
    }
    if answer.replayed {
        headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    if !answer.published {
        headers.insert(PUBLISHED, HeaderValue::from_static("false"));
    }
    response
}

fn etag(version: u64) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{version}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"0\""))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyBody {}

/// Parses a JSON object; an empty body counts as `{}`.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let bytes: &[u8] = match body.trim_ascii_start() {
        [] => b"{}",
        [b'{', ..] => body,
        // serde would accept an array as the fields in declaration order.
        _ => return Err(ApiError::parameter("", "The body must be a JSON object, {\"field\": value, ...}.")),
    };
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        misfit(&path, &error.into_inner().to_string())
    })?;
    match reader.end() {
        Ok(()) => Ok(parsed),
        Err(_) => Err(ApiError::parameter("", "The body has data after the JSON object.")),
    }
}

/// Translates serde's `message` about `path` into an error. Values are left out because they may be secrets.
fn misfit(path: &str, message: &str) -> ApiError {
    let field = match message.split('`').nth(1) {
        Some(field) if FIELD_FAULTS.iter().any(|fault| message.starts_with(fault)) => {
            let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
            let parent = if message.starts_with("missing") && path != "." { path } else { parent };
            if parent.is_empty() { field.to_owned() } else { format!("{parent}.{field}") }
        }
        _ if path == "." => String::new(),
        _ => path.to_owned(),
    };
    let cut = |text: &str| text.chars().take(MISFIT_CHARS_MAX).collect::<String>();
    let (field, message) = (cut(&field), cut(&without_value(message)));
    let place = if field.is_empty() { String::new() } else { format!(" {field}:") };
    ApiError::parameter(&field, format!("The body is invalid:{place} {message}."))
}

/// Removes the value from messages such as `invalid type: string "value", expected a number`.
fn without_value(message: &str) -> String {
    let expected = message.rfind(", expected").or_else(|| message.rfind(", there are no"));
    for (start, reason) in [
        ("invalid type: ", "wrong type"),
        ("invalid value: ", "wrong value"),
        ("unknown variant ", "unknown value"),
    ] {
        if message.starts_with(start) {
            let expected = expected.and_then(|at| message.get(at..)).unwrap_or_default();
            return format!("{reason}{}", in_json_words(expected));
        }
    }
    message.to_owned()
}

/// Replaces the names of Rust types in texts such as `, expected u32 at line 1 column 3`.
fn in_json_words(expected: &str) -> String {
    let (wanted, place) = expected.split_at(expected.find(" at line ").unwrap_or(expected.len()));
    let words = match wanted.strip_prefix(", expected ").unwrap_or_default() {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, not below 0",
        "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        _ => return expected.to_owned(),
    };
    format!(", expected {words}{place}")
}

/// The maximum number of characters of a field name, or of serde's message, that an error repeats.
const MISFIT_CHARS_MAX: usize = 400;
/// Prefixes of serde's messages that name a field in backticks.
const FIELD_FAULTS: [&str; 3] = ["unknown field", "missing field", "duplicate field"];
/// `Retry-After` for operations that take longer than a plain write.
const RETRY_SECONDS: u64 = 5;
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const KEY_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "the test reads it and looks at the errors alone")]
    struct Outer {
        list: Vec<Inner>,
        kind: Option<Kind>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "the test reads it and looks at the errors alone")]
    struct Inner {
        number: u32,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        One,
        Two,
    }

    #[test]
    fn a_body_must_be_a_json_object() {
        for body in [r#"[[], "one"]"#, "[]", "null", "1", r#""pass""#, "\u{feff}{}"] {
            let error = format!("{:?}", parse::<Outer>(body.as_bytes()).unwrap_err());
            assert!(error.contains("must be a JSON object"), "{body} {error}");
        }
        for body in ["", "  ", " {\"list\": []}"] {
            let error = parse::<Outer>(body.as_bytes()).err().map(|error| format!("{error:?}"));
            assert!(error.is_none_or(|error| error.contains("missing field")), "{body:?}");
        }
    }

    #[test]
    fn a_body_fault_names_its_path_and_omits_the_value() {
        for (body, place, reason) in [
            (r#"{"list": [{"number": 1, "extra": 1}]}"#, "list[0].extra", "unknown field"),
            (r#"{"list": [{"number": 1}, {}]}"#, "list[1].number", "missing field"),
            (
                r#"{"list": [{"number": "pass `word`"}]}"#,
                "list[0].number",
                "wrong type, expected a whole number",
            ),
            (r#"{"list": [{"number": -1}]}"#, "list[0].number", "wrong value, expected a whole number"),
            (r#"{"list": {"pass": 1}}"#, "list", "wrong type, expected a list"),
            (r#"{"list": [5]}"#, "list[0]", "wrong type, expected an object"),
            (r#"{"kind": "one"}"#, "list", "missing field"),
            (r#"{"list": [], "kind": "pass`word"}"#, "kind", "unknown value, expected `one` or `two`"),
            (r#"{"list": [], "other": "pass"}"#, "other", "unknown field"),
        ] {
            let error = format!("{:?}", parse::<Outer>(body.as_bytes()).unwrap_err());
            assert!(error.contains(&format!("param: Some(\"{place}\")")), "{body} {error}");
            assert!(error.contains(reason), "{body} {error}");
            assert!(!error.contains("pass"), "{error}");
        }
    }
}
