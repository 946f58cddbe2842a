//! A scripted extension whose provider `lab` needs the credential of a human who signs in.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::{described, expect_signed, new, path, url};
use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::upstream::Received;
use crate::support::vendor::{Browser, ORIGIN, form};
use crate::support::{Answer, Client, Gateway, Upstream, Yaml};

/// The extension.
pub(super) struct Issuer {
    pub(super) extension: Upstream,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Codes with the PKCE challenge of each.
    codes: HashMap<String, String>,
    credentials: HashSet<String>,
    refreshes: HashSet<String>,
    /// Answers that take precedence, by the end of the path.
    scripted: HashMap<&'static str, VecDeque<Answer>>,
    /// The steps before each further answer to a refresh.
    before_refresh: Answer,
    issued: u64,
    is_approved: bool,
    revokes: bool,
}

impl Issuer {
    pub(super) async fn start() -> Self {
        let (extension, state) = (Upstream::start().await, Arc::<Mutex<State>>::default());
        let of_extension = Arc::clone(&state);
        extension.answering(move |request| {
            described(request).unwrap_or_else(|| of_extension.lock().unwrap().serve(request))
        });
        Self { extension, state }
    }

    /// Consents on the page at `authorize_url`, and returns the path of the callback that the browser is sent to.
    pub(super) fn consent(&self, authorize_url: &str) -> String {
        let (page, query) = authorize_url.split_once('?').unwrap();
        assert_eq!(page, "https://vendor.example/consent");
        let query = form(query);
        self.with(|state| {
            state.issued += 1;
            let code = format!("planted-code-{}", state.issued);
            state.codes.insert(code.clone(), query["challenge"].clone());
            format!("/oauth/callback/partner?code={code}&state={}", query["state"])
        })
    }

    /// Puts an answer before all others of the path that ends with `end`.
    pub(super) fn script(&self, end: &'static str, answer: Answer) {
        self.with(|state| state.scripted.entry(end).or_default().push_back(answer));
    }

    pub(super) fn before_refresh(&self, steps: Answer) {
        self.with(|state| state.before_refresh = steps);
    }

    /// Lets the extension reject all credentials issued so far.
    pub(super) fn end_credentials(&self) {
        self.with(|state| state.credentials.clear());
    }

    /// Lets the extension refuse to renew them.
    pub(super) fn end_refreshes(&self) {
        self.with(|state| state.refreshes.clear());
    }

    /// Lets the human consent on the other device.
    pub(super) fn approve(&self) {
        self.with(|state| state.is_approved = true);
    }

    /// Lets the extension have the path of revocations, which is optional.
    pub(super) fn revoke(&self) {
        self.with(|state| state.revokes = true);
    }

    /// Returns the current credentials and the texts that renew them.
    pub(super) fn secrets(&self) -> Vec<String> {
        self.with(|state| state.credentials.iter().chain(&state.refreshes).cloned().collect())
    }

    /// Returns the bodies of the requests to the path that ends with `end`, all of which must be signed.
    pub(super) fn asked(&self, end: &str) -> Vec<Value> {
        let requests = self.extension.requests();
        let asked = requests.iter().filter(|request| path(request) == format!("/v1/lab/{end}"));
        asked
            .map(|request| {
                expect_signed(request);
                request.json()
            })
            .collect()
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn serve(&mut self, request: &Received) -> Answer {
        let end = path(request).trim_start_matches("/v1/lab/").split('?').next().unwrap();
        if let Some(answer) = self.scripted.get_mut(end).and_then(VecDeque::pop_front) {
            return answer;
        }
        let refused = |code: &str| Answer::json(400, json!({"error": code}).to_string());
        let body = request.json();
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        match end {
            "oauth/start" if body["method"] == "browser" => {
                assert_eq!(text("redirect_uri"), format!("{ORIGIN}/oauth/callback/partner"));
                assert_eq!(text("code_challenge_method"), "S256");
                let query = format!("state={}&challenge={}", text("state"), text("code_challenge"));
                let page = format!("https://vendor.example/consent?{query}");
                Answer::json(200, json!({"authorize_url": page}).to_string())
            }
            "oauth/start" => {
                let code = json!({
                    "device_code": "planted-device-code", "user_code": "ABCD-1234", "expires_in": 600, "interval": 1,
                    "verification_uri": "https://vendor.example/device",
                });
                Answer::json(200, code.to_string())
            }
            "oauth/exchange" => {
                let challenge = digest(&SHA256, text("code_verifier").as_bytes());
                let challenge = BASE64_URL_SAFE_NO_PAD.encode(challenge);
                match self.codes.remove(&text("code")) {
                    Some(known) if known == challenge => self.issue(),
                    _ => refused("invalid_grant"),
                }
            }
            "oauth/poll" if self.is_approved => self.issue(),
            "oauth/poll" => refused("authorization_pending"),
            "refresh" if self.refreshes.remove(&text("refresh_token")) => {
                let answer = self.issue();
                Answer { steps: self.before_refresh.steps.iter().cloned().chain(answer.steps).collect() }
            }
            "refresh" => refused("invalid_grant"),
            "oauth/revoke" if self.revokes => {
                self.credentials.remove(&text("token"));
                self.refreshes.remove(&text("token"));
                Answer::json(200, "")
            }
            "oauth/revoke" => Answer::error(404),
            "invoke" => match request.header("x-llmgw-credential") {
                Some(credential) if self.credentials.contains(credential) => Answer::completion("hello"),
                _ => Answer::error(401),
            },
            _ => Answer::unscripted(),
        }
    }

    fn issue(&mut self) -> Answer {
        self.issued += 1;
        let credential = format!("planted-credential-{}", self.issued);
        let refresh = format!("planted-refresh-{}", self.issued);
        let answer = json!({
            "access_token": credential, "refresh_token": refresh, "expires_in": 3_600, "scope": "models",
            "account": "ada@vendor.example",
        });
        self.credentials.insert(credential);
        self.refreshes.insert(refresh);
        Answer::json(200, answer.to_string())
    }
}

/// Returns a setup without an OAuth client: the extension has its own.
pub(super) fn setup() -> Setup {
    Setup::new(&Yaml::new()).env("LLMGW_OAUTH_PUBLIC_BASE_URL", ORIGIN)
}

/// A gateway with the extension `companion`, whose provider `lab` is the provider `partner` of a human.
pub(super) struct SignInRig {
    pub(super) issuer: Issuer,
    pub(super) gateway: Gateway,
    pub(super) admin: Admin,
    pub(super) browser: Browser,
    /// A key that acts as the human.
    pub(super) key: String,
}

impl SignInRig {
    /// Starts with a provider that the human has not signed in to.
    pub(super) async fn start() -> Self {
        Self::with(setup()).await
    }

    pub(super) async fn with(setup: Setup) -> Self {
        let (issuer, gateway) = (Issuer::start().await, setup.start().await);
        let admin = Admin(gateway.client());
        let ada = admin.create("principals", json!({"name": "Ada"})).await;
        let home = admin.project("home").await;
        admin.done("PUT", &format!("projects/{home}/members/{ada}"), json!({"role": "owner"})).await;
        let key = admin.key(json!({"project": home, "acts_as": ada})).await.key;
        admin.done("POST", "extensions", new("companion", &url(&issuer.extension))).await;
        let provider = json!({
            "id": "partner", "type": "extension", "extension": "companion", "extension_provider": "lab",
            "models": ["m"], "auth": "oauth", "owner": ada,
        });
        admin.done("POST", "providers", provider).await;
        let browser = Browser::sign_in(&gateway).await;
        Self { issuer, gateway, admin, browser, key }
    }

    /// Starts with a provider that the human has signed in to.
    pub(super) async fn connected() -> Self {
        let rig = Self::start().await;
        rig.connect().await;
        rig
    }

    pub(super) async fn connect(&self) {
        let (status, text) = self.sign_in().await;
        assert!(status == 200 && text.contains("is connected as ada@vendor.example"), "{text}");
    }

    /// Goes through a sign-in in the browser; returns the status and the text of its last page.
    pub(super) async fn sign_in(&self) -> (u16, String) {
        let (page, cookie) = self.browser.begin(&json!({})).await;
        self.browser.callback(&self.issuer.consent(&page), &cookie).await
    }

    /// Returns a client with the key of the human.
    pub(super) fn client(&self) -> Client {
        Client::new(self.gateway.address(), Some(&self.key))
    }

    pub(super) async fn shown(&self) -> Value {
        self.admin.done("GET", "providers/partner", Value::Null).await
    }
}
