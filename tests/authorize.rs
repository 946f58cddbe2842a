//! The permissions of project keys from the outside: lists of keys and projects, private connections, lists of models
//! (M-129, M-192, M-193, M-195, M-196, M-201, M-202).

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::client::Whole;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

/// A gateway with the providers `p0` and `p1` behind the endpoint `line`, and an administrator.
struct Rig {
    gateway: Gateway,
    admin: Admin,
    upstreams: Vec<Upstream>,
}

impl Rig {
    async fn start() -> Self {
        let mut upstreams = Vec::new();
        for name in ["zero", "one"] {
            let upstream = Upstream::start().await;
            upstream.always(Answer::completion(name));
            upstreams.push(upstream);
        }
        let urls: Vec<_> = upstreams.iter().map(Upstream::base_url).collect();
        let gateway = Gateway::start(&Yaml::line(&urls)).await;
        let admin = Admin(gateway.client());
        Self { gateway, admin, upstreams }
    }

    /// Returns a client with a new key of `project` that has these settings.
    async fn client(&self, project: &str, mut settings: Value) -> Client {
        settings["project"] = json!(project);
        let key = self.admin.key(settings).await;
        Client::new(self.gateway.address(), Some(&key.key))
    }
}

/// Returns the answer's text, or the code of its error.
fn text_or_error(answer: &Whole) -> String {
    match answer.status {
        200 => answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned(),
        status => format!("{status} {}", answer.error_code()),
    }
}

async fn models(client: &Client) -> Vec<String> {
    let answer = client.get("/v1/models").await.unwrap().json();
    answer["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn allowlists_of_key_and_project_both_apply_and_change_at_once() {
    let rig = Rig::start().await;
    let project = rig.admin.project("open").await;
    let limited = rig.admin.create("projects", json!({"name": "limited", "models": ["p1/m"]})).await;
    let free = rig.client(&project, json!({})).await;
    let one = rig.client(&project, json!({"models": ["p1/*"]})).await;
    let line = rig.client(&project, json!({"endpoints": ["line"]})).await;
    let listing = rig.client(&project, json!({"routes": ["models"]})).await;
    let poor = rig.client(&limited, json!({})).await;
    let torn = rig.client(&limited, json!({"models": ["p0/m"]})).await;
    for (what, client, selector, want) in [
        ("no lists", &free, "p0/m", "zero"),
        ("its model", &one, "p1/m", "one"),
        ("another model", &one, "p0/m", "403 not_allowed"),
        ("an endpoint's permitted member", &one, "line", "one"),
        ("a name that is its only one's", &one, "m", "one"),
        ("the same for who may use both", &free, "m", "404 model_not_found"),
        ("its endpoint", &line, "line", "zero"),
        ("a member alone", &line, "p0/m", "403 not_allowed"),
        ("no route for it", &listing, "p0/m", "403 not_allowed"),
        ("its project's model", &poor, "p1/m", "one"),
        ("not its project's model", &poor, "p0/m", "403 not_allowed"),
        ("two lists with nothing in common", &torn, "line", "403 not_allowed"),
        ("an administrator", &rig.gateway.client(), "p0/m", "zero"),
    ] {
        assert_eq!(text_or_error(&client.chat(chat::request(selector)).await), want, "{what}");
    }
    for (client, want) in [
        (&free, &["line", "p0/m", "p1/m"][..]),
        (&one, &["line", "m", "p1/m"]),
        (&line, &["line"]),
        (&listing, &["line", "p0/m", "p1/m"]),
        (&poor, &["line", "m", "p1/m"]),
        (&torn, &[]),
    ] {
        assert_eq!(models(client).await, want);
    }
    rig.admin.done("PATCH", &format!("projects/{limited}"), json!({"models": null})).await;
    assert_eq!(text_or_error(&poor.chat(chat::request("p0/m")).await), "zero", "the next request");
}

#[tokio::test]
async fn a_private_provider_serves_only_its_owner_and_bound_projects() {
    let rig = Rig::start().await;
    let ada = rig.admin.create("principals", json!({"name": "Ada"})).await;
    let project = rig.admin.project("team").await;
    rig.admin.done("PUT", &format!("projects/{project}/members/{ada}"), json!({"role": "owner"})).await;
    let base_url = rig.upstreams[1].base_url();
    let private = json!({
        "id": "hers", "type": "compatible", "base_url": base_url, "api_key": "upstream-key",
        "models": ["m"], "owner": ada,
    });
    rig.admin.done("POST", "providers", private).await;
    let stranger = rig.client(&project, json!({})).await;
    let hers = rig.client(&project, json!({"acts_as": ada})).await;
    let ask = async |client: &Client| text_or_error(&client.chat(chat::request("hers/m")).await);
    assert_eq!(ask(&stranger).await, "403 private_provider");
    assert_eq!(ask(&rig.gateway.client()).await, "403 private_provider", "a static key has no owner");
    assert_eq!(ask(&hers).await, "one");
    assert!(!models(&stranger).await.contains(&"hers/m".to_owned()));
    assert!(models(&hers).await.contains(&"hers/m".to_owned()));
    rig.admin.done("PUT", &format!("providers/hers/bindings/{project}"), Value::Null).await;
    assert_eq!(ask(&stranger).await, "one", "bound");
    rig.admin.done("DELETE", &format!("providers/hers/bindings/{project}"), Value::Null).await;
    assert_eq!(ask(&stranger).await, "403 private_provider", "unbound");
    // A private OAuth connection is rejected for others before the error that no account is signed in.
    let oauth = json!({
        "id": "login", "type": "compatible", "base_url": base_url, "auth": "oauth", "models": ["m"],
        "owner": ada,
    });
    rig.admin.done("POST", "providers", oauth).await;
    assert_eq!(text_or_error(&stranger.chat(chat::request("login/m")).await), "403 private_provider");
    assert_eq!(text_or_error(&hers.chat(chat::request("login/m")).await), "503 no_eligible_target");
}
