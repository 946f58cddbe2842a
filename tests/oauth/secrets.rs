//! Planted secrets of OAuth: client secret, code, verifier, state, cookies, access and refresh tokens, device code.

use serde_json::{Value, json};

use crate::secrets::Planted;
use crate::support::admin::Admin;
use crate::support::gateway::{ENCRYPTION_KEY, Setup};
use crate::support::vendor::{Browser, CLIENT_SECRET, Vendor, form, setup};
use crate::support::{Answer, Client, Gateway, Yaml, chat, wait};

const OTHER_KEY: &str = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=";

/// M-105: the client secret is in no file, and neither is any token, in clear.
#[tokio::test]
async fn no_secret_of_a_sign_in_is_stored_logged_or_returned() {
    let vendor = Vendor::start().await;
    let gateway =
        setup(&Yaml::new()).env("LLMGW_LOG", "trace").env("LLMGW_LOG_REQUESTS", "true").start().await;
    let admin = Admin(gateway.client());
    let ada = admin.create("principals", json!({"name": "Ada"})).await;
    let project = admin.project("home").await;
    admin.done("PUT", &format!("projects/{project}/members/{ada}"), json!({"role": "owner"})).await;
    let key = admin.key(json!({"project": project, "acts_as": ada})).await.key;
    let mut provider = vendor.provider(&ada);
    provider["oauth"]["device_authorization_url"] =
        json!(format!("http://{}/device", vendor.server.address()));
    admin.done("POST", "providers", provider).await;
    let browser = Browser::sign_in(&gateway).await;
    let mut planted = Planted::default();
    planted.add("the client secret", CLIENT_SECRET);
    planted.add("the client secret, encoded", "planted-client-secret-55%2F%2B");
    let (page, cookie) = browser.begin(&json!({})).await;
    let state = form(page.split_once('?').unwrap().1)["state"].clone();
    planted.add("the state", &state);
    planted.add("the cookie", cookie.split_once('=').unwrap().1);
    planted.add("the code", "planted-code-1");
    planted.add("the device code", "planted-device-code");
    let mut answers = Vec::new();
    let (status, text) = browser.callback(&vendor.consent(&page), &cookie).await;
    assert_eq!(status, 200, "{text}");
    answers.push(text);
    let verifier = vendor.forms("/token")[0]["code_verifier"].clone();
    assert_eq!(verifier.len(), 43);
    planted.add("the verifier", &verifier);
    let mut tokens = vendor.tokens();
    // The API quotes the tokens in an error, and the token address quotes the secret and the token that it got.
    let client = Client::new(gateway.address(), Some(&key));
    let quoted = format!("Incorrect token {} {} {CLIENT_SECRET}", tokens[0], tokens[1]);
    vendor.api.then(Answer::json(403, chat::error(&quoted, "bad")));
    answers.push(format!("{:?}", client.chat(chat::request("partner/m")).await));
    let quoting = json!({"error": "invalid_scope", "error_description": quoted}).to_string();
    vendor.script_token(Answer::json(400, &quoting));
    vendor.end_access();
    answers.push(format!("{:?}", client.chat(chat::request("partner/m")).await));
    wait::eventually("the refresh", async || (vendor.refreshes() == 2).then_some(())).await;
    tokens.extend(vendor.tokens());
    for token in &tokens {
        planted.add("a token", token);
    }
    let (page, cookie) = browser.begin(&json!({})).await;
    let quoted = format!("{} {CLIENT_SECRET} planted-code-4", vendor.tokens().join(" "));
    let quoting = json!({"error": "invalid_scope", "error_description": quoted}).to_string();
    vendor.script_token(Answer::json(400, &quoting));
    planted.add("the second code", "planted-code-4");
    answers.push(browser.callback(&vendor.consent(&page), &cookie).await.1);
    let device = admin.done("POST", "providers/partner/oauth/start", json!({"method": "device"})).await;
    answers.push(device.to_string());
    answers.extend(shown_by(&gateway).await);
    admin.done("POST", "backups", json!({})).await;
    for answer in &answers {
        planted.expect_none("an answer", answer.as_bytes());
    }
    planted.expect_none("the log", gateway.log().as_bytes());
    let setup = gateway.kill().await;
    assert!(planted.expect_none_below(&setup.state()) > 3);
    expect_use_after_rekey(setup, &key).await;
}

/// Returns the answers of the admin API that show providers, settings and their changes.
async fn shown_by(gateway: &Gateway) -> Vec<String> {
    let mut answers = Vec::new();
    for path in [
        "providers",
        "providers/partner",
        "state",
        "config",
        "audit?limit=500",
        "audit/export?format=jsonl",
        "registry",
    ] {
        let answer = gateway.client().get(&format!("/admin/api/{path}")).await.unwrap();
        answers.push(String::from_utf8_lossy(&answer.body).into_owned());
    }
    answers
}

/// Encrypts the state with another key, and expects that the tokens are used as before.
async fn expect_use_after_rekey(setup: Setup, key: &str) {
    let setup = setup.env("LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY", OTHER_KEY);
    assert!(setup.run(&["credentials", "rekey"]).await.status.success());
    assert_ne!(ENCRYPTION_KEY, OTHER_KEY);
    let setup = setup
        .env("LLMGW_CREDENTIAL_ENCRYPTION_KEY", OTHER_KEY)
        .without("LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY");
    let gateway = setup.start().await;
    let shown = Admin(gateway.client()).done("GET", "providers/partner", Value::Null).await;
    assert_eq!(shown["state"], "ready", "{shown}");
    let client = Client::new(gateway.address(), Some(key));
    assert_eq!(client.chat(chat::request("partner/m")).await.status, 200);
}
