//! Sign-ins at providers of extensions: the same routes, bounds and refreshes as those of OAuth vendors (ADM-7, AUTH-4).

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::issuer::{SignInRig, setup};
use super::secret;
use crate::secrets::{Planted, Watchers};
use crate::support::admin::Admin;
use crate::support::figure::figure;
use crate::support::upstream::refusing_url;
use crate::support::vendor::form;
use crate::support::{Answer, Client, Gate, chat, wait};

/// M-112: a provider of an extension has a sign-in of its own, whose credential is private to the human.
#[tokio::test]
async fn a_human_signs_in_to_a_provider_of_an_extension() {
    let rig = SignInRig::start().await;
    let before = rig.shown().await;
    assert_eq!((&before["state"], &before["sign_in"]["state"]), (&json!("not_connected"), &json!("none")));
    assert_eq!((&before["sign_in"]["lacks"], &before["sign_in"]["on_device"]), (&Value::Null, &json!(true)));
    assert_eq!(rig.client().chat(chat::request("partner/m")).await.error_code(), "no_eligible_target");
    rig.connect().await;
    let shown = rig.shown().await;
    let sign_in = &shown["sign_in"];
    assert_eq!((&shown["state"], &sign_in["state"]), (&json!("ready"), &json!("connected")), "{shown}");
    assert_eq!((&sign_in["scopes"], &sign_in["renewable"]), (&json!(["models"]), &json!(true)));

    let answer = rig.client().chat(chat::request("partner/m")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let sent = rig.issuer.extension.requests().pop().unwrap();
    super::expect_signed(&sent);
    let credential = sent.header("x-llmgw-credential").unwrap();
    assert!(credential.starts_with("planted-credential-"), "{credential}");

    let other = rig.admin.project("other").await;
    let strange = rig.admin.key(json!({"project": other})).await.key;
    let strange = Client::new(rig.gateway.address(), Some(&strange));
    let refused = strange.chat(chat::request("partner/m")).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (403, "private_provider"));
    rig.admin.done("PUT", &format!("providers/partner/bindings/{other}"), Value::Null).await;
    assert_eq!(strange.chat(chat::request("partner/m")).await.status, 200);

    let moved = json!({"url": refusing_url().await.replace("/v1", "")});
    rig.admin.done("PATCH", "extensions/companion", moved).await;
    let reason = rig.shown().await["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("granted for another"), "another address never gets it: {reason}");
    rig.admin.done("PATCH", "extensions/companion", json!({"url": super::url(&rig.issuer.extension)})).await;
    assert_eq!(rig.shown().await["state"], "ready");
    let ended = rig.admin.done("DELETE", "providers/partner/oauth", Value::Null).await;
    assert_eq!((&ended["revoked"], &rig.shown().await["state"]), (&Value::Null, &json!("not_connected")));
}

/// M-112: a disconnected credential is revoked through the extension, after the gateway has forgotten it.
#[tokio::test]
async fn a_disconnected_credential_is_revoked_through_the_extension() {
    let rig = SignInRig::connected().await;
    rig.issuer.revoke();
    let ended = rig.admin.done("DELETE", "providers/partner/oauth", Value::Null).await;
    assert_eq!((&ended["revoked"], &ended["error"]), (&json!(true), &Value::Null));
    assert_eq!(
        rig.issuer.asked("oauth/revoke"),
        [
            json!({"token": "planted-refresh-2", "token_type_hint": "refresh_token"}),
            json!({"token": "planted-credential-2", "token_type_hint": "access_token"}),
        ]
    );
    assert!(rig.issuer.secrets().is_empty());
    assert_eq!(rig.shown().await["state"], "not_connected");
    assert_eq!(rig.client().chat(chat::request("partner/m")).await.status, 503);

    rig.connect().await;
    rig.admin.done("DELETE", "providers/partner", Value::Null).await;
    assert_eq!(rig.issuer.asked("oauth/revoke").len(), 4, "so are those of a deleted provider");
    assert!(rig.issuer.secrets().is_empty());
}

#[tokio::test]
async fn a_revocation_that_an_extension_fails_is_shown_and_the_credential_is_forgotten() {
    let rig = SignInRig::start().await;
    rig.issuer.revoke();
    // The sign-in is gone before the extension is asked, so a kill at that time leaves none.
    for (answers, want) in [
        (vec![Answer::error(500)], "status 500"),
        (vec![Answer::json(200, ""), Answer::error(404)], "status 404"),
        (vec![Answer::new().close()], "127.0.0.1"),
        (vec![Answer::whole(302, &[("location", "http://169.254.169.254/")], "")], "status 302"),
        (vec![Answer::hang_forever()], "no complete response in time"),
    ] {
        rig.connect().await;
        answers.into_iter().for_each(|answer| rig.issuer.script("oauth/revoke", answer));
        let ended = rig.admin.done("DELETE", "providers/partner/oauth", Value::Null).await;
        let error = ended["error"].as_str().unwrap();
        assert!(ended["revoked"] == false && error.contains(want), "{want}: {ended}");
        assert_eq!(rig.shown().await["sign_in"]["state"], "none");
    }
}

#[tokio::test]
async fn fifty_requests_on_a_rejected_credential_make_one_refresh_and_none_fails() {
    let rig = SignInRig::connected().await;
    let gate = Gate::new();
    rig.issuer.before_refresh(Answer::new().wait(&gate));
    rig.issuer.end_credentials();
    let before = rig.issuer.extension.requests().len();
    let mut requests = JoinSet::new();
    for _ in 0..50 {
        let client = rig.client();
        requests.spawn(async move { client.chat(chat::request("partner/m")).await.status });
    }
    rig.issuer.extension.request(before + 49).await;
    gate.open(1);
    let statuses = requests.join_all().await;
    let (refreshes, failed) =
        (rig.issuer.asked("refresh").len(), statuses.iter().filter(|status| **status != 200).count());
    figure("P-extension", format_args!("{refreshes} refresh, {failed} of 50 requests failed"));
    assert_eq!((refreshes, failed), (1, 0), "{statuses:?}");
    // The rotated text was stored with the credential: after kill -9 the next refresh uses it.
    let SignInRig { issuer, gateway, key, .. } = rig;
    let gateway = gateway.kill().await.start().await;
    issuer.before_refresh(Answer::new());
    issuer.end_credentials();
    let client = Client::new(gateway.address(), Some(&key));
    assert_eq!(client.chat(chat::request("partner/m")).await.status, 200);
    let used: Vec<Value> = issuer.asked("refresh").iter().map(|body| body["refresh_token"].clone()).collect();
    assert_eq!(used, ["planted-refresh-2", "planted-refresh-3"]);
}

#[tokio::test]
async fn a_refused_refresh_of_an_extension_disconnects_with_an_alert() {
    let rig = SignInRig::connected().await;
    let at_once = json!({"hold_seconds": 0, "clear_seconds": 0});
    rig.admin.done("PATCH", "alert-rules/rule_credential_broken", at_once).await;
    rig.issuer.end_credentials();
    rig.issuer.end_refreshes();
    assert!(rig.client().chat(chat::request("partner/m")).await.status >= 400);
    wait::eventually("the disconnection", async || {
        (rig.shown().await["state"] == "not_connected").then_some(())
    })
    .await;
    let error = rig.shown().await["sign_in"]["last_error"]["message"].clone();
    assert!(error.as_str().unwrap().contains("invalid_grant"), "{error}");
    assert_eq!(rig.issuer.asked("refresh").len(), 1, "it is not repeated");
    wait::eventually_within(3 * wait::PATIENCE, "the alert", async || {
        let alerts = rig.admin.done("GET", "alerts?object=partner", Value::Null).await;
        alerts["data"].as_array()?.iter().any(|alert| alert["kind"] == "credential_broken").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_sign_in_on_another_device_waits_as_long_as_the_extension_asks() {
    let rig = SignInRig::start().await;
    rig.issuer.script("oauth/poll", Answer::json(400, r#"{"error":"slow_down"}"#));
    let body = json!({"method": "device"});
    let started = rig.admin.done("POST", "providers/partner/oauth/start", body).await;
    assert_eq!((&started["user_code"], &started["redirect_uri"]), (&json!("ABCD-1234"), &Value::Null));
    assert!(!started.to_string().contains("planted-device-code"));
    wait::eventually("the first poll", async || (!rig.issuer.asked("oauth/poll").is_empty()).then_some(()))
        .await;
    rig.issuer.approve();
    wait::eventually("the sign-in", async || (rig.shown().await["state"] == "ready").then_some(())).await;
    assert_eq!(rig.issuer.asked("oauth/poll"), vec![json!({"device_code": "planted-device-code"}); 2]);
}

#[tokio::test]
async fn a_sign_in_that_an_extension_answers_badly_connects_nothing() {
    let rig = SignInRig::start().await;
    let long = json!({"access_token": "a".repeat((16 << 10) + 1)}).to_string();
    let huge = json!({"access_token": "a".repeat(1 << 20)}).to_string();
    for (answer, want) in [
        (Answer::json(200, "<html>"), "no access token"),
        (Answer::json(200, r#"{"access_token":"a b\n"}"#), "invalid characters"),
        (Answer::json(200, &long), "too long"),
        (Answer::json(200, &huge), "larger than 65536 bytes"),
        (Answer::json(500, "{}"), "status 500"),
        (Answer::json(400, r#"{"error":"access_denied\u0007"}"#), "access_denied"),
        (Answer::whole(302, &[("location", "http://169.254.169.254/")], ""), "status 302"),
        (Answer::new().close(), "127.0.0.1"),
        (Answer::hang_forever(), "no complete response in time"),
    ] {
        rig.issuer.script("oauth/exchange", answer);
        let (status, text) = rig.sign_in().await;
        assert!(status == 400 && text.contains(want), "{want}: {text}");
        assert_eq!(rig.shown().await["state"], "not_connected");
    }
    for page in
        ["javascript:alert(1)", "http://vendor.example/", "", &format!("https://x/{}", "x".repeat(9_000))]
    {
        rig.issuer.script("oauth/start", Answer::json(200, json!({"authorize_url": page}).to_string()));
        let started = rig.admin.call("POST", "providers/partner/oauth/start", json!({})).await;
        let error = started.json()["error"]["message"].clone();
        assert!(started.status >= 500 && error.as_str().unwrap().contains("no https address"), "{error}");
        assert_eq!(rig.shown().await["sign_in"]["state"], "none", "no sign-in is waiting");
    }
    // The extension dies while the human consents.
    let (page, cookie) = rig.browser.begin(&json!({})).await;
    let callback = rig.issuer.consent(&page);
    let SignInRig { issuer, browser, admin, .. } = rig;
    drop(issuer);
    let (status, text) = browser.callback(&callback, &cookie).await;
    assert!(status == 400 && text.contains("is not connected"), "{text}");
    assert_eq!(admin.done("GET", "providers/partner", Value::Null).await["state"], "not_connected");
}

#[tokio::test]
async fn a_refresh_that_hangs_or_fails_is_repeated_with_the_same_text() {
    let rig = SignInRig::connected().await;
    rig.issuer.end_credentials();
    let huge = json!({"access_token": "a".repeat(1 << 20)}).to_string();
    for answer in [Answer::hang_forever(), Answer::json(200, huge)] {
        rig.issuer.script("refresh", answer);
    }
    let _ = rig.client().chat(chat::request("partner/m")).await;
    wait::eventually_within(4 * wait::PATIENCE, "the new credential", async || {
        (rig.client().chat(chat::request("partner/m")).await.status == 200).then_some(())
    })
    .await;
    assert_eq!(rig.issuer.asked("refresh"), vec![json!({"refresh_token": "planted-refresh-2"}); 3]);
}

/// kill -9 in a refresh: of one that the extension has made, the rotated text is lost, which is reported; one that it has not
/// made is repeated.
#[tokio::test]
async fn a_kill_in_a_refresh_of_an_extension_is_repeated_or_reported() {
    for is_lost in [true, false] {
        let rig = SignInRig::connected().await;
        if is_lost {
            rig.issuer.before_refresh(Answer::new().wait(&Gate::new()));
        } else {
            rig.issuer.script("refresh", Answer::hang_forever());
        }
        rig.issuer.end_credentials();
        let client = rig.client();
        let asking = tokio::spawn(async move { client.chat_flow(chat::request("partner/m")).await.status });
        wait::eventually("the refresh", async || (rig.issuer.asked("refresh").len() == 1).then_some(()))
            .await;
        let SignInRig { issuer, gateway, key, .. } = rig;
        let setup = gateway.kill().await;
        asking.abort();
        issuer.before_refresh(Answer::new());
        let gateway = setup.start().await;
        let admin = Admin(gateway.client());
        let want = if is_lost { "broken" } else { "connected" };
        let sign_in = wait::eventually(want, async || {
            let sign_in = admin.done("GET", "providers/partner", Value::Null).await["sign_in"].clone();
            let is_over = is_lost || sign_in["refreshed_at_ms"].is_u64();
            (sign_in["state"] == want && is_over).then_some(sign_in)
        })
        .await;
        let used: Vec<Value> =
            issuer.asked("refresh").iter().map(|body| body["refresh_token"].clone()).collect();
        assert_eq!(used, ["planted-refresh-2"; 2]);
        let error = sign_in["last_error"]["message"].as_str().unwrap_or_default();
        assert_eq!(error.contains("invalid_grant") && error.contains("was not stored"), is_lost, "{sign_in}");
        let status = Client::new(gateway.address(), Some(&key)).chat(chat::request("partner/m")).await.status;
        assert_eq!(status, if is_lost { 503 } else { 200 });
    }
}

const OTHER_KEY: &str = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=";

/// Plants the state, the cookie and the code of a sign-in in the browser, goes through it, and returns the status of its
/// last page and that page.
async fn planted_sign_in(rig: &SignInRig, planted: &mut Planted, code: &str) -> (u16, String) {
    let (page, cookie) = rig.browser.begin(&json!({})).await;
    planted.add("the state", &form(page.split_once('?').unwrap().1)["state"]);
    planted.add("the cookie", cookie.split_once('=').unwrap().1);
    planted.add("a code", code);
    let callback = rig.issuer.consent(&page);
    assert!(callback.contains(&format!("code={code}&")), "{callback}");
    let shown = rig.browser.callback(&callback, &cookie).await;
    for sent in rig.issuer.asked("oauth/exchange") {
        planted.add("a verifier", sent["code_verifier"].as_str().unwrap());
    }
    plant_credentials(rig, planted);
    shown
}

fn plant_credentials(rig: &SignInRig, planted: &mut Planted) {
    rig.issuer.secrets().iter().for_each(|text| planted.add("a credential", text));
}

/// Returns an error of the extension that quotes all secrets.
fn quoting(rig: &SignInRig, error: &str) -> String {
    let credentials = rig.issuer.secrets().join(" ");
    let quoted = format!("no: {} {credentials} planted-code-1 planted-code-3 planted-device-code", secret());
    json!({"error": error, "error_description": quoted}).to_string()
}

/// Signs in on a device whose human refuses, then on one whose human consents.
async fn on_devices(rig: &SignInRig, answers: &mut Vec<String>) {
    for (is_approved, state) in [(false, "none"), (true, "connected")] {
        if is_approved {
            rig.issuer.approve();
        } else {
            rig.issuer.script("oauth/poll", Answer::json(400, quoting(rig, "access_denied")));
        }
        let body = json!({"method": "device"});
        answers.push(rig.admin.done("POST", "providers/partner/oauth/start", body).await.to_string());
        wait::eventually(state, async || {
            let shown = rig.shown().await;
            let is_refused = shown["sign_in"]["last_error"].to_string().contains("access_denied");
            (if is_approved { shown["sign_in"]["state"] == state } else { is_refused }).then_some(())
        })
        .await;
    }
}

/// No secret of a sign-in at an extension is in an answer, the log, a file or a backup, and after a rekey the secret of the
/// extension and the credential still work.
#[tokio::test]
async fn the_secrets_of_a_sign_in_at_an_extension_are_sealed_and_survive_a_rekey() {
    let watchers = Watchers::start().await;
    let rig = SignInRig::with(watchers.setup(setup())).await;
    watchers.hook(&rig.gateway).await;
    rig.issuer.revoke();
    let mut planted = Planted::default();
    planted.add("the secret", secret());
    planted.add("the key of the secret", b"planted-extension-secret");
    planted.add("the device code", "planted-device-code");
    planted.add("the session", rig.browser.client.sends("cookie").split_once('=').unwrap().1);
    planted.add("the CSRF token", rig.browser.client.sends("x-csrf-token"));
    let (status, page) = planted_sign_in(&rig, &mut planted, "planted-code-1").await;
    assert_eq!(status, 200, "{page}");
    let mut answers = vec![page];
    let chat = async || format!("{:?}", rig.client().chat(chat::request("partner/m")).await);
    // A request, a probe, a refresh, a sign-in and a revocation are refused with all secrets.
    let error = chat::error(&format!("no: {} {}", secret(), rig.issuer.secrets().join(" ")), "bad");
    rig.issuer.script("invoke", Answer::json(403, error));
    answers.push(chat().await);
    rig.issuer.extension.then(Answer::json(500, quoting(&rig, "server_error")));
    let probed = rig.admin.done("POST", "extensions/companion/probe", Value::Null).await;
    assert!(probed["last_check"]["error"].is_object(), "{probed}");
    answers.push(probed.to_string());
    rig.issuer.script("refresh", Answer::json(400, quoting(&rig, "invalid_grant")));
    rig.issuer.end_credentials();
    answers.push(chat().await);
    wait::eventually("the disconnection", async || {
        (rig.shown().await["state"] == "not_connected").then_some(())
    })
    .await;
    rig.issuer.script("oauth/exchange", Answer::json(400, quoting(&rig, "invalid_client")));
    let (status, page) = planted_sign_in(&rig, &mut planted, "planted-code-3").await;
    assert_eq!(status, 400, "{page}");
    answers.push(page);
    on_devices(&rig, &mut answers).await;
    plant_credentials(&rig, &mut planted);
    rig.issuer.end_credentials();
    assert!(chat().await.contains("status: 200"), "after a refresh");
    assert_eq!(rig.issuer.asked("refresh").len(), 2);
    plant_credentials(&rig, &mut planted);
    rig.issuer.script("oauth/revoke", Answer::json(500, quoting(&rig, "server_error")));
    let ended = rig.admin.done("DELETE", "providers/partner/oauth", Value::Null).await;
    assert_eq!(ended["revoked"], false, "{ended}");
    answers.push(ended.to_string());
    answers.push(planted_sign_in(&rig, &mut planted, "planted-code-6").await.1);
    let SignInRig { issuer, gateway, key, .. } = rig;
    let (setup, places) = planted.expect_nowhere(gateway, &watchers, &answers).await;
    figure("P18", format!("{} secrets of an extension: 0 found in {places}", planted.len()));

    let setup = setup.env("LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY", OTHER_KEY);
    assert!(setup.run(&["credentials", "rekey"]).await.status.success());
    let setup = setup
        .env("LLMGW_CREDENTIAL_ENCRYPTION_KEY", OTHER_KEY)
        .without("LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY");
    let gateway = setup.start().await;
    let probed = Admin(gateway.client()).done("POST", "extensions/companion/probe", Value::Null).await;
    assert_eq!(probed["last_check"]["ok"], true, "{probed}");
    let client = Client::new(gateway.address(), Some(&key));
    assert_eq!(client.chat(chat::request("partner/m")).await.status, 200);
    super::expect_signed(&issuer.extension.requests().pop().unwrap());
}
