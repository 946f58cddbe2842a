//! Access token grants and their requests. Google grants tokens to a service account with its own key, to a user who
//! signed in with Google's tools, or to the account of the machine that the gateway runs on. For Microsoft see
//! [`super::entra`].

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Request, Uri};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde::Deserialize;
use serde_json::json;
use shared::percent;
use shared::port::MetadataServer;
use shared::secret::Secret;

use super::entra::{Entra, is_azure};

/// An identity that can request access tokens.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    /// The SHA-256 of its credential or source; unique per grant.
    pub(crate) id: [u8; 32],
    by: GrantMethod,
}

#[derive(Clone, Debug)]
enum GrantMethod {
    Account {
        email: String,
        key_id: Option<String>,
        key: Secret<String>,
        token_uri: String,
    },
    User {
        client_id: String,
        client_secret: Secret<String>,
        refresh_token: Secret<String>,
        token_uri: String,
    },
    Machine(Metadata),
    Entra(Entra),
}

/// The host of the machine's metadata server, if GCE_METADATA_HOST overrides the address that all clouds use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metadata(pub(crate) Option<String>);

#[derive(Deserialize)]
struct ServiceAccountFile {
    #[serde(rename = "type")]
    kind: String,
    client_email: Option<String>,
    private_key: Option<String>,
    private_key_id: Option<String>,
    token_uri: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    refresh_token: Option<String>,
    project_id: Option<String>,
}

/// An access token from a token server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GrantedToken {
    pub(crate) token: Secret<String>,
    pub(crate) life_s: u64,
}

impl Grant {
    /// Parses a credential file of Google's tools. The error describes the fault in the file.
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        let file: ServiceAccountFile = serde_json::from_str(text).map_err(|_| SHAPE)?;
        let token_uri = file.token_uri.unwrap_or_else(|| TOKEN_URI.to_owned());
        if !is_safe(&token_uri) {
            return Err("has a token_uri that is not an https:// address");
        }
        let secret = |text: Option<String>, missing| text.map(Secret::new).ok_or(missing);
        let by = match file.kind.as_str() {
            "service_account" => {
                let key = secret(file.private_key, "describes a service account without private_key")?;
                pair(key.expose())?;
                let email = file.client_email.ok_or("describes a service account without client_email")?;
                GrantMethod::Account { email, key_id: file.private_key_id, key, token_uri }
            }
            "authorized_user" => GrantMethod::User {
                client_id: file.client_id.ok_or("describes a user without client_id")?,
                client_secret: secret(file.client_secret, "describes a user without client_secret")?,
                refresh_token: secret(file.refresh_token, "describes a user without refresh_token")?,
                token_uri,
            },
            _ => return Err("must have the type service_account or authorized_user"),
        };
        Ok(Self { id: id(text.as_bytes()), by })
    }

    /// Returns the grant of this machine's Google account.
    pub(crate) fn machine(metadata: &Metadata) -> Self {
        let place = format!("metadata server {}", metadata.0.as_deref().unwrap_or_default());
        Self { id: id(place.as_bytes()), by: GrantMethod::Machine(metadata.clone()) }
    }

    /// Returns the grant of an Entra identity.
    pub(super) fn entra(entra: Entra) -> Self {
        Self { id: id(entra.text().as_bytes()), by: GrantMethod::Entra(entra) }
    }

    /// True if this is the account or the managed identity of the machine.
    pub(crate) fn is_machine(&self) -> bool {
        match &self.by {
            GrantMethod::Machine(_) => true,
            GrantMethod::Entra(entra) => entra.is_machine(),
            GrantMethod::Account { .. } | GrantMethod::User { .. } => false,
        }
    }

    /// Returns the reason to report while no token is available after a failed request.
    pub(super) fn lacks(&self) -> &'static str {
        match &self.by {
            GrantMethod::Machine(_) => {
                "it has no api_key, and the machine's metadata server returned no access token"
            }
            GrantMethod::Entra(entra) if entra.is_machine() => {
                "the machine's managed identity returned no access token"
            }
            GrantMethod::Account { .. } | GrantMethod::User { .. } | GrantMethod::Entra(_) => {
                "there is no access token for its credential"
            }
        }
    }

    /// True if a token may be sent to `host`. Tokens of the machine's own account go only to hosts of the cloud that
    /// issued them.
    pub(crate) fn trusts(&self, host: &str) -> bool {
        match &self.by {
            GrantMethod::Machine(_) => is_google(host),
            GrantMethod::Entra(entra) => !entra.is_machine() || is_azure(host),
            GrantMethod::Account { .. } | GrantMethod::User { .. } => true,
        }
    }

    /// Returns the project id in a credential file of Google's tools.
    pub(crate) fn project_of(text: &str) -> Option<String> {
        serde_json::from_str::<ServiceAccountFile>(text).ok()?.project_id
    }

    /// Builds the token request; `now_s` is in seconds since the Unix epoch.
    pub(crate) fn request(&self, now_s: u64) -> Result<Request<Bytes>, &'static str> {
        match &self.by {
            GrantMethod::Account { email, key_id, key, token_uri } => {
                let claims = json!({
                    "iss": email, "scope": SCOPE, "aud": token_uri, "iat": now_s, "exp": now_s + 3_600,
                });
                let header = json!({"alg": "RS256", "typ": "JWT", "kid": key_id});
                let assertion = assertion(&header.to_string(), &claims.to_string(), key.expose())?;
                let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
                post(token_uri, &[("grant_type", grant), ("assertion", &assertion)])
            }
            GrantMethod::User { client_id, client_secret, refresh_token, token_uri } => {
                let fields = [
                    ("grant_type", "refresh_token"),
                    ("client_id", client_id),
                    ("client_secret", client_secret.expose()),
                    ("refresh_token", refresh_token.expose()),
                ];
                post(token_uri, &fields)
            }
            GrantMethod::Machine(metadata) => metadata.request(),
            GrantMethod::Entra(entra) => entra.request(),
        }
    }

    /// Returns the secrets of the grant, to be redacted from texts of upstreams.
    pub(crate) fn secrets(&self) -> Vec<&str> {
        match &self.by {
            GrantMethod::Account { key, .. } => vec![key.expose()],
            GrantMethod::User { client_secret, refresh_token, .. } => {
                vec![client_secret.expose(), refresh_token.expose()]
            }
            GrantMethod::Machine(_) => Vec::new(),
            GrantMethod::Entra(entra) => entra.secret().into_iter().collect(),
        }
    }
}

impl Metadata {
    fn request(&self) -> Result<Request<Bytes>, &'static str> {
        let host = self.0.as_deref().unwrap_or(MetadataServer::ADDRESS);
        let mut request = Request::get(format!("http://{host}{}", MetadataServer::TOKEN_PATH))
            .header("metadata-flavor", "Google")
            .body(Bytes::new())
            .map_err(|_| "GCE_METADATA_HOST is not a host")?;
        if self.0.is_none() {
            request.extensions_mut().insert(MetadataServer);
        }
        Ok(request)
    }
}

/// True if `host` belongs to Google APIs.
fn is_google(host: &str) -> bool {
    host.ends_with(".googleapis.com")
}

/// Parses a successful response to [`Grant::request`], received `now_s` seconds after the Unix epoch.
pub(crate) fn given(body: &[u8], now_s: u64) -> Option<GrantedToken> {
    /// Azure encodes its numbers as strings.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Plain(u64),
        Text(String),
    }
    impl Number {
        fn value(&self) -> Option<u64> {
            match self {
                Self::Plain(number) => Some(*number),
                Self::Text(text) => text.parse().ok(),
            }
        }
    }
    #[derive(Deserialize)]
    struct TokenAnswer {
        access_token: String,
        expires_in: Option<Number>,
        expires_on: Option<Number>,
    }
    let TokenAnswer { access_token, expires_in, expires_on } = serde_json::from_slice(body).ok()?;
    let expires_on = expires_on.and_then(|number| number.value());
    let expires_in = expires_in.and_then(|number| number.value());
    let expires_in = expires_in.or_else(|| expires_on.map(|end| end.saturating_sub(now_s)));
    // Some servers pad the token with dots.
    let token = access_token.trim_end_matches('.').to_owned();
    super::fits(&token).ok().filter(|()| !token.is_empty())?;
    Some(GrantedToken {
        token: Secret::new(token),
        life_s: expires_in.unwrap_or(LIFE_S_DEFAULT).clamp(1, LIFE_S_MAX),
    })
}

/// Builds a signed JWT bearer assertion (RFC 7523).
fn assertion(header: &str, claims: &str, key: &str) -> Result<String, &'static str> {
    let key = pair(key)?;
    let text = format!("{}.{}", BASE64_URL_SAFE_NO_PAD.encode(header), BASE64_URL_SAFE_NO_PAD.encode(claims));
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).map_err(|_| NO_KEY)?;
    Ok(format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
}

/// Parses an RSA key from PEM, in PKCS #8 or PKCS #1.
fn pair(pem: &str) -> Result<RsaKeyPair, &'static str> {
    let body: String = pem.lines().map(str::trim).filter(|line| !line.starts_with("-----")).collect();
    let der = BASE64_STANDARD.decode(body).map_err(|_| NO_KEY)?;
    RsaKeyPair::from_pkcs8(&der).or_else(|_| RsaKeyPair::from_der(&der)).map_err(|_| NO_KEY)
}

pub(super) fn post(address: &str, fields: &[(&str, &str)]) -> Result<Request<Bytes>, &'static str> {
    let form: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let request = Request::post(address)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"))
        .header(ACCEPT, HeaderValue::from_static("application/json"));
    request.body(form.join("&").into()).map_err(|_| SHAPE)
}

pub(super) fn encoded(text: &str) -> String {
    percent::encode(text, percent::RESERVED).to_string()
}

/// True if `address` uses TLS or stays on this machine: an assertion is as sensitive as a token.
pub(super) fn is_safe(address: &str) -> bool {
    let Ok(uri) = address.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default();
    match uri.scheme_str() {
        Some("https") => !host.is_empty(),
        Some("http") => matches!(host, "127.0.0.1" | "localhost" | "[::1]"),
        _ => false,
    }
}

fn id(text: &[u8]) -> [u8; 32] {
    let mut id = [0; 32];
    id.copy_from_slice(digest(&SHA256, text).as_ref());
    id
}

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
/// The assumed lifetime of a token whose response has no `expires_in` or `expires_on`.
const LIFE_S_DEFAULT: u64 = 600;
const LIFE_S_MAX: u64 = 86_400;
const SHAPE: &str = "must be an access token or the JSON of a service account";
const NO_KEY: &str = "has a private_key that is not an RSA key in PEM";

#[cfg(test)]
mod tests {
    use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

    use super::*;

    /// Generated for this test; not in use anywhere.
    const KEY: &str = include_str!("test_key.pem");

    fn account(change: impl FnOnce(&mut serde_json::Value)) -> Result<Grant, &'static str> {
        let mut file = json!({
            "type": "service_account", "client_email": "gateway@p-1.iam.gserviceaccount.com", "private_key": KEY,
            "private_key_id": "k1", "token_uri": "https://oauth2.googleapis.com/token", "project_id": "p-1",
        });
        change(&mut file);
        Grant::read(&file.to_string())
    }

    #[test]
    fn a_service_account_signs_its_claim() {
        let request = account(|_| ()).unwrap().request(1_795_219_200).unwrap();
        assert_eq!(
            (request.method().as_str(), request.uri().host()),
            ("POST", Some("oauth2.googleapis.com"))
        );
        let body = std::str::from_utf8(request.body()).unwrap();
        let assertion = body
            .strip_prefix("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=")
            .unwrap();
        let parts: Vec<&str> = assertion.split('.').collect();
        let read = |part: &str| -> serde_json::Value {
            serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
        };
        assert_eq!(read(parts[0]), json!({"alg": "RS256", "typ": "JWT", "kid": "k1"}));
        let claims = json!({
            "iss": "gateway@p-1.iam.gserviceaccount.com", "scope": SCOPE, "aud": TOKEN_URI,
            "iat": 1_795_219_200_u64, "exp": 1_795_222_800_u64,
        });
        assert_eq!(read(parts[1]), claims);
        let public = pair(KEY).unwrap().public_key().as_ref().to_vec();
        let signature = BASE64_URL_SAFE_NO_PAD.decode(parts[2]).unwrap();
        let signed = format!("{}.{}", parts[0], parts[1]);
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public)
            .verify(signed.as_bytes(), &signature)
            .unwrap();
    }

    #[test]
    fn a_user_grant_is_refreshed_and_a_machine_uses_the_metadata_server() {
        let user = json!({"type": "authorized_user", "client_id": "c", "client_secret": "s/1", "refresh_token": "r+1"});
        let request = Grant::read(&user.to_string()).unwrap().request(0).unwrap();
        let want = "grant_type=refresh_token&client_id=c&client_secret=s%2F1&refresh_token=r%2B1";
        assert_eq!(request.body(), want);
        let request = Grant::machine(&Metadata::default()).request(0).unwrap();
        assert_eq!(
            request.uri().to_string(),
            "http://169.254.169.254/computeMetadata/v1/instance/service-accounts/default/token"
        );
        assert_eq!(request.headers()["metadata-flavor"], "Google");
        assert!(request.extensions().get::<MetadataServer>().is_some());
        let elsewhere = Grant::machine(&Metadata(Some("127.0.0.1:9".into()))).request(0).unwrap();
        assert_eq!(elsewhere.uri().host(), Some("127.0.0.1"));
        assert!(elsewhere.extensions().get::<MetadataServer>().is_none(), "it may go where any request may");
    }

    #[test]
    fn an_invalid_grant_is_rejected_with_the_reason() {
        for (name, found, want) in [
            ("no JSON", Grant::read("{"), "must be an access token"),
            ("no type", Grant::read("{}"), "must be an access token"),
            ("another", account(|file| file["type"] = json!("external_account")), "must have the type"),
            ("no key", account(|file| file["private_key"] = json!(null)), "without private_key"),
            (
                "no RSA",
                account(|file| file["private_key"] = json!("-----BEGIN-----\nAAAA\n")),
                "not an RSA key",
            ),
            ("no name", account(|file| file["client_email"] = json!(null)), "without client_email"),
            ("in clear", account(|file| file["token_uri"] = json!("http://example.com/t")), "https://"),
            ("a file", account(|file| file["token_uri"] = json!("file:///t")), "https://"),
        ] {
            assert!(found.unwrap_err().contains(want), "{name}");
        }
        assert!(account(|file| file["token_uri"] = json!("http://127.0.0.1:1/t")).is_ok());
    }

    #[test]
    fn a_token_response_yields_a_token_and_its_lifetime() {
        let read = |body: &str| given(body.as_bytes(), 1_000).map(|g| (g.token.expose().clone(), g.life_s));
        for (body, want) in [
            (
                r#"{"access_token":"ya29.a....","expires_in":3599,"token_type":"Bearer"}"#,
                Some(("ya29.a", 3_599)),
            ),
            (r#"{"access_token":"t"}"#, Some(("t", 600))),
            (r#"{"access_token":"t","expires_in":0}"#, Some(("t", 1))),
            (r#"{"access_token":"t","expires_in":"3599","expires_on":"9"}"#, Some(("t", 3_599))),
            (r#"{"access_token":"t","expires_on":"1500"}"#, Some(("t", 500))),
            (r#"{"access_token":"a b"}"#, None),
            (r#"{"access_token":"..."}"#, None),
            (r#"{"error":"invalid_grant"}"#, None),
            ("", None),
        ] {
            assert_eq!(read(body), want.map(|(token, life)| (token.to_owned(), life)), "{body}");
        }
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let shown = format!("{:?}", account(|_| ()).unwrap());
        assert!(!shown.contains("PRIVATE KEY") && shown.contains("••••"), "{shown}");
    }
}
