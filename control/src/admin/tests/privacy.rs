//! Humans neither see nor use the connections and keys of others.

use http::Method;
use serde_json::{Value, json};

use super::Gateway;
use super::humans::{Person, Team};

fn get(gateway: &Gateway, person: &Person, path: &str) -> Value {
    let (status, answer) = gateway.ask((Method::GET, path), &person.headers, &Value::Null);
    assert_eq!(status, 200, "{path}: {answer}");
    answer["data"].clone()
}

/// AUTH-4.
#[test]
fn a_private_connection_of_one_human_does_not_exist_for_another() {
    let gateway = Gateway::with_sso();
    let Team { project, people, keys, .. } = gateway.team();
    let (viewer, stranger) = (&people[3], &people[4]);
    let house = json!({"id": "house", "type": "echo", "models": ["large"], "owner": stranger.id});
    gateway.done(Method::POST, "providers", &house);
    let subject = json!({"kind": "provider", "id": "house"});
    let quota = json!({"subject": subject, "metric": "requests", "window": "day", "limit": 5});
    gateway.done(Method::POST, "quotas", &quota);
    let of_key = format!("keys/{}/access?q=house", keys[2]);
    let lists = ["providers", "quotas", "search?q=house"].map(str::to_owned);
    let access = |person: &Person| format!("principals/{}/access?q=house", person.id);
    let of_project = format!("projects/{project}/access?q=house");
    for path in lists.iter().chain([&access(viewer), &of_project, &of_key]) {
        assert_eq!(get(&gateway, viewer, path), json!([]), "{path}");
    }
    for path in lists.iter().chain([&access(stranger)]) {
        assert!(get(&gateway, stranger, path).to_string().contains("house"), "{path}");
    }
    for (method, path) in [
        (Method::GET, String::new()),
        (Method::POST, "/oauth/start".to_owned()),
        (Method::DELETE, "/oauth".to_owned()),
        (Method::PUT, format!("/bindings/{project}")),
    ] {
        let [hidden, missing] = ["house", "nothing"].map(|id| {
            let path = format!("providers/{id}{path}");
            let (status, answer) = gateway.ask((method.clone(), &path), &viewer.headers, &Value::Null);
            (status, answer["error"]["message"].clone())
        });
        assert_eq!((hidden.0, &hidden), (404, &missing), "{method} {path}");
    }
    // Shared with the project, it is one of the selectors there.
    let share = format!("providers/house/bindings/{project}");
    gateway.done(Method::PUT, &share, &Value::Null);
    assert!(get(&gateway, viewer, &of_key).to_string().contains("house/large"));
    // Its owner, who is no member of that project, does not learn of the keys there.
    let path = format!("{share}?dry_run=true");
    let (status, preview) = gateway.ask((Method::DELETE, &path), &stranger.headers, &Value::Null);
    let effects = &preview["effects"];
    assert_eq!((status, &effects["loses"], &effects["keys_losing"]), (200, &json!([]), &json!(0)));
    gateway.stop();
}

#[test]
fn a_human_sends_no_run_with_a_key_that_is_not_theirs() {
    let gateway = Gateway::with_sso();
    let Team { people, keys, .. } = gateway.team();
    let member = &people[2];
    let run = |id: &str| {
        let person = member.clone().with("x-llmgw-run-as", id);
        let path = "run/v1/chat/completions";
        let (status, answer) = gateway.ask((Method::POST, path), &person.headers, &json!({"model": "m"}));
        (status, answer["error"]["message"].as_str().unwrap_or_default().to_owned())
    };
    for (id, want) in [(&keys[0], 403), (&keys[3], 403), (&member.id, 403), (&people[0].id, 403)] {
        assert_eq!(run(id).0, want, "{id}");
    }
    assert_eq!(run(&keys[4]), (404, "There is no such key.".to_owned()));
    assert_eq!(run(&keys[4]), run("key_of_none"));
    gateway.stop();
}

#[test]
fn a_human_watches_no_key_of_other_projects() {
    let gateway = Gateway::with_sso();
    let Team { people, keys, .. } = gateway.team();
    let watch = |key: &str| {
        let path = format!("live?watch={key}");
        let (status, answer) = gateway.ask((Method::GET, &path), &people[3].headers, &Value::Null);
        (status, answer["error"]["message"].clone())
    };
    let hidden = watch(&keys[4]);
    assert_eq!((hidden.0, &hidden), (404, &watch("key_of_none")));
    gateway.stop();
}
