//! Rules for the query parameters of every route: each one that the documentation names is read, and any other is refused
//! by name.

use http::Method;
use serde_json::Value;
use shared::clock::unix_ms;
use shared::usage::UsageEvent;

use super::Gateway;
use super::reference::parameters::Parameter;
use crate::admin::{Route, TABLES};
use crate::usage::tests::event;

/// A value that no parameter accepts, that nothing contains, and that no list has anything after.
const NO_SUCH: &str = "~no%20such%20value";

/// Parameters without which a route refuses or has nothing to show, by its pattern.
const NEEDED: &[(&str, &str)] = &[
    ("search", "q=blue"),
    ("suggest", "field=model"),
    ("series", "from=1699999999000"),
    ("series", "to=1700000001000"),
    ("usage", "group_by=model"),
];

/// A gateway with an object in each list.
struct Rig {
    gateway: Gateway,
    project: String,
    human: String,
    key: String,
}

impl Rig {
    fn start() -> Self {
        let mut gateway = Gateway::start();
        let create = |path: &str, body: &str| {
            let (status, made, _) = gateway.send_json(Method::POST, path, body, &[]);
            assert_eq!(status, 201, "{path}: {made}");
            made["id"].as_str().unwrap_or_default().to_owned()
        };
        let human = create("principals", r#"{"name": "Ada"}"#);
        let project = create("projects", r#"{"name": "blue"}"#);
        let member = format!("projects/{project}/members/{human}");
        assert_eq!(gateway.send_json(Method::PUT, &member, r#"{"role": "owner"}"#, &[]).0, 200);
        let new = format!(r#"{{"name": "k", "project": "{project}", "acts_as": "{human}"}}"#);
        let key = create("keys", &new);
        create("providers", r#"{"id": "x", "type": "echo", "models": ["m"]}"#);
        create("endpoints", r#"{"name": "e", "failover": [{"provider": "x", "model": "m"}]}"#);
        let limit = r#""metric": "requests", "window": "day", "limit": 9"#;
        create("quotas", &format!(r#"{{"subject": {{"kind": "project", "id": "{project}"}}, {limit}}}"#));
        create("catalog/overrides", r#"{"provider": "x", "model": "m", "facts": {"vision": true}}"#);
        let secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1u";
        let url = "http://127.0.0.1:9";
        create(
            "extensions",
            &format!(r#"{{"name": "lab", "url": "{url}", "secret": "{secret}", "enabled": false}}"#),
        );
        let recent = UsageEvent { started_at_ms: unix_ms(), ..event(2) };
        [event(1), recent].iter().for_each(|event| assert!(gateway.log.append(event)));
        gateway.wait_stored(2);
        Self { gateway, project, human, key }
    }

    /// Returns the path of a route, for an object that exists.
    fn path(&self, route: &Route) -> String {
        let id = match route.pattern.split('/').next().unwrap_or_default() {
            "projects" => &self.project,
            "principals" => &self.human,
            "keys" => &self.key,
            "endpoints" => "e",
            _ => "x",
        };
        route.pattern.replacen("{}", id, 1).replace("{}", &self.human)
    }

    /// Returns a query with the needed parameters, and with `name` if it has a value.
    fn query(&self, route: &Route, name: &str, value: Option<&str>) -> String {
        let key = format!("key={}", self.key);
        let needed = NEEDED.iter().copied().chain([("access/effective", key.as_str())]);
        let needed = needed.filter(|(pattern, _)| *pattern == route.pattern).map(|(_, pair)| pair.to_owned());
        let others = needed.filter(|pair| pair.split('=').next() != Some(name));
        others.chain(value.map(|value| format!("{name}={value}"))).collect::<Vec<_>>().join("&")
    }

    /// Sends a request and returns its status and the part of its answer that a parameter can change.
    fn send(&self, route: &Route, query: &str) -> (u16, Value) {
        let path = format!("{}?{query}", self.path(route));
        let body = if route.method == Method::GET { "" } else { "{}" };
        let (status, mut answer, _) = self.gateway.send_json(route.method.clone(), &path, body, &[]);
        for part in ["data", "groups"] {
            if answer.get(part).is_some() {
                answer = answer[part].take();
            }
        }
        (status.as_u16(), answer)
    }
}

/// Returns the routes of this release whose answers end. Below `run/`, the query is that of the data plane.
fn routes() -> impl Iterator<Item = &'static Route> {
    let routes = TABLES.iter().copied().flatten();
    routes.filter(|route| {
        let is_data_plane = route.pattern.starts_with("run/{}") && route.method == Method::POST;
        !route.reference.doc.is_empty() && !is_data_plane
    })
}

#[test]
fn every_named_query_parameter_is_read() {
    let rig = Rig::start();
    let mut ignored = Vec::new();
    let mut probed = 0;
    for route in routes().filter(|route| route.pattern != "live") {
        for parameter in route.parameters() {
            let name = parameter.name.as_str();
            probed += 1;
            let (status, answer) = rig.send(route, &rig.query(route, name, Some(NO_SUCH)));
            let message = answer["error"]["message"].as_str().unwrap_or_default();
            let is_refused = status == 400 && answer["error"]["param"] == name;
            let is_read = match is_refused {
                true => !message.starts_with("Unknown parameter"),
                // In an empty list no effect is visible; that it takes the parameter follows from the test below.
                false if answer == serde_json::json!([]) && status == 200 => true,
                false => rig.send(route, &rig.query(route, name, None)) != (status, answer.clone()),
            };
            if !is_read {
                ignored.push(format!("{} {} {name}: {status} {answer}", route.method, route.pattern));
            }
        }
    }
    assert!(ignored.is_empty(), "{ignored:#?}");
    assert!(probed > 150, "{probed}");
    rig.gateway.stop();
}

#[test]
fn a_query_parameter_that_is_not_named_is_refused_by_name() {
    let rig = Rig::start();
    let mut accepted = Vec::new();
    for route in routes() {
        let query = rig.query(route, "no_such_parameter", Some("1"));
        let (status, answer) = rig.send(route, &query);
        if status != 400 || answer["error"]["param"] != "no_such_parameter" {
            accepted.push(format!("{} {}: {status} {answer}", route.method, route.pattern));
        }
    }
    assert!(accepted.is_empty(), "{accepted:#?}");
    rig.gateway.stop();
}

/// The choices of a parameter, and the bounds of a number, are those that the refusal of another value states.
#[test]
fn the_documented_values_of_a_parameter_are_those_that_are_accepted() {
    let rig = Rig::start();
    let mut wrong = Vec::new();
    for route in routes().filter(|route| route.pattern != "live") {
        for Parameter { name, schema, .. } in route.parameters() {
            let names = schema["enum"].as_array().or_else(|| schema["items"]["enum"].as_array());
            let max = schema["maximum"].as_u64().unwrap_or(u64::MAX);
            let want = match (names, schema["type"].as_str()) {
                (Some(names), _) => {
                    let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                    format!("{name} must be one of: {}.", names.join(", "))
                }
                (None, Some("boolean")) => format!("{name} must be one of: true, false."),
                (None, Some("integer")) => {
                    format!("{name} must be a number from {} to {max}.", schema["minimum"])
                }
                (None, None) => format!("{name} must be RFC 3339 (2026-01-31T12:00:00Z)"),
                (None, Some(_)) => continue,
            };
            let (_, answer) = rig.send(route, &rig.query(route, &name, Some(NO_SUCH)));
            let message = answer["error"]["message"].as_str().unwrap_or_default();
            // The names of a choice may have another order.
            if !message.starts_with(&want) && words(message) != words(&want) {
                wrong.push(format!("{} {} {name}: {message}", route.method, route.pattern));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    rig.gateway.stop();
}

fn words(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = text.split([' ', ',', '.']).collect();
    words.sort_unstable();
    words
}
