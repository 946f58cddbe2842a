//! The effective settings of a provider instance as the API shows them, without secrets.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};
use shared::body_members::{BodyMember, BodyMembers, MemberChange, MemberValue};
use shared::error_rule::ErrorRule;
use shared::model_rules::ModelRules;
use shared::operation::Dialect;
use shared::prices::Prices;
use shared::provider::{Inside, Reach};
use shared::routing::{EchoOptions, HttpVersion, Model, PromptCache};

use super::DOTS;
use crate::common::credential::oauth::{ClientAuth, OauthSettings, TokenIssuer};
use crate::routing::config::model::{Provider, ShownTls};

/// The settings of a provider. Settings that the API has stored are shown as they were written, which may leave out
/// defaults in `models` and `headers`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ProviderSettings {
    /// The kind of provider.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The well-known provider that sets type and address; null if none does.
    registry_id: Option<String>,
    /// Null for kinds that run in the gateway.
    base_url: Option<String>,
    /// The HTTP proxy that it sets, with a masked user; `direct` for none; null for that of the variables.
    proxy: Option<String>,
    /// The host and port to connect to instead of those of `base_url`; null for those.
    connect_to: Option<String>,
    /// Its own authorities and client certificate; null for none.
    tls: Option<ShownTls>,
    /// The time that an attempt may take until the response head, in seconds.
    timeout: f64,
    /// The silence after which a stream is aborted, in seconds.
    stream_idle_timeout: f64,
    /// The time in which a stream must have content, in seconds; null for none.
    first_content_timeout: Option<f64>,
    /// The rules for errors of the upstream; the first that fits applies.
    errors: Vec<ShownErrorRule>,
    /// The changes of the top-level members of JSON requests; null for none.
    body: Option<ShownBody>,
    /// The lifetime of what cache marks of the gateway cache; null if it adds none.
    #[cfg_attr(test, schemars(extend("enum" = ["auto", "1h", null])))]
    prompt_cache: Option<&'static str>,
    /// Null for kinds without regions.
    region: Option<String>,
    /// The vendor's project; null for kinds without projects.
    project: Option<String>,
    /// Null for kinds without locations.
    location: Option<String>,
    /// Null for kinds without versions.
    api_version: Option<String>,
    /// The voice of speech requests that do not name one; null if there is none.
    default_voice: Option<String>,
    /// True if the provider receives no requests.
    disabled: bool,
    /// True if Chat may be adapted to Responses, which is experimental.
    force_api_support: bool,
    /// The rules for Responses requests on models that do not speak Responses: `agents` serves Codex.
    #[cfg_attr(test, schemars(extend("enum" = ["strict", "agents"])))]
    responses_fallback: &'static str,
    /// True if requests carry the W3C trace context while traces are exported.
    trace_context: bool,
    /// The declared models, as IDs or with what is known about them.
    #[cfg_attr(test, schemars(with = "Vec<WrittenModel>"))]
    models: Vec<DeclaredModel>,
    /// Additional headers by name, with masked values.
    headers: BTreeMap<String, &'static str>,
    /// The protocols that the upstream speaks.
    #[cfg_attr(test, schemars(with = "Vec<crate::common::shared_shapes::Protocol>"))]
    protocols: Vec<&'static str>,
    /// Null for kinds that run in the gateway.
    http_version: Option<&'static str>,
    /// The name of the extension; absent for kinds other than `extension`.
    #[serde(skip_serializing_if = "Option::is_none")]
    extension: Option<String>,
    /// The provider of the extension; absent for kinds other than `extension`.
    #[serde(skip_serializing_if = "Option::is_none")]
    extension_provider: Option<String>,
    /// The vendor's OAuth addresses; absent for a provider that no human signs in to, or whose extension knows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    oauth: Option<ShownOauthSettings>,
    /// The options of the kind `echo`; absent for other kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    echo: Option<ShownEcho>,
}

/// Changes of the top-level members of JSON requests.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BodyMembers"))]
struct ShownBody {
    /// Values of members that a request lacks, or has as null.
    #[serde(skip_serializing_if = "Map::is_empty")]
    defaults: Map<String, Value>,
    /// Values of members, whatever a request has.
    #[serde(skip_serializing_if = "Map::is_empty")]
    set: Map<String, Value>,
    /// Members that are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remove: Vec<String>,
}

/// A rule for errors of an upstream.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ErrorRule"))]
struct ShownErrorRule {
    /// The status of the errors; absent for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// The text that the code, the type or the message contains; absent for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    contains: Option<String>,
    /// The step after such an error.
    #[cfg_attr(test, schemars(extend("enum" = ["next", "retry", "rest", "stop"])))]
    then: &'static str,
}

/// A declared model. Absent members are unknown.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DeclaredModel {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name: Option<String>,
    /// True if it accepts images.
    #[serde(skip_serializing_if = "Option::is_none")]
    vision: Option<bool>,
    /// True if it can call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<bool>,
    /// True if it reasons before it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<bool>,
    /// The protocols that it speaks, if they are fewer than those of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<Vec<crate::common::shared_shapes::Protocol>>"))]
    protocols: Option<Vec<&'static str>>,
    /// Features of the Responses API that it lacks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lacks: Vec<String>,
    /// In tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    context_window: Option<u64>,
    /// In tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    /// The changes of the top-level members of JSON requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<ShownBody>,
    /// Additional headers by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, &'static str>,
    /// Rules that it imposes on requests, where they differ from the built-in list.
    #[serde(skip_serializing_if = "ModelRules::is_unknown")]
    #[cfg_attr(test, schemars(with = "Option<crate::common::shared_shapes::ModelRules>"))]
    rules: ModelRules,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::common::shared_shapes::Prices>"))]
    prices: Option<Prices>,
}

/// A declared model as it may have been written.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum WrittenModel {
    Id(String),
    Model(Box<DeclaredModel>),
}

/// The vendor's OAuth addresses.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "OauthSettings"))]
struct ShownOauthSettings {
    /// The page on which a human consents; null if sign-ins need another device.
    authorize_url: Option<String>,
    token_url: String,
    /// Null if the account is not named.
    userinfo_url: Option<String>,
    /// Null if tokens are not revoked.
    revocation_url: Option<String>,
    /// Null if there is no sign-in on another device.
    device_authorization_url: Option<String>,
    /// The issuer that redirects must name; null for any.
    issuer: Option<String>,
    scopes: Vec<String>,
    /// Where the client's secret is sent: `basic` or `post`.
    client_auth: &'static str,
    /// Additional parameters of the consent page.
    authorize_params: BTreeMap<String, String>,
}

/// The options of a provider of the kind `echo`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "EchoSettings"))]
struct ShownEcho {
    /// The pause before the response head, in milliseconds.
    delay_ms: u64,
    /// The pause before each chunk of a stream, in milliseconds.
    chunk_delay_ms: u64,
    /// The status of each answer, with an error body; null for an answer.
    status: Option<u16>,
    /// The `Retry-After` that accompanies `status`, in seconds; null for none.
    retry_after: Option<u64>,
    /// The content chunks after which a stream breaks off; null if it does not.
    cut_after_chunks: Option<u32>,
    /// The content chunks after which a stream has an error event; null if it has none.
    error_after_chunks: Option<u32>,
    /// Every n-th request fails with 503; null if none does.
    fail_every: Option<u32>,
    /// True if there is never an answer.
    hang: bool,
    /// True if nothing follows the response head.
    hang_after_head: bool,
    /// The content chunks after which a stream falls silent; null if it does not.
    hang_after_chunks: Option<u32>,
}

/// Returns the effective settings of an instance, without its secrets.
pub(crate) fn shown_provider(provider: &Provider) -> Map<String, Value> {
    match serde_json::to_value(ProviderSettings::of(provider)) {
        Ok(Value::Object(shown)) => shown,
        // A struct without fallible members always becomes an object.
        Ok(_) | Err(_) => Map::new(),
    }
}

impl ProviderSettings {
    fn of(provider: &Provider) -> Self {
        let is_echo = matches!(provider.kind.reach, Reach::InProcess(Inside::Echo));
        let version = provider.origin.as_ref().map(|origin| match origin.http {
            HttpVersion::Auto => "auto",
            HttpVersion::Http1 => "1.1",
            HttpVersion::Http2 => "2",
        });
        Self {
            kind: provider.kind.name,
            registry_id: provider.registry_id.clone(),
            base_url: provider.base_url.clone(),
            proxy: provider.proxy.clone(),
            connect_to: provider.connect_to.clone(),
            tls: provider.tls.clone(),
            timeout: provider.timeout.as_secs_f64(),
            stream_idle_timeout: provider.stream_idle_timeout.as_secs_f64(),
            first_content_timeout: provider.first_content_timeout.map(|limit| limit.as_secs_f64()),
            body: provider.body.as_ref().map(ShownBody::of),
            errors: provider.error_rules.iter().map(ShownErrorRule::of).collect(),
            prompt_cache: provider.prompt_cache.map(PromptCache::name),
            region: provider.region.clone(),
            project: provider.project.clone(),
            location: provider.location.clone(),
            api_version: provider.api_version.clone(),
            default_voice: provider.default_voice.clone(),
            disabled: provider.disabled,
            force_api_support: provider.force_api_support,
            responses_fallback: provider.responses_fallback.name(),
            trace_context: provider.trace_context,
            models: provider.models.iter().map(|model| DeclaredModel::of(model)).collect(),
            headers: provider.headers.iter().map(|(name, _)| (name.to_string(), DOTS)).collect(),
            protocols: names(&provider.dialects),
            http_version: version,
            extension: provider.extension.as_ref().map(|link| link.name.clone()),
            extension_provider: provider.extension.as_ref().map(|link| link.provider.clone()),
            oauth: provider.issuer.as_deref().and_then(TokenIssuer::settings).map(ShownOauthSettings::of),
            echo: is_echo.then(|| ShownEcho::of(&provider.echo)),
        }
    }
}

impl ShownBody {
    fn of(body: &BodyMembers) -> Self {
        let mut shown = Self { defaults: Map::new(), set: Map::new(), remove: Vec::new() };
        for BodyMember { name, change } in body.all() {
            let read = |value: &MemberValue| serde_json::from_str(&value.shown).unwrap_or_default();
            match change {
                MemberChange::Default(value) => drop(shown.defaults.insert(name.to_string(), read(value))),
                MemberChange::Set(value) => drop(shown.set.insert(name.to_string(), read(value))),
                MemberChange::Remove => shown.remove.push(name.to_string()),
            }
        }
        shown
    }
}

impl ShownErrorRule {
    fn of(rule: &ErrorRule) -> Self {
        let contains = rule.contains.as_deref().map(str::to_owned);
        Self { status: rule.status, contains, then: rule.then.name() }
    }
}

impl DeclaredModel {
    fn of(model: &Model) -> Self {
        Self {
            id: model.id.to_string(),
            display_name: model.display_name.clone(),
            vision: model.vision,
            tools: model.tools,
            reasoning: model.reasoning,
            protocols: model.dialects.as_deref().map(names),
            lacks: model.lacks.clone(),
            context_window: model.context_window,
            max_output_tokens: model.output_tokens_max,
            body: model.body.as_ref().map(ShownBody::of),
            headers: model.headers.iter().map(|(name, _)| (name.to_string(), DOTS)).collect(),
            rules: model.rules.clone(),
            prices: model.prices.clone(),
        }
    }
}

impl ShownOauthSettings {
    fn of(settings: &OauthSettings) -> Self {
        Self {
            authorize_url: settings.authorize_url.clone(),
            token_url: settings.token_url.clone(),
            userinfo_url: settings.userinfo_url.clone(),
            revocation_url: settings.revocation_url.clone(),
            device_authorization_url: settings.device_authorization_url.clone(),
            issuer: settings.issuer.clone(),
            scopes: settings.scopes.clone(),
            client_auth: match settings.client_auth {
                ClientAuth::Basic => "basic",
                ClientAuth::Post => "post",
            },
            authorize_params: settings.authorize_params.clone(),
        }
    }
}

impl ShownEcho {
    fn of(echo: &EchoOptions) -> Self {
        Self {
            delay_ms: u64::try_from(echo.delay.as_millis()).unwrap_or(u64::MAX),
            chunk_delay_ms: u64::try_from(echo.chunk_delay.as_millis()).unwrap_or(u64::MAX),
            status: echo.status,
            retry_after: echo.retry_after,
            cut_after_chunks: echo.cut_after_chunks,
            error_after_chunks: echo.error_after_chunks,
            fail_every: echo.fail_every,
            hang: echo.hang,
            hang_after_head: echo.hang_after_head,
            hang_after_chunks: echo.hang_after_chunks,
        }
    }
}

fn names(dialects: &[Dialect]) -> Vec<&'static str> {
    dialects.iter().map(|dialect| dialect.name()).collect()
}
