//! The origin of a browser's request, as the browser reports it: `Sec-Fetch-Site`, or, for browsers and plain HTTP
//! addresses without that header, `Origin` compared with `Host`.

use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use http::request::Parts;

/// True if a page of another origin sent the request. A request without both headers does not come from a page.
pub(super) fn is_foreign(parts: &Parts) -> bool {
    match (only(&parts.headers, "sec-fetch-site"), only(&parts.headers, ORIGIN.as_str())) {
        (OriginHeader::One(site), _) => !["same-origin", "none"].contains(&site),
        (OriginHeader::None, OriginHeader::None) => false,
        (OriginHeader::None, OriginHeader::One(origin)) => {
            host_of(origin).is_none_or(|host| !is_host(parts, host))
        }
        (OriginHeader::Odd, _) | (_, OriginHeader::Odd) => true,
    }
}

/// True if the page that sent the request was served over TLS, possibly by a proxy in front of the gateway.
pub(super) fn is_by_tls(parts: &Parts) -> bool {
    matches!(only(&parts.headers, ORIGIN.as_str()), OriginHeader::One(origin) if origin.starts_with("https://"))
}

fn is_host(parts: &Parts, origin: &str) -> bool {
    let named = parts.uri.authority().map(http::uri::Authority::as_str);
    let host = match only(&parts.headers, HOST.as_str()) {
        OriginHeader::One(host) => Some(host),
        OriginHeader::None => None,
        OriginHeader::Odd => return false,
    };
    named.or(host).is_some_and(|host| host.eq_ignore_ascii_case(origin))
}

/// Returns `host:port` of an origin, or `None` for `null`.
fn host_of(origin: &str) -> Option<&str> {
    origin.split_once("://").map(|(_, host)| host)
}

enum OriginHeader<'a> {
    None,
    One(&'a str),
    /// Repeated, or not valid text.
    Odd,
}

fn only<'a>(headers: &'a HeaderMap, name: &str) -> OriginHeader<'a> {
    let mut values = headers.get_all(name).iter();
    match (values.next().map(|value| value.to_str()), values.next()) {
        (None, _) => OriginHeader::None,
        (Some(Ok(text)), None) => OriginHeader::One(text),
        (Some(_), _) => OriginHeader::Odd,
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn requests_from_other_origins_are_foreign() {
        for (headers, foreign) in [
            (&[][..], false),
            (&[("sec-fetch-site", "same-origin")], false),
            (&[("sec-fetch-site", "none")], false),
            (&[("sec-fetch-site", "same-site")], true),
            (&[("sec-fetch-site", "cross-site")], true),
            (&[("sec-fetch-site", "")], true),
            (&[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")], true),
            // A proxy that rewrites Host does not change what the browser sent.
            (&[("sec-fetch-site", "same-origin"), ("origin", "https://llm.example")], false),
            (&[("sec-fetch-site", "cross-site"), ("origin", "http://gw.example:8787")], true),
            (&[("origin", "http://gw.example:8787")], false),
            (&[("origin", "https://GW.example:8787")], false),
            (&[("origin", "http://gw.example")], true),
            (&[("origin", "http://gw.example:8788")], true),
            (&[("origin", "http://evil.example")], true),
            (&[("origin", "http://gw.example:8787.evil.example")], true),
            (&[("origin", "null")], true),
            (&[("origin", "http://gw.example:8787"), ("origin", "http://evil.example")], true),
        ] {
            let mut request = Request::builder().uri("/admin/api/state").header("host", "gw.example:8787");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            assert_eq!(is_foreign(&request.body(()).unwrap().into_parts().0), foreign, "{headers:?}");
        }
        let http2 = Request::get("https://gw.example/admin").header("origin", "https://gw.example");
        assert!(!is_foreign(&http2.body(()).unwrap().into_parts().0));
    }
}
