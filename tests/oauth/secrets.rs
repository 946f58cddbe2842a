//! Planted secrets of OAuth: client secret, codes, verifiers, states, cookies, CSRF token, access and refresh tokens, device code.

use serde_json::{Value, json};

use crate::secrets::{Planted, Watchers};
use crate::support::admin::Admin;
use crate::support::figure::figure;
use crate::support::gateway::{ENCRYPTION_KEY, Setup};
use crate::support::vendor::{Browser, CLIENT_ID, CLIENT_SECRET, Vendor, form, setup};
use crate::support::{Answer, Client, Yaml, chat, wait};

const OTHER_KEY: &str = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=";

/// What humans and the vendor sent in a sign-in, and what the API must not show of it.
struct SignIns {
    vendor: Vendor,
    admin: Admin,
    browser: Browser,
    planted: Planted,
    answers: Vec<String>,
    /// A client with a key that acts as the human.
    client: Client,
}

impl SignIns {
    /// Plants the state, the cookie and the code of a sign-in in a browser, goes through it, and returns the status of its last page.
    async fn begin(&mut self, code: &str) -> u16 {
        let (page, cookie) = self.browser.begin(&json!({})).await;
        let query = form(page.split_once('?').unwrap().1);
        self.planted.add("the state", &query["state"]);
        self.planted.add("the cookie", cookie.split_once('=').unwrap().1);
        self.planted.add("the code", code);
        let callback = self.vendor.consent(&page);
        assert!(callback.contains(&format!("code={code}&")), "{callback}");
        // Another browser presents the state and the code first.
        self.answers.push(self.browser.callback(&callback, "llmgw_oauth_00000000=other").await.1);
        let (status, text) = self.browser.callback(&callback, &cookie).await;
        self.answers.push(text);
        for sent in self.vendor.forms("/token").iter().filter_map(|form| form.get("code_verifier")) {
            assert_eq!(sent.len(), 43);
            self.planted.add("a verifier", sent);
        }
        self.plant_tokens();
        status
    }

    /// A consent that the human denies; the vendor quotes the state.
    async fn denied(&mut self) {
        let (page, cookie) = self.browser.begin(&json!({})).await;
        let state = form(page.split_once('?').unwrap().1)["state"].clone();
        let callback =
            format!("/oauth/callback/partner?error=access_denied&error_description=no+{state}&state={state}");
        let (status, text) = self.browser.callback(&callback, &cookie).await;
        assert!(status == 400 && text.contains("access_denied: no"), "{text}");
        self.answers.push(text);
        self.planted.add("the state", state);
    }

    fn plant_tokens(&mut self) {
        for token in self.vendor.tokens() {
            self.planted.add("a token", token);
        }
    }

    /// Returns an error of the vendor that quotes all its secrets.
    fn quoting(&self, error: &str) -> String {
        let quoted = format!(
            "no: {} {CLIENT_SECRET} planted-code-1 planted-code-3 planted-device-code",
            self.vendor.tokens().join(" ")
        );
        json!({"error": error, "error_description": quoted}).to_string()
    }

    /// Starts a sign-in on another device.
    async fn on_device(&mut self) {
        let started =
            self.admin.done("POST", "providers/partner/oauth/start", json!({"method": "device"})).await;
        assert_eq!(started["user_code"], "ABCD-1234");
        self.answers.push(started.to_string());
    }

    async fn chat(&mut self) -> u16 {
        let answer = self.client.chat(chat::request("partner/m")).await;
        self.answers.push(format!("{answer:?}"));
        answer.status
    }

    /// A refresh that the vendor refuses with an error that quotes the secrets, as its API does before.
    async fn refused_refresh(&mut self) {
        let quoted = self.vendor.tokens().join(" ");
        self.vendor.api.then(Answer::json(403, chat::error(&format!("no: {quoted} {CLIENT_SECRET}"), "bad")));
        assert_eq!(self.chat().await, 403);
        self.vendor.script_token(Answer::json(400, self.quoting("invalid_grant")));
        self.vendor.end_access();
        self.chat().await;
        wait::eventually("the disconnection", async || (self.state().await == "not_connected").then_some(()))
            .await;
    }

    /// Sign-ins on another device: one that the human refuses, and one that they consent to. Then a refresh.
    async fn devices_and_refresh(&mut self) {
        self.vendor.script_token(Answer::json(400, self.quoting("access_denied")));
        self.on_device().await;
        wait::eventually("the refusal", async || {
            let shown = self.admin.done("GET", "providers/partner", Value::Null).await;
            shown["sign_in"]["last_error"]["message"].as_str()?.contains("access_denied").then_some(())
        })
        .await;
        self.vendor.approve_device();
        self.on_device().await;
        wait::eventually("the sign-in", async || (self.state().await == "ready").then_some(())).await;
        self.plant_tokens();
        self.vendor.end_access();
        assert_eq!(self.chat().await, 200, "after a refresh");
        assert_eq!(self.vendor.refreshes(), 2);
        self.plant_tokens();
    }

    async fn state(&self) -> String {
        let shown = self.admin.done("GET", "providers/partner", Value::Null).await;
        shown["state"].as_str().unwrap().to_owned()
    }

    /// Revocations: one that the vendor fails with an error that quotes the tokens, and one that it makes.
    async fn revocations(&mut self, code: &str) {
        self.vendor.server.then(Answer::json(500, self.quoting("server_error")));
        for revoked in [false, true] {
            let ended = self.admin.done("DELETE", "providers/partner/oauth", Value::Null).await;
            assert_eq!(ended["revoked"], revoked, "{ended}");
            self.answers.push(ended.to_string());
            if !revoked {
                assert_eq!(self.begin(code).await, 200);
            }
        }
    }
}

/// M-105: no secret of a sign-in, a refresh or a revocation, made or refused, is in an answer, a log, a file or a backup.
#[tokio::test]
async fn no_secret_of_a_sign_in_is_stored_logged_or_returned() {
    let (vendor, watchers) = (Vendor::start().await, Watchers::start().await);
    let gateway = watchers.setup(setup(&Yaml::new())).start().await;
    watchers.hook(&gateway).await;
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
    planted.add("the client's credentials", format!("{CLIENT_ID}:{CLIENT_SECRET}"));
    planted.add("the device code", "planted-device-code");
    planted.add("the session", browser.client.sends("cookie").split_once('=').unwrap().1);
    planted.add("the CSRF token", browser.client.sends("x-csrf-token"));
    let client = Client::new(gateway.address(), Some(&key));
    let mut flows = SignIns { vendor, admin, browser, planted, answers: Vec::new(), client };
    assert_eq!(flows.begin("planted-code-1").await, 200);
    flows.refused_refresh().await;
    flows.denied().await;
    flows.vendor.script_token(Answer::json(400, flows.quoting("invalid_client")));
    assert_eq!(flows.begin("planted-code-3").await, 400, "a sign-in that the vendor refuses");
    flows.devices_and_refresh().await;
    flows.revocations("planted-code-6").await;
    assert_eq!(flows.begin("planted-code-8").await, 200);
    let (setup, places) = flows.planted.expect_nowhere(gateway, &watchers, &flows.answers).await;
    figure("P18", format!("{} secrets of sign-ins: 0 found in {places}", flows.planted.len()));
    expect_use_after_rekey(setup, &key).await;
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
