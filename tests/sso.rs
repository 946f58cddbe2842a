//! Single sign-on of the built binary: the settings, and what reaches an upstream (AUTH-7, M-108).

use serde_json::{Value, json};

use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

const SECRET: &str = "never-shown-secret-of-the-proxy";

fn setup() -> Setup {
    Setup::new(&Yaml::new()).env("LLMGW_SSO_ENABLED", "true").env("LLMGW_SSO_SHARED_SECRET", SECRET)
}

/// Returns a client whose requests carry these headers, and no key.
fn proxy(gateway: &Gateway, headers: &[(&str, &str)]) -> Client {
    let client = Client::new(gateway.address(), None);
    headers.iter().fold(client, |client, (name, value)| client.with(name, value))
}

async fn sign_in(client: &Client) -> (u16, Value) {
    let client = client.clone().with("content-type", "application/json");
    let answer =
        client.send("POST", "/admin/api/session", json!({"sso": true}).to_string().into()).await.unwrap();
    (answer.status, answer.json())
}

#[tokio::test]
async fn single_sign_on_without_a_secret_does_not_start() {
    let setup = Setup::new(&Yaml::new()).env("LLMGW_SSO_ENABLED", "true");
    let output = setup.run(&["serve"]).await;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(78), "{text}");
    assert!(text.contains("LLMGW_SSO_SHARED_SECRET: is required while LLMGW_SSO_ENABLED is true"), "{text}");
}

#[tokio::test]
async fn the_settings_of_single_sign_on_decide_who_is_admitted() {
    let gateway = setup()
        .env("LLMGW_SSO_PRESET", "authentik")
        .env("LLMGW_SSO_ADMIN_GROUP", "operators")
        .env("LLMGW_SSO_AUTO_PROVISION", "true")
        .env("LLMGW_SSO_USER_HEADER", "x-user")
        .env("LLMGW_SSO_EMAIL_HEADER", "x-email")
        .env("LLMGW_SSO_NAME_HEADER", "x-name")
        .env("LLMGW_SSO_GROUPS_HEADER", "x-groups")
        .env("LLMGW_SSO_SIGN_OUT_URL", "https://id.example/out")
        .start()
        .await;
    let headers = [("x-llmgw-sso-secret", SECRET), ("x-user", "u1"), ("x-email", "A@b.c"), ("x-name", "Ada")];
    let (status, session) = sign_in(&proxy(&gateway, &headers)).await;
    assert_eq!((status, &session["administrator"]), (201, &json!(false)), "{session}");
    assert_eq!(session["human"]["name"], "Ada");
    let (_, session) = sign_in(&proxy(&gateway, &headers).with("x-groups", "staff|operators")).await;
    assert_eq!((&session["administrator"], &session["human"]["email"]), (&json!(true), &json!("a@b.c")));
    assert_eq!(session["sso"]["sign_out_url"], "https://id.example/out");
    let state = gateway.client().get("/admin/api/state").await.unwrap().json();
    assert_eq!(state["sso"]["preset"], "authentik", "{state}");
    assert_eq!(state["sso"]["admin_group"], "operators");
    assert_eq!(state["sso"]["groups_header"], "x-groups");
    assert_eq!(state["sso"]["problems"], json!([]));
    let config = gateway.client().get("/admin/api/config").await.unwrap().json();
    assert!(!format!("{state}{config}{}", gateway.log()).contains(SECRET));
}

#[tokio::test]
async fn identity_headers_from_an_address_that_is_not_trusted_admit_nobody() {
    let gateway = setup()
        .env("LLMGW_SSO_TRUSTED_PROXIES", "10.0.0.0/8")
        .env("LLMGW_SSO_AUTO_PROVISION", "true")
        .env("LLMGW_SSO_PRESET", "cloudflare-access")
        .start()
        .await;
    let headers = [("x-llmgw-sso-secret", SECRET), ("cf-access-authenticated-user-email", "a@b.c")];
    assert_eq!(sign_in(&proxy(&gateway, &headers)).await.0, 401);
    let state = gateway.client().get("/admin/api/state").await.unwrap().json();
    let problem = state["sso"]["problems"][0].as_str().unwrap();
    assert!(problem.contains("LLMGW_SSO_GROUPS_HEADER"), "{state}");
    assert!(state["warnings"].to_string().contains(problem), "{state}");
    gateway.logs(problem).await;
}

#[tokio::test]
async fn settings_without_single_sign_on_are_reported_as_without_effect() {
    let gateway = Setup::new(&Yaml::new()).env("LLMGW_SSO_ADMIN_GROUP", "operators").start().await;
    let state = gateway.client().get("/admin/api/state").await.unwrap().json();
    assert_eq!(
        state["warnings"],
        json!(["LLMGW_SSO_ADMIN_GROUP has no effect, because LLMGW_SSO_ENABLED is not true"])
    );
    assert_eq!(state["sso"], Value::Null);
}

#[tokio::test]
async fn identity_headers_and_the_secret_reach_no_upstream_and_open_no_data_plane() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("Hello."));
    let gateway = Setup::new(&Yaml::one(upstream.base_url()))
        .env("LLMGW_SSO_ENABLED", "true")
        .env("LLMGW_SSO_SHARED_SECRET", SECRET)
        .start()
        .await;
    let headers =
        [("x-llmgw-sso-secret", SECRET), ("x-forwarded-user", "u1"), ("x-forwarded-groups", "llmgw-admin")];
    let body = chat::request("m");
    let post = |client: Client, body: String| async move {
        let client = client.with("content-type", "application/json");
        client.send("POST", "/v1/chat/completions", body.into()).await.unwrap().status
    };
    assert_eq!(post(proxy(&gateway, &headers), body.clone()).await, 401);
    let with_key = headers.iter().fold(gateway.client(), |client, (name, value)| client.with(name, value));
    assert_eq!(post(with_key, body).await, 200);
    let requests = upstream.requests();
    assert_eq!(requests.len(), 1);
    for (name, _) in headers {
        assert_eq!(requests[0].header(name), None, "{name}");
    }
}

/// A proxy's right secret is never slowed by wrong ones from its own address.
#[tokio::test]
async fn wrong_secrets_of_a_proxy_are_slowed_and_audited() {
    let gateway = setup().env("LLMGW_SSO_AUTO_PROVISION", "true").start().await;
    let guess = |n: usize| {
        let secret = format!("guessed-{n}");
        proxy(&gateway, &[("x-llmgw-sso-secret", &secret), ("x-forwarded-user", "u1")])
    };
    for n in 0..20 {
        assert_eq!(guess(n).get("/admin/api/principals").await.unwrap().status, 401, "{n}");
    }
    let refused = guess(20).get("/admin/api/principals").await.unwrap();
    assert_eq!((refused.status, refused.error_code().as_str()), (429, "too_many_sign_ins"));
    let right = proxy(&gateway, &[("x-llmgw-sso-secret", SECRET), ("x-forwarded-user", "u1")]);
    assert_eq!(sign_in(&right).await.0, 201);
    let audited = gateway.client().get("/admin/api/audit?action=access.refuse").await.unwrap().json();
    assert!(!audited["data"].as_array().unwrap().is_empty(), "{audited}");
}
