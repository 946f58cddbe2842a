//! Parsing and validation of base URLs. Link-local and metadata addresses are already rejected here; names are checked
//! again when they are resolved.

use std::net::IpAddr;

use http::Uri;
use http::uri::Authority;
use shared::address::{is_disguised_address, is_metadata_name, is_refused};
use shared::provider::ProviderKind;
use shared::provider::path::{Layout, Missing, Paths, Place};
use shared::proxy::ConnectTo;
use shared::routing::{HttpVersion, Origin};

/// A base URL, and whether it was configured on the instance or is the default of its kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base<'a> {
    pub(super) url: &'a str,
    pub(super) is_own: bool,
}

/// A fault in an address.
#[derive(Debug)]
pub(super) enum AddressFault {
    /// The address is invalid.
    Address(String),
    /// A field that is part of the address is missing.
    Missing(Missing),
}

impl<T: Into<String>> From<T> for AddressFault {
    fn from(message: T) -> Self {
        Self::Address(message.into())
    }
}

/// The parts of a base URL.
#[derive(Clone, Debug)]
pub(crate) struct BaseUrl {
    tls: bool,
    authority: Authority,
    host: String,
    port: u16,
    socket: Option<Box<str>>,
    /// The path, without a trailing slash.
    path: String,
    /// The address of the base, without a trailing slash. Under a Unix socket, the host is `localhost`.
    url: String,
}

impl BaseUrl {
    /// Parses the address of an HTTP server.
    fn http(base_url: &str) -> Result<Self, String> {
        const SHAPE: &str = "must be an address such as https://api.example.com/v1";
        let uri: Uri = base_url.parse().map_err(|_| SHAPE)?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(_) => return Err("only http:// and https:// are supported".to_owned()),
            None => return Err(SHAPE.to_owned()),
        };
        let authority = uri.authority().ok_or(SHAPE)?;
        if authority.as_str().contains('@') {
            return Err("must not contain a user name or password; use api_key or headers".to_owned());
        }
        if uri.query().is_some() || base_url.contains('#') {
            return Err("must not contain a query or fragment".to_owned());
        }
        Ok(Self {
            tls,
            port: port(authority, tls)?,
            host: host(authority)?,
            authority: authority.clone(),
            socket: None,
            path: uri.path().trim_end_matches('/').to_owned(),
            url: base_url.trim_end_matches('/').to_owned(),
        })
    }

    /// Parses the address of an extension: that of an HTTP server, or `unix:` and the absolute path of a socket.
    pub(crate) fn extension(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix("unix:") else {
            let base = Self::http(text)?;
            return if base.path.ends_with("/v1") {
                Err("omit /v1: llmgw adds it".to_owned())
            } else {
                Ok(base)
            };
        };
        let is_plain = !path.contains("//") && !path.split('/').any(|part| part == "." || part == "..");
        let is_printed = !path.chars().any(|c| c.is_control() || c.is_whitespace());
        if !(path.starts_with('/') && is_plain && is_printed && path.len() <= SOCKET_BYTES_MAX) {
            return Err(format!(
                "must be the absolute path of a Unix socket of at most {SOCKET_BYTES_MAX} bytes, such as \
                 unix:/run/extension.sock"
            ));
        }
        Ok(Self {
            tls: false,
            authority: Authority::from_static("localhost"),
            host: "localhost".to_owned(),
            port: 80,
            socket: Some(path.into()),
            path: String::new(),
            url: "http://localhost".to_owned(),
        })
    }

    /// Returns the path of the Unix socket, if the address is one.
    pub(crate) fn socket(&self) -> Option<&str> {
        self.socket.as_deref()
    }

    /// Returns the address of `path` below the base.
    pub(crate) fn below(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Returns the origin of an instance whose paths follow from `layout`.
    pub(crate) fn origin(
        &self,
        layout: &Layout,
        is_own: bool,
        place: &Place<'_>,
        http: HttpVersion,
    ) -> Result<Origin, Missing> {
        Ok(Origin {
            tls: self.tls,
            authority: self.authority.clone(),
            host: self.host.clone(),
            port: self.port,
            socket: self.socket.clone(),
            way: None,
            paths: Paths::new(layout, &self.path, place)?,
            lists: layout.lists(&self.url, is_own, place)?,
            http,
        })
    }
}

/// Parses and validates the base URL of an instance of `kind`.
pub(super) fn origin(
    kind: &ProviderKind,
    base: Base<'_>,
    place: &Place<'_>,
    http: HttpVersion,
) -> Result<Origin, AddressFault> {
    let parsed = BaseUrl::http(base.url)?;
    let path = parsed.path.as_str();
    let added = ["/chat/completions", "/completions", "/models"];
    if let Some(end) = added.iter().chain(kind.added_by_sdk).find(|end| path.ends_with(*end)) {
        return Err(format!("omit {end}: llmgw adds it").into());
    }
    let layout = kind.layout(path).ok_or("has a path that this type does not support")?;
    parsed.origin(layout, base.is_own, place, http).map_err(AddressFault::Missing)
}

/// Parses the address that connections go to in place of that of `origin`: a host, and a port if it differs.
pub(super) fn connect_to(text: &str, origin: &Origin) -> Result<ConnectTo, String> {
    const SHAPE: &str = "must be host:port, such as gateway.internal.example:8443 or [2001:db8::1]:443";
    let authority: Authority = text.parse().map_err(|_| SHAPE)?;
    if authority.as_str().contains('@') {
        return Err(SHAPE.to_owned());
    }
    let written = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    let port = if written.is_empty() { origin.port } else { port(&authority, origin.tls)? };
    let host = host(&authority)?;
    if host.eq_ignore_ascii_case(&origin.host) && port == origin.port {
        return Err("is the address of base_url already; omit it".to_owned());
    }
    Ok(ConnectTo { replaced: (origin.host.as_str().into(), origin.port), host: host.into(), port })
}

/// Checks the address of an OAuth server. It may contain a query (RFC 6749 section 3). Tokens are as sensitive as keys,
/// so only addresses of this machine may do without TLS.
pub(super) fn oauth_address(address: &str) -> Result<(), String> {
    const SHAPE: &str = "must be an address such as https://auth.example.com/token";
    let uri: Uri = address.parse().map_err(|_| SHAPE)?;
    let tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        Some(_) | None => return Err(SHAPE.to_owned()),
    };
    let authority = uri.authority().ok_or(SHAPE)?;
    if authority.as_str().contains('@') || address.contains('#') {
        return Err("must not contain a user name, a password or a fragment".to_owned());
    }
    port(authority, tls)?;
    let host = host(authority)?;
    if !tls && !matches!(host.as_str(), "127.0.0.1" | "localhost" | "::1") {
        return Err(
            "must begin with https://; http:// is allowed for addresses of this machine only".to_owned()
        );
    }
    Ok(())
}

/// Validates the address of a receiver of messages, by the rules for base URLs, except that it may have a query.
pub(crate) fn check_url(url: &str) -> Result<Uri, String> {
    let uri: Uri = url.parse().map_err(|_| "must be an address such as https://example.com/hook")?;
    if url.contains('#') {
        return Err("must not contain a fragment".to_owned());
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("must not contain a user name or password".to_owned());
    }
    BaseUrl::http(url.split('?').next().unwrap_or_default())?;
    Ok(uri)
}

fn port(authority: &Authority, tls: bool) -> Result<u16, String> {
    let written = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    match (written, authority.port_u16()) {
        ("", _) => Ok(if tls { 443 } else { 80 }),
        (_, Some(port)) if port > 0 => Ok(port),
        _ => Err("the port must be a number from 1 to 65535".to_owned()),
    }
}

fn host(authority: &Authority) -> Result<String, String> {
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if bare.is_empty() {
        return Err("has no host".to_owned());
    }
    match bare.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) if address.is_unspecified() => {
            Err("0.0.0.0 is not an address to connect to; write 127.0.0.1".to_owned())
        }
        Ok(address) if is_refused(address) || address.to_canonical().is_unspecified() => {
            Err("link-local, multicast and metadata addresses are not allowed".to_owned())
        }
        Ok(_) => Ok(bare.to_owned()),
        Err(_) if host != bare => Err("contains an invalid IPv6 address".to_owned()),
        Err(_) => name(bare),
    }
}

/// Checks a host name.
fn name(host: &str) -> Result<String, String> {
    if is_disguised_address(host) {
        return Err("write an IPv4 address as four decimal numbers, e.g. 127.0.0.1".to_owned());
    }
    if is_metadata_name(host) {
        return Err("metadata services are not allowed".to_owned());
    }
    Ok(host.to_owned())
}

/// The longest path that `sockaddr_un` takes on every platform.
const SOCKET_BYTES_MAX: usize = 103;

#[cfg(test)]
mod tests {
    use shared::operation::Dialect;
    use shared::provider::path::UpstreamCall;

    use super::*;

    fn read_of(kind: &str, url: &str) -> Result<Origin, String> {
        let kind = shared::provider::kind(kind).unwrap();
        let place = Place { project: Some("p"), location: Some("l"), ..Place::default() };
        origin(kind, Base { url, is_own: true }, &place, HttpVersion::Auto).map_err(|fault| match fault {
            AddressFault::Address(message) => message,
            AddressFault::Missing(Missing(field)) => panic!("{field}"),
        })
    }

    fn read(url: &str) -> Result<Origin, String> {
        read_of("compatible", url)
    }

    #[test]
    fn a_base_url_with_a_path_that_llmgw_adds_is_rejected() {
        for (kind, url, end) in [
            ("anthropic", "https://api.anthropic.com/v1", "/v1"),
            ("anthropic", "https://api.anthropic.com/v1/messages/", "/v1/messages"),
            ("azure_openai", "https://r.openai.azure.com/openai", "/openai"),
            ("vertex", "https://aiplatform.googleapis.com/v1", "/v1"),
        ] {
            let error = read_of(kind, url).expect_err(url);
            assert_eq!(error, format!("omit {end}: llmgw adds it"), "{url}");
        }
        assert!(read_of("anthropic", "https://r.services.ai.azure.com/anthropic").is_ok());
        assert!(read_of("azure_openai", "https://r.openai.azure.com/openai/v1/").is_ok());
    }

    #[test]
    fn base_urls_are_parsed_into_origin_and_paths() {
        let cases = [
            ("https://api.example.com/v1", true, "api.example.com", 443, "/v1/chat/completions"),
            ("https://api.example.com/v1/", true, "api.example.com", 443, "/v1/chat/completions"),
            ("http://127.0.0.1:11434/v1", false, "127.0.0.1", 11434, "/v1/chat/completions"),
            ("http://[::1]:8080", false, "::1", 8080, "/chat/completions"),
            ("http://10.0.0.7", false, "10.0.0.7", 80, "/chat/completions"),
            ("https://h.example/a/b%20c", true, "h.example", 443, "/a/b%20c/chat/completions"),
        ];
        for (url, tls, host, port, chat) in cases {
            let origin = read(url).unwrap_or_else(|e| panic!("{url}: {e}"));
            assert_eq!((origin.tls, origin.host.as_str(), origin.port), (tls, host, port), "{url}");
            let path = origin.paths.of(Dialect::Chat, UpstreamCall::Whole, "m").unwrap();
            assert_eq!(path.as_str(), chat, "{url}");
            assert_eq!(origin.lists[0].url, format!("{}/models", url.trim_end_matches('/')));
        }
    }

    #[test]
    fn the_address_of_an_extension_is_an_http_server_or_a_socket() {
        for (text, want) in [
            ("http://127.0.0.1:9000", Ok(("http://127.0.0.1:9000/v1/info", None))),
            ("https://ext.example/base/", Ok(("https://ext.example/base/v1/info", None))),
            ("unix:/run/e.sock", Ok(("http://localhost/v1/info", Some("/run/e.sock")))),
            ("http://127.0.0.1:9000/v1/", Err("omit /v1")),
            ("http://169.254.169.254", Err("metadata")),
            ("ftp://ext.example", Err("only http")),
            ("unix:run/e.sock", Err("absolute path")),
            ("unix://run/e.sock", Err("absolute path")),
            ("unix:/run/../e.sock", Err("absolute path")),
            ("unix:/run/e\n.sock", Err("absolute path")),
            ("unix:", Err("absolute path")),
            (&format!("unix:/{}", "x".repeat(SOCKET_BYTES_MAX)), Err("absolute path")),
        ] {
            match (BaseUrl::extension(text), want) {
                (Ok(base), Ok(want)) => {
                    assert_eq!((base.below("/v1/info").as_str(), base.socket()), want, "{text}");
                }
                (Err(error), Err(want)) => assert!(error.contains(want), "{text}: {error}"),
                (got, want) => panic!("{text}: {got:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn the_address_of_connections_has_a_host_and_perhaps_a_port() {
        let origin = read("https://api.example.com/v1").unwrap();
        for (text, want) in [
            ("other.example:8443", Ok(("other.example", 8443))),
            ("other.example", Ok(("other.example", 443))),
            ("10.0.0.7:1", Ok(("10.0.0.7", 1))),
            ("[2001:db8::1]:443", Ok(("2001:db8::1", 443))),
            ("api.example.com:8443", Ok(("api.example.com", 8443))),
            ("API.example.com", Err("is the address of base_url already")),
            ("", Err("must be host:port")),
            ("https://other.example", Err("must be host:port")),
            ("user@other.example:1", Err("must be host:port")),
            ("other.example:0", Err("the port must be")),
            ("other.example:", Err("the port must be")),
            ("169.254.169.254:80", Err("link-local, multicast and metadata")),
            ("metadata.google.internal:80", Err("metadata services")),
            ("0x7f.1:80", Err("write an IPv4 address as four")),
        ] {
            match (connect_to(text, &origin), want) {
                (Ok(found), Ok(want)) => {
                    assert_eq!(found.place(), want, "{text}");
                    assert!(found.replaces("api.example.com", 443), "{text}");
                }
                (Err(why), Err(want)) => assert!(why.starts_with(want), "{text}: {why}"),
                (got, want) => panic!("{text}: {got:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn invalid_upstream_addresses_are_rejected() {
        let cases = [
            ("", "must be an address"),
            ("api.example.com/v1", "must be an address"),
            ("ftp://api.example.com", "only http"),
            ("https://user:pw@api.example.com", "user name"),
            ("https://api.example.com/v1?key=1", "query"),
            ("https://api.example.com/v1#x", "fragment"),
            ("https://api.example.com:0/", "port"),
            ("https://api.example.com:99999/", ""),
            ("https://api.example.com:/", "port"),
            ("https:///v1", ""),
            ("https://api.example.com/v1/chat/completions", "omit /chat/completions"),
            ("http://169.254.169.254/latest", "metadata"),
            ("http://[fe80::1]/", "link-local"),
            ("http://[::ffff:169.254.169.254]/", "metadata"),
            ("http://[fd00:ec2::254]/", "metadata"),
            ("http://100.100.100.200/", "metadata"),
            ("http://168.63.129.16/", "metadata"),
            ("http://[64:ff9b::a9fe:a9fe]/", "metadata"),
            ("http://[::]/", "are not allowed"),
            ("http://0.0.0.0:11434/v1", "127.0.0.1"),
            ("http://2852039166/", "four decimal"),
            ("http://0xa9fea9fe/", "four decimal"),
            ("http://169.254.43518/", "four decimal"),
            ("http://metadata.google.internal./", "metadata"),
            ("http://METADATA.GOOGLE.INTERNAL/", "metadata"),
        ];
        for (url, want) in cases {
            let error = read(url).expect_err(url);
            assert!(error.contains(want), "{url}: {error}");
        }
    }
}
