//! A scripted OAuth vendor: its authorization server, and its API, which accepts only the current access token.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use percent_encoding::percent_decode_str;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::admin::Admin;
use super::gateway::Setup;
use super::upstream::Received;
use super::{Answer, Client, Gateway, Upstream, Yaml, wait};

pub(crate) const CLIENT_ID: &str = "client-of-the-operator";
pub(crate) const CLIENT_SECRET: &str = "planted-client-secret-55/+";
/// The public origin of gateways in these tests. Clients send it as `Origin`; no name is resolved.
pub(crate) const ORIGIN: &str = "https://llm.example.com";

/// A vendor.
pub(crate) struct Vendor {
    pub(crate) server: Upstream,
    pub(crate) api: Upstream,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Codes with the PKCE challenge of each.
    codes: HashMap<String, String>,
    access: HashSet<String>,
    refresh: HashSet<String>,
    /// Answers that take precedence at the token address.
    scripted: VecDeque<Answer>,
    /// The steps before each further answer of the token address.
    before: Answer,
    issued: u64,
    /// The lifetime that answers state; `None` states none.
    life_s: Option<u64>,
    device_approved: bool,
}

impl Vendor {
    pub(crate) async fn start() -> Self {
        let (server, api) = (Upstream::start().await, Upstream::start().await);
        let state = Arc::new(Mutex::new(State { life_s: Some(3_600), ..State::default() }));
        let of_server = Arc::clone(&state);
        server.answering(move |request| of_server.lock().unwrap().serve(request));
        let of_api = Arc::clone(&state);
        api.answering(move |request| {
            let token = request.header("authorization").unwrap_or_default().trim_start_matches("Bearer ");
            match of_api.lock().unwrap().access.contains(token) {
                true if request.head.starts_with("GET") => {
                    Answer::json(200, json!({"object": "list", "data": [{"id": "listed"}]}).to_string())
                }
                true => Answer::completion("hello"),
                false => Answer::error(401),
            }
        });
        Self { server, api, state }
    }

    /// Returns the `oauth` settings with these further members.
    pub(crate) fn settings(&self, more: &Value) -> Value {
        let at = |path: &str| format!("http://{}/{path}", self.server.address());
        let mut settings = json!({
            "authorize_url": at("authorize"), "token_url": at("token"), "userinfo_url": at("userinfo"),
            "revocation_url": at("revoke"), "scopes": ["openid", "models"],
        });
        settings.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        settings
    }

    /// Returns a provider called `partner` with the model `m`.
    pub(crate) fn provider(&self, owner: &str) -> Value {
        json!({
            "id": "partner", "type": "oauth_partner", "base_url": self.api.base_url(), "models": ["m"], "owner": owner,
            "oauth": self.settings(&Value::Null),
        })
    }

    /// Consents on the page at `authorize_url`, and returns the path of the callback that the browser is sent to.
    pub(crate) fn consent(&self, authorize_url: &str) -> String {
        let (page, query) = authorize_url.split_once('?').unwrap();
        assert_eq!(page, format!("http://{}/authorize", self.server.address()));
        let query = form(query);
        assert_eq!(query["response_type"], "code");
        assert_eq!(query["client_id"], CLIENT_ID);
        assert_eq!(query["code_challenge_method"], "S256");
        assert_eq!(query["redirect_uri"], format!("{ORIGIN}/oauth/callback/partner"), "M-107");
        self.with(|state| {
            state.issued += 1;
            let code = format!("planted-code-{}", state.issued);
            state.codes.insert(code.clone(), query["code_challenge"].clone());
            format!("/oauth/callback/partner?code={code}&state={}&extra=ignored", query["state"])
        })
    }

    /// Puts an answer before all others of the token address.
    pub(crate) fn script_token(&self, answer: Answer) {
        self.with(|state| state.scripted.push_back(answer));
    }

    /// Sets the steps before each further answer of the token address.
    pub(crate) fn before_token(&self, steps: Answer) {
        self.with(|state| state.before = steps);
    }

    /// Sets the lifetime of the next tokens.
    pub(crate) fn life_s(&self, life_s: Option<u64>) {
        self.with(|state| state.life_s = life_s);
    }

    /// Lets the API reject all access tokens issued so far.
    pub(crate) fn end_access(&self) {
        self.with(|state| state.access.clear());
    }

    /// Lets the token address refuse all refresh tokens issued so far.
    pub(crate) fn end_refresh(&self) {
        self.with(|state| state.refresh.clear());
    }

    /// Lets the human consent on the other device.
    pub(crate) fn approve_device(&self) {
        self.with(|state| state.device_approved = true);
    }

    /// Returns the current access and refresh tokens.
    pub(crate) fn tokens(&self) -> Vec<String> {
        self.with(|state| state.access.iter().chain(&state.refresh).cloned().collect())
    }

    /// Returns the forms of all requests to an address of the server.
    pub(crate) fn forms(&self, path: &str) -> Vec<HashMap<String, String>> {
        let requests = self.server.requests();
        let there = requests.iter().filter(|request| path_of(request) == path);
        there.map(|request| form(std::str::from_utf8(&request.body).unwrap())).collect()
    }

    /// Returns the number of refreshes.
    pub(crate) fn refreshes(&self) -> usize {
        self.forms("/token").iter().filter(|form| form["grant_type"] == "refresh_token").count()
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn serve(&mut self, request: &Received) -> Answer {
        let body = form(std::str::from_utf8(&request.body).unwrap());
        let basic = format!("{CLIENT_ID}:planted-client-secret-55%2F%2B");
        let basic = format!("Basic {}", BASE64_STANDARD.encode(basic));
        let path = path_of(request);
        if path != "/userinfo" && request.header("authorization") != Some(&basic) {
            return Answer::json(401, r#"{"error":"invalid_client"}"#);
        }
        match path.as_str() {
            "/token" => {
                if let Some(answer) = self.scripted.pop_front() {
                    return answer;
                }
                let answer = self.token(&body);
                Answer { steps: self.before.steps.iter().cloned().chain(answer.steps).collect() }
            }
            "/userinfo" => Answer::json(200, json!({"sub": "1", "email": "ada@vendor.example"}).to_string()),
            "/revoke" => {
                self.access.remove(&body["token"]);
                self.refresh.remove(&body["token"]);
                Answer::json(200, "")
            }
            "/device" => {
                let page = format!("https://vendor.example/device?code={}", "ABCD-1234");
                let answer = json!({
                    "device_code": "planted-device-code", "user_code": "ABCD-1234", "expires_in": 600, "interval": 1,
                    "verification_uri": "https://vendor.example/device", "verification_uri_complete": page,
                });
                Answer::json(200, answer.to_string())
            }
            _ => Answer::unscripted(),
        }
    }

    fn token(&mut self, body: &HashMap<String, String>) -> Answer {
        let refused = |code: &str| Answer::json(400, json!({"error": code}).to_string());
        match body["grant_type"].as_str() {
            "authorization_code" => {
                let verifier = digest(&SHA256, body["code_verifier"].as_bytes());
                let challenge = BASE64_URL_SAFE_NO_PAD.encode(verifier);
                match self.codes.remove(&body["code"]) {
                    Some(known) if known == challenge => self.issue(),
                    _ => refused("invalid_grant"),
                }
            }
            "refresh_token" if self.refresh.remove(&body["refresh_token"]) => self.issue(),
            "urn:ietf:params:oauth:grant-type:device_code" if self.device_approved => self.issue(),
            "urn:ietf:params:oauth:grant-type:device_code" => refused("authorization_pending"),
            _ => refused("invalid_grant"),
        }
    }

    fn issue(&mut self) -> Answer {
        self.issued += 1;
        let (access, refresh) =
            (format!("planted-access-{}", self.issued), format!("planted-refresh-{}", self.issued));
        let mut answer = json!({
            "access_token": access, "refresh_token": refresh, "token_type": "Bearer", "scope": "openid models",
        });
        if let Some(life_s) = self.life_s {
            answer["expires_in"] = json!(life_s);
        }
        self.access.insert(access);
        self.refresh.insert(refresh);
        Answer::json(200, answer.to_string())
    }
}

/// A setup of a gateway with the operator's client.
pub(crate) fn setup(yaml: &Yaml) -> Setup {
    Setup::new(yaml)
        .env("LLMGW_PARTNER_CLIENT_ID", CLIENT_ID)
        .env("LLMGW_PARTNER_CLIENT_SECRET", CLIENT_SECRET)
        .env("LLMGW_OAUTH_PUBLIC_BASE_URL", ORIGIN)
}

/// A browser in which an administrator is signed in to the console.
#[derive(Clone)]
pub(crate) struct Browser {
    pub(crate) client: Client,
    address: std::net::SocketAddr,
}

impl Browser {
    pub(crate) async fn sign_in(gateway: &Gateway) -> Self {
        Self::sign_in_at(gateway, ORIGIN).await
    }

    /// Signs in on the console that was opened at this origin.
    pub(crate) async fn sign_in_at(gateway: &Gateway, origin: &str) -> Self {
        let bare =
            Client::new(gateway.address(), None).with("origin", origin).with("sec-fetch-site", "same-origin");
        let body = json!({"key": super::gateway::ADMIN_KEY}).to_string();
        let answer = bare.post("/admin/api/session", body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let token = answer.json()["csrf_token"].as_str().unwrap().to_owned();
        let client = bare.with("cookie", &cookie).with("x-csrf-token", &token);
        Self { client, address: gateway.address() }
    }

    /// A browser with a session that `client` sends.
    pub(crate) fn of(client: Client, gateway: &Gateway) -> Self {
        Self { client, address: gateway.address() }
    }

    /// Returns the browser at the gateway after a restart.
    pub(crate) fn at(&self, gateway: &Gateway) -> Self {
        Self::of(self.client.clone().at(gateway.address()), gateway)
    }

    /// Begins a sign-in; returns the consent page and the cookie for the callback.
    pub(crate) async fn begin(&self, body: &Value) -> (String, String) {
        let answer = self.client.post("/admin/api/providers/partner/oauth/start", body.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let cookie = answer.header("set-cookie").unwrap();
        assert!(
            cookie.contains("; Path=/oauth/callback/partner; Max-Age=600; HttpOnly; SameSite=Lax; Secure")
        );
        (
            answer.json()["authorize_url"].as_str().unwrap().to_owned(),
            cookie.split(';').next().unwrap().to_owned(),
        )
    }

    /// Opens the callback with this cookie; returns the status and the text of the page.
    pub(crate) async fn callback(&self, path: &str, cookie: &str) -> (u16, String) {
        let client =
            Client::new(self.address, None).with("cookie", cookie).with("sec-fetch-site", "cross-site");
        let answer = wait::within(2 * wait::PATIENCE, path, client.get(path)).await.unwrap();
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("script"), "{policy}");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        (answer.status, String::from_utf8(answer.body.to_vec()).unwrap())
    }

    /// Signs in at the vendor as far as to the page that says so.
    pub(crate) async fn connect(&self, vendor: &Vendor, body: &Value) {
        let (page, cookie) = self.begin(body).await;
        let (status, text) = self.callback(&vendor.consent(&page), &cookie).await;
        assert!(status == 200 && text.contains("is connected as ada@vendor.example"), "{text}");
    }
}

/// A gateway with the provider `partner`, owned by a human and signed in to.
pub(crate) struct Connected {
    pub(crate) vendor: Vendor,
    pub(crate) gateway: Gateway,
    /// The ID of the human.
    pub(crate) ada: String,
    /// A key that acts as the human.
    pub(crate) key: String,
}

impl Connected {
    pub(crate) async fn start() -> Self {
        let vendor = Vendor::start().await;
        Self::at(vendor, setup(&Yaml::new()).start().await).await
    }

    /// Connects `partner` on this gateway.
    pub(crate) async fn at(vendor: Vendor, gateway: Gateway) -> Self {
        let admin = Admin(gateway.client());
        let ada = admin.create("principals", json!({"name": "Ada"})).await;
        let home = admin.project("home").await;
        admin.done("PUT", &format!("projects/{home}/members/{ada}"), json!({"role": "owner"})).await;
        let key = admin.key(json!({"project": home, "acts_as": ada})).await.key;
        admin.done("POST", "providers", vendor.provider(&ada)).await;
        Browser::sign_in(&gateway).await.connect(&vendor, &json!({})).await;
        Self { vendor, gateway, ada, key }
    }

    /// Returns a client with the key of the human.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.gateway.address(), Some(&self.key))
    }

    /// Returns the sign-in as the API shows it, with the provider's state.
    pub(crate) async fn sign_in(&self) -> (String, Value) {
        let shown = Admin(self.gateway.client()).done("GET", "providers/partner", Value::Null).await;
        (shown["state"].as_str().unwrap().to_owned(), shown["sign_in"].clone())
    }
}

fn path_of(request: &Received) -> String {
    let target = request.head.split(' ').nth(1).unwrap();
    target.split('?').next().unwrap().to_owned()
}

/// Parses a form or a query.
pub(crate) fn form(text: &str) -> HashMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().unwrap().into_owned();
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}
