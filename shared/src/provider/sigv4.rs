//! AWS signatures, version 4: each request is signed with a key that is valid for one day, one region and one service.

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use percent_encoding::AsciiSet;
use ring::digest::{Context, SHA256, digest};
use ring::hmac;

use crate::secret::Secret;
use crate::{hex, percent};

/// Signs the requests of one provider instance.
#[derive(Clone, Debug)]
pub struct Signer {
    /// The region of the credential scope.
    pub region: String,
    /// The service of the credential scope.
    pub service: &'static str,
    /// The access key ID, which is not secret.
    pub access_key_id: String,
    /// The secret access key, which is never sent.
    pub secret_access_key: Secret<String>,
    /// Sent with each request, if the key pair is temporary.
    pub session_token: Option<Secret<String>>,
}

/// The parts of a request that are signed.
#[derive(Clone, Copy, Debug)]
pub struct Signable<'a> {
    /// The method: `GET` or `POST`.
    pub method: &'a str,
    /// The value of the `Host` header.
    pub host: &'a str,
    /// The path and query as on the wire.
    pub path: &'a PathAndQuery,
    /// The value of the `Content-Type` header, if the request has a body.
    pub content_type: Option<&'a str>,
    /// The body in pieces.
    pub body: &'a [Bytes],
}

impl Signer {
    /// Returns the headers that sign `request`, sent `unix_s` seconds after the Unix epoch.
    pub fn sign(&self, request: &Signable<'_>, unix_s: u64) -> Vec<(HeaderName, HeaderValue)> {
        self.sign_hashed(request, &sha256(request.body.iter().map(|piece| &**piece)), unix_s)
    }

    /// Returns the headers that sign `request`, whose body has this SHA-256.
    pub(super) fn sign_hashed(
        &self,
        request: &Signable<'_>,
        body_sha256: &[u8],
        unix_s: u64,
    ) -> Vec<(HeaderName, HeaderValue)> {
        let moment = moment(unix_s);
        let day = moment.get(..8).unwrap_or_default();
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let token = self.session_token.as_ref().map(|token| token.expose().as_str());
        let headers: Vec<(&str, &str)> = [
            ("content-type", request.content_type),
            ("host", Some(request.host)),
            ("x-amz-date", Some(&moment)),
            ("x-amz-security-token", token),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?.trim())))
        .collect();
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let canonical = canonical(request, body_sha256, &headers, &names);
        let hash = hex::encode(digest(&SHA256, canonical.as_bytes()).as_ref());
        let to_sign = format!("AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hash}");
        let signature = hex::encode(&self.key(day, &to_sign));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            self.access_key_id
        );
        let fields = [
            (X_AMZ_DATE, Some(moment.as_str())),
            (X_AMZ_SECURITY_TOKEN, token),
            (AUTHORIZATION, Some(&authorization)),
        ];
        let sensitive = |(name, text): (HeaderName, Option<&str>)| {
            let mut value = HeaderValue::from_str(text?).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        };
        fields.into_iter().filter_map(sensitive).collect()
    }

    /// Returns the signature of `text` with the key of `day`.
    fn key(&self, day: &str, text: &str) -> Vec<u8> {
        let first = format!("AWS4{}", self.secret_access_key.expose()).into_bytes();
        [day, &self.region, self.service, "aws4_request", text].iter().fold(first, |key, part| {
            hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec()
        })
    }
}

/// Returns the SHA-256 of a body in pieces.
fn sha256<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut body = Context::new(&SHA256);
    pieces.for_each(|piece| body.update(piece));
    let mut sum = [0; 32];
    sum.copy_from_slice(body.finish().as_ref());
    sum
}

/// Returns the canonical request, which client and server hash.
fn canonical(request: &Signable<'_>, body_sha256: &[u8], headers: &[(&str, &str)], names: &str) -> String {
    let mut text =
        format!("{}\n{}\n{}\n", request.method, encoded_path(request.path.path()), query(request.path));
    for (name, value) in headers {
        text.push_str(&format!("{name}:{value}\n"));
    }
    text.push_str(&format!("\n{names}\n{}", hex::encode(body_sha256)));
    text
}

/// Percent-encodes the wire path once more, as every service except S3 requires.
fn encoded_path(path: &str) -> String {
    const SET: &AsciiSet = &percent::RESERVED.remove(b'/');
    percent::encode(path, SET).to_string()
}

/// Returns the query sorted by name. It is already encoded on the wire, as all templates and names are.
fn query(path: &PathAndQuery) -> String {
    let mut pairs: Vec<String> = path
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| if pair.contains('=') { pair.to_owned() } else { format!("{pair}=") })
        .collect();
    pairs.sort();
    pairs.join("&")
}

/// Formats a time as `20261121T000000Z`.
fn moment(unix_s: u64) -> String {
    let at = i64::try_from(unix_s).ok().and_then(|unix_s| Timestamp::from_second(unix_s).ok());
    at.unwrap_or(Timestamp::MAX).strftime("%Y%m%dT%H%M%SZ").to_string()
}

const X_AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const X_AMZ_SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

    fn signer(region: &str, service: &'static str, token: Option<&str>) -> Signer {
        Signer {
            region: region.to_owned(),
            service,
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: Secret::new(SECRET.to_owned()),
            session_token: token.map(|token| Secret::new(token.to_owned())),
        }
    }

    /// Returns `body` in two pieces.
    fn of(body: &str) -> [Bytes; 2] {
        let (first, second) = body.as_bytes().split_at(body.len() / 3);
        [first, second].map(Bytes::copy_from_slice)
    }

    fn authorization(headers: &[(HeaderName, HeaderValue)]) -> String {
        let found = headers.iter().find(|(name, _)| *name == AUTHORIZATION).unwrap();
        assert!(found.1.is_sensitive());
        found.1.to_str().unwrap().to_owned()
    }

    /// Vectors from AWS's published test suite for version 4: 30 August 2015, 12:36:00, service `service`.
    #[test]
    fn the_published_suite_is_signed_as_published() {
        let empty = "";
        for (name, method, path, content_type, body, want) in [
            (
                "get-vanilla",
                "GET",
                "/",
                None,
                empty,
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "get-vanilla-query-order-key-case",
                "GET",
                "/?Param2=value2&Param1=value1",
                None,
                empty,
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                "post-vanilla",
                "POST",
                "/",
                None,
                empty,
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "post-x-www-form-urlencoded",
                "POST",
                "/",
                Some("application/x-www-form-urlencoded"),
                "Param1=value1",
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
        ] {
            let path: PathAndQuery = path.parse().unwrap();
            let request = Signable {
                method,
                host: "example.amazonaws.com",
                path: &path,
                content_type,
                body: &of(body),
            };
            let headers = signer("us-east-1", "service", None).sign(&request, 1_440_938_160);
            assert_eq!(headers[0].1, "20150830T123600Z", "{name}");
            let authorization = authorization(&headers);
            assert!(authorization.ends_with(&format!("Signature={want}")), "{name}: {authorization}");
            let scope = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=";
            assert!(authorization.starts_with(scope), "{name}: {authorization}");
        }
    }

    /// Vectors that botocore computed for Bedrock model IDs, which are percent-encoded on the wire.
    #[test]
    fn an_encoded_model_id_is_signed_as_botocore_does() {
        let index: Value =
            serde_json::from_str(include_str!("../../../dataplane/wire/fixtures/auth/index.json")).unwrap();
        let cases: Vec<&Value> =
            index["cases"].as_array().unwrap().iter().filter(|case| case["signature"].is_string()).collect();
        assert_eq!(cases.len(), 2);
        for case in cases {
            let text = |name: &str| case[name].as_str().unwrap();
            let path: PathAndQuery = text("wire_path").parse().unwrap();
            let request = Signable {
                method: text("method"),
                host: text("host"),
                path: &path,
                content_type: case["content_type"].as_str(),
                body: &of(text("body")),
            };
            let signer = signer(text("region"), "bedrock", case["session_token"].as_str());
            // 21 November 2026, midnight.
            let headers = signer.sign(&request, 1_795_219_200);
            assert_eq!(headers[0].1.to_str().unwrap(), text("amz_date"));
            let authorization = authorization(&headers);
            assert!(authorization.ends_with(text("signature")), "{}: {authorization}", text("id"));
            assert_eq!(headers.len(), if case["session_token"].is_string() { 3 } else { 2 });
        }
    }

    #[test]
    fn a_signer_does_not_show_its_secret() {
        let shown = format!("{:?}", signer("r", "s", Some("session-token")));
        assert!(!shown.contains(SECRET) && !shown.contains("session-token"), "{shown}");
    }
}
