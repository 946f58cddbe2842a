//! Interprets the credential of a provider instance: as a fixed header, as a key that signs each request, or as a grant
//! for access tokens, which are requested and renewed in the background.

mod entra;
pub(crate) mod extension;
mod grant;
pub(crate) mod oauth;
mod renewals;
mod token_renewal;
mod tokens;

use http::{HeaderName, HeaderValue};
use shared::provider::Auth;
use shared::provider::sigv4::Signer;
use shared::secret::Secret;

use self::entra::Entra;
pub(crate) use grant::{Grant, Metadata};
pub(crate) use token_renewal::TokenRenewer;
pub(crate) use tokens::{AccessTokens, TokenStanding};

/// Settings for machine identities from the environment, in the variables that the clouds' own tools use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// The metadata server of Google Cloud.
    pub(crate) metadata: Metadata,
    /// The Entra authority, if not the default one.
    pub(crate) authority: Option<String>,
    /// The managed identity endpoint of the Azure platform.
    pub(crate) identity_endpoint: Option<String>,
    /// The secret header that the managed identity endpoint requires.
    pub(crate) identity_header: Option<Secret<String>>,
}

/// The settings of an instance that affect how its credential is interpreted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CredentialContext<'a> {
    /// The region of the instance.
    pub(crate) region: Option<&'a str>,
    /// The host of the instance's base URL, if known.
    pub(crate) host: Option<&'a str>,
    pub(crate) surroundings: &'a Surroundings,
}

/// The authentication of requests to an instance.
#[derive(Clone, Debug)]
pub(crate) enum Sign {
    /// No authentication.
    Nothing,
    /// A fixed header on each request.
    Header(HeaderName, HeaderValue),
    /// An AWS signature computed per request.
    Aws(Signer),
    /// The current access token of a grant.
    Token(Grant),
}

impl Sign {
    /// Interprets `key` for the scheme `auth`. The error describes the fault in the key.
    pub(crate) fn of(
        auth: Auth,
        key: Option<&Secret<String>>,
        around: &CredentialContext<'_>,
    ) -> Result<Self, &'static str> {
        let Some(key) = key else {
            return Ok(if auth == Auth::Google {
                Self::Token(Grant::machine(&around.surroundings.metadata))
            } else {
                Self::Nothing
            });
        };
        let text = key.expose().trim();
        let plain = |name, text| plain_header(name, text).map(|(name, value)| Self::Header(name, value));
        match auth {
            // The token of an OAuth connection comes from its sign-in, not from a key.
            Auth::None | Auth::Oauth => Ok(Self::Nothing),
            Auth::Bearer => bearer(text),
            Auth::Header(name) => plain(name, text),
            Auth::Aws { service } if text.contains(':') => {
                signer(text, service, around.region).map(Self::Aws)
            }
            Auth::Aws { .. } => bearer(text),
            Auth::Google if text.starts_with('{') => Grant::read(text).map(Self::Token),
            Auth::Google if is_express(text) => plain("x-goog-api-key", text),
            Auth::Google => bearer(text),
            // A ready access token (JWT), obtained outside the gateway.
            Auth::Azure if text.starts_with("eyJ") && text.contains('.') => bearer(text),
            Auth::Azure => match Entra::read(text, around) {
                Some(entra) => entra.map(Grant::entra).map(Self::Token),
                None => plain("api-key", text),
            },
        }
    }
}

/// Prefixes of Google's API keys; access tokens start differently.
const EXPRESS_KEYS: [&str; 2] = ["AIza", "AQ."];

/// True if `key` is an API key of Google Cloud, which implies its project.
pub(crate) fn is_express(key: &str) -> bool {
    EXPRESS_KEYS.iter().any(|start| key.trim().starts_with(start))
}

/// Returns the header called `name` that carries `credential` alone.
fn plain_header(name: &'static str, credential: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    Ok((HeaderName::from_static(name), value(credential)?))
}

/// Returns the header that carries `token`.
pub(crate) fn bearer_header(token: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    Ok((http::header::AUTHORIZATION, value(&format!("Bearer {token}"))?))
}

fn bearer(key: &str) -> Result<Sign, &'static str> {
    fits(key)?;
    bearer_header(key).map(|(name, value)| Sign::Header(name, value))
}

fn value(text: &str) -> Result<HeaderValue, &'static str> {
    let mut value = HeaderValue::from_str(text).map_err(|_| UNFIT)?;
    value.set_sensitive(true);
    Ok(value)
}

fn signer(text: &str, service: &'static str, region: Option<&str>) -> Result<Signer, &'static str> {
    let mut parts = text.splitn(3, ':').map(str::trim);
    let (id, secret, token) =
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next());
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !is_id || secret.is_empty() || token == Some("") {
        return Err(PAIR);
    }
    fits(secret)?;
    token.map_or(Ok(()), fits)?;
    Ok(Signer {
        region: region.ok_or("AWS keys require region; set it")?.to_owned(),
        service,
        access_key_id: id.to_owned(),
        secret_access_key: Secret::new(secret.to_owned()),
        session_token: token.map(|token| Secret::new(token.to_owned())),
    })
}

/// True if `key` can be sent as a bearer token.
pub(crate) fn fits_header(key: &str) -> bool {
    key.bytes().all(|byte| (0x21..=0x7e).contains(&byte))
}

fn fits(key: &str) -> Result<(), &'static str> {
    if fits_header(key) { Ok(()) } else { Err(UNFIT) }
}

const UNFIT: &str = "contains characters that are invalid in a header";
const PAIR: &str = "must be AWS keys: ACCESS_KEY_ID:SECRET_ACCESS_KEY, optionally followed by :SESSION_TOKEN";

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(auth: Auth, key: &str, region: Option<&str>) -> Result<Sign, &'static str> {
        let surroundings = Surroundings::default();
        let around = CredentialContext { region, host: None, surroundings: &surroundings };
        Sign::of(auth, Some(&Secret::new(key.to_owned())), &around)
    }

    const AWS: Auth = Auth::Aws { service: "bedrock" };

    #[test]
    fn an_api_key_becomes_the_header_of_its_auth_scheme() {
        for (auth, key, name, want) in [
            (Auth::Bearer, "k", "authorization", "Bearer k"),
            (Auth::Header("x-api-key"), "k", "x-api-key", "k"),
            (AWS, "ABSKQmVkcm9jaw==", "authorization", "Bearer ABSKQmVkcm9jaw=="),
            (Auth::Google, "ya29.token", "authorization", "Bearer ya29.token"),
            (Auth::Google, "AIzaSyA", "x-goog-api-key", "AIzaSyA"),
            (Auth::Google, "AQ.Ab8", "x-goog-api-key", "AQ.Ab8"),
            (Auth::Azure, "0123abcd", "api-key", "0123abcd"),
            (Auth::Azure, "eyJ0.eyJ1.s", "authorization", "Bearer eyJ0.eyJ1.s"),
        ] {
            let Ok(Sign::Header(found, value)) = sign(auth, key, None) else { panic!("{key}") };
            assert_eq!((found.as_str(), value.to_str().unwrap(), value.is_sensitive()), (name, want, true));
        }
        assert!(matches!(sign(Auth::None, "k", None), Ok(Sign::Nothing)));
        let surroundings = Surroundings::default();
        let around = CredentialContext { region: None, host: None, surroundings: &surroundings };
        assert!(matches!(Sign::of(Auth::Bearer, None, &around), Ok(Sign::Nothing)));
        assert!(matches!(sign(Auth::Azure, "t:c:s", None), Ok(Sign::Token(_))));
        let machine = Sign::of(Auth::Google, None, &around);
        assert!(matches!(machine, Ok(Sign::Token(_))));
    }

    #[test]
    fn aws_keys_become_a_request_signer() {
        let Ok(Sign::Aws(signer)) = sign(AWS, "AKIDEXAMPLE:se/cr+et:to:ken=", Some("eu-west-1")) else {
            panic!()
        };
        assert_eq!((signer.access_key_id.as_str(), signer.region.as_str()), ("AKIDEXAMPLE", "eu-west-1"));
        assert_eq!(signer.secret_access_key.expose(), "se/cr+et");
        assert_eq!(signer.session_token.unwrap().expose(), "to:ken=");
        for (key, region, want) in [
            ("AKID:secret", None, "require region"),
            ("AKID:", Some("r"), "must be AWS keys"),
            (":secret", Some("r"), "must be AWS keys"),
            ("AK ID:secret", Some("r"), "must be AWS keys"),
            ("AKID:secret:", Some("r"), "must be AWS keys"),
            ("AKID:sec ret", Some("r"), "invalid in a header"),
        ] {
            assert!(sign(AWS, key, region).unwrap_err().contains(want), "{key}");
        }
    }
}
