//! Humans whom a single sign-on proxy has authenticated, and a project with one human of each role.

use std::net::IpAddr;

use http::{Method, Request};
use serde_json::{Value, json};
use shared::port::{Body, full};

use super::{ADMIN, Gateway, text};

pub(super) const SECRET: &str = "secret-of-the-single-sign-on-proxy";

/// A human with an open session, and the headers of their requests.
#[derive(Clone, Debug)]
pub(super) struct Person {
    pub(super) id: String,
    pub(super) headers: Vec<(String, String)>,
}

impl Person {
    /// Replaces or adds a header.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }
}

/// A project with a human of each role, one of another project, and a key of each of them.
pub(super) struct Team {
    pub(super) project: String,
    pub(super) other_project: String,
    /// The owner, the admin, the member, the viewer, and the owner of the other project.
    pub(super) people: [Person; 5],
    /// Three keys of the project that act as its owner, its member and its viewer, one that acts as no human, and the key of the
    /// other project.
    pub(super) keys: [String; 5],
}

/// Returns the headers of the proxy for a human, whose e-mail address is derived from the subject.
pub(super) fn identity(subject: &str, groups: &str) -> Vec<(String, String)> {
    [
        ("x-llmgw-sso-secret", SECRET),
        ("x-forwarded-user", subject),
        ("x-forwarded-email", &format!("{subject}@example.com")),
        ("x-forwarded-preferred-username", subject),
        ("x-forwarded-groups", groups),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

impl Gateway {
    /// Starts a gateway with single sign-on, behind a proxy on this machine.
    pub(super) fn with_sso() -> Self {
        Self::start_with(&[
            ("LLMGW_SSO_ENABLED", "true"),
            ("LLMGW_SSO_SHARED_SECRET", SECRET),
            ("LLMGW_SSO_AUTO_PROVISION", "true"),
        ])
    }

    /// Sends a request with these headers and returns its status and answer.
    pub(super) fn ask(
        &self,
        (method, path): (Method, &str),
        headers: &[(String, String)],
        body: &Value,
    ) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(format!("/admin/api/{path}"));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let (parts, body) = self.send(request.body(full(body)).unwrap()).into_parts();
        let text = text(body);
        (parts.status.as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Sends the request to sign in by single sign-on, from this address.
    pub(super) fn arrive(
        &self,
        address: IpAddr,
        headers: &[(String, String)],
    ) -> (u16, Value, Option<String>) {
        let mut request = Request::post("/admin/api/session").header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let body: Body = full(json!({"sso": true}).to_string());
        let (parts, body) = self.send_from(address, request.body(body).unwrap()).into_parts();
        let cookie = parts.headers.get("set-cookie").map(|value| value.to_str().unwrap().to_owned());
        (parts.status.as_u16(), serde_json::from_str(&text(body)).unwrap(), cookie)
    }

    /// Signs a human in.
    pub(super) fn person(&self, subject: &str, groups: &str) -> Person {
        let mut headers = identity(subject, groups);
        let (status, session, cookie) = self.arrive(IpAddr::from([127, 0, 0, 1]), &headers);
        assert_eq!(status, 201, "{session}");
        let cookie = cookie.unwrap().split("; ").next().unwrap().to_owned();
        headers.push(("cookie".to_owned(), cookie));
        headers.push(("x-csrf-token".to_owned(), session["csrf_token"].as_str().unwrap().to_owned()));
        headers.push(("sec-fetch-site".to_owned(), "same-origin".to_owned()));
        Person { id: session["human"]["id"].as_str().unwrap().to_owned(), headers }
    }

    /// Sends an administrator's request, which must succeed, and returns the answer.
    pub(super) fn done(&self, method: Method, path: &str, body: &Value) -> Value {
        let key = [("x-api-key".to_owned(), ADMIN.to_owned())];
        let (status, answer) = self.ask((method, path), &key, body);
        assert!(status < 300, "{path}: {answer}");
        answer
    }

    pub(super) fn team(&self) -> Team {
        let project = |name: &str| {
            self.done(Method::POST, "projects", &json!({"name": name}))["id"].as_str().unwrap().to_owned()
        };
        let (home, other) = (project("home"), project("other"));
        let people = ["owner", "admin", "member", "viewer", "stranger"].map(|name| self.person(name, ""));
        for (person, role) in people.iter().zip(["owner", "admin", "member", "viewer"]) {
            let path = format!("projects/{home}/members/{}", person.id);
            self.done(Method::PUT, &path, &json!({"role": role}));
        }
        let stranger = format!("projects/{other}/members/{}", people[4].id);
        self.done(Method::PUT, &stranger, &json!({"role": "owner"}));
        let key = |project: &str, acts_as: Option<&Person>| {
            let body = json!({"name": "k", "project": project, "acts_as": acts_as.map(|person| &person.id)});
            self.done(Method::POST, "keys", &body)["id"].as_str().unwrap().to_owned()
        };
        let keys = [
            key(&home, Some(&people[0])),
            key(&home, Some(&people[2])),
            key(&home, Some(&people[3])),
            key(&home, None),
            key(&other, Some(&people[4])),
        ];
        Team { project: home, other_project: other, people, keys }
    }
}
