//! Identities that a trusted reverse proxy asserts (AUTH-7). The proxy connects from a trusted address and sends a shared
//! secret; from any other sender, and after they have been read, identity headers are removed from a request.

use std::net::IpAddr;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use ring::hmac;
use shared::characters::needless_invisible;

use crate::routing::config::Sso;

/// The boundary behind which identity headers are believed.
#[derive(Debug)]
pub(crate) struct IdentityBoundary {
    sso: Option<Sso>,
    /// Compares secrets in constant time: the tags of equal texts are equal.
    comparing: hmac::Key,
}

/// The identity of a request, as a part of its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asserted {
    /// The request did not come through the proxy.
    Nobody,
    /// The proxy has signed in this human.
    Human(Identity),
    /// The proxy's headers cannot be believed, for this reason.
    Invalid(&'static str),
    /// The secret of the proxy is missing or wrong.
    WrongSecret,
    /// There were too many wrong secrets; the next one is looked at after this time.
    TooMany(Duration),
}

/// A human whom the proxy has signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The stable name by which the identity provider knows the human.
    pub(crate) subject: String,
    /// Case-folded.
    pub(crate) email: Option<String>,
    pub(crate) name: Option<String>,
    /// True for a member of the administrators' group at the time of the request.
    pub(crate) is_administrator: bool,
}

impl Identity {
    /// Returns the name to show: the e-mail address, the name or the subject.
    pub(crate) fn shown(&self) -> &str {
        self.email.as_ref().or(self.name.as_ref()).unwrap_or(&self.subject)
    }
}

impl IdentityBoundary {
    pub(crate) fn new(sso: Option<Sso>, comparing: hmac::Key) -> Self {
        Self { sso, comparing }
    }

    /// Returns the settings of single sign-on; `None` if it is off.
    pub(crate) fn sso(&self) -> Option<&Sso> {
        self.sso.as_ref()
    }

    /// Takes the identity out of the headers of a request from `peer`, and removes them.
    pub(crate) fn take(&self, headers: &mut HeaderMap, peer: IpAddr) -> Asserted {
        let Some(sso) = &self.sso else {
            headers.remove(SECRET_HEADER);
            return Asserted::Nobody;
        };
        let asserted = match sso.trusts(peer) {
            true => self.read(sso, headers),
            false => Asserted::Nobody,
        };
        for name in sso.headers().cloned().chain([SECRET_HEADER]) {
            headers.remove(name);
        }
        asserted
    }

    fn read(&self, sso: &Sso, headers: &HeaderMap) -> Asserted {
        let names = || sso.headers().cloned().chain([SECRET_HEADER]);
        if names().all(|name| !headers.contains_key(name)) {
            return Asserted::Nobody;
        }
        if names().any(|name| headers.get_all(name).iter().nth(1).is_some()) {
            return Asserted::Invalid(
                "The proxy sent an identity header more than once. Let it replace them.",
            );
        }
        if !self.is_secret(sso, headers) {
            return Asserted::WrongSecret;
        }
        match identity(sso, headers) {
            Ok(identity) => Asserted::Human(identity),
            Err(reason) => Asserted::Invalid(reason),
        }
    }

    fn is_secret(&self, sso: &Sso, headers: &HeaderMap) -> bool {
        let sent = headers.get(SECRET_HEADER).map_or(&b""[..], |value| value.as_bytes());
        let expected = hmac::sign(&self.comparing, sso.shared_secret.expose().as_bytes());
        hmac::verify(&self.comparing, sent, expected.as_ref()).is_ok()
    }
}

/// Reads the identity that a trusted proxy sent.
fn identity(sso: &Sso, headers: &HeaderMap) -> Result<Identity, &'static str> {
    let subject = text(headers, Some(&sso.user_header))?;
    let subject =
        subject.ok_or("The proxy sent no user. LLMGW_SSO_USER_HEADER names the header to send it in.")?;
    let email = text(headers, sso.email_header.as_ref())?.filter(|email| email.contains('@'));
    let groups = text_of(headers, sso.groups_header.as_ref(), GROUPS_BYTES_MAX)?.unwrap_or_default();
    let mut groups = groups.split(sso.groups_separator).map(str::trim);
    Ok(Identity {
        subject,
        email: email.map(|email| email.to_lowercase()),
        name: text(headers, sso.name_header.as_ref())?,
        is_administrator: groups.any(|group| group == sso.admin_group),
    })
}

fn text(headers: &HeaderMap, name: Option<&HeaderName>) -> Result<Option<String>, &'static str> {
    text_of(headers, name, TEXT_BYTES_MAX)
}

/// Returns the text of a header; `None` if it is absent or empty.
fn text_of(
    headers: &HeaderMap,
    name: Option<&HeaderName>,
    bytes_max: usize,
) -> Result<Option<String>, &'static str> {
    let Some(value) = name.and_then(|name| headers.get(name)) else { return Ok(None) };
    let text =
        std::str::from_utf8(value.as_bytes()).map_err(|_| "An identity header of the proxy is not UTF-8.")?;
    let text = text.trim();
    if text.len() > bytes_max {
        return Err("An identity header of the proxy is too long.");
    }
    if text.chars().any(char::is_control) {
        return Err("An identity header of the proxy contains control characters.");
    }
    if needless_invisible(text).is_some() {
        return Err(
            "An identity header of the proxy contains invisible characters, by which people could be confused.",
        );
    }
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

const SECRET_HEADER: HeaderName = HeaderName::from_static("x-llmgw-sso-secret");
/// The most bytes of a subject, name or e-mail address.
const TEXT_BYTES_MAX: usize = 254;
const GROUPS_BYTES_MAX: usize = 16 << 10;
