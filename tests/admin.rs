//! The admin API from the outside: signing in, bodies that are too large or too slow, the output of operations routes.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

const SESSION: &str = "/admin/api/session";

#[tokio::test]
async fn a_browser_signs_in_makes_a_change_and_signs_out() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let nobody = Client::new(gateway.address(), None);
    let wrong = nobody.post(SESSION, r#"{"key": "not-the-key"}"#).await;
    assert_eq!((wrong.status, wrong.error_code().as_str()), (401, "invalid_api_key"));
    let signed_in = nobody.post(SESSION, format!(r#"{{"key": "{ADMIN_KEY}"}}"#)).await;
    assert_eq!(signed_in.status, 201);
    let cookie = signed_in.header("set-cookie").unwrap().to_owned();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict") && !cookie.contains("Secure"), "{cookie}");
    let page = nobody.clone().with("cookie", cookie.split(';').next().unwrap());
    let token = signed_in.json()["csrf_token"].as_str().unwrap().to_owned();

    assert_eq!(page.get("/admin/api/state").await.unwrap().status, 200);
    let make = r#"{"name": "Ada"}"#;
    assert_eq!(page.post("/admin/api/principals", make).await.status, 403, "no token");
    let with_token = page.clone().with("x-csrf-token", &token);
    let foreign = with_token.clone().with("origin", "http://evil.example");
    assert_eq!(foreign.post("/admin/api/principals", make).await.error_code(), "forbidden_origin");
    // The test's client uses this name for the gateway.
    let own = with_token.clone().with("host", "gateway.test").with("origin", "http://gateway.test");
    assert_eq!(own.post("/admin/api/principals", make).await.status, 201);
    // The data plane accepts only keys.
    assert_eq!(page.get("/v1/models").await.unwrap().status, 401);

    assert_eq!(with_token.send("DELETE", SESSION, Bytes::new()).await.unwrap().status, 204);
    assert_eq!(page.get("/admin/api/state").await.unwrap().status, 401);

    assert!(!gateway.log().contains(ADMIN_KEY));
}

#[tokio::test]
async fn an_html_form_body_is_rejected() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let form = gateway.client().with("content-type", "application/x-www-form-urlencoded");
    let answer = form.send("POST", "/admin/api/principals", "{\"name\": \"Ada\"}".into()).await.unwrap();
    assert_eq!((answer.status, answer.error_code().as_str()), (415, "unsupported_encoding"));
    let page = gateway.client().get("/admin/api/principals").await.unwrap();
    assert_eq!(page.json()["data"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn an_admin_body_over_one_mebibyte_is_rejected() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let body = |bytes: usize| {
        let name = "x".repeat(bytes - r#"{"name":""}"#.len());
        Bytes::from(format!(r#"{{"name":"{name}"}}"#))
    };
    let client = gateway.client();
    let send = |bytes| client.send("POST", "/admin/api/principals", body(bytes));
    let fits = send(1 << 20).await.unwrap();
    assert_eq!((fits.status, fits.json()["error"]["param"].as_str()), (400, Some("name")), "too long a name");
    assert_eq!(send((1 << 20) + 1).await.unwrap().status, 413);
}

#[tokio::test]
async fn wrong_keys_are_rate_limited_and_a_valid_key_is_not() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let wrong = Client::new(gateway.address(), Some("wrong"));
    for n in 0..20 {
        assert_eq!(wrong.get("/admin/api/state").await.unwrap().status, 401, "{n}");
    }
    let answer = wrong.get("/admin/api/state").await.unwrap();
    assert_eq!((answer.status, answer.error_code().as_str()), (429, "too_many_sign_ins"));
    assert!((1..=6).contains(&answer.header("retry-after").unwrap().parse::<u64>().unwrap()));
    assert_eq!(gateway.client().get("/admin/api/state").await.unwrap().status, 200);
}

#[tokio::test]
async fn provider_health_shows_the_open_circuit_and_its_last_failure() {
    let (bad, good) = (Upstream::start().await, Upstream::start().await);
    bad.always(Answer::error(503));
    good.always(Answer::completion("ok"));
    let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 2\ncircuit_cooldown_seconds: 600";
    let gateway = Gateway::start(&Yaml::line(&[bad.base_url(), good.base_url()]).policies(policies)).await;
    let client = gateway.client();
    for _ in 0..3 {
        assert_eq!(client.chat(chat::request("line")).await.status, 200);
    }
    let health = client.get("/admin/api/health/providers").await.unwrap().json();
    let [first, second] = health["data"].as_array().unwrap().as_slice() else { panic!("{health}") };
    assert_eq!((&first["provider"], &first["circuit"]["state"]), (&"p0".into(), &"open".into()));
    assert_eq!((&first["circuit"]["failures"], &first["circuit"]["failures_max"]), (&2.into(), &2.into()));
    assert!((1..=600_000).contains(&first["circuit"]["retry_in_ms"].as_u64().unwrap()), "{first}");
    assert!(first["circuit"]["open_since_ms"].as_u64().unwrap() > 1_700_000_000_000);
    assert_eq!(
        (&first["last_failure"]["result"], &first["last_failure"]["status"]),
        (&"status".into(), &503.into())
    );
    assert_eq!(first["recent"]["requests"], 0);
    assert_eq!((&second["circuit"]["state"], &second["recent"]["requests"]), (&"closed".into(), &3.into()));
    assert!(second["last_failure"].is_null() && second["recent"]["duration_us_avg"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn the_configuration_is_shown_with_its_sources_and_without_secrets() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let answer = gateway.client().get("/admin/api/config").await.unwrap();
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    for secret in [ADMIN_KEY, "upstream-secret-of-up"] {
        assert!(!text.contains(secret), "{text}");
    }
    let config = answer.json();
    let setting = |name: &str| {
        let settings = config["settings"].as_array().unwrap();
        settings.iter().find(|setting| setting["name"] == name).unwrap().clone()
    };
    assert_eq!(setting("LLMGW_API_KEY")["value"], "••••");
    assert_eq!(setting("LLMGW_API_KEY")["source"], "environment");
    assert_eq!(setting("LLMGW_BACKUP_KEEP")["source"], "default");
    assert_eq!(config["policies"]["defaults"]["retry_max_attempts"], 1);
    assert_eq!(
        (&config["providers"][0]["id"], &config["providers"][0]["source"]),
        (&"up".into(), &"file".into())
    );
    assert_eq!(config["file"], gateway.setup().config_path().display().to_string());
}

#[tokio::test]
async fn each_setting_shows_its_source_default_and_description() {
    let yaml = "# a comment\nserver:\n  drain_seconds: 7\n  host: 127.0.0.1\n  log_requests: true\n\
                cors: {origins: [\"https://app.example\"]}\n";
    let setup = Setup::new(&Yaml::new()).yaml(yaml).env("LLMGW_LOG_REQUESTS", "false");
    let gateway = setup.start().await;
    let config = gateway.client().get("/admin/api/config").await.unwrap().json();
    let settings = config["settings"].as_array().unwrap();
    let setting = |name: &str| {
        let found = settings.iter().find(|setting| setting["name"] == name);
        let found = found.unwrap_or_else(|| panic!("{name}: {config}"));
        ["path", "value", "default", "source", "line", "secret"].map(|member| found[member].clone())
    };
    for (name, want) in [
        ("LLMGW_DRAIN_SECONDS", json!(["server.drain_seconds", "7", "30", "file", 3, false])),
        ("LLMGW_HOST", json!(["server.host", "127.0.0.1", "127.0.0.1", "file", 4, false])),
        // The environment takes precedence over the line in the file.
        ("LLMGW_LOG_REQUESTS", json!(["server.log_requests", "false", "false", "environment", null, false])),
        ("cors.origins", json!(["cors.origins", "https://app.example", null, "file", 6, false])),
        ("LLMGW_BACKUP_KEEP", json!([null, "7", "7", "default", null, false])),
        ("LLMGW_PRICES_URL", json!([null, null, null, "default", null, false])),
        ("LLMGW_API_KEY", json!([null, "••••", null, "environment", null, true])),
        ("LLMGW_API_KEYS", json!([null, null, null, "default", null, true])),
        (
            "LLMGW_SSO_TRUSTED_PROXIES",
            json!([null, "127.0.0.0/8,::1/128", "127.0.0.0/8,::1/128", "default", null, false]),
        ),
    ] {
        assert_eq!(json!(setting(name)), want, "{name}");
    }
    for variable in control::config::VARIABLES {
        // Only one command reads this variable.
        let is_listed = variable.name != "LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY";
        assert_eq!(
            settings.iter().any(|setting| setting["name"] == variable.name),
            is_listed,
            "{}",
            variable.name
        );
    }
    for setting in settings {
        assert!(setting["doc"].as_str().unwrap().len() > 5 && setting["applies"] == "start", "{setting}");
    }
}

/// ADM-2: a page that has written an object needs no second request to show it.
#[tokio::test]
async fn writes_answer_in_the_shape_of_reads() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let admin = Admin(gateway.client());
    let get = async |path: &str| admin.done("GET", path, Value::Null).await;
    let project = admin.project("blue").await;
    let human = admin.create("principals", json!({"name": "Ada", "email": "ada@example.com"})).await;
    let member = format!("projects/{project}/members/{human}");
    let put = admin.done("PUT", &member, json!({"role": "owner"})).await;
    assert_eq!(put, get(&format!("projects/{project}/members")).await["data"][0]);
    assert_eq!(put["principal_name"], "Ada");

    let limits = json!([{"metric": "requests", "window": "day", "limit": 9}]);
    let new = json!({"name": "k", "project": project, "acts_as": human, "limits": limits});
    let mut made = admin.done("POST", "keys", new).await;
    let path = format!("keys/{}", made["id"].as_str().unwrap());
    assert_eq!((&made["project_name"], &made["acts_as_name"]), (&json!("blue"), &json!("Ada")));
    let limit = made["limits"][0].clone();
    assert_eq!(limit, get(&format!("quotas/{}", limit["id"].as_str().unwrap())).await);
    for member in ["key", "limits"] {
        made.as_object_mut().unwrap().remove(member);
    }
    assert_eq!(made, get(&path).await);
    let edited = admin.done("PATCH", &path, json!({"name": "other"})).await;
    assert_eq!(edited, get(&path).await);

    for (subject, window) in
        [(json!({"kind": "principal", "id": human}), "total"), (json!({"kind": "gateway"}), "month")]
    {
        let quota = json!({"subject": subject, "metric": "requests", "window": window, "limit": 5});
        let made = admin.done("POST", "quotas", quota).await;
        let path = format!("quotas/{}", made["id"].as_str().unwrap());
        assert_eq!(made, get(&path).await);
        assert_eq!((&made["used"], &made["remaining"]), (&json!(0), &json!(5)));
        let edited = admin.done("PATCH", &path, json!({"limit": 6})).await;
        assert_eq!(edited, get(&path).await);
    }
}
