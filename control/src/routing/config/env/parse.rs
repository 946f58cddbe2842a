//! Strict parsing of one variable's text. Error messages contain the expected form, never the value.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderName, Uri};
use shared::base_path::BasePath;
use shared::proxy::Proxy;
use shared::secret::Secret;

use super::kind::VariableKind;
use super::schedule::Schedule;
use crate::db::engine::postgres::DatabaseAddress;

/// A parsed value.
#[derive(Debug)]
pub(in crate::routing::config) enum VariableValue {
    Text(String),
    Secret(Secret<String>),
    Secrets(Vec<Secret<String>>),
    Key(Secret<[u8; 32]>),
    Flag(bool),
    Count(u64),
    Address(IpAddr),
    BasePath(BasePath),
    Blocks(Vec<(IpAddr, u8)>),
    Header(HeaderName),
    Schedule(Schedule),
    Database(Box<DatabaseAddress>),
    Proxy(Arc<Proxy>),
}

/// Parses `text` as a value of `kind`.
pub(super) fn value(kind: VariableKind, text: &str) -> Result<VariableValue, String> {
    match kind {
        VariableKind::Text => Ok(VariableValue::Text(text.to_owned())),
        VariableKind::Path if text.contains('\0') => Err("contains a NUL character".to_owned()),
        VariableKind::Path => Ok(VariableValue::Text(text.to_owned())),
        VariableKind::Secret => secret(text).map(VariableValue::Secret),
        VariableKind::Secrets => text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(secret)
            .collect::<Result<_, _>>()
            .map(VariableValue::Secrets),
        VariableKind::Key => key(text).map(VariableValue::Key),
        VariableKind::Flag => flag(text).map(VariableValue::Flag),
        VariableKind::Count(min, max) => count(text, min, max).map(VariableValue::Count),
        VariableKind::Choice(words) if words.contains(&text) => Ok(VariableValue::Text(text.to_owned())),
        VariableKind::Choice(words) => Err(format!("must be one of {}", words.join(", "))),
        VariableKind::Address => address(text).map(VariableValue::Address),
        VariableKind::Origin => origin(text).map(VariableValue::Text),
        VariableKind::BasePath => BasePath::parse(text).map(VariableValue::BasePath),
        VariableKind::Url => url(text).map(VariableValue::Text),
        VariableKind::HttpUrl => http_url(text).map(VariableValue::Text),
        VariableKind::SecretHeaders => Ok(VariableValue::Secret(Secret::new(text.to_owned()))),
        VariableKind::Blocks => text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(block)
            .collect::<Result<_, _>>()
            .map(VariableValue::Blocks),
        VariableKind::Database => {
            DatabaseAddress::parse(text).map(Box::new).map(VariableValue::Database).map_err(|error| {
                format!("must be a URL such as postgres://user:password@host:5432/database: {error}")
            })
        }
        VariableKind::Proxy => {
            Proxy::parse(text.trim()).map(Arc::new).map(VariableValue::Proxy).map_err(str::to_owned)
        }
        VariableKind::Schedule => Schedule::parse(text).map(VariableValue::Schedule),
        VariableKind::Header => HeaderName::from_bytes(text.as_bytes())
            .map(VariableValue::Header)
            .map_err(|_| "must be a header name, e.g. x-forwarded-user".to_owned()),
    }
}

/// Parses a secret. Secrets are sent in headers and key files: surrounding white space is stripped as a mistake, and
/// characters that no header can carry are rejected.
fn secret(text: &str) -> Result<Secret<String>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("contains only white space".to_owned());
    }
    if !text.bytes().all(|byte| (0x21..=0x7e).contains(&byte)) {
        return Err("must contain only visible ASCII characters, because it is sent in a header".to_owned());
    }
    Ok(Secret::new(text.to_owned()))
}

fn key(text: &str) -> Result<Secret<[u8; 32]>, String> {
    const HOW: &str = "make one with `openssl rand -base64 32`";
    let bytes =
        Secret::new(BASE64_STANDARD.decode(text.trim()).map_err(|_| format!("is not valid base64; {HOW}"))?);
    match <[u8; 32]>::try_from(bytes.expose().as_slice()) {
        Ok(key) => Ok(Secret::new(key)),
        Err(_) => Err(format!("must be base64 of exactly 32 bytes and has {}; {HOW}", bytes.expose().len())),
    }
}

fn flag(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

fn count(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(count) if digits && (min..=max).contains(&count) => Ok(count),
        _ => Err(format!("must be a whole number from {min} to {max}")),
    }
}

pub(in crate::routing::config) fn address(text: &str) -> Result<IpAddr, String> {
    if text == "localhost" {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().map_err(|_| {
        "must be an IP address, e.g. 127.0.0.1, or 0.0.0.0 for every interface; set the port in LLMGW_PORT"
            .to_owned()
    })
}

pub(in crate::routing::config) fn origin(text: &str) -> Result<String, String> {
    let wrong = || "must be an origin such as https://llmgw.example.com, without a path".to_owned();
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let web = matches!(uri.scheme_str(), Some("http" | "https"));
    let bare = matches!(uri.path(), "" | "/") && uri.query().is_none() && !text.contains('#');
    let authority = uri.authority().ok_or_else(wrong)?;
    if !web || !bare || authority.as_str().contains('@') {
        return Err(wrong());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// Parses a URL whose response can be trusted: TLS, or a server on this machine. Rejects credentials in it, because
/// they would be logged.
fn url(text: &str) -> Result<String, String> {
    let wrong = || {
        "must be an https URL without a user name, such as https://prices.example.com/prices.json; http is for \
         loopback addresses only"
            .to_owned()
    };
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let authority = uri.authority().ok_or_else(wrong)?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let is_local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let is_trusted = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => is_local,
        _ => false,
    };
    if is_trusted && !authority.as_str().contains('@') { Ok(text.to_owned()) } else { Err(wrong()) }
}

/// Parses an `http` or `https` URL. Rejects credentials in it, because they would be logged.
fn http_url(text: &str) -> Result<String, String> {
    let uri: Option<Uri> = text.parse().ok();
    let is_http = |uri: &Uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
    };
    match uri.filter(is_http) {
        Some(_) => Ok(text.to_owned()),
        None => {
            Err("must be an http or https URL without a user name, such as http://127.0.0.1:4318".to_owned())
        }
    }
}

fn block(text: &str) -> Result<(IpAddr, u8), String> {
    let wrong = || "must be addresses or CIDR blocks separated by commas, e.g. 10.0.0.0/8,::1".to_owned();
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Ok(bits_max), str::parse::<u8>).map_err(|_| wrong())?;
    if bits > bits_max { Err(wrong()) } else { Ok((address, bits)) }
}
