//! Secrets of webhooks, and the signatures of messages by one or two of them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use shared::secret::Secret;
use shared::standard_webhooks::{SECRET_PREFIX, WebhookKey};

use crate::common::vault::{RandomError, random};

/// The secret that a receiver verifies signatures with.
#[derive(Debug)]
pub(crate) struct WebhookSecret(Secret<Vec<u8>>);

impl WebhookSecret {
    /// Returns a new random secret.
    pub(crate) fn generate() -> Result<Self, RandomError> {
        let bytes: [u8; SECRET_BYTES] = random()?;
        Ok(Self(Secret::new(bytes.to_vec())))
    }

    /// Returns the secret with these bytes.
    pub(crate) fn of(bytes: Secret<Vec<u8>>) -> Self {
        Self(bytes)
    }

    /// Returns the bytes to be sealed.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.expose()
    }

    /// Returns the secret as the libraries of receivers read it.
    pub(crate) fn text(&self) -> String {
        format!("{SECRET_PREFIX}{}", BASE64_STANDARD.encode(self.0.expose()))
    }
}

/// Returns the value of `webhook-signature`: one signature for each secret.
pub(crate) fn signature(secrets: &[WebhookSecret], id: &str, unix_seconds: u64, body: &[u8]) -> String {
    let time = unix_seconds.to_string();
    let sign =
        |secret: &WebhookSecret| WebhookKey::of(secret.bytes()).signature(id, &time, std::iter::once(body));
    secrets.iter().map(sign).collect::<Vec<_>>().join(" ")
}

const SECRET_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification of Standard Webhooks.
    #[test]
    fn a_signature_equals_the_example_of_standard_webhooks() {
        let secret = |text: &str| WebhookSecret::of(Secret::new(BASE64_STANDARD.decode(text).unwrap()));
        let secrets = [secret("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")];
        let body = br#"{"test": 2432232314}"#;
        let signed = signature(&secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let both = [secret("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), secret("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")];
        let signed = signature(&both, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert!(signed.starts_with("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v1,"), "{signed}");
    }

    #[test]
    fn secrets_are_random_and_have_the_prefix_of_standard_webhooks() {
        let (one, other) = (WebhookSecret::generate().unwrap(), WebhookSecret::generate().unwrap());
        assert_ne!(one.text(), other.text());
        assert!(one.text().starts_with("whsec_") && one.bytes().len() == 32);
        assert!(!format!("{one:?}").contains(&one.text()[6..]));
    }
}
