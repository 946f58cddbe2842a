//! The documents of the extension protocol, version 1. `docs/extensions.schema.json` is generated from them. Unknown
//! members are ignored, so that later versions can add some.

use serde::{Deserialize, Serialize};
use shared::id::is_name;
use shared::operation::Dialect;

/// The version of the protocol that this release speaks.
pub(crate) const VERSION: u64 = 1;
/// The most providers of one extension.
pub(crate) const PROVIDERS_MAX: usize = 32;
/// The dialects in which an extension may answer.
pub(crate) const DIALECTS: [Dialect; 3] = [Dialect::Chat, Dialect::Responses, Dialect::Messages];

/// The answer to `GET /v1/info`.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Info {
    /// The version of the protocol: 1.
    pub(crate) protocol: u64,
    /// The name of the extension, for people.
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// The version of the extension, for people.
    #[serde(default)]
    pub(crate) version: Option<String>,
    /// The providers that it has, at most 32.
    #[cfg_attr(test, schemars(length(max = 32)))]
    pub(crate) providers: Vec<InfoProvider>,
}

/// A provider of an extension.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct InfoProvider {
    /// 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit.
    #[cfg_attr(test, schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")))]
    pub(crate) id: String,
    /// The name of the provider, for people.
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// The dialects in which it takes requests and answers; absent: chat.
    #[serde(default = "chat")]
    #[cfg_attr(test, schemars(with = "Vec<ExtensionDialect>"))]
    pub(crate) protocols: Vec<String>,
    /// The use of a credential, which the gateway keeps and sends in `X-LLMGW-Credential`.
    #[serde(default)]
    pub(crate) credential: CredentialUse,
}

/// A dialect of the extension protocol.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
enum ExtensionDialect {
    Chat,
    Responses,
    Messages,
}

fn chat() -> Vec<String> {
    vec![Dialect::Chat.name().to_owned()]
}

/// The use of a credential by a provider of an extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum CredentialUse {
    /// It takes none.
    #[default]
    None,
    /// It works without one.
    Optional,
    /// It needs one.
    Required,
    /// It needs that of a human who signs in.
    SignIn,
}

impl Info {
    /// Parses and checks a description. The error states what is wrong.
    pub(crate) fn read(body: &[u8]) -> Result<Self, String> {
        let mut info: Self = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if info.protocol != VERSION {
            let version = info.protocol;
            return Err(format!("`protocol` is {version}, but this gateway speaks version {VERSION}"));
        }
        if info.providers.len() > PROVIDERS_MAX {
            return Err(format!("`providers` has more than {PROVIDERS_MAX} entries"));
        }
        for (index, provider) in info.providers.iter_mut().enumerate() {
            if !is_name(&provider.id) {
                return Err(format!(
                    "`providers[{index}].id` must be 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or \
                     digit"
                ));
            }
            provider.protocols.retain(|name| DIALECTS.iter().any(|dialect| dialect.name() == name));
            if provider.protocols.is_empty() {
                return Err(format!("`providers[{index}].protocols` has none of chat, responses, messages"));
            }
        }
        let mut ids: Vec<&str> = info.providers.iter().map(|provider| provider.id.as_str()).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err("`providers` has the same `id` twice".to_owned());
        }
        Ok(info)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use schemars::generate::SchemaSettings;
    use serde_json::{Value, json};

    use super::*;
    use crate::common::credential::oauth::DeviceCode;
    use crate::common::credential::oauth::extension::{
        CodeExchange, CredentialRefresh, CredentialRevocation, DevicePoll, SignInPage, SignInStart,
    };

    /// The answer to `GET /v1/{provider}/models`.
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Models {
        /// The models of the provider, at most 5,000.
        #[schemars(length(max = 5_000))]
        data: Vec<ListedModel>,
    }

    /// A model of a provider. Members other than these are ignored.
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct ListedModel {
        /// The name of the model, as requests contain it.
        id: String,
        /// The name for people.
        display_name: Option<String>,
        /// The context window in tokens.
        context_window: Option<u64>,
        /// The longest answer in tokens.
        max_completion_tokens: Option<u64>,
    }

    /// The body of an answer with an error status.
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct ErrorBody {
        error: ErrorDetail,
    }

    /// The reason for an error.
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct ErrorDetail {
        /// The reason, for people.
        message: String,
        /// A word for programs, such as `rate_limit_exceeded`.
        code: Option<String>,
    }

    /// The answer to `/oauth/exchange`, `/oauth/poll` and `/refresh` (RFC 6749 section 5.1).
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Credential {
        /// The credential, which requests carry in `X-LLMGW-Credential`: 1 to 16,384 printable ASCII characters without spaces.
        access_token: String,
        /// The text with which `/refresh` renews the credential, of the same form. Absent in an answer of `/refresh`: the one
        /// before stays valid. Absent in others: the credential cannot be renewed.
        refresh_token: Option<String>,
        /// The lifetime of the credential in seconds; absent: unknown.
        expires_in: Option<u64>,
        /// The permissions that the vendor granted, separated by spaces; shown to people.
        scope: Option<String>,
        /// The name of the account; shown to people.
        account: Option<String>,
    }

    /// The body of an error of `/oauth/start`, `/oauth/exchange`, `/oauth/poll` and `/refresh`, with a status of 400 to 499
    /// (RFC 6749 section 5.2, RFC 8628 section 3.5).
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct SignInError {
        /// `invalid_grant` if the vendor has refused the code or the refresh for good, `authorization_pending` or `slow_down` in
        /// an answer to a poll, or any other word.
        error: String,
        /// The reason, for people.
        error_description: Option<String>,
    }

    /// Compares `docs/extensions.schema.json` with these types; `LLMGW_WRITE_REFERENCE=1` writes it instead.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the switch of a test run, no setting of the gateway")]
    fn the_reference_of_the_extension_protocol_matches_the_code() {
        let mut generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
        for name in [
            generator.subschema_for::<Info>(),
            generator.subschema_for::<Models>(),
            generator.subschema_for::<SignInStart<'_>>(),
            generator.subschema_for::<SignInPage>(),
            generator.subschema_for::<DeviceCode>(),
            generator.subschema_for::<DevicePoll<'_>>(),
            generator.subschema_for::<CodeExchange<'_>>(),
            generator.subschema_for::<CredentialRefresh<'_>>(),
            generator.subschema_for::<CredentialRevocation<'_>>(),
            generator.subschema_for::<Credential>(),
            generator.subschema_for::<SignInError>(),
            generator.subschema_for::<ErrorBody>(),
        ] {
            assert!(name.get("$ref").is_some(), "{name:?}");
        }
        let shapes: serde_json::Map<String, Value> = generator.take_definitions(true).into_iter().collect();
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "llmgw extension protocol, version 1",
            "$defs": shapes,
        });
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/extensions.schema.json");
        if std::env::var_os("LLMGW_WRITE_REFERENCE").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(committed, text, "run LLMGW_WRITE_REFERENCE=1 cargo test -p control reference");
    }

    #[test]
    fn a_description_of_an_extension_is_checked() {
        let of = |value: Value| Info::read(value.to_string().as_bytes());
        let info = of(json!({"protocol": 1, "providers": [
            {"id": "a"}, {"id": "b", "protocols": ["messages", "telepathy"], "credential": "required", "more": 1},
        ]}))
        .unwrap();
        assert_eq!(info.providers[0].protocols, ["chat"]);
        assert_eq!(info.providers[1].protocols, ["messages"]);
        assert_eq!(info.providers[1].credential, CredentialUse::Required);
        let many: Vec<_> = (0..=PROVIDERS_MAX).map(|id| json!({"id": id.to_string()})).collect();
        for (value, want) in [
            (json!({"protocol": 2, "providers": []}), "speaks version 1"),
            (json!({"protocol": 1}), "missing field `providers`"),
            (json!({"protocol": 1, "providers": [{"id": "../x"}]}), "`providers[0].id` must be"),
            (json!({"protocol": 1, "providers": [{"id": "a"}, {"id": "a"}]}), "same `id` twice"),
            (json!({"protocol": 1, "providers": [{"id": "a", "protocols": ["x"]}]}), "has none of chat"),
            (json!({"protocol": 1, "providers": [{"id": "a", "credential": "maybe"}]}), "unknown variant"),
            (json!({"protocol": 1, "providers": many}), "more than 32"),
            (json!("hello"), "invalid type"),
        ] {
            let error = of(value.clone()).unwrap_err();
            assert!(error.contains(want), "{value}: {error}");
        }
    }
}
