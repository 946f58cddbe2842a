//! The way out: HTTP proxies between the gateway and its upstreams, and the rules of the variables that name them.
//!
//! The credentials of a proxy are in no text that this module returns.

mod exceptions;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use http::uri::Authority;
use percent_encoding::percent_decode_str;

use self::exceptions::Exceptions;
use crate::address::is_refused;
use crate::hex;
use crate::upstream_tls::UpstreamTls;

/// An HTTP proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Host name or address without brackets.
    pub host: String,
    /// The port; 80 if its URL has none.
    pub port: u16,
    /// The value of `Proxy-Authorization`, marked sensitive.
    pub authorization: Option<HeaderValue>,
}

impl Proxy {
    /// Parses `http://host:port` or `http://user:password@host:port`; the scheme may be left out. The user and the password
    /// are percent-decoded. The error never quotes the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(
                "must begin with http://: proxies that are reached by https or socks are not supported",
            );
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, place) = rest.rsplit_once('@').map_or((None, rest), |(user, place)| (Some(user), place));
        let authority: Authority = place.parse().map_err(|_| SHAPE)?;
        let written = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
        let port = match (written, authority.port_u16()) {
            ("", _) => 80,
            (_, Some(port)) if port > 0 => port,
            _ => return Err("the port must be a number from 1 to 65535"),
        };
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        match bare.parse::<IpAddr>() {
            Ok(address) if is_refused(address) || address.is_unspecified() => {
                return Err("link-local, multicast and metadata addresses are not allowed");
            }
            Err(_) if host != bare || bare.is_empty() => return Err(SHAPE),
            Ok(_) | Err(_) => {}
        }
        let authorization = user.map(authorization).transpose()?;
        Ok(Self { host: bare.to_owned(), port, authorization })
    }

    /// Returns host and port, with brackets around an IPv6 address.
    fn place(&self) -> String {
        authority(&self.host, self.port)
    }
}

/// Writes the URL with dots in place of user and password.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = if self.authorization.is_some() { "••••@" } else { "" };
        write!(f, "http://{user}{}", self.place())
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns `host:port`, with brackets around an IPv6 address.
pub fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Returns the value of `Proxy-Authorization` for `user:password` (RFC 7617).
fn authorization(text: &str) -> Result<HeaderValue, &'static str> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the user and the password must be visible ASCII characters; write others as %XX");
    }
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let mut pair: Vec<u8> = percent_decode_str(user).collect();
    if pair.contains(&b':') {
        return Err("the user must not contain a colon");
    }
    pair.push(b':');
    pair.extend(percent_decode_str(password));
    let mut value = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(pair)))
        .map_err(|_| "the user or the password is too long")?;
    value.set_sensitive(true);
    Ok(value)
}

/// The proxies of `HTTP_PROXY`, `HTTPS_PROXY` and `ALL_PROXY`, and the exceptions of `NO_PROXY`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    http: Option<Arc<Proxy>>,
    https: Option<Arc<Proxy>>,
    exceptions: Exceptions,
}

impl Proxies {
    /// Creates the proxies for upstreams without and with TLS. `no_proxy` lists the upstreams that are reached directly.
    pub fn new(http: Option<Arc<Proxy>>, https: Option<Arc<Proxy>>, no_proxy: &str) -> Self {
        Self { http, https, exceptions: Exceptions::parse(no_proxy) }
    }

    /// Returns the proxy for an upstream, if there is one. Addresses of this machine have none: the proxy's own would be meant.
    pub fn of(&self, tls: bool, host: &str, port: u16) -> Option<&Arc<Proxy>> {
        let proxy = if tls { self.https.as_ref() } else { self.http.as_ref() }?;
        (!is_this_machine(host) && !self.exceptions.contain(host, port)).then_some(proxy)
    }
}

fn is_this_machine(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// The way to an upstream that its provider instance sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnWay {
    /// The proxy.
    pub proxy: WayProxy,
    /// The TLS settings; `None` for those of the gateway.
    pub tls: Option<UpstreamTls>,
    /// The address to connect to instead of the upstream's.
    pub connect_to: Option<ConnectTo>,
    /// Distinguishes the connections to this upstream by this way from all others. No authority or path equals it.
    pub key: Box<str>,
}

/// An address that takes the place of another one for connections. Names, certificates and the `Host` header stay those of the
/// other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectTo {
    /// The host and port that it replaces.
    pub replaced: (Box<str>, u16),
    /// Host name or address without brackets.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
}

impl ConnectTo {
    /// Returns the host and port.
    pub fn place(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// True if connections to this host and port go to the address instead.
    pub fn replaces(&self, host: &str, port: u16) -> bool {
        *self.replaced.0 == *host && self.replaced.1 == port
    }
}

/// The proxy on the way to an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WayProxy {
    /// That of the variables.
    #[default]
    OfVariables,
    /// None, regardless of the variables.
    Direct,
    /// This one.
    Own(Arc<Proxy>),
}

impl OwnWay {
    /// Creates the way to the upstream with this authority.
    pub fn new(
        authority: &str,
        proxy: WayProxy,
        tls: Option<UpstreamTls>,
        connect_to: Option<ConnectTo>,
    ) -> Self {
        let mut key = match &proxy {
            WayProxy::OfVariables => format!("{authority} as usual"),
            WayProxy::Direct => format!("{authority} directly"),
            WayProxy::Own(proxy) => {
                let secret = proxy.authorization.as_ref().map(HeaderValue::as_bytes).unwrap_or_default();
                let digest = ring::digest::digest(&ring::digest::SHA256, secret);
                format!("{authority} by {} {}", proxy.place(), hex::encode(digest.as_ref()))
            }
        };
        if let Some(tls) = &tls {
            key.push_str(" with ");
            key.push_str(&tls.digest);
        }
        if let Some(other) = &connect_to {
            key.push_str(" to ");
            key.push_str(&self::authority(&other.host, other.port));
        }
        Self { proxy, tls, connect_to, key: key.into() }
    }
}

const SHAPE: &str =
    "must be the URL of a proxy such as http://proxy.example:3128 or http://user:password@proxy.example:3128";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_parsed_from_its_url() {
        let basic = |pair: &str| format!("Basic {}", BASE64_STANDARD.encode(pair));
        for (text, host, port, authorization, shown) in [
            ("http://proxy.example:3128", "proxy.example", 3128, None, "http://proxy.example:3128"),
            ("proxy.example:3128", "proxy.example", 3128, None, "http://proxy.example:3128"),
            ("HTTP://proxy.example/", "proxy.example", 80, None, "http://proxy.example:80"),
            ("http://[::1]:8080", "::1", 8080, None, "http://[::1]:8080"),
            ("http://u:p@10.0.0.1:1", "10.0.0.1", 1, Some(basic("u:p")), "http://••••@10.0.0.1:1"),
            ("http://u@h:1", "h", 1, Some(basic("u:")), "http://••••@h:1"),
            ("http://u:a%40b%3a%25@h:1", "h", 1, Some(basic("u:a@b:%")), "http://••••@h:1"),
            ("http://u:a:b@c@h:1", "h", 1, Some(basic("u:a:b@c")), "http://••••@h:1"),
        ] {
            let proxy = Proxy::parse(text).unwrap();
            let sent = proxy.authorization.as_ref().map(|value| value.to_str().unwrap().to_owned());
            assert_eq!((proxy.host.as_str(), proxy.port, sent), (host, port, authorization), "{text}");
            assert_eq!(
                (proxy.to_string(), format!("{proxy:?}")),
                (shown.to_owned(), shown.to_owned()),
                "{text}"
            );
        }
        for (text, want) in [
            ("https://proxy.example:3128", "must begin with http://"),
            ("socks5://127.0.0.1:1080", "must begin with http://"),
            ("http://", "must be the URL of a proxy"),
            ("http://proxy.example:3128/path", "must be the URL of a proxy"),
            ("http://proxy.example:3128?a", "must be the URL of a proxy"),
            ("http://[::1:3128", "must be the URL of a proxy"),
            ("http://proxy.example:0", "the port must be"),
            ("http://proxy.example:65536", "the port must be"),
            ("http://proxy.example:", "the port must be"),
            ("http://169.254.169.254:80", "link-local, multicast and metadata addresses"),
            ("http://[::ffff:169.254.169.254]:80", "link-local, multicast and metadata addresses"),
            ("http://0.0.0.0:80", "link-local, multicast and metadata addresses"),
            ("http://••••@h:1", "the user and the password must be visible ASCII"),
            ("http://u\r\n:p@h:1", "the user and the password must be visible ASCII"),
            ("http://a%3ab:p@h:1", "the user must not contain a colon"),
        ] {
            let why = Proxy::parse(text).unwrap_err();
            assert!(why.starts_with(want), "{text}: {why}");
        }
    }

    #[test]
    fn each_scheme_has_its_proxy_and_this_machine_has_none() {
        let proxy = |text: &str| Some(Arc::new(Proxy::parse(text).unwrap()));
        let proxies = Proxies::new(proxy("http://plain:1"), proxy("http://tls:2"), "direct.example");
        let of = |tls, host| proxies.of(tls, host, 443).map(|proxy| proxy.host.clone());
        assert_eq!(of(true, "api.example").as_deref(), Some("tls"));
        assert_eq!(of(false, "api.example").as_deref(), Some("plain"));
        for host in
            ["localhost", "LOCALHOST.", "127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "direct.example"]
        {
            assert_eq!(of(true, host), None, "{host}");
        }
        assert_eq!(Proxies::default().of(true, "api.example", 443), None);
        assert_eq!(Proxies::new(None, proxy("http://tls:2"), "").of(false, "api.example", 80), None);
    }

    #[test]
    fn ways_differ_by_proxy_credentials_tls_and_address() {
        let own = |text: &str| WayProxy::Own(Arc::new(Proxy::parse(text).unwrap()));
        let key = |proxy: WayProxy, digest: Option<&str>| {
            let tls = digest.map(|digest| UpstreamTls {
                digest: digest.into(),
                settings: Arc::new(()),
                warnings: Vec::new(),
                ends: Vec::new(),
            });
            OwnWay::new("h:1", proxy, tls, None).key
        };
        let to = |host: &str, port| ConnectTo { replaced: ("h".into(), 1), host: host.into(), port };
        let connecting = |place| OwnWay::new("h:1", WayProxy::Direct, None, Some(place)).key;
        let keys = [
            key(own("http://a:1"), None),
            key(own("http://a:2"), None),
            key(own("http://u:p@a:1"), None),
            key(own("http://u:q@a:1"), None),
            key(WayProxy::Direct, None),
            key(WayProxy::Direct, Some("1")),
            key(WayProxy::OfVariables, Some("1")),
            key(WayProxy::OfVariables, Some("2")),
            key(own("http://u:q@a:1"), Some("2")),
            connecting(to("a", 1)),
            connecting(to("a", 2)),
            connecting(to("::1", 2)),
        ];
        assert!(to("a", 1).replaces("h", 1) && !to("a", 1).replaces("h", 2) && !to("a", 1).replaces("a", 1));
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key) && !key.contains("u:") && key.starts_with("h:1 "), "{key}");
        }
        assert_eq!(key(own("http://u:p@a:1"), None), keys[2]);
    }
}
