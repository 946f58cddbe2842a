//! Signing in: in a browser, on another device, and everything that must not work.

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::vendor::{Browser, CLIENT_ID, Connected, ORIGIN, Vendor, form, setup};
use crate::support::{Answer, Client, Gateway, Yaml, chat, clock, wait};

/// A gateway with the provider `partner` of a human, who has not signed in.
async fn prepared(vendor: &Vendor, change: impl FnOnce(&mut Value)) -> (Gateway, Browser, String) {
    let gateway = setup(&Yaml::new()).start().await;
    let admin = Admin(gateway.client());
    let ada = admin.create("principals", json!({"name": "Ada"})).await;
    let mut provider = vendor.provider(&ada);
    change(&mut provider);
    admin.done("POST", "providers", provider).await;
    let browser = Browser::sign_in(&gateway).await;
    (gateway, browser, ada)
}

async fn shown(gateway: &Gateway) -> Value {
    Admin(gateway.client()).done("GET", "providers/partner", Value::Null).await
}

/// M-104, M-107: the operator's client and the exact redirect URI are used, and requests carry the token.
#[tokio::test]
async fn a_signed_in_provider_serves_its_owner_and_those_it_is_shared_with() {
    let connected = Connected::start().await;
    let Connected { vendor, gateway, ada, .. } = &connected;
    let (state, sign_in) = connected.sign_in().await;
    assert_eq!((state.as_str(), &sign_in["state"]), ("ready", &json!("connected")));
    assert_eq!(
        (&sign_in["account"], &sign_in["scopes"], &sign_in["renewable"]),
        (&json!("ada@vendor.example"), &json!(["openid", "models"]), &json!(true))
    );
    assert_eq!(sign_in["redirect_uri"], format!("{ORIGIN}/oauth/callback/partner"));
    let answer = connected.client().chat(chat::request("partner/m")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let admin = Admin(gateway.client());
    let project = admin.project("other").await;
    let strange = admin.key(json!({"project": project})).await.key;
    let strange = Client::new(gateway.address(), Some(&strange));
    let refused = strange.chat(chat::request("partner/m")).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (403, "private_provider"));
    admin.done("PUT", &format!("providers/partner/bindings/{project}"), Value::Null).await;
    assert_eq!(strange.chat(chat::request("partner/m")).await.status, 200);
    // The catalog and the tests use the token as any other provider's.
    let synced = admin.done("POST", "providers/partner/sync", Value::Null).await;
    assert!(synced.to_string().contains("listed") || synced["models"] == 1, "{synced}");
    let tested = admin.call("POST", "providers/partner/test", json!({"model": "m", "acts_as": ada})).await;
    assert!(tested.status < 500, "{tested:?}");
    assert_eq!(vendor.forms("/token").len(), 1);
}

#[tokio::test]
async fn a_provider_of_the_file_is_private_to_the_human_who_signs_in() {
    let vendor = Vendor::start().await;
    let mut provider = vendor.provider("");
    for name in ["id", "owner"] {
        provider.as_object_mut().unwrap().remove(name);
    }
    let config = json!({"providers": {"partner": provider}}).to_string();
    let gateway = setup(&Yaml::new()).yaml(config).start().await;
    let admin = Admin(gateway.client());
    let ada = admin.create("principals", json!({"name": "Ada"})).await;
    let project = admin.project("home").await;
    admin.done("PUT", &format!("projects/{project}/members/{ada}"), json!({"role": "owner"})).await;
    let hers = admin.key(json!({"project": project, "acts_as": ada})).await.key;
    let other = admin.key(json!({"project": project})).await.key;
    let browser = Browser::sign_in(&gateway).await;
    let start = "/admin/api/providers/partner/oauth/start";
    let unnamed = browser.client.post(start, "{}").await;
    assert_eq!((unnamed.status, &unnamed.json()["error"]["param"]), (400, &json!("owner")));
    browser.connect(&vendor, &json!({"owner": ada})).await;
    let ask = async |key: &str| {
        Client::new(gateway.address(), Some(key)).chat(chat::request("partner/m")).await.status
    };
    assert_eq!((ask(&hers).await, ask(&other).await), (200, 403));
    let path = format!("principals/{ada}");
    assert_eq!(admin.call("DELETE", &path, Value::Null).await.status, 409, "her account is connected");
}

#[tokio::test]
async fn a_denied_consent_connects_nothing_and_is_shown() {
    let vendor = Vendor::start().await;
    let (gateway, browser, _) = prepared(&vendor, |_| ()).await;
    let (page, cookie) = browser.begin(&json!({})).await;
    assert_eq!(shown(&gateway).await["sign_in"]["state"], "waiting");
    let state = form(page.split_once('?').unwrap().1)["state"].clone();
    let denied = format!(
        "/oauth/callback/partner?error=access_denied&error_description=%3Cb%3EShe+said+no%3C%2Fb%3E&state={state}"
    );
    let (status, text) = browser.callback(&denied, &cookie).await;
    assert_eq!(status, 400);
    assert!(text.contains("access_denied: &lt;b&gt;She said no&lt;/b&gt;"), "{text}");
    let sign_in = shown(&gateway).await["sign_in"].clone();
    assert_eq!(sign_in["state"], "none");
    assert!(sign_in["last_error"]["message"].as_str().unwrap().contains("access_denied"), "{sign_in}");
    assert_eq!(browser.callback(&vendor.consent(&page), &cookie).await.0, 400, "the state is used up");
    assert_eq!(vendor.server.requests().len(), 0);
}

#[tokio::test]
async fn a_stolen_replayed_or_forged_state_is_refused() {
    let vendor = Vendor::start().await;
    let (gateway, browser, _) = prepared(&vendor, |_| ()).await;
    let (page, cookie) = browser.begin(&json!({})).await;
    let callback = vendor.consent(&page);
    for (cookie, path) in [
        ("", callback.clone()),
        ("llmgw_oauth_00000000=other", callback.clone()),
        (&format!("{}=other", cookie.split('=').next().unwrap()), callback.clone()),
        (&cookie, "/oauth/callback/partner".to_owned()),
        (&cookie, "/oauth/callback/partner?code=x&state=forged".to_owned()),
        (&cookie, format!("{callback}&code=another")),
        (&cookie, format!("{callback}&state=another")),
    ] {
        let (status, text) = browser.callback(&path, cookie).await;
        assert!(status == 400 && text.contains("Not connected"), "{path} {text}");
    }
    assert_eq!(vendor.server.requests().len(), 0, "no code went to the vendor");
    assert_eq!(browser.callback(&callback, &cookie).await.0, 200, "the human's own browser still can");
    let (status, text) = browser.callback(&callback, &cookie).await;
    assert!(status == 400 && text.contains("completed or replaced already"), "{text}");
    assert_eq!(vendor.forms("/token").len(), 1, "a replayed code is not sent again");
    // A code that another flow was given fails at the vendor, because its verifier differs.
    let (other, other_cookie) = browser.begin(&json!({})).await;
    let (stolen, _) =
        vendor.consent(&other).split_once("&state=").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let (own, own_cookie) = browser.begin(&json!({})).await;
    let state = form(own.split_once('?').unwrap().1)["state"].clone();
    let (status, text) = browser.callback(&format!("{stolen}&state={state}"), &own_cookie).await;
    assert!(status == 400 && text.contains("invalid_grant"), "{text}");
    assert!(!other_cookie.is_empty());
    assert_eq!(shown(&gateway).await["state"], "ready", "the earlier sign-in is kept");
    let head = Client::new(gateway.address(), None).send("HEAD", &callback, "".into()).await.unwrap();
    assert_eq!(head.status, 405);
}

#[tokio::test]
async fn a_sign_in_ends_with_the_session_that_began_it() {
    let vendor = Vendor::start().await;
    let (gateway, browser, _) = prepared(&vendor, |_| ()).await;
    let (page, cookie) = browser.begin(&json!({})).await;
    let out = browser.client.send("DELETE", "/admin/api/session", "".into()).await.unwrap();
    assert_eq!(out.status, 204);
    let (status, text) = browser.callback(&vendor.consent(&page), &cookie).await;
    assert!(status == 400 && text.contains("session that began the sign-in has ended"), "{text}");
    assert_eq!(vendor.server.requests().len(), 0);
    assert_eq!(shown(&gateway).await["state"], "not_connected");
}

#[tokio::test]
async fn a_sign_in_that_began_before_a_kill_is_completed_once_after_it() {
    let vendor = Vendor::start().await;
    let (gateway, browser, _) = prepared(&vendor, |_| ()).await;
    let (page, cookie) = browser.begin(&json!({})).await;
    let callback = vendor.consent(&page);
    let gateway = gateway.restart().await;
    let browser = browser.at(&gateway);
    assert_eq!(shown(&gateway).await["sign_in"]["state"], "waiting");
    let (status, text) = browser.callback(&callback, "").await;
    assert!(status == 400 && text.contains("Another browser began this sign-in"), "{text}");
    let both = tokio::join!(browser.callback(&callback, &cookie), browser.callback(&callback, &cookie));
    let mut statuses = [both.0.0, both.1.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 400], "{both:?}");
    assert_eq!(shown(&gateway).await["sign_in"]["state"], "connected");
    let gateway = gateway.restart().await;
    let (status, text) = browser.at(&gateway).callback(&callback, &cookie).await;
    assert!(status == 400 && text.contains("completed or replaced already"), "{text}");
    assert_eq!(vendor.forms("/token").len(), 1, "the code was sent once");
}

#[tokio::test]
async fn a_sign_in_that_began_before_a_restart_ends_with_its_session_and_its_settings() {
    let vendor = Vendor::start().await;
    let (gateway, browser, _) = prepared(&vendor, |_| ()).await;
    let (page, cookie) = browser.begin(&json!({})).await;
    let out = browser.client.send("DELETE", "/admin/api/session", "".into()).await.unwrap();
    assert_eq!(out.status, 204);
    let gateway = gateway.restart().await;
    let (status, text) = browser.at(&gateway).callback(&vendor.consent(&page), &cookie).await;
    assert!(status == 400 && text.contains("session that began the sign-in has ended"), "{text}");
    let browser = Browser::sign_in(&gateway).await;
    let (page, cookie) = browser.begin(&json!({})).await;
    let elsewhere = json!({"oauth": {"token_url": "http://127.0.0.1:9/token"}});
    Admin(gateway.client()).done("PATCH", "providers/partner", elsewhere).await;
    let (status, text) = browser.callback(&vendor.consent(&page), &cookie).await;
    assert!(status == 400 && text.contains("settings of the provider were changed"), "{text}");
    let gateway = gateway.restart().await;
    let error = shown(&gateway).await["sign_in"]["last_error"].clone();
    assert!(error["message"].as_str().unwrap().contains("settings of the provider"), "kept: {error}");
    assert_eq!(vendor.server.requests().len(), 0, "no code was sent");
}

#[tokio::test]
async fn a_sign_in_that_expires_while_the_gateway_is_down_is_over() {
    let noon = 1_780_317_000;
    let Some(environment) = clock::at(noon) else { return };
    let vendor = Vendor::start().await;
    let gateway = setup(&Yaml::new()).with_clock(environment).start().await;
    let admin = Admin(gateway.client());
    let ada = admin.create("principals", json!({"name": "Ada"})).await;
    admin.done("POST", "providers", vendor.provider(&ada)).await;
    let browser = Browser::sign_in(&gateway).await;
    let (page, cookie) = browser.begin(&json!({})).await;
    let gateway = gateway.kill().await.with_clock(clock::at(noon + 601).unwrap()).start().await;
    let (status, text) = browser.at(&gateway).callback(&vendor.consent(&page), &cookie).await;
    assert!(status == 400 && text.contains("has expired"), "{text}");
    let sign_in = shown(&gateway).await["sign_in"].clone();
    assert_eq!(sign_in["state"], "none");
    assert!(sign_in["last_error"]["message"].as_str().unwrap().contains("no consent in time"), "{sign_in}");
}

#[tokio::test]
async fn a_redirect_of_another_issuer_is_refused() {
    let vendor = Vendor::start().await;
    let (_gateway, browser, _) = prepared(&vendor, |provider| {
        provider["oauth"]["issuer"] = json!("https://vendor.example");
    })
    .await;
    for (issuer, want) in
        [("", 400), ("&iss=https%3A%2F%2Fevil.example", 400), ("&iss=https%3A%2F%2Fvendor.example", 200)]
    {
        let (page, cookie) = browser.begin(&json!({})).await;
        let (status, text) = browser.callback(&format!("{}{issuer}", vendor.consent(&page)), &cookie).await;
        assert_eq!(status, want, "{issuer}: {text}");
    }
}

#[tokio::test]
async fn a_token_address_that_fails_in_any_way_connects_nothing() {
    let vendor = Vendor::start().await;
    let (gateway, browser, _) = prepared(&vendor, |_| ()).await;
    let huge = format!(r#"{{"access_token":"{}"}}"#, "a".repeat(1 << 20));
    for (answer, want) in [
        (Answer::json(400, r#"{"error":"invalid_client"}"#), "invalid_client"),
        (Answer::error(503), "status 503"),
        (Answer::json(200, "<html>"), "no access token"),
        (Answer::json(200, &huge), "larger than 65536 bytes"),
        (Answer::whole(302, &[("location", "http://169.254.169.254/")], ""), "status 302"),
        (Answer::new().close(), "127.0.0.1"),
        (Answer::hang_forever(), "no complete response in time"),
    ] {
        vendor.script_token(answer);
        let (page, cookie) = browser.begin(&json!({})).await;
        let (status, text) = browser.callback(&vendor.consent(&page), &cookie).await;
        assert!(status == 400 && text.contains(want), "{want}: {text}");
        let sign_in = shown(&gateway).await;
        assert_eq!(sign_in["state"], "not_connected");
        assert!(sign_in["sign_in"]["last_error"]["message"].as_str().unwrap().contains(want), "{sign_in}");
    }
}

#[tokio::test]
async fn a_sign_in_on_another_device_needs_no_browser() {
    let vendor = Vendor::start().await;
    let device = format!("http://{}/device", vendor.server.address());
    let (gateway, _, _) = prepared(&vendor, |provider| {
        provider["oauth"]["device_authorization_url"] = json!(device);
    })
    .await;
    let admin = Admin(gateway.client());
    let started = admin.done("POST", "providers/partner/oauth/start", json!({"method": "device"})).await;
    assert_eq!(
        (&started["user_code"], &started["authorize_url"], &started["redirect_uri"]),
        (&json!("ABCD-1234"), &json!("https://vendor.example/device?code=ABCD-1234"), &Value::Null)
    );
    assert!(!started.to_string().contains("planted-device-code"));
    assert_eq!(shown(&gateway).await["sign_in"]["state"], "waiting");
    wait::eventually("a question that is too early", async || {
        (!vendor.forms("/token").is_empty()).then_some(())
    })
    .await;
    vendor.approve_device();
    wait::eventually("the sign-in", async || (shown(&gateway).await["state"] == "ready").then_some(())).await;
    assert_eq!(shown(&gateway).await["sign_in"]["state"], "connected");
    assert_eq!(vendor.forms("/device")[0]["client_id"], CLIENT_ID);
}

#[tokio::test]
async fn a_sign_in_on_another_device_goes_on_after_a_kill() {
    let vendor = Vendor::start().await;
    let device = format!("http://{}/device", vendor.server.address());
    let (gateway, _, _) = prepared(&vendor, |provider| {
        provider["oauth"]["device_authorization_url"] = json!(device);
    })
    .await;
    let start = "providers/partner/oauth/start";
    Admin(gateway.client()).done("POST", start, json!({"method": "device"})).await;
    let gateway = gateway.restart().await;
    let asked = vendor.forms("/token").len();
    wait::eventually("a question of the new process", async || {
        (vendor.forms("/token").len() > asked).then_some(())
    })
    .await;
    vendor.approve_device();
    wait::eventually("the sign-in", async || (shown(&gateway).await["state"] == "ready").then_some(())).await;
    let db = rusqlite::Connection::open(gateway.state().join("gateway.db")).unwrap();
    let rows: i64 = db.query_row("SELECT count(*) FROM sign_in_flows", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn a_sign_in_that_cannot_begin_names_what_is_missing() {
    let vendor = Vendor::start().await;
    let plain = Setup::new(&Yaml::new()).start().await;
    let admin = Admin(plain.client());
    let ada = admin.create("principals", json!({"name": "Ada"})).await;
    let shown = admin.done("POST", "providers", vendor.provider(&ada)).await;
    assert_eq!(shown["state"], "not_connected");
    let start = "providers/partner/oauth/start";
    let refused = admin.call("POST", start, json!({})).await;
    assert_eq!(refused.status, 409);
    assert!(
        refused.json()["error"]["message"].as_str().unwrap().contains("LLMGW_PARTNER_CLIENT_ID is not set")
    );
    let oauth = &admin.done("GET", "state", Value::Null).await["oauth"];
    assert_eq!((&oauth["redirect_uri"], &oauth["client_id_set"]), (&Value::Null, &json!(false)));

    let (gateway, _, ada) = prepared(&vendor, |_| ()).await;
    let admin = Admin(gateway.client());
    let elsewhere = Browser::sign_in_at(&gateway, "http://127.0.0.1:8787").await;
    let refused = elsewhere.client.post(&format!("/admin/api/{start}"), "{}").await;
    assert_eq!(refused.status, 409);
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains(&format!("{ORIGIN}/console")));
    let bob = admin.create("principals", json!({"name": "Bob"})).await;
    for (body, param) in [
        (json!({"owner": bob}), "owner"),
        (json!({"owner": "prn_none"}), "owner"),
        (json!({"method": "letter"}), "method"),
        (json!({"other": 1}), "other"),
    ] {
        let refused = admin.call("POST", start, body).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(param)));
    }
    assert_eq!(admin.call("POST", start, json!({"method": "device"})).await.status, 409);
    assert_eq!(admin.call("POST", "providers/none/oauth/start", json!({})).await.status, 404);
    admin.done("POST", "providers", json!({"id": "plain", "type": "echo", "models": ["m"]})).await;
    assert_eq!(admin.call("POST", "providers/plain/oauth/start", json!({})).await.status, 409);
    assert_eq!(admin.call("DELETE", "providers/partner/oauth", Value::Null).await.status, 404, "no sign-in");
    let disabled = json!({"disabled": true});
    admin.done("PATCH", &format!("principals/{ada}"), disabled).await;
    assert_eq!(admin.call("POST", start, json!({})).await.status, 400);
}

#[tokio::test]
async fn a_disconnected_provider_is_revoked_and_forgotten() {
    let connected = Connected::start().await;
    let Connected { vendor, gateway, .. } = &connected;
    let tokens = vendor.tokens();
    let admin = Admin(gateway.client());
    let ended = admin.done("DELETE", "providers/partner/oauth", Value::Null).await;
    assert_eq!((&ended["revoked"], &ended["error"]), (&json!(true), &Value::Null));
    let revoked: Vec<String> = vendor.forms("/revoke").iter().map(|form| form["token"].clone()).collect();
    assert!(
        revoked[0].starts_with("planted-refresh") && revoked.len() == 2 && tokens.len() == 2,
        "{revoked:?}"
    );
    assert!(vendor.tokens().is_empty());
    assert_eq!(connected.sign_in().await.0, "not_connected");
    let refused = connected.client().chat(chat::request("partner/m")).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (503, "no_eligible_target"));
    let db = rusqlite::Connection::open(gateway.state().join("gateway.db")).unwrap();
    let rows: i64 = db.query_row("SELECT count(*) FROM oauth_connections", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn a_vendor_that_does_not_revoke_is_forgotten_all_the_same() {
    let connected = Connected::start().await;
    connected.vendor.server.then(Answer::error(500));
    let admin = Admin(connected.gateway.client());
    let ended = admin.done("DELETE", "providers/partner/oauth", Value::Null).await;
    assert_eq!(ended["revoked"], false);
    assert!(ended["error"].as_str().unwrap().contains("500"), "{ended}");
    assert_eq!(connected.sign_in().await.0, "not_connected");
}

#[tokio::test]
async fn the_tokens_of_a_deleted_provider_are_revoked() {
    let connected = Connected::start().await;
    let admin = Admin(connected.gateway.client());
    admin.done("DELETE", "providers/partner?dry_run=true", Value::Null).await;
    assert_eq!(connected.vendor.tokens().len(), 2, "a dry run revokes nothing");
    admin.done("DELETE", "providers/partner", Value::Null).await;
    assert_eq!(connected.vendor.forms("/revoke").len(), 2);
    assert!(connected.vendor.tokens().is_empty());
}

#[tokio::test]
async fn tokens_never_go_to_an_address_or_a_human_they_were_not_granted_for() {
    let connected = Connected::start().await;
    let Connected { vendor, gateway, .. } = &connected;
    let admin = Admin(gateway.client());
    let other = Vendor::start().await;
    for change in [
        json!({"base_url": other.api.base_url()}),
        json!({"base_url": vendor.api.base_url(), "oauth": {"token_url": format!("http://{}/token", other.server.address())}}),
    ] {
        let edited = admin.done("PATCH", "providers/partner", change).await;
        assert_eq!(edited["state"], "not_connected");
        assert!(edited["reason"].as_str().unwrap().contains("granted for another client ID"), "{edited}");
        assert_eq!(connected.client().chat(chat::request("partner/m")).await.status, 503);
    }
    let back = json!({"oauth": {"token_url": format!("http://{}/token", vendor.server.address())}});
    assert_eq!(admin.done("PATCH", "providers/partner", back).await["state"], "ready");
    assert_eq!(connected.client().chat(chat::request("partner/m")).await.status, 200);
    assert_eq!((other.api.requests().len(), other.server.requests().len()), (0, 0));
    let bob = admin.create("principals", json!({"name": "Bob"})).await;
    let given = admin.done("PATCH", "providers/partner", json!({"owner": bob})).await;
    assert_eq!(given["state"], "not_connected", "Bob signs in with his own account");
    // An instance of the same name does not inherit the sign-in either.
    let vendor_provider = vendor.provider(&connected.ada);
    admin.done("DELETE", "providers/partner", Value::Null).await;
    assert_eq!(admin.done("POST", "providers", vendor_provider).await["state"], "not_connected");
}

#[tokio::test]
async fn every_step_of_a_sign_in_is_in_the_audit() {
    let connected = Connected::start().await;
    let admin = Admin(connected.gateway.client());
    admin.done("DELETE", "providers/partner/oauth", Value::Null).await;
    let audit = admin.done("GET", "audit?object=provider/partner", Value::Null).await;
    let actions: Vec<&str> =
        audit["data"].as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert_eq!(
        actions,
        ["provider.disconnect", "provider.connect", "provider.connect_begin", "provider.create"]
    );
}
