//! The OpenAPI document of the admin API.

use http::Method;
use serde_json::{Map, Value, json};

use super::parameters::ParameterKeys;
use super::{ApiReference, DescribedRoute, REFERENCE, served};
use crate::admin::{ADMIN_API, Route};

/// Returns the document as it is committed.
pub(super) fn text(reference: &ApiReference) -> String {
    format!("{:#}\n", document(reference))
}

fn document(reference: &ApiReference) -> Value {
    let mut document = Document { keys: ParameterKeys::new(), parameters: Map::new() };
    let mut paths: Map<String, Value> = Map::new();
    for described in &reference.routes {
        let operation = document.operation(described);
        let path = format!("/{}", described.route.named_pattern());
        let method = described.route.method.as_str().to_lowercase();
        paths.entry(path).or_insert_with(|| json!({}))[method] = operation;
    }
    let mut tags: Vec<Value> = Vec::new();
    for route in served() {
        let tag = json!({"name": route.group()});
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    let mut schemas: Map<String, Value> = reference.shapes.clone().into_iter().collect();
    schemas.extend(own_schemas());
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "llmgw admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": ADMIN_API, "description": "The gateway that serves this document."}],
        "tags": tags,
        "security": security(&Method::GET),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": document.parameters,
            "headers": headers(),
            "responses": failures(),
            "securitySchemes": security_schemes(),
        },
    });
    place_schemas(&mut document);
    document
}

/// The components of the document, which its operations refer to.
struct Document {
    keys: ParameterKeys,
    parameters: Map<String, Value>,
}

impl Document {
    fn operation(&mut self, described: &DescribedRoute) -> Value {
        let route = described.route;
        let mut operation = json!({
            "operationId": operation_id(route),
            "tags": [route.group()],
            "summary": route.reference.doc,
            "description": format!("Needs the permission `{}`.", route.permission.name()),
            "x-llmgw-permission": route.permission.name(),
            "responses": responses(described),
        });
        let parameters = self.parameters(route);
        if !parameters.is_empty() {
            operation["parameters"] = json!(parameters);
        }
        if let Some(body) = &described.body {
            operation["requestBody"] = request_body(described, body);
        }
        match (route.pattern, &route.method) {
            ("session", &Method::POST) => operation["security"] = json!([{}]),
            ("session", &Method::GET) => {
                let mut alternatives = security(&Method::GET);
                alternatives.push(json!({}));
                operation["security"] = json!(alternatives);
            }
            (_, &Method::GET) => {}
            (_, method) => operation["security"] = json!(security(method)),
        }
        operation
    }

    fn parameters(&mut self, route: &'static Route) -> Vec<Value> {
        let mut own: Vec<(String, Value)> = Vec::new();
        let parts: Vec<&str> = route.pattern.split('/').collect();
        let named = route.named_pattern();
        for (at, name) in named.split('/').enumerate().filter(|(_, part)| part.starts_with('{')) {
            let name = name.trim_matches(['{', '}']);
            let place = parts.get(at - 1).copied().unwrap_or_default();
            own.push((format!("{place}.{name}"), path_parameter(place, name)));
        }
        for parameter in route.parameters() {
            own.push((self.keys.key(route, &parameter), parameter.object()));
        }
        for (name, doc, is_required) in header_parameters(route) {
            let schema = json!({"type": "string"});
            let mut object = json!({"name": name, "in": "header", "description": doc, "schema": schema});
            if is_required {
                object["required"] = json!(true);
            }
            own.push((name.to_owned(), object));
        }
        let refer = |(key, object): (String, Value)| {
            let reference = json!({"$ref": format!("#/components/parameters/{key}")});
            self.parameters.insert(key, object);
            reference
        };
        own.into_iter().map(refer).collect()
    }
}

/// Returns a name that stays the same as long as the method and the path do.
fn operation_id(route: &Route) -> String {
    let path = route.named_pattern().replace(['{', '}'], "").replace(['/', '-', '.'], "_");
    format!("{}_{path}", route.method.as_str().to_lowercase())
}

fn path_parameter(place: &str, name: &str) -> Value {
    let (doc, kind) = match place {
        "principals" | "members" => ("The ID of the human.", "string"),
        "projects" | "bindings" => ("The ID of the project.", "string"),
        "keys" => ("The ID of the key.", "string"),
        "providers" => ("The ID of the provider.", "string"),
        "device-sign-ins" => ("The code that the client shows, with or without its hyphen.", "string"),
        "endpoints" => ("The name of the endpoint.", "string"),
        "extensions" => ("The name of the extension.", "string"),
        "overrides" => ("The ID of the override.", "string"),
        "requests" => ("The ID of the request.", "string"),
        "audit" => ("The ID of the record.", "integer"),
        "backups" => ("The file name of the archive.", "string"),
        "quotas" => ("The ID of the limit.", "string"),
        "alerts" => ("The ID of the alert.", "string"),
        "alert-rules" => ("The ID of the rule.", "string"),
        "nodes" => ("The number of the node.", "integer"),
        "webhooks" => ("The ID of the webhook.", "string"),
        "outbox" => ("The ID of the delivery.", "string"),
        "run" if name == "path" => (
            "The path of the data plane, such as `v1/chat/completions`. Its slashes are not encoded.",
            "string",
        ),
        "run" => ("The ID of the request.", "string"),
        other => panic!("{other}: the parameter {name} of the path needs a description"),
    };
    json!({"name": name, "in": "path", "required": true, "description": doc, "schema": {"type": kind}})
}

/// Returns the headers that a route reads, each with its description, and true if it is needed.
fn header_parameters(route: &Route) -> Vec<(&'static str, &'static str, bool)> {
    let mut headers = Vec::new();
    if route.reads_version {
        let doc = "The `ETag` of the object, or `*`. The answer is 412 if the object has changed meanwhile.";
        headers.push(("If-Match", doc, false));
    }
    if route.method == Method::POST && !route.reference.acts_each_time {
        let doc = "1 to 255 visible ASCII characters. A request with the same key, path and body gets the first answer \
                   again for a day.";
        headers.push(("Idempotency-Key", doc, false));
    }
    if route.is_data_plane() {
        headers.push(("X-LLMGW-Run-As", "The ID of the key or human as whom the request is sent.", true));
        headers.push(("X-LLMGW-Run-Only", "The only target that may be tried: `provider/model`.", false));
    }
    headers
}

fn request_body(described: &DescribedRoute, body: &Value) -> Value {
    if described.route.is_data_plane() {
        return json!({"required": true, "description": "As on that path.", "content": {"*/*": {}}});
    }
    json!({"required": described.needs_members, "content": {"application/json": {"schema": body}}})
}

fn responses(described: &DescribedRoute) -> Value {
    let route = described.route;
    if route.is_data_plane() {
        let refused =
            statuses_of_failure(route).into_iter().map(|status| (status.to_string(), failure(status)));
        let mut responses: Map<String, Value> = refused.collect();
        responses.insert(
            "default".to_owned(),
            json!({"description": "The answer of that path.", "content": {"*/*": {}}}),
        );
        return Value::Object(responses);
    }
    let mut responses = Map::new();
    for status in route.statuses_of_success() {
        let mut response = json!({"description": described_status(*status)});
        let content = content(described);
        if content.as_object().is_some_and(|content| !content.is_empty()) {
            response["content"] = content;
        }
        let headers = response_headers(route);
        if !headers.is_empty() {
            response["headers"] = Value::Object(headers);
        }
        responses.insert(status.to_string(), response);
    }
    if route.has_dry_run {
        add_dry_run(&mut responses);
    }
    responses
        .extend(statuses_of_failure(route).into_iter().map(|status| (status.to_string(), failure(status))));
    Value::Object(responses)
}

fn described_status(status: u16) -> &'static str {
    match status {
        201 => "Created.",
        202 => "Begun.",
        204 => "Done.",
        _ => "The answer.",
    }
}

/// Returns the content of a success by its media type.
fn content(described: &DescribedRoute) -> Value {
    let answer = described.answer.clone().unwrap_or_default();
    let name = answer["$ref"].as_str().unwrap_or_default().trim_start_matches(REFERENCE);
    let file = || json!({"schema": {"type": "string", "contentEncoding": "binary"}});
    match (name, described.route.pattern) {
        ("NoContent", _) => json!({}),
        ("OpenApiDocument", _) => json!({"application/json": {"schema": {"type": "object"}}}),
        ("FileContent", "backups/{}") => json!({"application/zstd": file()}),
        ("FileContent", _) => {
            let text = json!({"schema": {"type": "string"}});
            json!({"text/csv": text, "application/x-ndjson": text})
        }
        ("LiveEvents", _) => json!({"text/event-stream": {
            "schema": {"type": "string", "description": "Events with a name and JSON data, whose shapes `x-llmgw-events` lists by name."},
            "x-llmgw-events": answer,
        }}),
        _ => json!({"application/json": {"schema": answer}}),
    }
}

/// Adds the answer of a dry run, which is 200 with effects.
fn add_dry_run(responses: &mut Map<String, Value>) {
    let dry_run = json!({"$ref": format!("{REFERENCE}DryRun")});
    let response = responses
        .entry("200")
        .or_insert_with(|| json!({"description": "The effects, if `dry_run` is true."}));
    let schema = match response["content"]["application/json"]["schema"].take() {
        Value::Null => dry_run,
        object => {
            response["description"] = json!("The object; with `dry_run`, the effects.");
            json!({"anyOf": [object, dry_run]})
        }
    };
    response["content"]["application/json"]["schema"] = schema;
}

fn response_headers(route: &Route) -> Map<String, Value> {
    let is_versioned = served().any(|other| other.pattern == route.pattern && other.reads_version);
    let mut names = Vec::new();
    if is_versioned && route.method != Method::DELETE {
        names.push("ETag");
    }
    if route.pattern == "session" && route.method != Method::GET {
        names.push("Set-Cookie");
    }
    if route.method != Method::GET {
        names.push("X-LLMGW-Published");
        names.push("X-LLMGW-Silent-Nodes");
    }
    if route.method == Method::POST && !route.reference.acts_each_time {
        names.push("Idempotency-Replayed");
    }
    let refer = |name: &str| (name.to_owned(), json!({"$ref": format!("#/components/headers/{name}")}));
    names.into_iter().map(refer).collect()
}

fn headers() -> Value {
    let text = json!({"type": "string"});
    json!({
        "ETag": {"description": "The version of the object, for `If-Match`.", "schema": text},
        "Set-Cookie": {"description": "The cookie of the session.", "schema": text},
        "X-LLMGW-Published": {
            "description": "`false` if the change is stored and takes effect as soon as the database can be read again. Do not \
                            repeat the request. If nodes share the database, always present: `true` if the change is in force on \
                            all nodes that were heard of in the last seconds.",
            "schema": text,
        },
        "X-LLMGW-Silent-Nodes": {
            "description": "The numbers of nodes that have not been heard of and may still serve by an earlier state, such as `2, 5`.",
            "schema": text,
        },
        "Idempotency-Replayed": {"description": "`true` if this is the answer to an earlier request.", "schema": text},
        "Retry-After": {"description": "The seconds after which the request may succeed.", "schema": {"type": "integer"}},
        "WWW-Authenticate": {"description": "`Bearer`.", "schema": text},
    })
}

/// Returns the statuses of the errors that a route may answer with.
pub(super) fn statuses_of_failure(route: &Route) -> Vec<u16> {
    let names_object = route.pattern.contains("{}") || OF_OBJECTS.contains(&route.pattern);
    let is_write = route.method != Method::GET;
    let of = [
        (400, true),
        (401, true),
        (403, true),
        (404, names_object),
        (408, is_write),
        (409, is_write),
        (412, route.reads_version),
        (413, is_write),
        (415, is_write),
        (429, true),
        (500, true),
        (502, route.pattern == "providers/{}/oauth/start"),
        (503, true),
    ];
    of.into_iter().filter(|(_, occurs)| *occurs).map(|(status, _)| status).collect()
}

fn failure(status: u16) -> Value {
    let name = FAILURES.iter().find(|(of, ..)| *of == status).map_or("", |(_, name, _)| name);
    json!({"$ref": format!("#/components/responses/{name}")})
}

fn failures() -> Value {
    let response = |(status, name, doc): &(u16, &str, &str)| {
        let mut response = json!({
            "description": doc,
            "content": {"application/json": {"schema": {"$ref": format!("{REFERENCE}Error")}}},
        });
        match status {
            401 => {
                response["headers"] =
                    json!({"WWW-Authenticate": {"$ref": "#/components/headers/WWW-Authenticate"}})
            }
            409 | 429 | 503 => {
                response["headers"] = json!({"Retry-After": {"$ref": "#/components/headers/Retry-After"}});
            }
            _ => {}
        }
        ((*name).to_owned(), response)
    };
    Value::Object(FAILURES.iter().map(response).collect())
}

fn own_schemas() -> Map<String, Value> {
    let nullable = json!(["string", "null"]);
    let schemas = json!({
        "Error": {
            "description": "An error.",
            "type": "object",
            "required": ["error"],
            "properties": {"error": {"$ref": format!("{REFERENCE}ErrorDetail")}},
        },
        "ErrorDetail": {
            "description": "What is wrong, and what to do.",
            "type": "object",
            "required": ["message", "type", "code", "param", "request_id"],
            "properties": {
                "message": {"description": "A text for people.", "type": "string"},
                "type": {"description": "The class of the error.", "type": "string"},
                "code": {"description": "The error, for programs.", "type": "string"},
                "param": {"description": "The invalid field, parameter or header; null if there is none.", "type": nullable},
                "request_id": {"description": "The ID of the request in the log; null if it has none.", "type": nullable},
            },
        },
        "Moment": {
            "description": "A time: milliseconds since the Unix epoch, or RFC 3339. Reports of usage accept dates and times \
                            without an offset as well, as times of `tz`.",
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}],
        },
        "NoMembers": {"description": "A body without members.", "type": "object", "additionalProperties": false},
    });
    schemas.as_object().cloned().unwrap_or_default()
}

/// Returns the alternatives by which a request is authenticated.
fn security(method: &Method) -> Vec<Value> {
    let session =
        if method.is_safe() { json!({"session": []}) } else { json!({"session": [], "csrf_token": []}) };
    vec![json!({"api_key": []}), json!({"bearer": []}), session]
}

fn security_schemes() -> Value {
    json!({
        "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "An administrator key."},
        "bearer": {"type": "http", "scheme": "bearer", "description": "An administrator key."},
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": "llmgw_session",
            "description": "The cookie of `POST /session`.",
        },
        "csrf_token": {
            "type": "apiKey",
            "in": "header",
            "name": "x-csrf-token",
            "description": "The `csrf_token` of the session. Requests of a session need it if they change something.",
        },
    })
}

/// Moves the references to shapes to the place where OpenAPI has them.
fn place_schemas(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(name) = text.strip_prefix(REFERENCE) {
                *text = format!("#/components/schemas/{name}");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(place_schemas),
        Value::Object(members) => members.values_mut().for_each(place_schemas),
        _ => {}
    }
}

/// The routes without an ID in their path that answer 404 if an object does not exist, which the query or the body names.
const OF_OBJECTS: &[&str] = &["access/effective", "keys", "live"];

/// The errors by status: the name of the response, and its description.
const FAILURES: &[(u16, &str, &str)] = &[
    (400, "BadRequest", "A parameter, header or field is invalid; `param` names it."),
    (401, "Unauthorized", "There is no key and no session, or the key is wrong, expired or disabled."),
    (
        403,
        "Forbidden",
        "The caller lacks the permission, or the request has the wrong `x-csrf-token` or origin.",
    ),
    (404, "NotFound", "There is no such object, or the caller may not know of it."),
    (408, "RequestTimeout", "The body did not arrive in time."),
    (409, "Conflict", "The object is in a state that does not permit this, or the name is taken."),
    (412, "PreconditionFailed", "The object has changed since the version in `If-Match`."),
    (413, "ContentTooLarge", "The body has more than 1 MiB."),
    (415, "UnsupportedMediaType", "The body is not declared as JSON, or it is compressed."),
    (
        429,
        "TooManyRequests",
        "There were too many wrong keys, or the caller has too many sessions or streams.",
    ),
    (500, "InternalError", "The gateway failed; the log has the reason."),
    (502, "BadGateway", "The vendor could not be reached, or its answer is invalid."),
    (503, "ServiceUnavailable", "The gateway is overloaded, is shutting down, or cannot read its database."),
];

const DESCRIPTION: &str = "Manages a llmgw gateway. The admin API is not versioned: its routes and shapes may change with any release, and \
this document describes the release that serves it. `info.version` is that of the release. The API for clients, which follows the \
protocols of the vendors, is not part of this document.\n\nA list has pages: `next_cursor` is the `cursor` of the next one, and null on \
the last one. Times are in milliseconds since the Unix epoch (`_ms`), durations also in microseconds (`_us`), and amounts of money in \
millionths of a dollar (`_micro_usd`). Null means unknown or none, never 0. `HEAD` is served wherever `GET` is.";
