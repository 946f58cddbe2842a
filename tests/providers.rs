//! Provider instances and endpoints of the API: usable at once, merged with the file, secrets never shown (M-046,
//! M-048, M-053, M-081, AUTH-4).

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::client::Whole;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, wait};

const SECRET: &str = "sk-planted-secret-of-the-provider-0042";
const HEADER: &str = "header-planted-secret-0043";

/// Sends an administrator's request below `/admin/api/`.
async fn admin(gateway: &Gateway, method: &str, path: &str, body: &Value) -> Whole {
    Admin(gateway.client()).call(method, path, body.clone()).await
}

async fn admin_if(gateway: &Gateway, method: &str, path: &str, body: &Value, version: &str) -> Whole {
    Admin(gateway.client().with("if-match", version)).call(method, path, body.clone()).await
}

async fn good(gateway: &Gateway, method: &str, path: &str, body: &Value) -> Value {
    Admin(gateway.client()).done(method, path, body.clone()).await
}

/// Returns the status, parameter and message of a rejection.
async fn refused(gateway: &Gateway, method: &str, path: &str, body: &Value) -> (u16, String, String) {
    let answer = admin(gateway, method, path, body).await;
    let error = answer.json()["error"].clone();
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (answer.status, text("param"), text("message"))
}

async fn ask(gateway: &Gateway, model: &str) -> (u16, String) {
    let answer = gateway.client().chat(chat::request(model)).await;
    let body = answer.json();
    let text = body["choices"][0]["message"]["content"].as_str().or_else(|| body["error"]["code"].as_str());
    (answer.status, text.unwrap_or_default().to_owned())
}

fn connection(id: &str, base_url: impl AsRef<str>) -> Value {
    json!({
        "id": id, "type": "compatible", "base_url": base_url.as_ref(), "api_key": SECRET, "models": ["m", "n"],
        "headers": {"X-Team": HEADER},
    })
}

#[tokio::test]
async fn a_provider_made_by_the_api_serves_at_once_and_after_a_kill() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("from the new one"));
    let gateway = Gateway::start(&Yaml::new()).await;
    assert_eq!(ask(&gateway, "own/m").await.0, 404);
    let made = admin(&gateway, "POST", "providers", &connection("own", upstream.base_url())).await;
    assert_eq!((made.status, made.header("etag")), (201, Some("\"1\"")), "{:?}", made.body);
    assert_eq!(ask(&gateway, "own/m").await, (200, "from the new one".into()));
    let received = upstream.requests().remove(0);
    assert_eq!(received.header("authorization"), Some(format!("Bearer {SECRET}").as_str()));
    assert_eq!(received.header("x-team"), Some(HEADER));

    // An answer of the last minute does not outlive a kill.
    let shown_of = async |gateway: &Gateway| {
        let mut shown = good(gateway, "GET", "providers/own", &Value::Null).await;
        shown["evidence"]["inference"]["last_answered_at_ms"].take();
        shown
    };
    let shown = shown_of(&gateway).await;
    let mut settings = shown.clone();
    let evidence = settings.as_object_mut().unwrap().remove("evidence").unwrap();
    assert_eq!(evidence["inference"]["proven_at_ms"], Value::Null, "what clients do is no test");
    assert_eq!(settings, made.json());
    assert_eq!(
        (&shown["source"], &shown["state"], &shown["auth"]),
        (&json!("api"), &json!("ready"), &json!("api_key"))
    );
    assert_eq!(shown["credential"]["last_four"], "0042");
    assert_eq!(shown["headers"]["X-Team"], "••••");
    good(
        &gateway,
        "POST",
        "endpoints",
        &json!({"name": "line", "failover": [{"provider": "own", "model": "n"}]}),
    )
    .await;
    let gateway = gateway.restart().await;
    assert_eq!(ask(&gateway, "own/m").await, (200, "from the new one".into()));
    assert_eq!(ask(&gateway, "line").await, (200, "from the new one".into()));
    assert_eq!(shown_of(&gateway).await, shown);
}

#[tokio::test]
async fn secrets_are_in_no_response_file_or_log() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let setup =
        Setup::new(&Yaml::new()).env("LLMGW_LOG", "trace").env("OTHER_KEY", "sk-of-the-environment-0044");
    let gateway = setup.start().await;
    let mut answers = Vec::new();
    let own = connection("own", upstream.base_url());
    answers.push(admin(&gateway, "POST", "providers", &own).await.body);
    answers.push(admin(&gateway, "POST", "providers", &own).await.body);
    let mut wrong = own.clone();
    wrong["tiemout"] = json!(5);
    answers.push(admin(&gateway, "POST", "providers", &wrong).await.body);
    let patch = json!({"region": "x", "headers": {"X-Other": HEADER}});
    answers.push(admin(&gateway, "PATCH", "providers/own", &patch).await.body);
    answers.push(
        admin(&gateway, "PATCH", "providers/own", &json!({"api_key": SECRET, "timeout": "x"})).await.body,
    );
    let referring = json!({"id": "ref", "registry_id": "groq", "api_key": "${ENV:OTHER_KEY}"});
    answers.push(admin(&gateway, "POST", "providers", &referring).await.body);
    for path in ["providers", "providers/own", "providers/ref", "state", "requests"] {
        answers.push(admin(&gateway, "GET", path, &Value::Null).await.body);
    }
    assert_eq!(ask(&gateway, "own/m").await.0, 200);
    let log = gateway.log();
    let setup = gateway.kill().await;
    let hold = |text: &[u8]| {
        [SECRET, HEADER, "sk-of-the-environment-0044"]
            .iter()
            .any(|secret| text.windows(secret.len()).any(|window| window == secret.as_bytes()))
    };
    assert!(answers.iter().all(|answer| !hold(answer)), "{answers:?}");
    assert!(!hold(log.as_bytes()));
    let files = files_below(&setup.state());
    assert!(files.iter().any(|file| file.ends_with("gateway.db")), "{files:?}");
    for file in files {
        assert!(!hold(&std::fs::read(&file).unwrap()), "{}", file.display());
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn a_patch_changes_named_members_and_checks_the_version() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Answer::completion("first"));
    second.always(Answer::completion("second"));
    let gateway = Gateway::start(&Yaml::new()).await;
    good(&gateway, "POST", "providers", &connection("own", first.base_url())).await;
    let patch = json!({"base_url": second.base_url(), "headers": {"X-More": "more"}, "timeout": 7.5});
    assert_eq!(admin_if(&gateway, "PATCH", "providers/own", &patch, "\"9\"").await.status, 412);
    let patched = admin_if(&gateway, "PATCH", "providers/own", &patch, "\"1\"").await;
    assert_eq!((patched.status, patched.header("etag")), (200, Some("\"2\"")));
    assert_eq!(patched.json()["timeout"], 7.5);
    assert_eq!(ask(&gateway, "own/m").await, (200, "second".into()));
    let received = second.requests().remove(0);
    assert_eq!(received.header("authorization"), Some(format!("Bearer {SECRET}").as_str()), "kept");
    assert_eq!((received.header("x-team"), received.header("x-more")), (Some(HEADER), Some("more")));

    let cleared = json!({"api_key": null, "headers": {"X-Team": null}, "models": ["m"], "disabled": null});
    let shown = good(&gateway, "PATCH", "providers/own", &cleared).await;
    assert_eq!((&shown["credential"]["set"], &shown["models"]), (&json!(false), &json!(["m"])));
    assert_eq!(ask(&gateway, "own/m").await.0, 200);
    let received = second.requests().remove(1);
    assert_eq!((received.header("authorization"), received.header("x-team")), (None, None));
    assert_eq!(ask(&gateway, "own/n").await.0, 404, "no longer a model of it");

    let (status, param, message) =
        refused(&gateway, "PATCH", "providers/own", &json!({"base_url": "ftp://x", "id": "other"})).await;
    assert_eq!((status, param.as_str()), (400, "id"), "{message}");
    assert!(message.contains("base_url: only http:// and https:// are supported"), "{message}");
    good(&gateway, "PATCH", "providers/own", &json!({"disabled": true})).await;
    assert_eq!(ask(&gateway, "own/m").await.0, 404);
    good(&gateway, "DELETE", "providers/own", &Value::Null).await;
    assert_eq!(admin(&gateway, "GET", "providers/own", &Value::Null).await.status, 404);
}

#[tokio::test]
async fn providers_and_endpoints_of_the_file_are_shown_and_read_only() {
    let upstream = Upstream::start().await;
    let yaml = Yaml::one(upstream.base_url()).endpoint("line", &[("up", "m")]);
    let gateway = Gateway::start(&yaml).await;
    let shown = good(&gateway, "GET", "providers/up", &Value::Null).await;
    assert_eq!((&shown["source"], &shown["credential"]), (&json!("file"), &json!({"set": true})));
    assert!(!shown.to_string().contains("upstream-secret"), "{shown}");
    let shown = good(&gateway, "GET", "endpoints/line", &Value::Null).await;
    assert_eq!(
        (&shown["source"], &shown["failover"]),
        (&json!("file"), &json!([{"provider": "up", "model": "m"}]))
    );
    let member = json!({"failover": [{"provider": "up", "model": "m"}]});
    for (method, path, body) in [
        ("PATCH", "providers/up", json!({"disabled": true})),
        ("DELETE", "providers/up", Value::Null),
        ("PUT", "providers/up/bindings/prj_1", Value::Null),
        ("PUT", "endpoints/line", member.clone()),
        ("DELETE", "endpoints/line", Value::Null),
    ] {
        let (status, _, message) = refused(&gateway, method, path, &body).await;
        assert_eq!(status, 409, "{method} {path}");
        assert!(message.contains("comes from the configuration file"), "{message}");
    }
    for (path, name) in
        [("providers", "up"), ("providers", "line"), ("endpoints", "up"), ("endpoints", "line")]
    {
        let mut body =
            if path == "providers" { connection(name, upstream.base_url()) } else { member.clone() };
        body[if path == "providers" { "id" } else { "name" }] = json!(name);
        let (status, _, message) = refused(&gateway, "POST", path, &body).await;
        assert_eq!(status, 409, "{path} {name}: {message}");
    }
}

#[tokio::test]
async fn a_name_in_the_file_shadows_the_api_until_it_is_removed() {
    let (of_file, of_api) = (Upstream::start().await, Upstream::start().await);
    of_file.always(Answer::completion("file"));
    of_api.always(Answer::completion("api"));
    let gateway = Gateway::start(&Yaml::new()).await;
    good(&gateway, "POST", "providers", &connection("own", of_api.base_url())).await;
    good(&gateway, "POST", "providers", &connection("other", of_api.base_url())).await;
    let line = json!({"name": "line", "failover": [{"provider": "own", "model": "m"}]});
    good(&gateway, "POST", "endpoints", &line).await;
    assert_eq!(ask(&gateway, "line").await.1, "api");

    let yaml = Yaml::new().provider("own", of_file.base_url()).provider("line", of_file.base_url());
    gateway.write_config(yaml.endpoint("other", &[("own", "m")]).text());
    wait::eventually("the file in force", async || (ask(&gateway, "own/m").await.1 == "file").then_some(()))
        .await;
    assert_eq!(ask(&gateway, "line").await.0, 404, "the endpoint's name is a provider's now");
    assert_eq!(ask(&gateway, "other").await.1, "file", "the provider's name is an endpoint's now");
    assert_eq!(ask(&gateway, "other/m").await.0, 404);
    let listed = good(&gateway, "GET", "providers", &Value::Null).await;
    let brief = |listed: &Value| -> Vec<(String, String, bool)> {
        let text = |object: &Value, name: &str| object[name].as_str().unwrap().to_owned();
        let objects = listed["data"].as_array().unwrap().iter();
        objects.map(|o| (text(o, "id"), text(o, "source"), o["shadowed"] == true)).collect()
    };
    let entry = |id: &str, source: &str, shadowed| (id.to_owned(), source.to_owned(), shadowed);
    let want = [
        entry("line", "file", false),
        entry("other", "api", true),
        entry("own", "file", false),
        entry("own", "api", true),
    ];
    assert_eq!(brief(&listed), want);
    assert_eq!(
        good(&gateway, "GET", "endpoints?source=api", &Value::Null).await["data"][0]["shadowed"],
        true
    );
    let mut paged = Vec::new();
    let mut path = "providers?limit=1".to_owned();
    loop {
        let page = good(&gateway, "GET", &path, &Value::Null).await;
        paged.extend(brief(&page));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("providers?limit=1&cursor={}", cursor.replace('+', "%2B"));
    }
    assert_eq!(paged, want);
    assert_eq!(refused(&gateway, "PATCH", "providers/own", &json!({"region": "x"})).await.0, 409);
    let patched = good(&gateway, "PATCH", "providers/own?source=api", &json!({"region": "x"})).await;
    assert_eq!((&patched["region"], &patched["state"]), (&json!("x"), &json!("shadowed")));

    gateway.write_config("providers: {}\n");
    wait::eventually("the names free again", async || {
        (ask(&gateway, "own/m").await.1 == "api").then_some(())
    })
    .await;
    assert_eq!(ask(&gateway, "line").await.1, "api");
    assert_eq!(ask(&gateway, "other/m").await.1, "api");
}

#[tokio::test]
async fn an_endpoint_takes_known_models_and_keeps_their_order() {
    let (one, two) = (Upstream::start().await, Upstream::start().await);
    one.always(Answer::completion("one"));
    two.always(Answer::completion("two"));
    let gateway = Gateway::start(&Yaml::new().provider("one", one.base_url())).await;
    good(&gateway, "POST", "providers", &connection("two", two.base_url())).await;
    let member = |provider: &str, model: &str| json!({"provider": provider, "model": model});
    let (first, second) = (member("one", "m"), member("two", "n"));
    for (failover, param, hint) in [
        (json!([]), "failover", "1 to 100"),
        (json!([first, member("tow", "m")]), "failover[1].provider", "did you mean two?"),
        (json!([member("two", "mm")]), "failover[0].model", "did you mean m?"),
        (json!([first, second, first]), "failover[2]", "twice"),
    ] {
        let (status, at, message) =
            refused(&gateway, "POST", "endpoints", &json!({"name": "line", "failover": failover})).await;
        assert_eq!((status, at.as_str()), (400, param), "{message}");
        assert!(message.contains(hint), "{message}");
    }
    let made = json!({"name": "line", "failover": [first, second], "preamble": "Be brief."});
    let shown = good(&gateway, "POST", "endpoints", &made).await;
    assert_eq!((&shown["failover"], &shown["passed_over"]), (&made["failover"], &json!([])));
    assert_eq!(ask(&gateway, "line").await.1, "one");
    let turned = json!({"failover": [second, first]});
    assert_eq!(admin_if(&gateway, "PUT", "endpoints/line", &turned, "\"7\"").await.status, 412);
    assert_eq!(admin_if(&gateway, "PUT", "endpoints/line", &turned, "\"1\"").await.status, 200);
    assert_eq!(ask(&gateway, "line").await.1, "two");
    let shown = good(&gateway, "GET", "endpoints/line", &Value::Null).await;
    assert_eq!((&shown["failover"], &shown["preamble"]), (&turned["failover"], &Value::Null));

    let (status, _, message) = refused(&gateway, "DELETE", "providers/two", &Value::Null).await;
    assert!(status == 409 && message.contains("line"), "{message}");
    good(&gateway, "PATCH", "providers/two", &json!({"disabled": true})).await;
    assert_eq!(ask(&gateway, "line").await.1, "one", "a disabled member is passed over");
    let shown = good(&gateway, "GET", "endpoints/line", &Value::Null).await;
    assert_eq!(shown["passed_over"], json!([{"provider": "two", "model": "n", "reason": "disabled"}]));
    assert_eq!(admin(&gateway, "PUT", "endpoints/nil", &turned).await.status, 404);
    assert_eq!(admin(&gateway, "DELETE", "endpoints/line", &Value::Null).await.status, 204);
    assert_eq!(admin(&gateway, "DELETE", "providers/two", &Value::Null).await.status, 204);
    assert_eq!(ask(&gateway, "line").await.0, 404);
}

#[tokio::test]
async fn a_new_credential_starts_with_a_closed_circuit() {
    let upstream = Upstream::start().await;
    upstream.then(Answer::error(401)).always(Answer::completion("ok"));
    let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 1\ncircuit_cooldown_seconds: 3600";
    let gateway = Gateway::start(&Yaml::new().policies(policies)).await;
    good(&gateway, "POST", "providers", &connection("own", upstream.base_url())).await;
    assert_eq!(ask(&gateway, "own/m").await.0, 401);
    assert_eq!(ask(&gateway, "own/m").await, (503, "no_eligible_target".into()));
    good(&gateway, "PATCH", "providers/own", &json!({"region": "x"})).await;
    assert_eq!(ask(&gateway, "own/m").await.0, 503, "the same upstream and the same key");
    good(&gateway, "PATCH", "providers/own", &json!({"api_key": "another-key"})).await;
    assert_eq!(ask(&gateway, "own/m").await, (200, "ok".into()));
}

#[tokio::test]
async fn an_oauth_connection_without_sign_in_is_stored_and_not_connected() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let owner = good(&gateway, "POST", "principals", &json!({"name": "Ada"})).await["id"].clone();
    let body = json!({
        "id": "hers", "type": "compatible", "base_url": "http://127.0.0.1:9/v1", "auth": "oauth", "owner": owner,
        "models": ["m"],
    });
    let shown = good(&gateway, "POST", "providers", &body).await;
    assert_eq!((&shown["auth"], &shown["state"]), (&json!("oauth"), &json!("not_connected")));
    assert!(shown["reason"].as_str().unwrap().contains("sign-in is missing"), "{shown}");
    assert_eq!(shown["owner"], owner);
    let path = format!("principals/{}", owner.as_str().unwrap());
    let (status, _, message) = refused(&gateway, "DELETE", &path, &Value::Null).await;
    assert!(status == 409 && message.contains("hers"), "{message}");
    for (body, param) in [
        (json!({"auth": "api_key", "registry_id": "groq"}), "api_key"),
        (json!({"owner": "prn_nobody"}), "owner"),
        (json!({"auth": "magic"}), "auth"),
        (json!({"type": "echo", "base_url": null}), "auth"),
    ] {
        let (status, at, message) = refused(&gateway, "PATCH", "providers/hers", &body).await;
        assert_eq!((status, at.as_str()), (400, param), "{message}");
    }
    let (status, at, _) =
        refused(&gateway, "POST", "providers", &json!({"id": "detect", "type": "echo"})).await;
    assert_eq!((status, at.as_str()), (400, "id"));
    good(&gateway, "POST", "providers", &json!({"id": "local", "type": "echo", "models": ["echo"]})).await;
    assert_eq!(ask(&gateway, "local/echo").await.0, 200);
    assert!(good(&gateway, "GET", "providers/detect", &Value::Null).await["data"].is_array());
    let entries = good(&gateway, "GET", "registry", &Value::Null).await;
    assert!(entries["data"].as_array().unwrap().iter().any(|entry| entry["id"] == "groq"));
}

#[tokio::test]
async fn an_echo_provider_without_models_lists_and_serves_its_built_in_one() {
    let yaml = "providers: {bare: {type: echo}, named: {type: echo, models: [m]}}\n";
    let gateway = Setup::new(&Yaml::new()).yaml(yaml).start().await;
    good(&gateway, "POST", "providers", &json!({"id": "made", "type": "echo"})).await;
    for (model, status) in [("bare/echo", 200), ("made/echo", 200), ("named/m", 200), ("named/echo", 404)] {
        assert_eq!(ask(&gateway, model).await.0, status, "{model}");
    }
    let models = gateway.client().get("/v1/models").await.unwrap().json();
    let ids = models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap());
    let ids: Vec<&str> = ids.filter(|id| id.contains('/')).collect();
    assert_eq!(ids, ["bare/echo", "made/echo", "named/m"]);
}

#[tokio::test]
async fn a_private_provider_serves_its_owner_and_bound_projects() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hers"));
    let gateway = Gateway::start(&Yaml::new()).await;
    let admin = Admin(gateway.client());
    let ada = admin.create("principals", json!({"name": "Ada"})).await;
    let (home, other) = (admin.project("home").await, admin.project("other").await);
    admin.done("PUT", &format!("projects/{home}/members/{ada}"), json!({"role": "owner"})).await;
    let hers = admin.key(json!({"project": home, "acts_as": ada})).await.key;
    let strange = admin.key(json!({"project": other})).await.key;
    let mut body = connection("hers", upstream.base_url());
    body["owner"] = json!(ada);
    admin.done("POST", "providers", body.clone()).await;
    let ask = async |key: &str, model: &str| {
        let answer = Client::new(gateway.address(), Some(key)).chat(chat::request(model)).await;
        (answer.status, if answer.status == 200 { String::new() } else { answer.error_code() })
    };
    let good = (200, String::new());
    let private = (403, "private_provider".to_owned());
    assert_eq!(ask(&hers, "hers/m").await, good);
    assert_eq!(ask(&strange, "hers/m").await, private, "M-201");
    let path = format!("providers/hers/bindings/{other}");
    let bound = admin.done("PUT", &path, Value::Null).await;
    assert_eq!((&bound["bindings"][0]["project"], &bound["version"]), (&json!(other), &json!(2)));
    assert_eq!(ask(&strange, "hers/m").await, good, "M-202");
    let listed = Client::new(gateway.address(), Some(&strange)).get("/v1/models").await.unwrap().json();
    assert!(listed.to_string().contains("hers/m"), "{listed}");
    assert_eq!(admin.done("DELETE", &path, Value::Null).await["bindings"], json!([]));
    assert_eq!(ask(&strange, "hers/m").await, private);
    assert_eq!(admin.call("DELETE", &path, Value::Null).await.status, 404);
    assert_eq!(admin.call("PUT", "providers/hers/bindings/prj_none", Value::Null).await.status, 404);

    admin.done("PUT", &path, Value::Null).await;
    admin.done("PATCH", "providers/hers", json!({"owner": null})).await;
    assert_eq!(ask(&strange, "hers/m").await, good, "everybody's now");
    assert_eq!(admin.call("PUT", &path, Value::Null).await.status, 409, "nothing to share");
    let shown = admin.done("PATCH", "providers/hers", json!({"owner": ada})).await;
    assert_eq!(shown["bindings"], json!([]), "an earlier share does not come back");
    assert_eq!(ask(&strange, "hers/m").await, private);

    body["id"] = json!("oauth");
    body["auth"] = json!("oauth");
    body.as_object_mut().unwrap().remove("api_key");
    admin.done("POST", "providers", body).await;
    assert_eq!(ask(&strange, "oauth/m").await, private);
    assert_eq!(
        ask(&hers, "oauth/m").await,
        (503, "no_eligible_target".to_owned()),
        "its OAuth sign-in is missing"
    );
    assert_eq!(upstream.requests().len(), 3);
}

#[tokio::test]
async fn every_change_is_in_the_audit() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let admin = Admin(gateway.client());
    admin.done("POST", "providers", connection("own", "http://127.0.0.1:9/v1")).await;
    admin.done("PATCH", "providers/own", json!({"api_key": "another-planted-key-0045"})).await;
    let member = json!([{"provider": "own", "model": "m"}]);
    admin.done("POST", "endpoints", json!({"name": "line", "failover": member})).await;
    admin.done("PUT", "endpoints/line", json!({"failover": member, "preamble": "Be brief."})).await;
    admin.done("DELETE", "endpoints/line", Value::Null).await;
    admin.done("DELETE", "providers/own", Value::Null).await;
    let setup = gateway.kill().await;
    let db = rusqlite::Connection::open(setup.state().join("gateway.db")).unwrap();
    let mut statement = db.prepare("SELECT action, object_id, detail FROM audit ORDER BY id").unwrap();
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let rows: Vec<(String, String, String)> =
        statement.query_map([], read).unwrap().map(Result::unwrap).collect();
    let actions: Vec<_> = rows.iter().map(|(action, object, _)| format!("{action} {object}")).collect();
    assert_eq!(
        actions,
        [
            "provider.create own",
            "provider.edit own",
            "endpoint.create line",
            "endpoint.replace line",
            "endpoint.delete line",
            "provider.delete own",
        ]
    );
    let edit: Value = serde_json::from_str(&rows[1].2).unwrap();
    assert_eq!(
        (&edit["before"]["credential"]["last_four"], &edit["after"]["credential"]["last_four"]),
        (&json!("0042"), &json!("0045"))
    );
    assert!(rows.iter().all(|(_, _, detail)| !detail.contains("planted")), "{rows:?}");
}

#[tokio::test]
async fn a_provider_that_cannot_be_used_is_named_at_start_up_and_in_the_state() {
    let gateway = Gateway::start(&Yaml::new()).await;
    for (id, disabled) in [("both", false), ("off", true), ("well", false)] {
        let body = json!({"id": id, "type": "echo", "models": ["echo"], "disabled": disabled});
        good(&gateway, "POST", "providers", &body).await;
    }
    assert_eq!(good(&gateway, "GET", "state", &Value::Null).await["unusable"], json!([]));
    let yaml = "providers: {both: {type: echo, models: [echo]}, keyless: {registry_id: groq}}\n";
    let gateway = gateway.kill().await.yaml(yaml).start().await;
    let state = good(&gateway, "GET", "state", &Value::Null).await;
    let unusable = state["unusable"].as_array().unwrap();
    assert_eq!(unusable.len(), 2, "{unusable:?}");
    assert!(
        unusable[0]["provider"] == "both"
            && unusable[0]["reason"].as_str().unwrap().contains("Rename or delete")
    );
    assert!(
        unusable[1]["provider"] == "keyless"
            && unusable[1]["reason"].as_str().unwrap().contains("api_key is missing")
    );
    for logged in [
        "a provider receives no requests: The configuration file has a provider",
        "provider cannot be used: api_key is missing",
    ] {
        gateway.logs(logged).await;
    }
}
