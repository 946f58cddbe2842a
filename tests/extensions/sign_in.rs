//! Sign-ins at providers of extensions: the same routes, bounds and refreshes as those of OAuth vendors (ADM-7, AUTH-4).

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::issuer::{SignInRig, setup};
use super::secret;
use crate::secrets::Planted;
use crate::support::admin::Admin;
use crate::support::figure::figure;
use crate::support::upstream::refusing_url;
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

const OTHER_KEY: &str = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=";

/// No secret of a sign-in at an extension is in an answer, the log, a file or a backup, and after a rekey the secret of the
/// extension and the credential still work.
#[tokio::test]
async fn the_secrets_of_a_sign_in_at_an_extension_are_sealed_and_survive_a_rekey() {
    let rig = SignInRig::with(setup().env("LLMGW_LOG", "trace").env("LLMGW_LOG_REQUESTS", "true")).await;
    let mut planted = Planted::default();
    planted.add("the secret", secret());
    planted.add("the device code", "planted-device-code");
    planted.add("the code", "planted-code-1");
    let mut answers = vec![rig.sign_in().await.1];
    planted.add("the verifier", rig.issuer.asked("oauth/exchange")[0]["code_verifier"].as_str().unwrap());
    let mut secrets = rig.issuer.secrets();
    let quoted = format!("no: {} {}", secret(), secrets.join(" "));
    rig.issuer.script("invoke", Answer::json(403, chat::error(&quoted, "bad")));
    answers.push(format!("{:?}", rig.client().chat(chat::request("partner/m")).await));
    let quoting = json!({"error": "invalid_scope", "error_description": quoted}).to_string();
    rig.issuer.script("refresh", Answer::json(400, &quoting));
    rig.issuer.end_credentials();
    answers.push(format!("{:?}", rig.client().chat(chat::request("partner/m")).await));
    wait::eventually("the refresh", async || (rig.issuer.asked("refresh").len() == 2).then_some(())).await;
    secrets.extend(rig.issuer.secrets());
    secrets.iter().for_each(|text| planted.add("a credential", text));
    planted.add("the second code", "planted-code-4");
    rig.issuer.script("oauth/exchange", Answer::json(400, quoting.replace("no: ", "no: planted-code-4 ")));
    answers.push(rig.sign_in().await.1);
    let device = rig.admin.done("POST", "providers/partner/oauth/start", json!({"method": "device"})).await;
    answers.push(device.to_string());
    for path in
        ["providers", "providers/partner", "extensions", "state", "config", "audit?limit=500", "alerts"]
    {
        answers.push(rig.admin.call("GET", path, Value::Null).await.json().to_string());
    }
    rig.admin.done("POST", "backups", json!({})).await;
    answers.iter().for_each(|answer| planted.expect_none("an answer", answer.as_bytes()));
    planted.expect_none("the log", rig.gateway.log().as_bytes());
    let SignInRig { issuer, gateway, key, .. } = rig;
    let setup = gateway.kill().await;
    assert!(planted.expect_none_below(&setup.state()) > 3);

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
