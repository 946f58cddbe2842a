//! Probes an extension: reads its description and the models of its providers. Whatever it answers costs bounded time and
//! memory, and its texts are cleaned before they are stored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shared::clock::unix_ms;
use shared::port::{HttpClient, HttpLimits};
use shared::sanitize::diagnostic;
use tokio::task::JoinSet;

use super::protocol::{CredentialUse, Info, InfoProvider};
use crate::common::credential::extension::ExtensionAccess;
use crate::routing::catalog::evidence::CatalogFailure;
use crate::routing::catalog::listing;

/// The result of a probe of an extension.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ExtensionCheck {
    /// In milliseconds since the Unix epoch.
    pub(crate) at_ms: u64,
    /// True if it answered with a valid description.
    pub(crate) ok: bool,
    /// The time until the last answer, in milliseconds.
    pub(crate) duration_ms: u64,
    /// The name that the extension reports; null if it reports none.
    pub(crate) reported_name: Option<String>,
    /// The version that the extension reports; null if it reports none.
    pub(crate) reported_version: Option<String>,
    /// The reason why the probe failed; null if it succeeded.
    pub(crate) error: Option<CatalogFailure>,
}

/// A provider that an extension has.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ExtensionProvider {
    /// Its ID within the extension.
    pub(crate) id: String,
    /// Its name for people; null if the extension reports none.
    pub(crate) name: Option<String>,
    /// The protocols that it speaks: `chat`, `responses`, `messages`.
    #[cfg_attr(test, schemars(with = "Vec<crate::common::shared_shapes::Protocol>"))]
    pub(crate) protocols: Vec<String>,
    /// The use of a credential, which is the `api_key` of the gateway's provider.
    pub(crate) credential: CredentialUse,
    /// The IDs of its models, at most 200.
    pub(crate) models: Vec<String>,
    /// The number of its models.
    pub(crate) model_count: u64,
    /// The reason why its models could not be read; null if they were read.
    pub(crate) error: Option<CatalogFailure>,
}

/// The findings of a probe.
#[derive(Clone, Debug)]
pub(crate) struct ProbeResult {
    pub(crate) check: ExtensionCheck,
    /// `None` if the description could not be read.
    pub(crate) providers: Option<Vec<ExtensionProvider>>,
}

/// Probes the extension behind `access`.
pub(crate) async fn probe(http: &Arc<dyn HttpClient>, access: &Arc<ExtensionAccess>) -> ProbeResult {
    let began = Instant::now();
    let info = match fetch(http, access, "/v1/info", INFO_LIMITS).await {
        Ok(body) => Info::read(&body).map_err(|why| {
            answered(access, 200, &format!("Its response is not a description of an extension: {why}"))
        }),
        Err(failure) => Err(failure),
    };
    let (info, error) = match info {
        Ok(info) => (Some(info), None),
        Err(failure) => (None, Some(failure)),
    };
    let line = |text: &Option<String>| text.as_deref().and_then(|text| one_line(access, text));
    let named = |pick: fn(&Info) -> &Option<String>| info.as_ref().and_then(|info| line(pick(info)));
    let (reported_name, reported_version) = (named(|info| &info.name), named(|info| &info.version));
    let providers = match info {
        Some(info) => Some(providers(http, access, info.providers).await),
        None => None,
    };
    let check = ExtensionCheck {
        at_ms: unix_ms(),
        ok: error.is_none(),
        duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        reported_name,
        reported_version,
        error,
    };
    ProbeResult { check, providers }
}

/// Reads the models of all providers, at most [`AT_ONCE_MAX`] at the same time. Returns the providers in order of their
/// IDs.
async fn providers(
    http: &Arc<dyn HttpClient>,
    access: &Arc<ExtensionAccess>,
    found: Vec<InfoProvider>,
) -> Vec<ExtensionProvider> {
    let until = tokio::time::Instant::now() + MODELS_TIME_MAX;
    let (mut waiting, mut running, mut read) = (found.into_iter(), JoinSet::new(), Vec::new());
    loop {
        for info in waiting.by_ref().take(AT_ONCE_MAX.saturating_sub(running.len())) {
            let (http, access) = (Arc::clone(http), Arc::clone(access));
            running.spawn(async move {
                let path = format!("/v1/{}/models", info.id);
                let models = fetch(&http, &access, &path, MODELS_LIMITS);
                let models = tokio::time::timeout_at(until, models).await.unwrap_or_else(|_| {
                    Err(CatalogFailure::unanswered(unix_ms(), "no complete response in time", &[]))
                });
                provider(&access, info, models)
            });
        }
        match running.join_next().await {
            Some(Ok(provider)) => read.push(provider),
            Some(Err(_)) => {}
            None => break,
        }
    }
    read.sort_by(|a: &ExtensionProvider, b| a.id.cmp(&b.id));
    read
}

fn provider(
    access: &ExtensionAccess,
    info: InfoProvider,
    models: Result<Bytes, CatalogFailure>,
) -> ExtensionProvider {
    let models = models.and_then(|body| {
        let listing = listing::read(&body);
        listing.map_err(|why| answered(access, 200, &format!("Its response is not a list of models: {why}")))
    });
    let mut provider = ExtensionProvider {
        name: info.name.as_deref().and_then(|name| one_line(access, name)),
        id: info.id,
        protocols: info.protocols,
        credential: info.credential,
        models: Vec::new(),
        model_count: 0,
        error: None,
    };
    match models {
        Ok(listing) => {
            provider.model_count = u64::try_from(listing.models.len()).unwrap_or(u64::MAX);
            let clean = |id: &String| access.secrets().iter().all(|secret| !id.contains(secret));
            provider.models = listing.models.into_keys().filter(clean).take(MODELS_SHOWN_MAX).collect();
        }
        Err(failure) => provider.error = Some(failure),
    }
    provider
}

async fn fetch(
    http: &Arc<dyn HttpClient>,
    access: &ExtensionAccess,
    path: &str,
    limits: HttpLimits,
) -> Result<Bytes, CatalogFailure> {
    let silent = |message: &str| CatalogFailure::unanswered(unix_ms(), message, &access.secrets());
    let request = access.get(path).map_err(silent)?;
    let answer = http.send(request, limits).await.map_err(|error| silent(&error.to_string()))?;
    if answer.status().as_u16() != 200 {
        let status = answer.status().as_u16();
        let mut failure = answered(access, status, &format!("GET {path} answered with status {status}."));
        failure.hint = Some(if matches!(status, 401 | 403) { CHECK_SECRET } else { CHECK_URL }.into());
        return Err(failure);
    }
    Ok(answer.into_body())
}

fn answered(access: &ExtensionAccess, status: u16, message: &str) -> CatalogFailure {
    CatalogFailure::answered(unix_ms(), status, message, &access.secrets())
}

/// Returns a text of the extension on one line, without secrets and control characters; `None` if nothing is left.
fn one_line(access: &ExtensionAccess, text: &str) -> Option<String> {
    let start: String = text.chars().take(NAME_CHARS_MAX).collect();
    let clean = diagnostic(&start, &access.secrets()).into_owned();
    let line: String = clean.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    Some(line.trim().to_owned()).filter(|line| !line.is_empty())
}

const CHECK_SECRET: &str = "The extension rejects the secret, or its clock differs by minutes: both sides must have the same \
                            secret.";
const CHECK_URL: &str = "Check the address: it is the base below which the extension serves /v1/info.";
const NAME_CHARS_MAX: usize = 100;
/// The most models of a provider whose IDs are stored.
const MODELS_SHOWN_MAX: usize = 200;
const AT_ONCE_MAX: usize = 8;
/// The time for all lists of models, below the time limit of the route together with [`INFO_LIMITS`].
const MODELS_TIME_MAX: Duration = Duration::from_secs(15);
const INFO_LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_secs(10), body_bytes_max: 256 << 10 };
const MODELS_LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_secs(10), body_bytes_max: 4 << 20 };
