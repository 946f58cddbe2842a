//! Signatures of Standard Webhooks, scheme `v1`: HMAC-SHA256 over the ID, the time and the body of a message, with a
//! secret that both sides have.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderName, HeaderValue};
use ring::hmac;

/// The key of a secret that signs messages.
#[derive(Clone)]
pub struct WebhookKey(hmac::Key);

impl fmt::Debug for WebhookKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookKey(••••)")
    }
}

impl WebhookKey {
    /// Reads a secret: `whsec_`, followed by 24 to 64 bytes in base64. Returns `None` if it has another form.
    pub fn read(secret: &str) -> Option<Self> {
        let bytes = BASE64_STANDARD.decode(secret.strip_prefix(SECRET_PREFIX)?).ok()?;
        KEY_BYTES.contains(&bytes.len()).then(|| Self::of(&bytes))
    }

    /// Returns the key of a secret of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Returns the value of `webhook-signature` for the message `id`, sent `time` seconds after the Unix epoch. The body is
    /// read piece by piece and not copied.
    pub fn signature<'a>(&self, id: &str, time: &str, body: impl Iterator<Item = &'a [u8]>) -> String {
        let mut content = self.content(id, time);
        body.for_each(|piece| content.update(piece));
        signature(content)
    }

    /// Begins the signature of the message `id`, sent `unix_s` seconds after the Unix epoch.
    pub fn begin(&self, id: &str, unix_s: u64) -> MessageSigning {
        let time = unix_s.to_string();
        MessageSigning { id: id.to_owned(), content: self.content(id, &time), time }
    }

    /// Returns the headers that sign the message `id`, sent `unix_s` seconds after the Unix epoch.
    pub fn sign<'a>(
        &self,
        id: &str,
        unix_s: u64,
        body: impl Iterator<Item = &'a [u8]>,
    ) -> Vec<(HeaderName, HeaderValue)> {
        let mut signing = self.begin(id, unix_s);
        body.for_each(|piece| signing.update(piece));
        signing.finish()
    }

    /// Returns the start of the signed content, which the body follows.
    fn content(&self, id: &str, time: &str) -> hmac::Context {
        let mut content = hmac::Context::with_key(&self.0);
        for part in [id, ".", time, "."] {
            content.update(part.as_bytes());
        }
        content
    }
}

/// The signature of one message in the making, which reads the body piece by piece.
pub struct MessageSigning {
    id: String,
    time: String,
    content: hmac::Context,
}

impl fmt::Debug for MessageSigning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageSigning").field("id", &self.id).finish_non_exhaustive()
    }
}

impl MessageSigning {
    /// Adds the next piece of the body.
    pub fn update(&mut self, piece: &[u8]) {
        self.content.update(piece);
    }

    /// Returns the headers that sign the message.
    pub fn finish(self) -> Vec<(HeaderName, HeaderValue)> {
        let signature = signature(self.content);
        let fields =
            [(WEBHOOK_ID, &self.id), (WEBHOOK_TIMESTAMP, &self.time), (WEBHOOK_SIGNATURE, &signature)];
        let valid = |(name, text): (HeaderName, &String)| Some((name, HeaderValue::from_str(text).ok()?));
        fields.into_iter().filter_map(valid).collect()
    }
}

fn signature(content: hmac::Context) -> String {
    format!("v1,{}", BASE64_STANDARD.encode(content.sign()))
}

/// The first characters of a secret's text; the secret's bytes follow in base64.
pub const SECRET_PREFIX: &str = "whsec_";
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// The header of the message's ID.
pub const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
/// The header of the message's time, in seconds since the Unix epoch.
pub const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
/// The header of the message's signature.
pub const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference implementations.
    #[test]
    fn the_published_example_is_signed_as_published() {
        let key = WebhookKey::read("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = br#"{"test": 2432232314}"#;
        for cut in 0..body.len() {
            let (first, second) = body.split_at(cut);
            let pieces = [first, second].into_iter();
            let headers = key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, pieces);
            let texts: Vec<_> =
                headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
            assert_eq!(
                texts,
                [
                    ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
                    ("webhook-timestamp", "1614265330"),
                    ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
                ]
            );
        }
    }

    #[test]
    fn a_secret_has_the_prefix_and_24_to_64_bytes() {
        let secret = |bytes: usize| format!("whsec_{}", BASE64_STANDARD.encode(vec![7; bytes]));
        for (text, good) in [
            (secret(24), true),
            (secret(64), true),
            (secret(23), false),
            (secret(65), false),
            (secret(32).replace("whsec_", ""), false),
            ("whsec_no base64 at all, though it is long enough".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(WebhookKey::read(&text).is_some(), good, "{text}");
        }
        let shown = format!("{:?}", WebhookKey::read(&secret(24)).unwrap());
        assert_eq!(shown, "WebhookKey(••••)");
    }
}
