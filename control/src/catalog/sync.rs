//! Asks the upstreams of instances for their models, as the data plane would: same address, same credential, same
//! rules. What comes of it is remembered as evidence, good or bad.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Request, Response};
use serde::Serialize;
use serde_json::Value;
use shared::access::KeyHasher;
use shared::clock::unix_ms;
use shared::port::{HttpClient, HttpLimits};
use shared::routing::ProviderInstance;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::evidence::{CatalogRead, Failure};
use super::listing::{self, Listing, Offer, Skipped};
use super::shelf::{Shelf, models_url};

/// What reading lists needs.
#[derive(Debug)]
pub(crate) struct Syncer<'a> {
    pub(crate) catalog: &'a Arc<Shelf>,
    pub(crate) http: &'a Arc<dyn HttpClient>,
    pub(crate) hasher: KeyHasher,
}

/// What came of reading one instance's list.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) provider: String,
    pub(crate) ok: bool,
    at_ms: u64,
    /// How many models there are now.
    models: usize,
    added: usize,
    removed: usize,
    skipped: Skipped,
    error: Option<Failure>,
}

impl Syncer<'_> {
    /// Reads the lists of `instances`, those first that were read longest ago, and remembers what they say. Those
    /// that there was no time for come back as their ids.
    pub(crate) async fn sync(
        &self,
        mut instances: Vec<Arc<ProviderInstance>>,
    ) -> (Vec<Outcome>, Vec<String>) {
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
            // Whoever is not done by then is given up when the set is dropped.
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

    /// Remembers what was found. A list that could not be read leaves the earlier one.
    fn learn(&self, instance: &ProviderInstance, listing: Result<Listing, Failure>) -> Outcome {
        let at_ms = unix_ms();
        let mut outcome = Outcome {
            provider: instance.id.to_string(),
            ok: listing.is_ok(),
            at_ms,
            models: 0,
            added: 0,
            removed: 0,
            skipped: Skipped::default(),
            error: None,
        };
        self.catalog.change(instance, &self.hasher, |entry| {
            entry.evidence.reached(at_ms, "catalog sync", listing.as_ref().err());
            match listing {
                Ok(Listing { models, skipped }) => {
                    let missing_in = |others: &BTreeMap<String, Offer>, these: &BTreeMap<String, Offer>| {
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

/// Writes `catalog.json`. What it cannot keep is only missed by the next start.
pub(crate) async fn save(catalog: &Arc<Shelf>) {
    let catalog = Arc::clone(catalog);
    let saved = tokio::task::spawn_blocking(move || catalog.save()).await;
    if let Ok(Err(error)) = saved {
        tracing::warn!("catalog.json cannot be written; a restart forgets what was just read: {error}");
    }
}

/// What `instance` lists now, or why that is not known.
async fn listing_of(http: &Arc<dyn HttpClient>, instance: &ProviderInstance) -> Result<Listing, Failure> {
    let secrets: Vec<String> = instance.credential.iter().map(|key| key.expose().clone()).collect();
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    let silent = |message: &str| Failure::unanswered(unix_ms(), message, &secrets);
    let answer = async { http.send(request(instance)?, LIMITS).await }.await;
    let answer: Response<Bytes> = answer.map_err(|error| silent(&error.to_string()))?;
    let answered = |message: &str| Failure::answered(unix_ms(), answer.status().as_u16(), message, &secrets);
    if !answer.status().is_success() {
        return Err(answered(&said(&answer)));
    }
    let body = answer.body().clone();
    // A long list takes a while to read, and others wait for this thread.
    let read = tokio::task::spawn_blocking(move || listing::read(&body)).await;
    let read = read.map_err(|_| answered("The list of models could not be read."))?;
    read.map_err(|why| {
        let mut failure = answered(&format!("What it answers is not a list of models: {why}"));
        failure.hint = Some(
            "Check the base URL: it is the address that the vendor's own SDK takes, often with /v1.".into(),
        );
        failure
    })
}

fn request(instance: &ProviderInstance) -> Result<Request<Bytes>, http::Error> {
    let mut request = Request::get(models_url(instance)).body(Bytes::new())?;
    let headers = request.headers_mut();
    for (name, value) in &instance.headers {
        headers.insert(name, value.clone());
    }
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    Ok(request)
}

/// What the upstream says of its error, in the usual places.
fn said(answer: &Response<Bytes>) -> String {
    let body = serde_json::from_slice::<Value>(answer.body()).unwrap_or_default();
    let places = ["/error/message", "/message", "/detail", "/error"];
    let text = places.iter().find_map(|place| body.pointer(place)?.as_str());
    let status = answer.status();
    text.map_or_else(|| format!("The upstream answered {status}."), str::to_owned)
}

/// Instances that are asked at the same time.
const AT_ONCE_MAX: usize = 8;
/// For all of them together; whoever waits for the answer is given up soon after.
const TIME_MAX: Duration = Duration::from_secs(25);
/// The list of the largest routers is about a megabyte.
const LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_secs(15), body_bytes_max: 16 << 20 };
