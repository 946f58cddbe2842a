//! The requests and answers of the OAuth client, and the times of refreshes.

use std::sync::Arc;

use shared::provider::signer::ExtensionSigner;

use super::*;
use crate::common::credential::extension::ExtensionAccess;

fn settings(secret: Option<&str>, client_auth: ClientAuth) -> OauthSettings {
    OauthSettings {
        authorize_url: Some("https://auth.example/authorize?tenant=a".into()),
        token_url: "https://auth.example/token".into(),
        userinfo_url: Some("https://auth.example/me".into()),
        revocation_url: Some("https://auth.example/revoke".into()),
        device_authorization_url: Some("https://auth.example/device".into()),
        issuer: None,
        scopes: vec!["openid".into(), "models:read".into()],
        client_auth,
        authorize_params: [("prompt".to_owned(), "consent".to_owned())].into(),
        client: Some(OauthClient { id: "id:1".into(), secret: secret.map(|text| Secret::new(text.into())) }),
    }
}

fn secret(text: &str) -> Secret<String> {
    Secret::new(text.to_owned())
}

fn connection(expires_at_ms: Option<u64>, refresh: Option<&str>) -> OauthConnection {
    OauthConnection {
        provider: "p".into(),
        owner: "prn_1".into(),
        serial: 1,
        binding: "b".into(),
        tokens: Some(OauthTokens { access: secret("a"), refresh: refresh.map(secret) }),
        account: None,
        scopes: Vec::new(),
        expires_at_ms,
        connected_at_ms: 0,
        refreshed_at_ms: None,
        refresh_began_at_ms: None,
        failure: None,
    }
}

#[test]
fn the_challenge_is_that_of_rfc_7636_appendix_b() {
    let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    assert_eq!(challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
}

#[test]
fn the_consent_page_gets_every_parameter_encoded() {
    let consent =
        Consent { redirect_uri: "https://gw.example/oauth/callback/partner", state: "s&1", challenge: "c" };
    let page = settings(None, ClientAuth::Basic).consent_page(&consent).unwrap();
    assert_eq!(
        page,
        "https://auth.example/authorize?tenant=a&response_type=code&client_id=id%3A1&redirect_uri=\
         https%3A%2F%2Fgw.example%2Foauth%2Fcallback%2Fpartner&state=s%261&code_challenge=c&\
         code_challenge_method=S256&scope=openid%20models%3Aread&prompt=consent"
    );
}

#[test]
fn the_client_authenticates_by_header_by_body_or_by_its_id_alone() {
    for (settings, header, body) in [
        (settings(Some("s+1"), ClientAuth::Basic), Some("Basic aWQlM0ExOnMlMkIx"), ""),
        (settings(Some("s+1"), ClientAuth::Post), None, "&client_id=id%3A1&client_secret=s%2B1"),
        (settings(None, ClientAuth::Basic), None, "&client_id=id%3A1"),
    ] {
        let request = settings.refresh_request(&secret("r/1")).unwrap();
        assert_eq!(request.headers().get("authorization").map(|value| value.to_str().unwrap()), header);
        assert_eq!(request.body(), format!("grant_type=refresh_token&refresh_token=r%2F1{body}").as_str());
    }
    let none = OauthSettings { client: None, ..settings(None, ClientAuth::Basic) };
    assert_eq!(none.refresh_request(&secret("r")).unwrap_err(), NO_CLIENT);
}

#[test]
fn token_answers_are_read_or_rejected_with_the_reason() {
    let long = format!(r#"{{"access_token":"{}"}}"#, "a".repeat((16 << 10) + 1));
    for (status, body, want) in [
        (
            200,
            r#"{"access_token":"a","token_type":"bearer","expires_in":"60","refresh_token":"r"}"#,
            "a r 60",
        ),
        (200, r#"{"access_token":"a","token_type":"Bearer","expires_in":99999999999}"#, "a - 31536000"),
        (200, r#"{"access_token":"a"}"#, "a - -"),
        (200, r#"{"access_token":"a","token_type":"DPoP"}"#, "the token is not a bearer token"),
        (200, r#"{"access_token":"a b"}"#, "invalid characters"),
        (200, &long, "too long"),
        (200, "<html>", "no access token"),
        (400, r#"{"error":"invalid_grant","error_description":"gone\u001b[31m"}"#, "invalid_grant: gone[31m"),
        (503, r#"{"error":"invalid_grant"}"#, "it answered with status 503"),
        (302, "", "it answered with status 302"),
    ] {
        let found = match token_answer(status, body.as_bytes(), &["sent-secret-of-a-request"]) {
            Ok(set) => {
                let refresh = set.refresh.map_or_else(|| "-".to_owned(), |token| token.expose().clone());
                let life = set.life_s.map_or_else(|| "-".to_owned(), |life_s| life_s.to_string());
                format!("{} {refresh} {life}", set.access.expose())
            }
            Err(failure) => {
                assert_eq!(failure.is_final(), want.starts_with("invalid_grant"), "{body}");
                failure.text().to_owned()
            }
        };
        assert!(found.contains(want), "{body}: {found}");
    }
}

/// A secret that a text quotes where it is cut leaves no part.
#[test]
fn refusals_contain_no_part_of_a_secret_that_was_sent() {
    let sent = "a sent code of a device";
    for before in [0, 280, 290, 299, 400] {
        let description = format!("{}{sent} is wrong", "x ".repeat(before / 2));
        let body =
            serde_json::json!({"error": "access_denied", "error_description": description}).to_string();
        let TokenFailure::Refused { text, .. } = token_answer(400, body.as_bytes(), &[sent]).unwrap_err()
        else {
            panic!("it is refused")
        };
        assert!(text.starts_with("access_denied: ") && !text.contains("a s"), "{before}: {text}");
    }
}

#[test]
fn device_answers_name_an_https_page() {
    let answer = |page: &str| {
        format!(r#"{{"device_code":"d","user_code":"AB-CD","verification_uri":"{page}","expires_in":99999}}"#)
    };
    let read = device_answer(200, answer("https://auth.example/device").as_bytes()).unwrap();
    assert_eq!((read.user_code.as_str(), read.life_s, read.interval_s), ("AB-CD", 1_800, 5));
    for page in ["javascript:alert(1)", "http://auth.example/device", ""] {
        assert!(device_answer(200, answer(page).as_bytes()).is_err(), "{page}");
    }
}

#[test]
fn an_account_is_named_by_its_best_known_member() {
    for (body, want) in [
        (r#"{"sub":"1","email":"ada@example.com"}"#, Some("ada@example.com")),
        (r#"{"sub":"1","name":"Ada\u202e\n"}"#, Some("Ada")),
        (r#"{"sub":1}"#, None),
        ("[", None),
    ] {
        assert_eq!(account(body.as_bytes()).as_deref(), want, "{body}");
    }
}

#[test]
fn tokens_are_used_only_with_the_settings_they_were_granted_for() {
    let held = connection(Some(1_000), None);
    assert!(held.usable("b", 999).is_ok());
    assert!(held.usable("c", 999).unwrap_err().contains("granted for another client"));
    assert!(held.usable("b", 1_000).unwrap_err().contains("no refresh token"));
    assert!(connection(Some(1_000), Some("r")).usable("b", 2_000).is_ok(), "it can be refreshed");
    let refused = OauthConnection { tokens: None, ..connection(None, None) };
    assert!(refused.usable("b", 0).unwrap_err().contains("refused"));
    let one = settings(None, ClientAuth::Basic);
    let binding = |settings: &OauthSettings| TokenIssuer::Vendor(Box::new(settings.clone())).binding(None);
    let other = OauthSettings { token_url: "https://evil.example/token".into(), ..one.clone() };
    assert_ne!(binding(&one), binding(&other));
    let other = OauthSettings { client: None, ..one.clone() };
    assert_ne!(binding(&one), binding(&other));
    let at = |url: &str, socket, provider| {
        let secret = secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signer = ExtensionSigner::new(&secret, "msg_".into()).unwrap();
        let access = Arc::new(ExtensionAccess::new(url.into(), socket, signer));
        TokenIssuer::Extension(ExtensionIssuer::new(&access, provider)).binding(None)
    };
    let lab = at("http://localhost", None, "lab");
    assert_eq!(lab, at("http://localhost", None, "lab"));
    for other in [
        at("https://localhost", None, "lab"),
        at("http://localhost", Some("/run/e.sock"), "lab"),
        at("http://localhost", None, "other"),
        binding(&one),
    ] {
        assert_ne!(lab, other);
    }
}

fn due(connection: OauthConnection) -> DueRefresh {
    let issuer = TokenIssuer::Vendor(Box::new(settings(None, ClientAuth::Basic)));
    DueRefresh { connection: Arc::new(connection), issuer: Arc::new(issuer) }
}

#[test]
fn a_refresh_is_due_at_four_fifths_of_the_lifetime_and_only_once() {
    let schedule = RefreshSchedule::default();
    schedule.want(vec![due(connection(Some(100_000), Some("r")))]);
    assert_eq!((schedule.take_due(79_999).len(), schedule.pause_ms(79_999)), (0, Some(1)));
    assert_eq!((schedule.take_due(80_000).len(), schedule.take_due(80_000).len()), (1, 0));
    schedule.want(vec![due(connection(Some(100_000), Some("r")))]);
    assert!(schedule.take_due(90_000).is_empty(), "a publication in between starts no second one");
    assert!(!schedule.learn("p", Err("down".into()), 90_000), "the token is still valid");
    assert_eq!(schedule.trouble("p"), Some((90_000, "down".to_owned())));
    assert!(schedule.take_due(91_999).is_empty());
    assert_eq!(schedule.take_due(92_000).len(), 1);
    assert!(schedule.learn("p", Err("down".into()), 100_000), "it has expired");
    assert_eq!(schedule.pause_ms(100_000), Some(4_000), "twice the first delay");
    let fresh = OauthConnection { serial: 2, ..connection(Some(200_000), Some("r2")) };
    schedule.want(vec![due(fresh)]);
    assert_eq!(schedule.trouble("p"), None);
    for (held, want) in [
        (connection(None, Some("r")), None),
        (connection(Some(100_000), None), None),
        (connection(Some(1_000), Some("r")), Some(5_000)),
        (OauthConnection { refresh_began_at_ms: Some(7), ..connection(None, Some("r")) }, Some(0)),
    ] {
        assert_eq!(held.refresh_at_ms(), want);
    }
}

#[tokio::test]
async fn the_end_waits_for_refreshes_that_have_begun_and_lets_no_other_begin() {
    let schedule = RefreshSchedule::default();
    let held = connection(Some(100_000), Some("r"));
    schedule.want(vec![due(held.clone())]);
    assert_eq!(schedule.take_due(80_000).len(), 1);
    let mut ending = std::pin::pin!(schedule.end());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(ending.as_mut().poll(&mut context).is_pending());
    assert!(schedule.renew(&held).call(), "another token is on its way");
    schedule.learn("p", Ok(()), 80_001);
    ending.await;
    assert!(schedule.take_due(u64::MAX).is_empty());
    assert_eq!(schedule.pause_ms(u64::MAX), None);
    assert!(!schedule.renew(&held).call(), "no other token comes");
}

#[test]
fn rejected_tokens_are_refreshed_once_a_minute_at_most() {
    let schedule = RefreshSchedule::default();
    let held = connection(None, Some("r"));
    schedule.want(vec![due(held.clone())]);
    let renew = schedule.renew(&held);
    assert!((0..50).all(|_| renew.call()), "all fifty requests wait");
    let now_ms = shared::clock::unix_ms();
    assert_eq!((schedule.take_due(now_ms).len(), schedule.take_due(now_ms).len()), (1, 0));
    assert!(renew.call(), "it is on its way");
    let fresh = OauthConnection { serial: 2, ..held };
    schedule.want(vec![due(fresh.clone())]);
    schedule.learn("p", Ok(()), now_ms);
    assert!(renew.call(), "there is another token");
    assert!(
        !schedule.renew(&fresh).call(),
        "a vendor that rejects fresh tokens is not asked again and again"
    );
}
