//! Reads the model lists of instances' upstreams as the data plane would: same address, same credential, same rules.
//! The result, success or failure, is recorded as evidence.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Request, Response};
use serde::Serialize;
use serde_json::Value;
use shared::clock::{monotonic_ms, unix_ms};
use shared::key_hash::KeyHasher;
use shared::percent;
use shared::port::{HttpClient, HttpLimits, SocketPath, Via};
use shared::provider::path::{ListAddress, Pages};
use shared::provider::sigv4::Signable;
use shared::routing::{InstanceReach, Origin, ProviderInstance};
use shared::snapshot::Snapshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::cache::CatalogCache;
use super::evidence::{CatalogFailure, CatalogRead};
use super::listing::{self, ListedModel, SkippedEntries, UpstreamListing};
use crate::common::bounds::LISTING_PAGES;

/// The dependencies of a sync.
#[derive(Debug)]
pub(crate) struct Syncer<'a> {
    pub(crate) catalog: &'a Arc<CatalogCache>,
    pub(crate) http: &'a Arc<dyn HttpClient>,
    pub(crate) hasher: KeyHasher,
}

/// The result of reading one instance's list.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SyncOutcome {
    /// The ID of the provider.
    pub(crate) provider: String,
    pub(crate) ok: bool,
    /// In milliseconds since the Unix epoch.
    at_ms: u64,
    /// The current number of models.
    models: usize,
    /// Models that the list before did not have.
    added: usize,
    /// Models that only the list before had.
    removed: usize,
    skipped: SkippedEntries,
    /// Null if the list was read.
    error: Option<CatalogFailure>,
}

impl Syncer<'_> {
    /// Reads the lists of `instances`, those with the oldest list first, and stores the results. Returns the outcomes,
    /// and the ids of those that were not reached in time.
    pub(crate) async fn sync(
        &self,
        mut instances: Vec<Arc<ProviderInstance>>,
    ) -> (Vec<SyncOutcome>, Vec<String>) {
        let read_at = |instance: &Arc<ProviderInstance>| {
            let evidence = self.catalog.evidence(instance.id.as_str(), Some((instance, &self.hasher)));
            evidence.catalog.synced_at_ms
        };
        instances.sort_by_cached_key(read_at);
        let mut left: BTreeSet<String> = instances.iter().map(|instance| instance.id.to_string()).collect();
        let mut waiting = instances.into_iter();
        let (mut running, mut outcomes) = (JoinSet::new(), Vec::new());
        let until = Instant::now() + TIME_MAX;
        loop {
            for instance in waiting.by_ref().take(AT_ONCE_MAX.saturating_sub(running.len())) {
                let http = Arc::clone(self.http);
                running.spawn(async move {
                    let listing = listing_of(&http, &instance).await;
                    (instance, listing)
                });
            }
            // Requests that are still running at the deadline are aborted when the set is dropped.
            match timeout_at(until, running.join_next()).await {
                Ok(Some(Ok((instance, listing)))) => {
                    left.remove(instance.id.as_str());
                    outcomes.push(self.learn(&instance, listing));
                }
                Ok(Some(Err(_))) => {}
                Ok(None) | Err(_) => break,
            }
        }
        outcomes.sort_by(|a, b| a.provider.cmp(&b.provider));
        save(self.catalog).await;
        (outcomes, left.into_iter().collect())
    }

    /// Stores the result. A list that could not be read leaves the earlier one in place.
    fn learn(
        &self,
        instance: &ProviderInstance,
        listing: Result<UpstreamListing, CatalogFailure>,
    ) -> SyncOutcome {
        let at_ms = unix_ms();
        let mut outcome = SyncOutcome {
            provider: instance.id.to_string(),
            ok: listing.is_ok(),
            at_ms,
            models: 0,
            added: 0,
            removed: 0,
            skipped: SkippedEntries::default(),
            error: None,
        };
        self.catalog.change(instance, &self.hasher, |entry| {
            // An instance without a list received no request, which proves nothing.
            if !lists_of(instance).is_empty() {
                entry.evidence.reached(at_ms, "catalog sync", listing.as_ref().err());
            }
            match listing {
                Ok(UpstreamListing { models, skipped }) => {
                    let missing_in =
                        |others: &BTreeMap<String, ListedModel>, these: &BTreeMap<String, ListedModel>| {
                            these.keys().filter(|id| !others.contains_key(*id)).count()
                        };
                    outcome.added = missing_in(&entry.models, &models);
                    outcome.removed = missing_in(&models, &entry.models);
                    outcome.skipped = skipped;
                    entry.models = models;
                    let count = u64::try_from(entry.models.len()).unwrap_or(u64::MAX);
                    entry.evidence.catalog =
                        CatalogRead { synced_at_ms: Some(at_ms), models: count, skipped, last_error: None };
                }
                Err(failure) => {
                    outcome.error = Some(failure.clone());
                    entry.evidence.catalog.last_error = Some(failure);
                }
            }
            outcome.models = entry.models.len();
        });
        outcome
    }
}

/// Stores the catalog. A failure only means that the next start lacks the new entries.
pub(crate) async fn save(catalog: &CatalogCache) {
    if let Err(error) = catalog.save().await {
        tracing::warn!("the catalog cannot be stored; a restart loses the new lists of models: {error}");
    }
}

/// Returns the current models of `instance`, or the reason why they are unknown.
async fn listing_of(
    http: &Arc<dyn HttpClient>,
    instance: &ProviderInstance,
) -> Result<UpstreamListing, CatalogFailure> {
    let lists = lists_of(instance);
    if lists.is_empty() {
        return known(instance);
    }
    let mut listing = UpstreamListing::default();
    for list in lists {
        let mut url = Some(list.url.clone());
        for _ in 0..LISTING_PAGES.max() {
            let Some(page_url) = url.take() else { break };
            let (page, next) = page_of(http, instance, &page_url, list.pages).await?;
            listing.join(page);
            url = next.map(|(name, value)| with_pair(&list.url, name, &value));
        }
        if url.is_some() {
            LISTING_PAGES.reach();
            listing.skipped.unread_lists += 1;
        }
    }
    Ok(listing)
}

fn lists_of(instance: &ProviderInstance) -> &[ListAddress] {
    match &instance.reach {
        InstanceReach::Network(origin) => &origin.lists,
        InstanceReach::Echo(_) | InstanceReach::Speech => &[],
    }
}

/// True if the models are listed by the upstream or known in advance.
pub(crate) fn has_list(instance: &ProviderInstance) -> bool {
    !lists_of(instance).is_empty() || !instance.models_known.is_empty()
}

/// Returns the instances of the snapshot whose models can be read.
pub(crate) fn with_list(snapshot: &Snapshot) -> Vec<Arc<ProviderInstance>> {
    let can_list = |instance: &&Arc<ProviderInstance>| instance.unready.is_none() && has_list(instance);
    snapshot.providers.iter().filter(can_list).cloned().collect()
}

/// Returns the models of an instance that has no list.
fn known(instance: &ProviderInstance) -> Result<UpstreamListing, CatalogFailure> {
    if instance.models_known.is_empty() {
        let mut failure = CatalogFailure::unanswered(unix_ms(), "This provider has no list of models.", &[]);
        failure.hint = Some("Declare its models under models, in the configuration or with the API.".into());
        return Err(failure);
    }
    Ok(UpstreamListing::known(&instance.models_known))
}

type ListPageBody = (UpstreamListing, Option<(&'static str, String)>);

async fn page_of(
    http: &Arc<dyn HttpClient>,
    instance: &ProviderInstance,
    url: &str,
    pages: Pages,
) -> Result<ListPageBody, CatalogFailure> {
    let secrets = instance.each_lane().flat_map(ProviderInstance::secrets);
    let secrets: Vec<String> = secrets.map(str::to_owned).collect();
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    let silent = |message: &str| CatalogFailure::unanswered(unix_ms(), message, &secrets);
    let answer = async { http.send(request(instance, url)?, LIMITS).await }.await;
    let answer: Response<Bytes> = answer.map_err(|error| silent(&error.to_string()))?;
    let answered =
        |message: &str| CatalogFailure::answered(unix_ms(), answer.status().as_u16(), message, &secrets);
    if !answer.status().is_success() {
        return Err(answered(&error_text(&answer)));
    }
    let body = answer.body().clone();
    // Parsing a long list takes a while and must not block this thread.
    let read = move || listing::read(&body).map(|page| (page, listing::next_page(&body, pages)));
    let read = tokio::task::spawn_blocking(read).await;
    let read = read.map_err(|_| answered("The list of models could not be read."))?;
    read.map_err(|why| {
        let mut failure = answered(&format!("Its response is not a list of models: {why}"));
        failure.hint =
            Some("Check the base URL: use the base URL of the vendor's own SDK, often with /v1.".into());
        failure
    })
}

fn request(instance: &ProviderInstance, url: &str) -> Result<Request<Bytes>, http::Error> {
    let instance = instance.best_lane(monotonic_ms());
    let mut request = Request::get(url).body(Bytes::new())?;
    let signed = instance.signer.as_ref().and_then(|signer| {
        let uri = request.uri();
        let path = uri.path_and_query()?;
        let host = uri.authority()?.as_str();
        let signable = Signable { method: "GET", host, path, content_type: None, body: &[] };
        Some(signer.sign(&signable, unix_ms() / 1_000))
    });
    let headers = request.headers_mut();
    for (name, value) in instance.kind.headers {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    for (name, value) in instance.headers.iter().chain(signed.iter().flatten()) {
        headers.insert(name, value.clone());
    }
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if let InstanceReach::Network(Origin { socket, way, .. }) = &instance.reach {
        if let Some(path) = socket {
            request.extensions_mut().insert(SocketPath(path.clone()));
        }
        if let Some(way) = way {
            request.extensions_mut().insert(Via(Arc::clone(way)));
        }
    }
    Ok(request)
}

/// Appends a parameter to the query of `url`.
fn with_pair(url: &str, name: &str, value: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}{name}={}", percent::encode(value, percent::RESERVED))
}

/// Returns the error text of an upstream's response, from the usual fields.
fn error_text(answer: &Response<Bytes>) -> String {
    let body = serde_json::from_slice::<Value>(answer.body()).unwrap_or_default();
    let places = ["/error/message", "/message", "/detail", "/error"];
    let text = places.iter().find_map(|place| body.pointer(place)?.as_str());
    let status = answer.status();
    text.map_or_else(|| format!("The upstream returned status {status}."), str::to_owned)
}

/// The most instances queried concurrently.
const AT_ONCE_MAX: usize = 8;
/// The time limit of a whole sync, below the timeout of the client that waits for it.
const TIME_MAX: Duration = Duration::from_secs(25);
/// The list of the largest routers is about a megabyte.
const LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_secs(15), body_bytes_max: 16 << 20 };
