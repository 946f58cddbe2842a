//! Single sign-on behind a trusted proxy (AUTH-7, M-108).

use std::net::IpAddr;

use http::{HeaderMap, HeaderValue, Method};
use ring::hmac;
use serde_json::{Value, json};

use super::Gateway;
use super::humans::{Person, SECRET, identity};
use crate::admin::gate::identity::{Asserted, IdentityBoundary};
use crate::common::bounds::ENDED_SESSIONS;
use crate::db::engine::Db;
use crate::routing::config::{self, Environment};

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn status(gateway: &Gateway, person: &Person, path: &str) -> u16 {
    gateway.ask((Method::GET, path), &person.headers, &Value::Null).0
}

fn changed(mut headers: Vec<(String, String)>, name: &str, value: Option<&str>) -> Vec<(String, String)> {
    headers.retain(|(known, _)| known != name);
    headers.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    headers
}

#[test]
fn headers_from_an_untrusted_address_or_without_the_secret_sign_nobody_in() {
    let gateway = Gateway::with_sso();
    let good = identity("ada", "llmgw-admin");
    let twice = |name: &str, value: &str| {
        let mut headers = good.clone();
        headers.push((name.to_owned(), value.to_owned()));
        headers
    };
    let cases = [
        ("another address", IpAddr::from([10, 0, 0, 9]), good.clone()),
        ("no secret", HERE, changed(good.clone(), "x-llmgw-sso-secret", None)),
        ("a wrong secret", HERE, changed(good.clone(), "x-llmgw-sso-secret", Some("wrong"))),
        ("a part of the secret", HERE, changed(good.clone(), "x-llmgw-sso-secret", Some(&SECRET[1..]))),
        ("no user", HERE, changed(good.clone(), "x-forwarded-user", None)),
        ("an empty user", HERE, changed(good.clone(), "x-forwarded-user", Some(" "))),
        ("two users", HERE, twice("x-forwarded-user", "eve")),
        ("two addresses", HERE, twice("x-forwarded-email", "eve@example.com")),
        ("two groups", HERE, twice("x-forwarded-groups", "llmgw-admin")),
        ("two secrets", HERE, twice("x-llmgw-sso-secret", SECRET)),
    ];
    for (name, address, headers) in cases {
        let (status, answer, cookie) = gateway.arrive(address, &headers);
        assert_eq!((status, cookie), (401, None), "{name}: {answer}");
    }
    assert_eq!(gateway.arrive(HERE, &good).0, 201);
    assert_eq!(gateway.get("/admin/api/principals")["data"].as_array().unwrap().len(), 1);
    gateway.stop();
}

#[test]
fn a_session_is_valid_only_with_the_identity_that_opened_it() {
    let gateway = Gateway::with_sso();
    let ada = gateway.person("ada", "llmgw-admin");
    assert_eq!(status(&gateway, &ada, "state"), 200);
    let thief = |name: &str, value: &str| ada.clone().with(name, value);
    for (what, person) in [
        ("another user", thief("x-forwarded-user", "eve")),
        ("a wrong secret", thief("x-llmgw-sso-secret", "wrong")),
        ("no secret", ada.clone().without("x-llmgw-sso-secret")),
        ("no headers", Person { headers: ada.headers[5..].to_vec(), ..ada.clone() }),
    ] {
        assert_eq!(status(&gateway, &person, "state"), 401, "{what}");
    }
    assert_eq!(status(&gateway, &ada, "state"), 200);
    let foreign = ada.clone().with("sec-fetch-site", "cross-site");
    assert_eq!(status(&gateway, &foreign, "state"), 403);
    let project = json!({"name": "p"});
    for person in [ada.clone().without("x-csrf-token"), ada.clone().with("x-csrf-token", "x"), foreign] {
        assert_eq!(gateway.ask((Method::POST, "projects"), &person.headers, &project).0, 403);
    }
    assert_eq!(gateway.ask((Method::POST, "projects"), &ada.headers, &project).0, 201);
    assert_eq!(gateway.ask((Method::DELETE, "session"), &ada.headers, &Value::Null).0, 204);
    assert_eq!(status(&gateway, &ada, "state"), 401);
    gateway.stop();
}

#[test]
fn a_session_loses_administration_with_the_request_whose_groups_lack_it() {
    let gateway = Gateway::with_sso();
    let ada = gateway.person("ada", "staff, llmgw-admin");
    assert_eq!(status(&gateway, &ada, "state"), 200);
    for groups in ["staff", "", "llmgw-administrators", "staff|llmgw-admin", "LLMGW-ADMIN"] {
        let removed = ada.clone().with("x-forwarded-groups", groups);
        assert_eq!(status(&gateway, &removed, "state"), 403, "{groups}");
        assert_eq!(status(&gateway, &removed, "projects"), 200, "{groups}");
        let session = gateway.ask((Method::GET, "session"), &removed.headers, &Value::Null).1;
        assert_eq!(session["administrator"], false, "{session}");
    }
    assert_eq!(status(&gateway, &ada.clone().without("x-forwarded-groups"), "state"), 403);
    let audit = gateway.get("/admin/api/audit?limit=50").to_string();
    assert!(audit.contains("session.open") && audit.contains(&ada.id), "{audit}");
    gateway.stop();
}

#[test]
fn an_email_address_in_other_case_takes_over_no_account() {
    let gateway = Gateway::with_sso();
    let ada = gateway.person("ada", "");
    let email = |subject: &str, email: &str| changed(identity(subject, ""), "x-forwarded-email", Some(email));
    for taken in ["ada@example.com", "ADA@EXAMPLE.COM", "Ada@Example.com"] {
        let (status, answer, _) = gateway.arrive(HERE, &email("eve", taken));
        assert_eq!(status, 403, "{taken}: {answer}");
    }
    // The same subject keeps its entry, whatever its address.
    let (status, session, _) = gateway.arrive(HERE, &email("ada", "ADA@example.com"));
    assert_eq!((status, &session["human"]["id"]), (201, &json!(ada.id)));
    let (_, session, _) = gateway.arrive(HERE, &email("ada", "new@example.com"));
    assert_eq!(session["human"], json!({"id": ada.id, "name": "ada", "email": "new@example.com"}));
    // An entry that an administrator created is connected once.
    let made = json!({"name": "Bob", "email": "Bob@Example.com"});
    let bob = gateway.done(Method::POST, "principals", &made);
    let (_, session, _) = gateway.arrive(HERE, &email("subject-of-bob", "bob@example.com"));
    assert_eq!(session["human"]["id"], bob["id"]);
    assert_eq!(gateway.arrive(HERE, &email("eve", "BOB@example.com")).0, 403);
    let audit = gateway.get("/admin/api/audit?limit=100").to_string();
    assert!(audit.contains("principal.connect") && audit.contains("principal.sign_in"), "{audit}");
    gateway.stop();
}

#[test]
fn unknown_and_disabled_humans_are_refused() {
    let gateway = Gateway::start_with(&[("LLMGW_SSO_ENABLED", "true"), ("LLMGW_SSO_SHARED_SECRET", SECRET)]);
    let (status_unknown, answer, _) = gateway.arrive(HERE, &identity("ada", "llmgw-admin"));
    assert_eq!(status_unknown, 403, "{answer}");
    gateway.done(Method::POST, "principals", &json!({"name": "Ada", "email": "ada@example.com"}));
    let ada = gateway.person("ada", "llmgw-admin");
    let path = format!("principals/{}", ada.id);
    gateway.done(Method::PATCH, &path, &json!({"disabled": true}));
    assert_eq!(status(&gateway, &ada, "state"), 401, "the session has ended");
    assert_eq!(gateway.arrive(HERE, &identity("ada", "llmgw-admin")).0, 403);
    gateway.done(Method::PATCH, &path, &json!({"disabled": false, "sso_subject": null}));
    assert_eq!(gateway.arrive(HERE, &identity("another-subject", "")).0, 403);
    let moved = changed(identity("new-subject", ""), "x-forwarded-email", Some("ada@example.com"));
    assert_eq!(gateway.arrive(HERE, &moved).0, 201);
    gateway.stop();
}

#[test]
fn a_signed_out_page_learns_whom_the_proxy_has_authenticated() {
    let gateway = Gateway::with_sso();
    let session =
        |headers: &[(String, String)]| gateway.ask((Method::GET, "session"), headers, &Value::Null).1;
    let url = "/oauth2/sign_out";
    let shown = session(&identity("ada", ""));
    assert_eq!(shown["sso"], json!({"user": "ada@example.com", "problem": null, "sign_out_url": url}));
    assert_eq!(session(&[])["sso"], json!({"user": null, "problem": null, "sign_out_url": url}));
    let wrong = session(&changed(identity("ada", ""), "x-llmgw-sso-secret", Some("x")));
    assert!(wrong["sso"]["problem"].as_str().unwrap().contains("LLMGW_SSO_SHARED_SECRET"), "{wrong}");
    gateway.stop();
    let gateway = Gateway::start();
    assert_eq!(
        gateway.ask((Method::GET, "session"), &identity("ada", ""), &Value::Null).1["sso"],
        Value::Null
    );
    assert_eq!(gateway.arrive(HERE, &identity("ada", "")).0, 401);
    gateway.stop();
}

/// Returns the identity that each preset reads, and the names of the headers that are left.
fn taken(preset: &str, headers: &[(&str, &str)]) -> (Asserted, Vec<String>) {
    let key = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [3; 32]);
    let home = tempfile::TempDir::new().unwrap();
    let variables = [
        ("LLMGW_API_KEY", super::ADMIN),
        ("LLMGW_CREDENTIAL_ENCRYPTION_KEY", key.as_str()),
        ("LLMGW_STATE_DIR", home.path().to_str().unwrap()),
        ("LLMGW_SSO_ENABLED", "true"),
        ("LLMGW_SSO_SHARED_SECRET", SECRET),
        ("LLMGW_SSO_PRESET", preset),
        ("LLMGW_SSO_TRUSTED_PROXIES", "10.1.0.0/16, fd00::/8"),
    ];
    let environment = Environment::read(variables.map(|(name, value)| (name.into(), value.into())));
    let sso = config::load(&std::sync::Arc::new(environment)).unwrap().config.sso;
    let boundary = IdentityBoundary::new(sso, hmac::Key::new(hmac::HMAC_SHA256, &[1; 32]));
    let mut map = HeaderMap::new();
    for (name, value) in headers.iter().chain(&[("x-llmgw-sso-secret", SECRET), ("x-request-id", "r")]) {
        let name = http::HeaderName::try_from(*name).unwrap();
        map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    let outside = boundary.take(&mut map.clone(), IpAddr::from([10, 2, 0, 1]));
    assert_eq!(outside, Asserted::Nobody);
    let asserted = boundary.take(&mut map, "::ffff:10.1.2.3".parse().unwrap());
    (asserted, map.keys().map(ToString::to_string).collect())
}

#[test]
fn each_preset_reads_the_headers_of_its_proxy_and_leaves_none() {
    for (preset, headers) in [
        (
            "oauth2-proxy",
            [
                ("x-forwarded-user", "s1"),
                ("x-forwarded-email", "A@b.c"),
                ("x-forwarded-preferred-username", "Ädä"),
                ("x-forwarded-groups", "x,llmgw-admin"),
            ],
        ),
        (
            "authelia",
            [
                ("remote-user", "s1"),
                ("remote-email", "A@b.c"),
                ("remote-name", "Ädä"),
                ("remote-groups", "x,llmgw-admin"),
            ],
        ),
        (
            "authentik",
            [
                ("x-authentik-uid", "s1"),
                ("x-authentik-email", "A@b.c"),
                ("x-authentik-name", "Ädä"),
                ("x-authentik-groups", "a,b|llmgw-admin"),
            ],
        ),
        (
            "mod_auth_openidc",
            [
                ("oidc_claim_sub", "s1"),
                ("oidc_claim_email", "A@b.c"),
                ("oidc_claim_name", "Ädä"),
                ("oidc_claim_groups", "llmgw-admin,x"),
            ],
        ),
    ] {
        let (asserted, left) = taken(preset, &headers);
        let Asserted::Human(identity) = asserted else { panic!("{preset}: {asserted:?}") };
        assert_eq!((identity.subject.as_str(), identity.email.as_deref()), ("s1", Some("a@b.c")), "{preset}");
        assert_eq!((identity.name.as_deref(), identity.is_administrator), (Some("Ädä"), true), "{preset}");
        assert_eq!(left, ["x-request-id"], "{preset}");
    }
    // Cloudflare sends no groups, and a group whose name contains another separator is one group.
    let (asserted, _) = taken(
        "cloudflare-access",
        &[("cf-access-authenticated-user-email", "A@b.c"), ("x-groups", "llmgw-admin")],
    );
    assert!(
        matches!(&asserted, Asserted::Human(human) if !human.is_administrator && human.subject == "A@b.c")
    );
    let groups = [("x-authentik-uid", "s1"), ("x-authentik-groups", "x,llmgw-admin")];
    assert!(matches!(taken("authentik", &groups).0, Asserted::Human(human) if !human.is_administrator));
}

#[test]
fn nobody_ends_the_sessions_of_others_by_signing_in_and_out_often() {
    let gateway = Gateway::with_sso();
    let lead = gateway.person("lead", "staff,llmgw-admin");
    let (cookie, _) = gateway.sign_in();
    let first = gateway.person("eve", "");
    let mut last = first.clone();
    for _ in 0..=ENDED_SESSIONS.max() {
        last = gateway.person("eve", "");
        assert_eq!(gateway.ask((Method::DELETE, "session"), &last.headers, &Value::Null).0, 204);
    }
    assert_eq!(gateway.ask((Method::GET, "session"), &lead.headers, &Value::Null).1["administrator"], true);
    let (_, by_key, _) = gateway.call(
        Method::GET,
        "/admin/api/session",
        &[("cookie", &cookie), ("sec-fetch-site", "same-origin")],
    );
    assert_eq!(by_key["administrator"], true, "{by_key}");
    for (eve, which) in [(first, "began before all that she ended"), (last, "ended")] {
        assert_eq!(gateway.ask((Method::GET, "keys"), &eve.headers, &Value::Null).0, 401, "{which}");
    }
    let db = Db::create(gateway.home.path().join("state/gateway.db")).unwrap();
    let rows: usize = db.row("SELECT count(*) FROM ended_sessions", (), |row| row.get(0)).unwrap();
    assert_eq!(rows, ENDED_SESSIONS.max() + 1);
    gateway.stop();
}
