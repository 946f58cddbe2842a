//! Addresses of receivers. The rules for upstream addresses apply; names are checked again when they are resolved.

use http::Uri;
use shared::secret::Secret;

use crate::routing::config::check_url;

/// A valid address. The address of many a receiver is its only protection, so it is a secret.
#[derive(Clone, Debug)]
pub(crate) struct WebhookAddress {
    pub(crate) url: Secret<String>,
    /// The part that may be shown: the origin, and the last characters of a long path.
    pub(crate) hint: String,
}

/// Validates the address of a receiver. The error completes "url: ...".
pub(crate) fn check_address(url: &str) -> Result<WebhookAddress, String> {
    let url = url.trim();
    if url.len() > URL_BYTES_MAX {
        return Err(format!("must have at most {URL_BYTES_MAX} bytes"));
    }
    let uri = check_url(url)?;
    Ok(WebhookAddress { url: Secret::new(url.to_owned()), hint: hint(&uri) })
}

fn hint(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or_default();
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    let rest = uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
    match rest {
        "" | "/" => format!("{scheme}://{authority}/"),
        _ if rest.len() < HINTED_BYTES_MIN => format!("{scheme}://{authority}/…"),
        _ => {
            let tail =
                rest.char_indices().rev().nth(3).and_then(|(at, _)| rest.get(at..)).unwrap_or_default();
            format!("{scheme}://{authority}/…{tail}")
        }
    }
}

const URL_BYTES_MAX: usize = 2_048;
/// The last four characters of a shorter path are not shown.
const HINTED_BYTES_MIN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_of_a_webhook_address_omits_its_path() {
        for (url, want) in [
            ("https://hooks.slack.com/services/T0/B0/secretsecretAbCd", "https://hooks.slack.com/…AbCd"),
            ("http://127.0.0.1:9/hook?token=1", "http://127.0.0.1:9/…"),
            ("https://example.com", "https://example.com/"),
        ] {
            let address = check_address(url).unwrap();
            assert_eq!((address.hint.as_str(), address.url.expose().as_str()), (want, url));
        }
    }

    #[test]
    fn webhook_addresses_follow_the_rules_of_upstream_addresses() {
        for (url, want) in [
            ("ftp://example.com", "http:// and https://"),
            ("example.com/hook", "must be an address"),
            ("https://user:pw@example.com/", "user name"),
            ("https://example.com/#x", "fragment"),
            ("http://169.254.169.254/latest", "metadata"),
            ("http://[::ffff:169.254.169.254]/", "metadata"),
            ("http://metadata.google.internal/", "metadata"),
            ("http://0xa9fea9fe/", "four decimal"),
            ("https://example.com:0/", "port"),
            (&format!("https://example.com/{}", "x".repeat(2_048)), "at most"),
        ] {
            let error = check_address(url).expect_err(url);
            assert!(error.contains(want), "{url}: {error}");
        }
    }
}
