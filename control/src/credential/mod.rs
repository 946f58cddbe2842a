//! What the credential of a provider instance is, and what becomes of it: a header, a signature of each request, or
//! access tokens that are got for it and renewed.

mod entra;
mod grant;
mod keeper;
mod tokens;

use http::{HeaderName, HeaderValue};
use shared::provider::Auth;
use shared::provider::sigv4::Signer;
use shared::secret::Secret;

use self::entra::Entra;
pub(crate) use grant::{Grant, Metadata};
pub(crate) use keeper::Keeper;
pub(crate) use tokens::AccessTokens;

/// What the environment says of the machine's own accounts, in the variables of the clouds' own tools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// Google's metadata server.
    pub(crate) metadata: Metadata,
    /// Who gives tokens of Entra, if not the usual one.
    pub(crate) authority: Option<String>,
    /// Where a platform of Azure gives tokens of the machine.
    pub(crate) identity_endpoint: Option<String>,
    /// What it is to be told.
    pub(crate) identity_header: Option<Secret<String>>,
}

/// What stands beside the credential of an instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around<'a> {
    /// The instance's own.
    pub(crate) region: Option<&'a str>,
    /// Whom it reaches, if that is known.
    pub(crate) host: Option<&'a str>,
    pub(crate) surroundings: &'a Surroundings,
}

/// How the requests of an instance are signed.
#[derive(Clone, Debug)]
pub(crate) enum Sign {
    /// Not at all.
    Nothing,
    /// With the same header each.
    Header(HeaderName, HeaderValue),
    /// Each by itself.
    Aws(Signer),
    /// With the access token that is good at the time.
    Token(Grant),
}

impl Sign {
    /// What `key` means where credentials go as `auth` says, or what is wrong with it.
    pub(crate) fn of(
        auth: Auth,
        key: Option<&Secret<String>>,
        around: &Around<'_>,
    ) -> Result<Self, &'static str> {
        let Some(key) = key else {
            return Ok(if auth == Auth::Google {
                Self::Token(Grant::machine(&around.surroundings.metadata))
            } else {
                Self::Nothing
            });
        };
        let text = key.expose().trim();
        match auth {
            Auth::None => Ok(Self::Nothing),
            Auth::Bearer => bearer(text),
            Auth::Header(name) => Ok(Self::Header(HeaderName::from_static(name), value(text)?)),
            Auth::Aws { service } if text.contains(':') => {
                signer(text, service, around.region).map(Self::Aws)
            }
            Auth::Aws { .. } => bearer(text),
            Auth::Google if text.starts_with('{') => Grant::read(text).map(Self::Token),
            Auth::Google if is_express(text) => {
                Ok(Self::Header(HeaderName::from_static("x-goog-api-key"), value(text)?))
            }
            Auth::Google => bearer(text),
            // A token that somebody else has got.
            Auth::Azure if text.starts_with("eyJ") && text.contains('.') => bearer(text),
            Auth::Azure => match Entra::read(text, around) {
                Some(entra) => entra.map(Grant::entra).map(Self::Token),
                None => Ok(Self::Header(HeaderName::from_static("api-key"), value(text)?)),
            },
        }
    }
}

/// How the API keys of Google begin; access tokens begin otherwise.
const EXPRESS_KEYS: [&str; 2] = ["AIza", "AQ."];

/// Whether `key` is an API key of Google Cloud, which names its project itself.
pub(crate) fn is_express(key: &str) -> bool {
    EXPRESS_KEYS.iter().any(|start| key.trim().starts_with(start))
}

/// The header that carries `token`.
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
        region: region.ok_or("a pair of AWS keys signs for a region; say region")?.to_owned(),
        service,
        access_key_id: id.to_owned(),
        secret_access_key: Secret::new(secret.to_owned()),
        session_token: token.map(|token| Secret::new(token.to_owned())),
    })
}

/// Whether `key` can be sent as a bearer token.
pub(crate) fn fits_header(key: &str) -> bool {
    key.bytes().all(|byte| (0x21..=0x7e).contains(&byte))
}

fn fits(key: &str) -> Result<(), &'static str> {
    if fits_header(key) { Ok(()) } else { Err(UNFIT) }
}

const UNFIT: &str = "holds characters that no header can carry";
const PAIR: &str =
    "is no pair of AWS keys: ACCESS_KEY_ID:SECRET_ACCESS_KEY, perhaps with :SESSION_TOKEN behind it";

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(auth: Auth, key: &str, region: Option<&str>) -> Result<Sign, &'static str> {
        let surroundings = Surroundings::default();
        let around = Around { region, host: None, surroundings: &surroundings };
        Sign::of(auth, Some(&Secret::new(key.to_owned())), &around)
    }

    const AWS: Auth = Auth::Aws { service: "bedrock" };

    #[test]
    fn a_key_becomes_what_its_kind_sends() {
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
        let around = Around { region: None, host: None, surroundings: &surroundings };
        assert!(matches!(Sign::of(Auth::Bearer, None, &around), Ok(Sign::Nothing)));
        assert!(matches!(sign(Auth::Azure, "t:c:s", None), Ok(Sign::Token(_))));
        let machine = Sign::of(Auth::Google, None, &around);
        assert!(matches!(machine, Ok(Sign::Token(_))));
    }

    #[test]
    fn a_pair_of_aws_keys_signs() {
        let Ok(Sign::Aws(signer)) = sign(AWS, "AKIDEXAMPLE:se/cr+et:to:ken=", Some("eu-west-1")) else {
            panic!()
        };
        assert_eq!((signer.access_key_id.as_str(), signer.region.as_str()), ("AKIDEXAMPLE", "eu-west-1"));
        assert_eq!(signer.secret_access_key.expose(), "se/cr+et");
        assert_eq!(signer.session_token.unwrap().expose(), "to:ken=");
        for (key, region, want) in [
            ("AKID:secret", None, "say region"),
            ("AKID:", Some("r"), "no pair"),
            (":secret", Some("r"), "no pair"),
            ("AK ID:secret", Some("r"), "no pair"),
            ("AKID:secret:", Some("r"), "no pair"),
            ("AKID:sec ret", Some("r"), "no header"),
        ] {
            assert!(sign(AWS, key, region).unwrap_err().contains(want), "{key}");
        }
    }
}
