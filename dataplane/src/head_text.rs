//! The head of a request or an answer as text, without credentials, for observers of an exchange.

use std::fmt::Write as _;

use http::{HeaderMap, HeaderName};

/// Returns a head as text, one line per field. The values of fields that `is_hidden` are left out.
pub(crate) fn head_text(
    first: String,
    headers: &HeaderMap,
    is_hidden: impl Fn(&HeaderName) -> bool,
) -> String {
    let mut head = first;
    for (name, value) in headers {
        let value = if is_hidden(name) { HIDDEN.into() } else { String::from_utf8_lossy(value.as_bytes()) };
        let _ = write!(head, "\n{name}: {value}");
    }
    head
}

/// Returns true if a field of this name contains a credential, as far as its name shows.
pub(crate) fn is_credential(name: &HeaderName) -> bool {
    let name = name.as_str();
    CREDENTIAL_WORDS.iter().any(|word| name.contains(word)) || name.ends_with("token")
}

const CREDENTIAL_WORDS: [&str; 9] = [
    "authorization",
    "authenticat",
    "cookie",
    "api-key",
    "apikey",
    "secret",
    "password",
    "credential",
    "signature",
];
const HIDDEN: &str = "[hidden]";

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn credentials_are_hidden_by_the_names_of_their_fields() {
        for (name, is_hidden) in [
            ("authorization", true),
            ("proxy-authorization", true),
            ("x-api-key", true),
            ("api-key", true),
            ("x-goog-api-key", true),
            ("cookie", true),
            ("set-cookie", true),
            ("x-amz-security-token", true),
            ("x-llmgw-sso-secret", true),
            ("content-type", false),
            ("x-ratelimit-remaining-tokens", false),
            ("x-request-id", false),
        ] {
            let headers =
                HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static("v"))]);
            let text = head_text("GET".to_owned(), &headers, is_credential);
            assert_eq!(text, format!("GET\n{name}: {}", if is_hidden { HIDDEN } else { "v" }));
        }
    }
}
