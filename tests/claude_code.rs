//! The sign-in of Claude Code at the gateway, through the real binary: the device flow against a session of the console, the key
//! that it issues, and what that key is shown of settings and limits.

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::client::Whole;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

const SECRET: &str = "secret-of-the-proxy-of-claude-code";
const SECTION: &str = "claude_code:\n  sign_in: true\n  key_days: 7\n  login_notice: For staff.\n  settings: {model: opus, env: {B: '1', A: '2'}}\n";
const GRANT: &str = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code";

/// A gateway with the sign-in and single sign-on, and a client without a key.
struct Rig {
    gateway: Gateway,
    admin: Admin,
    client: Client,
}

impl Rig {
    async fn start(yaml: &Yaml) -> Self {
        Self::of(Setup::new(&yaml.clone().further(SECTION))).await
    }

    async fn of(setup: Setup) -> Self {
        let setup = setup
            .env("LLMGW_SSO_ENABLED", "true")
            .env("LLMGW_SSO_SHARED_SECRET", SECRET)
            .env("LLMGW_SSO_AUTO_PROVISION", "true");
        let gateway = setup.start().await;
        let (admin, client) = (Admin(gateway.client()), Client::new(gateway.address(), None));
        Self { gateway, admin, client }
    }

    /// Returns a human who is signed in to the console and a member of a new project.
    async fn person(&self, name: &str, role: &str) -> Person {
        let client = Client::new(self.gateway.address(), None)
            .with("origin", &format!("http://{}", self.gateway.address()))
            .with("sec-fetch-site", "same-origin")
            .with("x-llmgw-sso-secret", SECRET)
            .with("x-forwarded-user", name)
            .with("x-forwarded-email", &format!("{name}@example.org"));
        let opened = Admin(client.clone()).call("POST", "session", json!({"sso": true})).await;
        let cookie = opened.header("set-cookie").unwrap().split("; ").next().unwrap().to_owned();
        let session = opened.json();
        let client = client.with("cookie", &cookie);
        let admin = Admin(client.with("x-csrf-token", session["csrf_token"].as_str().unwrap()));
        let id = session["human"]["id"].as_str().unwrap().to_owned();
        let project = self.admin.project(&format!("project of {name}")).await;
        self.admin.done("PUT", &format!("projects/{project}/members/{id}"), json!({"role": role})).await;
        Person { id, admin, project }
    }

    async fn form(&self, path: &str, form: &str) -> Whole {
        let client = self.client.clone().with("content-type", "application/x-www-form-urlencoded");
        client.send("POST", path, form.to_owned().into()).await.unwrap()
    }

    /// Begins a sign-in; returns the codes of the client and of the person.
    async fn begin(&self) -> (String, String) {
        let begun = self.form("/oauth/device_authorization", "surface=claude_code&later=1").await.json();
        (text(&begun["device_code"]), text(&begun["user_code"]))
    }

    async fn token(&self, device_code: &str) -> Whole {
        self.form("/oauth/token", &format!("grant_type={GRANT}&device_code={device_code}")).await
    }

    /// Signs in as a person and returns a client with the new key.
    async fn signed_in(&self, person: &Person) -> Client {
        let (device_code, user_code) = self.begin().await;
        person.approve(&user_code).await;
        let token = self.token(&device_code).await;
        Client::new(self.gateway.address(), Some(&text(&token.json()["access_token"])))
    }
}

/// A human with a session.
struct Person {
    id: String,
    admin: Admin,
    project: String,
}

impl Person {
    async fn decide(&self, user_code: &str, way: &str, body: Value) -> Whole {
        self.admin.call("POST", &format!("device-sign-ins/{user_code}/{way}"), body).await
    }

    async fn approve(&self, user_code: &str) {
        let answer = self.decide(user_code, "approve", json!({"project": self.project})).await;
        assert_eq!(answer.status, 204, "{answer:?}");
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// Returns the status and the error of a refused form.
fn refusal(answer: &Whole) -> (u16, String) {
    (answer.status, text(&answer.json()["error"]))
}

#[tokio::test]
async fn a_person_approves_in_the_console_and_the_client_gets_an_ordinary_key_once() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("Hello."));
    let rig = Rig::start(&Yaml::one(upstream.base_url())).await;
    let origin = format!("http://{}", rig.gateway.address());
    let metadata = rig.client.get("/.well-known/oauth-authorization-server").await.unwrap().json();
    assert_eq!(metadata["device_authorization_endpoint"], format!("{origin}/oauth/device_authorization"));
    assert_eq!(metadata["gateway_protocol_version"], 1);
    let begun = rig.form("/oauth/device_authorization", "surface=claude_code").await;
    assert_eq!((begun.status, begun.header("cache-control")), (200, Some("no-store")));
    let begun = begun.json();
    let (device_code, user_code) = (text(&begun["device_code"]), text(&begun["user_code"]));
    assert_eq!((&begun["interval"], &begun["login_notice"]), (&json!(5), &json!("For staff.")));
    let link = text(&begun["verification_uri_complete"]);
    assert_eq!(link, format!("{origin}/device?user_code={user_code}"));
    let page = rig.client.get(link.strip_prefix(&origin).unwrap()).await.unwrap();
    assert_eq!(page.header("location"), Some(&*format!("/console/device?code={user_code}")));
    assert_eq!(refusal(&rig.token(&device_code).await), (400, "authorization_pending".to_owned()));

    let ada = rig.person("ada", "member").await;
    let shown =
        ada.admin.done("GET", &format!("device-sign-ins/{}", user_code.to_lowercase()), Value::Null).await;
    assert_eq!((&shown["state"], &shown["address"]), (&json!("pending"), &json!("127.0.0.1")), "{shown}");
    ada.approve(&user_code).await;
    assert_eq!(ada.decide(&user_code, "deny", Value::Null).await.status, 409, "it was decided");
    let token = rig.token(&device_code).await;
    assert_eq!((token.status, token.header("cache-control")), (200, Some("no-store")), "{token:?}");
    let token = token.json();
    assert_eq!((&token["expires_in"], &token["email"]), (&json!(7 * 86_400), &json!("ada@example.org")));
    assert_eq!(refusal(&rig.token(&device_code).await), (400, "expired_token".to_owned()), "once");

    let client = Client::new(rig.gateway.address(), Some(&text(&token["access_token"])));
    assert_eq!(client.chat(chat::request("m")).await.status, 200);
    let listed = ada.admin.done("GET", "keys", Value::Null).await["data"][0].clone();
    assert_eq!((&listed["name"], &listed["acts_as"]), (&json!("Claude Code"), &json!(ada.id)), "{listed}");
    assert_eq!(
        (&listed["recoverable"], &listed["tags"]),
        (&json!(false), &json!({"signed_in": "claude_code"}))
    );
    assert!(listed["expires_at_ms"].is_u64());
    let audit = rig.admin.done("GET", "audit?action=key.create", Value::Null).await["data"][0].clone();
    assert_eq!((&audit["actor"], &audit["object_id"]), (&json!(ada.id), &listed["id"]), "{audit}");
    let log = rig.gateway.log();
    assert!(!log.contains(&device_code) && !log.contains(&text(&token["access_token"])));

    let form = format!("token={}", text(&token["access_token"]));
    assert_eq!(rig.form("/oauth/revoke", &form).await.status, 200);
    let refused = client.send("POST", "/v1/messages", "{}".into()).await.unwrap();
    assert_eq!((refused.status, refused.header("x-should-retry")), (401, Some("false")));
    assert_eq!(rig.form("/oauth/token", "grant_type=refresh_token&refresh_token=a").await.status, 401);
}

#[tokio::test]
async fn a_sign_in_needs_a_person_who_may_mint_the_key_now() {
    let rig = Rig::start(&Yaml::new()).await;
    let (ada, vera) = (rig.person("ada", "member").await, rig.person("vera", "viewer").await);
    let (device_code, user_code) = rig.begin().await;
    let project = json!({"project": vera.project});
    assert_eq!(vera.decide(&user_code, "approve", project).await.status, 403, "a viewer mints no keys");
    let project = json!({"project": ada.project});
    assert!(
        [403, 404].contains(&vera.decide(&user_code, "approve", project).await.status),
        "not her project"
    );
    let path = format!("/admin/api/device-sign-ins/{user_code}/approve");
    let stranger = rig.client.clone().with("content-type", "application/json");
    assert_eq!(stranger.send("POST", &path, "{}".into()).await.unwrap().status, 401, "no session");
    assert_eq!(vera.decide(&user_code, "deny", Value::Null).await.status, 204);
    assert_eq!(refusal(&rig.token(&device_code).await), (400, "access_denied".to_owned()));

    // Between the approval and the client's question the person lost the role.
    let (device_code, user_code) = rig.begin().await;
    ada.approve(&user_code).await;
    let path = format!("projects/{}/members/{}", ada.project, ada.id);
    rig.admin.done("PUT", &path, json!({"role": "viewer"})).await;
    assert_eq!(refusal(&rig.token(&device_code).await), (400, "access_denied".to_owned()));
    rig.admin.done("PUT", &path, json!({"role": "member"})).await;
    rig.admin.done("PATCH", &format!("principals/{}", ada.id), json!({"disabled": true})).await;
    assert_eq!(refusal(&rig.token(&device_code).await), (400, "access_denied".to_owned()));
    rig.admin.done("PATCH", &format!("principals/{}", ada.id), json!({"disabled": false})).await;
    assert_eq!(rig.token(&device_code).await.status, 200);
}

#[tokio::test]
async fn codes_cannot_be_searched_for_and_sign_ins_of_a_network_are_limited() {
    let rig = Rig::start(&Yaml::new()).await;
    let mut statuses = Vec::new();
    for _ in 0..22 {
        let answer = rig.admin.call("GET", "device-sign-ins/BCDF-GHJK", Value::Null).await;
        statuses.push(answer.status);
    }
    assert_eq!((statuses[0], statuses[19], statuses[21]), (404, 404, 429), "{statuses:?}");
    let (device_code, user_code) = rig.begin().await;
    let found = rig.admin.call("GET", &format!("device-sign-ins/{user_code}"), Value::Null).await;
    assert_eq!(found.status, 200, "a right code is never delayed");
    let mut refused = None;
    for _ in 0..25 {
        let answer = rig.form("/oauth/device_authorization", "").await;
        if answer.status != 200 {
            refused = Some(refusal(&answer));
            break;
        }
    }
    assert_eq!(refused, Some((429, "slow_down".to_owned())));
    let mut errors = Vec::new();
    for _ in 0..5 {
        errors.push(refusal(&rig.token(&device_code).await).1);
    }
    assert_eq!((&*errors[3], &*errors[4]), ("authorization_pending", "slow_down"), "it did not wait");
    assert_eq!(refusal(&rig.token("guessed").await), (400, "expired_token".to_owned()));
    let answer = rig.form("/oauth/token", "grant_type=password").await;
    assert_eq!(refusal(&answer), (400, "unsupported_grant_type".to_owned()));
    assert_eq!(rig.client.get("/oauth/token").await.unwrap().status, 405);
    let long = format!("token={}", "a".repeat(5_000));
    assert_eq!(rig.form("/oauth/revoke", &long).await.status, 413);
}

#[tokio::test]
async fn an_administrators_key_approves_for_no_human_and_other_keys_are_not_revoked() {
    let rig = Rig::start(&Yaml::new()).await;
    let project = rig.admin.project("shared").await;
    let (device_code, user_code) = rig.begin().await;
    let path = format!("device-sign-ins/{user_code}/approve");
    assert_eq!(rig.admin.call("POST", &path, json!({"project": project})).await.status, 204);
    let token = rig.token(&device_code).await.json();
    assert_eq!(token["email"], Value::Null);
    let ordinary = rig.admin.key(json!({"project": project})).await;
    rig.form("/oauth/revoke", &format!("token={}", ordinary.key)).await;
    let client = Client::new(rig.gateway.address(), Some(&ordinary.key));
    assert_eq!(client.get("/v1/key").await.unwrap().status, 200, "its holders may share it");
}

#[tokio::test]
async fn the_sign_in_is_off_by_default_and_its_paths_do_not_exist() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let client = Client::new(gateway.address(), None);
    for path in ["/.well-known/oauth-authorization-server", "/device", "/oauth/token"] {
        assert_eq!(client.get(path).await.unwrap().status, 404, "{path}");
    }
    for path in ["/oauth/device_authorization", "/oauth/token", "/oauth/revoke"] {
        assert_eq!(client.send("POST", path, "a=b".into()).await.unwrap().status, 404, "{path}");
    }
    let admin = Admin(gateway.client());
    assert_eq!(admin.call("GET", "device-sign-ins/BCDF-GHJK", Value::Null).await.status, 404);
    for path in ["/managed/settings", "/api/oauth/usage"] {
        assert_eq!(client.get(path).await.unwrap().status, 404, "{path}");
        assert_eq!(gateway.client().get(path).await.unwrap().status, 404, "{path}");
    }
    for path in ["/v1/metrics", "/v1/logs", "/v1/traces"] {
        assert_eq!(client.send("POST", path, "a".into()).await.unwrap().status, 404, "{path}");
        assert_eq!(gateway.client().send("POST", path, "a".into()).await.unwrap().status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_model_that_the_key_may_not_use_is_a_policy_to_claude_code_alone() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("Hello."));
    let rig = Rig::start(&Yaml::one(upstream.base_url())).await;
    let ada = rig.person("ada", "member").await;
    let client = rig.signed_in(&ada).await;
    let key = ada.admin.done("GET", "keys", Value::Null).await["data"][0]["id"].clone();
    let body = json!({"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi."}]});
    let ask = async |client: &Client, path: &str| client.post(path, body.to_string()).await;
    assert_eq!(ask(&client, "/v1/messages").await.status, 200);
    let path = format!("keys/{}", text(&key));
    rig.admin.done("PATCH", &path, json!({"models": ["other/m"]})).await;
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let refused = ask(&client, path).await;
        assert_eq!((refused.status, refused.header("x-should-retry")), (400, Some("false")), "{refused:?}");
        let error = refused.json();
        assert_eq!(error["error"]["type"], "policy_blocked", "{path}");
        assert!(text(&error["error"]["message"]).contains("not allowed to use"), "{error}");
        assert_eq!(error["request_id"].as_str(), refused.header("x-request-id"));
    }
    let chat = client.chat(chat::request("m")).await;
    assert_eq!((chat.status, &chat.json()["error"]["code"]), (403, &json!("not_allowed")));
    let ordinary = rig.admin.key(json!({"project": ada.project, "models": ["other/m"]})).await;
    let refused = ask(&Client::new(rig.gateway.address(), Some(&ordinary.key)), "/v1/messages").await;
    assert_eq!((refused.status, &refused.json()["error"]["type"]), (403, &json!("permission_error")));
}

#[tokio::test]
async fn managed_settings_have_a_checksum_by_which_a_client_knows_them() {
    let rig = Rig::start(&Yaml::new()).await;
    let ada = rig.person("ada", "member").await;
    let client = rig.signed_in(&ada).await;
    let answer = client.get("/managed/settings").await.unwrap();
    let served = answer.json();
    assert_eq!(served["settings"], json!({"model": "opus", "env": {"A": "2", "B": "1"}}));
    let checksum = text(&served["checksum"]);
    assert_eq!(checksum, "sha256:19eeb3f73088894ebe1a27f7a8f35a06b9db31393f77851547e8d57527405f9f");
    assert_eq!(answer.header("etag"), Some(&*format!("\"{checksum}\"")));
    let again = client.clone().with("if-none-match", &format!("\"{checksum}\""));
    let again = again.get("/managed/settings").await.unwrap();
    assert_eq!((again.status, again.body.len()), (304, 0));
    let any = client.with("if-none-match", "*").get("/managed/settings").await.unwrap();
    assert_eq!(any.status, 200);
}

#[tokio::test]
async fn a_limit_on_cost_is_shown_in_the_words_of_claude_code_to_its_keys_alone() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("Hello."));
    let prices = "models:\n  - id: m\n    prices: { input: 1.0, output: 1000.0 }";
    let rig = Rig::start(&Yaml::new().provider_with("up", upstream.base_url(), prices)).await;
    let ada = rig.person("ada", "member").await;
    let client = rig.signed_in(&ada).await;
    let body = json!({"model": "up/m", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi."}]});
    let ask = async |client: &Client| client.post("/v1/messages", body.to_string()).await;
    let unlimited = ask(&client).await;
    assert_eq!((unlimited.status, unlimited.header(STATUS)), (200, None), "{unlimited:?}");
    let usage = client.get("/api/oauth/usage").await.unwrap().json();
    assert_eq!((&usage["limits"], &usage["extra_usage"]["monthly_limit"]), (&json!([]), &Value::Null));
    assert!(usage["extra_usage"]["weekly"]["used_credits"].is_u64(), "{usage}");

    let key = ada.admin.done("GET", "keys", Value::Null).await["data"][0]["id"].clone();
    let quota = json!({"subject": {"kind": "key", "id": key}, "metric": "cost_micro_usd", "window": "month", "limit": 50_000});
    rig.admin.done("POST", "quotas", quota).await;
    let ordinary = rig.admin.key(json!({"project": ada.project, "limits": [{"metric": "cost_micro_usd", "window": "month", "limit": 1}]})).await;
    let ordinary = Client::new(rig.gateway.address(), Some(&ordinary.key));
    let refused = ask(&ordinary).await;
    assert_eq!((refused.status, refused.header(STATUS)), (429, None), "other clients get their own headers");
    assert_eq!(refused.json()["error"]["type"], "rate_limit_error");

    let first = ask(&client).await;
    assert_eq!((first.status, first.header(STATUS)), (200, Some("allowed")), "{first:?}");
    assert_eq!(first.header("anthropic-ratelimit-unified-representative-claim"), Some("overage"));
    assert!(first.header("anthropic-ratelimit-unified-overage-utilization").unwrap().starts_with("0."));
    let mut last = first;
    // A request whose usage is not settled yet holds the rest for a moment.
    for _ in 0..50 {
        if last.status == 429 && last.json()["error"]["type"] == "billing_error" {
            break;
        }
        last = ask(&client).await;
    }
    let error = last.json()["error"].clone();
    assert_eq!((last.status, &error["type"]), (429, &json!("billing_error")), "{error}");
    let message = text(&error["message"]);
    assert!(message.contains("It resets at 20") && message.contains("Ask an administrator"), "{message}");
    for (name, want) in [
        (STATUS, Some("rejected")),
        ("x-should-retry", Some("false")),
        ("anthropic-ratelimit-unified-overage-period", Some("monthly")),
        ("anthropic-ratelimit-unified-overage-disabled-reason", Some("org_spend_cap_reached")),
        // With it, the client would show other words than the message.
        ("anthropic-ratelimit-unified-representative-claim", None),
    ] {
        assert_eq!(last.header(name), want, "{name}");
    }
    let reset: u64 = last.header("anthropic-ratelimit-unified-reset").unwrap().parse().unwrap();
    let usage = client.get("/api/oauth/usage").await.unwrap().json();
    let limit = &usage["limits"][0];
    assert_eq!((&usage["extra_usage"]["monthly_limit"], &limit["group"]), (&json!(5), &json!("monthly")));
    let resets_at: jiff::Timestamp = limit["resets_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(u64::try_from(resets_at.as_second()).unwrap(), reset, "the same second");
}

#[tokio::test]
async fn telemetry_is_relayed_to_the_collector_as_it_came_within_bounds() {
    let collector = Upstream::start().await;
    collector.always(Answer::json(200, "{}"));
    let setup = Setup::new(&Yaml::new().further(SECTION))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", collector.address()))
        .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20of-the-collector")
        .env("OTEL_TRACES_EXPORTER", "none")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "3600000");
    let rig = Rig::of(setup).await;
    let ada = rig.person("ada", "member").await;
    let client = rig.signed_in(&ada).await.with("content-type", "application/x-protobuf");
    let post = async |client: &Client, path: &str, bytes: usize| {
        client.send("POST", path, vec![7; bytes].into()).await.unwrap().status
    };
    assert_eq!(post(&client, "/v1/metrics", 3).await, 200);
    let relayed = collector.request(0).await;
    assert!(relayed.head.starts_with("POST /v1/metrics "), "{}", relayed.head);
    assert_eq!(&*relayed.body, &[7; 3]);
    assert_eq!(relayed.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(relayed.header("authorization"), Some("Bearer of-the-collector"), "not the key");
    assert_eq!(post(&client, "/v1/logs", 1 << 20).await, 200);
    assert_eq!(post(&client, "/v1/logs", (1 << 20) + 1).await, 413);
    assert_eq!(post(&client, "/v1/traces", 3).await, 501, "no collector takes traces");
    assert_eq!(collector.requests().len(), 2);
    let ordinary = rig.admin.key(json!({"project": ada.project})).await;
    assert_eq!(post(&Client::new(rig.gateway.address(), Some(&ordinary.key)), "/v1/logs", 3).await, 403);
    collector.always(Answer::json(401, "{}"));
    assert_eq!(post(&client, "/v1/logs", 3).await, 502, "the client's own key is right");
    assert_eq!(post(&rig.client, "/v1/logs", 3).await, 401);
}

const STATUS: &str = "anthropic-ratelimit-unified-status";
