//! Sessions of the console and the process: what a restart keeps, and what ends for good.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::{Client, Gateway, Yaml, clock, wait};

const SESSION: &str = "/admin/api/session";
const SECRET: &str = "never-shown-secret-of-the-proxy";
const NEW_KEY: &str = "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXowMTIzNDU=";
/// Half past twelve on some day, in seconds since the Unix epoch.
const NOON: i64 = 1_780_317_000;

/// A page of the console that is signed in.
#[derive(Clone)]
struct Page {
    client: Client,
    cookie: String,
    token: String,
}

impl Page {
    /// Signs in with the administrator key.
    async fn sign_in(gateway: &Gateway) -> Self {
        Self::opened(Client::new(gateway.address(), None), json!({"key": ADMIN_KEY})).await
    }

    /// Signs in a human whom the proxy asserts.
    async fn arrive(gateway: &Gateway, name: &str) -> Self {
        let client = Client::new(gateway.address(), None)
            .with("x-llmgw-sso-secret", SECRET)
            .with("x-forwarded-user", name);
        Self::opened(client, json!({"sso": true})).await
    }

    async fn opened(client: Client, body: Value) -> Self {
        let answer = client.post(SESSION, body.to_string()).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let token = answer.json()["csrf_token"].as_str().unwrap().to_owned();
        Self { client, cookie: cookie(answer.header("set-cookie").unwrap()), token }
    }

    /// Returns a client with the page's session.
    fn client(&self) -> Client {
        self.client.clone().with("cookie", &self.cookie).with("x-csrf-token", &self.token)
    }

    /// Returns the page at the gateway after a restart.
    fn at(&self, gateway: &Gateway) -> Self {
        Self { client: self.client.clone().at(gateway.address()), ..self.clone() }
    }

    /// Returns the page with another cookie.
    fn with_cookie(&self, cookie: String) -> Self {
        Self { cookie, ..self.clone() }
    }

    async fn is_open(&self) -> bool {
        match self.client().get("/admin/api/keys").await.unwrap().status {
            200 => true,
            401 => false,
            other => panic!("{other}"),
        }
    }

    /// Returns the cookie of a use that renews the ticket.
    async fn renewed(&self) -> Option<String> {
        let answer = self.client().get("/admin/api/keys").await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.header("set-cookie").map(cookie)
    }

    async fn sign_out(&self, query: &str) {
        let path = format!("{SESSION}{query}");
        let answer = self.client().send("DELETE", &path, Bytes::new()).await.unwrap();
        assert_eq!(answer.status, 204, "{answer:?}");
        assert!(answer.header("set-cookie").unwrap().starts_with("llmgw_session=; "), "{answer:?}");
    }
}

fn cookie(header: &str) -> String {
    header.split(';').next().unwrap().to_owned()
}

fn with_sso() -> Setup {
    Setup::new(&Yaml::new())
        .env("LLMGW_SSO_ENABLED", "true")
        .env("LLMGW_SSO_SHARED_SECRET", SECRET)
        .env("LLMGW_SSO_AUTO_PROVISION", "true")
}

#[tokio::test]
async fn a_session_survives_a_restart_and_a_kill() {
    let gateway = with_sso().start().await;
    let (page, ada) = (Page::sign_in(&gateway).await, Page::arrive(&gateway, "ada").await);
    let gateway = gateway.restart().await;
    assert!(page.at(&gateway).is_open().await && ada.at(&gateway).is_open().await);
    let gateway = gateway.restart_in_order().await;
    let (page, ada) = (page.at(&gateway), ada.at(&gateway));
    assert!(page.is_open().await && ada.is_open().await);
    let session = page.client().get(SESSION).await.unwrap().json();
    assert_eq!(session["csrf_token"], json!(page.token), "a form that was open before can be sent");
    let made = page.client().post("/admin/api/principals", r#"{"name": "Bob"}"#).await;
    assert_eq!(made.status, 201, "{made:?}");
    let stolen = Page { client: Client::new(gateway.address(), None), ..ada.clone() };
    assert!(!stolen.is_open().await, "without the proxy's identity");
    let db = rusqlite::Connection::open(gateway.state().join("gateway.db")).unwrap();
    let rows: i64 = db.query_row("SELECT count(*) FROM ended_sessions", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0, "nothing is stored of an open session");
}

#[tokio::test]
async fn a_session_that_was_signed_out_stays_over_after_a_kill() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let (page, other) = (Page::sign_in(&gateway).await, Page::sign_in(&gateway).await);
    page.sign_out("").await;
    assert!(!page.is_open().await && other.is_open().await);
    let gateway = gateway.restart().await;
    assert!(!page.at(&gateway).is_open().await && other.at(&gateway).is_open().await);
    // A sign-in replaces the session of the browser.
    let again = Client::new(gateway.address(), None).with("cookie", &other.cookie);
    let again = Page::opened(again, json!({"key": ADMIN_KEY})).await;
    let gateway = gateway.restart().await;
    let again = Page { client: Client::new(gateway.address(), None), ..again };
    assert!(!other.at(&gateway).is_open().await && again.is_open().await);
    let content = std::fs::read(gateway.state().join("gateway.db")).unwrap();
    let ticket = page.cookie.split_once('=').unwrap().1.as_bytes();
    assert!(!content.windows(ticket.len()).any(|window| window == ticket), "no ticket is stored");
}

#[tokio::test]
async fn signing_out_everywhere_ends_all_sessions_of_the_holder_alone() {
    let gateway = with_sso().start().await;
    let pages = [Page::sign_in(&gateway).await, Page::sign_in(&gateway).await];
    let ada = [Page::arrive(&gateway, "ada").await, Page::arrive(&gateway, "ada").await];
    let bob = Page::arrive(&gateway, "bob").await;
    ada[0].sign_out("?everywhere=true").await;
    let after = Page::arrive(&gateway, "ada").await;
    let gateway = gateway.restart().await;
    for page in &ada {
        assert!(!page.at(&gateway).is_open().await);
    }
    assert!(bob.at(&gateway).is_open().await && after.at(&gateway).is_open().await);
    // An administrator whose browser is lost ends the sessions with the key.
    let ended = gateway.client().send("DELETE", &format!("{SESSION}?everywhere=true"), Bytes::new()).await;
    assert_eq!(ended.unwrap().status, 204);
    for page in &pages {
        assert!(!page.at(&gateway).is_open().await);
    }
    assert!(bob.at(&gateway).is_open().await);
    let audit = gateway.client().get("/admin/api/audit?action=session.close").await.unwrap().json();
    let closed = audit["data"].as_array().unwrap();
    assert_eq!(closed.len(), 2, "{audit}");
    assert!(closed.iter().all(|row| row["detail"]["after"] == json!({"everywhere": true})), "{audit}");
}

#[tokio::test]
async fn a_ticket_that_was_changed_or_is_of_another_gateway_is_refused() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let other = Gateway::start(&Yaml::new()).await;
    let page = Page::sign_in(&gateway).await;
    let foreign = Page::sign_in(&other).await;
    assert!(foreign.is_open().await && !foreign.at(&gateway).is_open().await, "another data key");
    let ticket = page.cookie.split_once('=').unwrap().1;
    for at in (0..ticket.len()).step_by(37).chain([ticket.len() - 1]) {
        let mut changed = ticket.as_bytes().to_vec();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = format!("llmgw_session={}", String::from_utf8(changed).unwrap());
        assert!(!page.with_cookie(changed).is_open().await, "changed at {at}");
    }
    for cut in ["", &ticket[1..], &ticket[..ticket.len() - 4], &ticket.repeat(20)] {
        assert!(!page.with_cookie(format!("llmgw_session={cut}")).is_open().await, "{} bytes", cut.len());
    }
    assert!(page.is_open().await);
    assert!(!gateway.log().contains(ticket), "{}", gateway.log());
}

#[tokio::test]
async fn a_session_ends_when_it_is_idle_and_after_twelve_hours() {
    let Some(environment) = clock::at(NOON) else { return };
    let mut gateway = Setup::new(&Yaml::new()).with_clock(environment).start().await;
    let first = Page::sign_in(&gateway).await;
    assert_eq!(first.renewed().await, None, "a ticket is renewed once a minute at most");
    let mut page = first.clone();
    for minutes in (1..).map(|n| n * 59) {
        let environment = clock::at(NOON + minutes * 60).unwrap();
        gateway = gateway.kill().await.with_clock(environment).start().await;
        page = page.at(&gateway);
        if minutes >= 12 * 60 {
            break;
        }
        let renewed = page.renewed().await.unwrap();
        assert_ne!(renewed, page.cookie);
        page = page.with_cookie(renewed);
        assert_eq!(page.renewed().await, None);
        assert_eq!(first.at(&gateway).is_open().await, minutes < 60, "idle after an hour: {minutes} min");
    }
    assert!(!page.is_open().await, "used all day, and yet over");
}

#[tokio::test]
async fn the_sessions_of_a_disabled_human_end_for_good() {
    let gateway = with_sso().start().await;
    let admin = Admin(gateway.client());
    let (ada, bob) = (Page::arrive(&gateway, "ada").await, Page::arrive(&gateway, "bob").await);
    let session = ada.client().get(SESSION).await.unwrap().json();
    let path = format!("principals/{}", session["human"]["id"].as_str().unwrap());
    admin.done("PATCH", &format!("{path}?dry_run=true"), json!({"disabled": true})).await;
    assert!(ada.is_open().await, "a dry run ends nothing");
    let disabled = admin.call("PATCH", &path, json!({"disabled": true})).await;
    assert_eq!(disabled.header("x-llmgw-published"), None);
    assert!(!ada.is_open().await && bob.is_open().await);
    admin.done("PATCH", &path, json!({"disabled": false})).await;
    assert!(!ada.is_open().await, "a human who is enabled again signs in again");
    let gateway = gateway.restart().await;
    assert!(!ada.at(&gateway).is_open().await && bob.at(&gateway).is_open().await);
    let again = Page::arrive(&gateway, "ada").await;
    Admin(gateway.client()).done("DELETE", &path, Value::Null).await;
    assert!(!again.is_open().await, "deleted");
}

/// A session belongs to the key that opened it, and to the data key of the state, which a rekey keeps.
#[tokio::test]
async fn a_session_survives_a_rekey_and_ends_with_its_key() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let page = Page::sign_in(&gateway).await;
    let stopped = gateway.kill().await.env("LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY", NEW_KEY);
    stopped.output_of(&["credentials", "rekey"], 0).await;
    let stopped = stopped.without("LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY");
    let gateway = stopped.env("LLMGW_CREDENTIAL_ENCRYPTION_KEY", NEW_KEY).start().await;
    assert!(page.at(&gateway).is_open().await);
    let replaced = gateway.kill().await.env("LLMGW_API_KEY", "another-admin-key-0123456789");
    let gateway = replaced.start().await;
    assert!(!page.at(&gateway).is_open().await);
}

/// The proxy asserts the groups in each request, and a stream sends only its first one.
#[tokio::test]
async fn a_live_stream_of_an_administrator_ends_with_a_request_that_lacks_the_group() {
    let gateway = with_sso().start().await;
    let proxy = Client::new(gateway.address(), None)
        .with("x-llmgw-sso-secret", SECRET)
        .with("x-forwarded-user", "ada");
    let lead = proxy.clone().with("x-forwarded-groups", "llmgw-admin");
    let page = Page::opened(lead, json!({"sso": true})).await;
    let client = page.client();
    let opening = client.open("GET", "/admin/api/live", Bytes::new());
    let mut live = wait::within(wait::PATIENCE, "the live stream", opening).await.unwrap();
    assert!(live.event().await.bytes.starts_with(b"event: hello"));
    assert!(page.is_open().await);
    assert!(!live.event().await.bytes.starts_with(b"event: bye"), "the stream goes on");
    let removed = Page { client: proxy, ..page };
    assert!(removed.is_open().await, "she is still a human of the gateway");
    let (events, is_whole) = live.rest().await;
    let last = String::from_utf8(events.last().unwrap().bytes.to_vec()).unwrap();
    assert!(is_whole && last.starts_with("event: bye") && last.contains("signed_out"), "{last}");
}
