//! A client for the admin API, as operators' scripts use it.

use bytes::Bytes;
use serde_json::{Value, json};

use super::client::Whole;
use super::{Client, wait};

/// A client of the admin API.
#[derive(Clone)]
pub(crate) struct Admin(pub(crate) Client);

/// A newly issued project key.
#[derive(Clone, Debug)]
pub(crate) struct NewKey {
    pub(crate) id: String,
    pub(crate) key: String,
}

impl Admin {
    /// Sends a request below `/admin/api/` and returns the whole answer, which must arrive. `null` sends no body.
    pub(crate) async fn call(&self, method: &str, path: &str, body: Value) -> Whole {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let (client, path) =
            (self.0.clone().with("content-type", "application/json"), format!("/admin/api/{path}"));
        wait::within(2 * wait::PATIENCE, &path, client.send(method, &path, body)).await.unwrap()
    }

    /// Sends a request that must succeed and returns the JSON of its answer.
    pub(crate) async fn done(&self, method: &str, path: &str, body: Value) -> Value {
        let answer = self.call(method, path, body).await;
        assert!(matches!(answer.status, 200..=204), "{method} {path}: {answer:?}");
        if answer.body.is_empty() { Value::Null } else { answer.json() }
    }

    /// Creates an object and returns its id.
    pub(crate) async fn create(&self, collection: &str, body: Value) -> String {
        text(&self.done("POST", collection, body).await["id"])
    }

    /// Creates a project with this name.
    pub(crate) async fn project(&self, name: &str) -> String {
        self.create("projects", json!({"name": name})).await
    }

    /// Creates a key. `settings` are the members of the request except `name`.
    pub(crate) async fn key(&self, mut settings: Value) -> NewKey {
        settings["name"] = json!("a key");
        let made = self.done("POST", "keys", settings).await;
        NewKey { id: text(&made["id"]), key: text(&made["key"]) }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}
