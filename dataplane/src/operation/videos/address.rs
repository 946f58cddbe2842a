//! Decides where a video may be fetched from: only the provider's own origin receives its credential.

use http::Uri;
use http::uri::PathAndQuery;
use shared::routing::{InstanceReach, Origin, ProviderInstance};

use crate::attempt::secrets;

/// Classification of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VideoAddress {
    /// A path on the provider's own origin; it is fetched with the credential.
    Own(PathAndQuery),
    /// An address elsewhere. The gateway never fetches it; the client gets the address.
    Elsewhere(String),
}

/// Classifies `address`, as received from `provider`. Returns `None` if it is invalid or unsupported, or if it contains
/// the provider's credential.
pub(super) fn place(provider: &ProviderInstance, address: &str) -> Option<VideoAddress> {
    let InstanceReach::Network(origin) = &provider.reach else { return None };
    if address.len() > ADDRESS_BYTES_MAX
        || address.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'\\')
    {
        return None;
    }
    if address.starts_with('/') && !address.starts_with("//") {
        return address.parse().ok().map(VideoAddress::Own);
    }
    let is_for_clients = || {
        let is_open = secrets(provider).iter().all(|secret| !address.contains(secret));
        is_open.then(|| VideoAddress::Elsewhere(address.to_owned()))
    };
    if address.starts_with("gs://") {
        return is_for_clients();
    }
    let uri: Uri = address.parse().ok()?;
    if uri.authority()?.as_str().contains('@') {
        return None;
    }
    match uri.scheme_str()? {
        "http" | "https" if is_of(origin, &uri) => uri.path_and_query().cloned().map(VideoAddress::Own),
        "https" => is_for_clients(),
        _ => None,
    }
}

/// Returns true if `uri` has the scheme, host and port of `origin`.
fn is_of(origin: &Origin, uri: &Uri) -> bool {
    let tls = uri.scheme_str() == Some("https");
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    tls == origin.tls && host.eq_ignore_ascii_case(&origin.host) && port == origin.port
}

const ADDRESS_BYTES_MAX: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use shared::provider::path::Paths;
    use shared::routing::{EchoOptions, HttpVersion};
    use shared::secret::Secret;

    use super::*;
    use crate::fixture;

    #[test]
    fn the_credential_is_sent_only_to_the_origin_of_its_provider() {
        let origin = Origin {
            tls: true,
            authority: "google.example".parse().unwrap(),
            host: "google.example".to_owned(),
            port: 443,
            socket: None,
            way: None,
            paths: Paths::default(),
            lists: Vec::new(),
            http: HttpVersion::Auto,
        };
        let provider = ProviderInstance {
            reach: InstanceReach::Network(origin),
            credential: Some(Secret::new("AIzaSecret".to_owned())),
            ..fixture::echo("e", EchoOptions::default())
        };
        let own = |path: &str| Some(VideoAddress::Own(path.parse().unwrap()));
        let elsewhere = |address: &str| Some(VideoAddress::Elsewhere(address.to_owned()));
        for (address, want) in [
            ("https://google.example/v1/files/1:download?alt=media", own("/v1/files/1:download?alt=media")),
            ("HTTPS://Google.Example:443/v1", own("/v1")),
            ("https://google.example", own("/")),
            ("/download/1?alt=media", own("/download/1?alt=media")),
            ("http://google.example/v1", None),
            ("https://google.example:8443/v1", elsewhere("https://google.example:8443/v1")),
            ("https://google.example.evil/v1", elsewhere("https://google.example.evil/v1")),
            ("https://evil.example/google.example/v1", elsewhere("https://evil.example/google.example/v1")),
            ("https://google.example@evil.example/v1", None),
            ("https://user:pass@google.example/v1", None),
            ("https://evil.example\\@google.example/v1", None),
            ("//evil.example/v1", None),
            ("/\\evil.example", None),
            ("https://evil.example/?key=AIzaSecret", None),
            ("gs://bucket/video.mp4", elsewhere("gs://bucket/video.mp4")),
            ("ftp://google.example/v1", None),
            ("file:///etc/passwd", None),
            ("data:video/mp4;base64,AAAA", None),
            ("https://google.example/a b", None),
            ("https://google.example/\r\nx: y", None),
            ("", None),
        ] {
            assert_eq!(place(&provider, address), want, "{address}");
        }
    }
}
