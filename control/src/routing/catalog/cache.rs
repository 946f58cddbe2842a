//! The catalog in memory: the models that each instance's upstream lists, the evidence about each instance, and the
//! merged facts. Several threads read it; the lock is only held for a lookup or a small change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use shared::hex;
use shared::key_hash::KeyHasher;
use shared::routing::{InstanceReach, Origin, ProviderInstance};

use super::evidence::{CatalogEvidence, CatalogFailure, Inference, ModelEvidence};
use super::file;
use super::listing::ListedModel;
use super::merge::KnownModel;
use super::prices::PriceList;
use crate::routing::config::Provider;

/// The catalog of one instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CatalogEntry {
    /// The URL of the model list. An instance that has moved to another URL does not use this entry.
    pub(crate) url: String,
    /// A keyed hash that distinguishes the credential of the evidence from others without revealing it.
    pub(crate) credential: String,
    pub(crate) evidence: CatalogEvidence,
    /// The evidence about single models, by id; at most [`TESTED_MAX`].
    pub(crate) tested: BTreeMap<String, ModelEvidence>,
    /// The listed models, by id.
    pub(crate) models: BTreeMap<String, ListedModel>,
}

impl CatalogEntry {
    /// Returns the evidence about a model; `None` if it was never tested.
    pub(crate) fn tested(&self, model: &str) -> Option<ModelEvidence> {
        if let Some(evidence) = self.tested.get(model) {
            return Some(evidence.clone());
        }
        // Files of earlier releases contain only the model that was proven last.
        let Inference { proven_at_ms, model: proven, request_id, .. } = &self.evidence.inference;
        (proven.as_deref() == Some(model)).then(|| ModelEvidence {
            proven_at_ms: *proven_at_ms,
            request_id: request_id.clone(),
            last_error: None,
        })
    }

    /// Stores the result of a test of `model`, in place of the oldest one if there are too many.
    pub(crate) fn learn(&mut self, model: &str, now_ms: u64, tested: Tested<'_>) {
        let inference = &mut self.evidence.inference;
        let mut evidence = self.tested.remove(model).unwrap_or_default();
        match tested {
            Tested::Completed { request_id } => {
                let proof = (Some(now_ms), Some(request_id.to_owned()));
                (evidence.proven_at_ms, evidence.request_id) = proof.clone();
                (inference.proven_at_ms, inference.request_id) = proof;
                inference.model = Some(model.to_owned());
                (evidence.last_error, inference.last_error) = (None, None);
            }
            Tested::Failed(failure) => {
                evidence.last_error = failure.cloned();
                inference.last_error = failure.cloned();
            }
        }
        if self.tested.len() >= TESTED_MAX {
            let oldest = self.tested.iter().min_by_key(|(_, evidence)| evidence.tested_at_ms());
            if let Some(oldest) = oldest.map(|(model, _)| model.clone()) {
                self.tested.remove(&oldest);
            }
        }
        self.tested.insert(model.to_owned(), evidence);
    }
}

/// The result of a test.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tested<'a> {
    /// The model answered the request with this ID.
    Completed { request_id: &'a str },
    /// The model did not answer; contains the upstream's failure, if an upstream was called.
    Failed(Option<&'a CatalogFailure>),
}

/// The catalog, shared between threads.
#[derive(Debug)]
pub(crate) struct CatalogCache {
    dir: PathBuf,
    content: Mutex<ShelfContent>,
    /// Held while the file is written, so that the newest content is written last.
    saving: Mutex<()>,
}

/// Distinguishes versions of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    modified: SystemTime,
    bytes: u64,
}

#[derive(Debug)]
struct ShelfContent {
    entries: BTreeMap<String, Arc<CatalogEntry>>,
    list: Arc<PriceList>,
    known: Arc<Vec<KnownModel>>,
}

impl CatalogCache {
    /// Loads the catalog of the state directory `dir`.
    pub(crate) fn load(dir: &Path) -> Self {
        let content = ShelfContent {
            entries: file::load(&dir.join(FILE)),
            list: Arc::new(PriceList::load(&dir.join(PRICES))),
            known: Arc::default(),
        };
        Self { dir: dir.to_owned(), content: Mutex::new(content), saving: Mutex::new(()) }
    }

    /// Returns the entry of the instance called `provider`, if its models are still listed at `url`.
    pub(crate) fn entry(&self, provider: &str, url: &str) -> Option<Arc<CatalogEntry>> {
        self.lock().entries.get(provider).filter(|entry| entry.url == url).cloned()
    }

    /// Returns the entry of a configured provider.
    pub(crate) fn entry_of(&self, provider: &Provider) -> Option<Arc<CatalogEntry>> {
        self.entry(provider.id.as_str(), &url_of(provider.origin.as_ref()?))
    }

    /// Returns the evidence about the connection `provider`. With an `instance`, only evidence obtained with its
    /// current credential.
    pub(crate) fn evidence(
        &self,
        provider: &str,
        instance: Option<(&ProviderInstance, &KeyHasher)>,
    ) -> CatalogEvidence {
        let Some(entry) = self.lock().entries.get(provider).cloned() else {
            return CatalogEvidence::default();
        };
        let holds = instance.is_none_or(|(instance, hasher)| holds(&entry, instance, hasher));
        if holds { entry.evidence.clone() } else { CatalogEvidence::default() }
    }

    /// Returns the entry of `instance` if its evidence was obtained with the current credential.
    pub(crate) fn proven(
        &self,
        instance: &ProviderInstance,
        hasher: &KeyHasher,
    ) -> Option<Arc<CatalogEntry>> {
        let entry = self.lock().entries.get(instance.id.as_str()).cloned();
        entry.filter(|entry| holds(entry, instance, hasher))
    }

    /// Changes the entry of `instance`. First drops an entry of another URL, and the evidence of reachability and inference
    /// that another credential obtained.
    pub(crate) fn change(
        &self,
        instance: &ProviderInstance,
        hasher: &KeyHasher,
        change: impl FnOnce(&mut CatalogEntry),
    ) {
        let (url, credential) = (models_url(instance), mark(instance, hasher));
        let mut content = self.lock();
        let before = content.entries.get(instance.id.as_str()).filter(|entry| entry.url == url);
        let mut entry = before.map_or_else(CatalogEntry::default, |entry| CatalogEntry::clone(entry));
        if entry.credential != credential {
            entry.evidence =
                CatalogEvidence { catalog: entry.evidence.catalog, ..CatalogEvidence::default() };
            entry.tested.clear();
        }
        (entry.url, entry.credential) = (url, credential);
        change(&mut entry);
        content.entries.insert(instance.id.as_str().to_owned(), Arc::new(entry));
    }

    /// Removes the entries of instances that are not in `providers`.
    pub(crate) fn keep(&self, providers: &BTreeSet<&str>) {
        self.lock().entries.retain(|provider, _| providers.contains(provider.as_str()));
    }

    /// Writes the file. Blocks on disk I/O.
    pub(crate) fn save(&self) -> io::Result<()> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = self.lock().entries.clone();
        file::save(&self.dir.join(FILE), entries)
    }

    /// Returns the price list.
    pub(crate) fn list(&self) -> Arc<PriceList> {
        Arc::clone(&self.lock().list)
    }

    /// Loads the price list again. Reads a file.
    pub(crate) fn reload_prices(&self) {
        let list = Arc::new(PriceList::load(&self.dir.join(PRICES)));
        self.lock().list = list;
    }

    /// Accepts the price list in `bytes` if it is newer than the current one, stores it in the state directory, and
    /// returns its date in that case. Writes a file.
    pub(crate) fn take_prices(&self, bytes: &[u8]) -> Result<Option<String>, String> {
        let list = PriceList::read(bytes)?;
        if list.as_of <= self.list().as_of {
            return Ok(None);
        }
        file::replace(&self.dir.join(PRICES), bytes)
            .map_err(|error| format!("{PRICES} cannot be written: {error}"))?;
        let as_of = list.as_of.clone();
        self.lock().list = Arc::new(list);
        Ok(Some(as_of))
    }

    /// Reads the stamp of the price list in the state directory. Returns `None` without such a file.
    pub(crate) fn price_file(&self) -> Option<FileStamp> {
        let found = fs::metadata(self.dir.join(PRICES)).ok()?;
        Some(FileStamp { modified: found.modified().ok()?, bytes: found.len() })
    }

    /// Accepts the price list in the state directory if it is newer than the current one, and returns its date in that
    /// case. Reads a file.
    pub(crate) fn take_price_file(&self) -> Result<Option<String>, String> {
        let Some(list) = PriceList::of_file(&self.dir.join(PRICES))? else { return Ok(None) };
        let as_of = list.as_of.clone();
        let mut content = self.lock();
        if as_of <= content.list.as_of {
            return Ok(None);
        }
        content.list = Arc::new(list);
        Ok(Some(as_of))
    }

    /// Returns every model of the published snapshot with the sources of its facts, by provider and id.
    pub(crate) fn known(&self) -> Arc<Vec<KnownModel>> {
        Arc::clone(&self.lock().known)
    }

    /// Sets the merged facts of the snapshot that is being published.
    pub(crate) fn show(&self, known: Vec<KnownModel>) {
        self.lock().known = Arc::new(known);
    }

    fn lock(&self) -> MutexGuard<'_, ShelfContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Default for CatalogCache {
    /// Returns a catalog without a file.
    fn default() -> Self {
        Self::load(Path::new("/nowhere"))
    }
}

/// True if the evidence of `entry` was obtained at the instance's address with its credential.
fn holds(entry: &CatalogEntry, instance: &ProviderInstance, hasher: &KeyHasher) -> bool {
    entry.url == models_url(instance) && entry.credential == mark(instance, hasher)
}

/// Returns the URL of an instance's model list; empty for one that runs in the process.
pub(crate) fn models_url(instance: &ProviderInstance) -> String {
    match &instance.reach {
        InstanceReach::Network(origin) => url_of(origin),
        InstanceReach::Echo(_) | InstanceReach::Speech => String::new(),
    }
}

/// Returns the URL of the first model list at `origin`, or the base of the origin if there is no list.
pub(crate) fn url_of(origin: &Origin) -> String {
    let scheme = if origin.tls { "https" } else { "http" };
    let list = origin.lists.first().map(|list| list.url.clone());
    let url = list.unwrap_or_else(|| format!("{scheme}://{}", origin.authority));
    match &origin.socket {
        Some(path) => format!("unix:{path} {url}"),
        None => url,
    }
}

/// Returns a short keyed hash that distinguishes the credential from others.
fn mark(instance: &ProviderInstance, hasher: &KeyHasher) -> String {
    let hash = hasher.hash(&instance.identity).0;
    let (start, _) = hash.split_at(8);
    hex::encode(start)
}

const FILE: &str = "catalog.json";
const PRICES: &str = "prices.json";
/// The most models of a provider about which evidence is kept.
const TESTED_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_evidence_about_each_model_is_kept_up_to_a_bound() {
        let mut entry = CatalogEntry::default();
        entry.learn("a", 1, Tested::Completed { request_id: "req_a" });
        let failure = CatalogFailure { at_ms: 2, ..CatalogFailure::default() };
        entry.learn("b", 2, Tested::Failed(Some(&failure)));
        let a = entry.tested("a").unwrap();
        assert_eq!((a.proven_at_ms, a.request_id.as_deref(), a.last_error), (Some(1), Some("req_a"), None));
        let b = entry.tested("b").unwrap();
        assert_eq!((b.proven_at_ms, b.last_error.as_ref()), (None, Some(&failure)));
        assert_eq!(entry.evidence.inference.model.as_deref(), Some("a"));
        entry.learn("a", 3, Tested::Failed(Some(&failure)));
        let a = entry.tested("a").unwrap();
        assert!(a.proven_at_ms == Some(1) && a.last_error.is_some(), "an earlier proof stays");
        for number in 0..TESTED_MAX {
            let at_ms = 10 + u64::try_from(number).unwrap();
            entry.learn(&format!("m{number}"), at_ms, Tested::Completed { request_id: "r" });
        }
        assert_eq!(entry.tested.len(), TESTED_MAX);
        assert!(entry.tested("a").is_none() && entry.tested("m0").is_some(), "the oldest one makes room");
    }

    #[test]
    fn a_file_of_an_earlier_release_proves_the_model_that_was_proven_last() {
        let text = r#"{"url": "u", "evidence": {"inference": {"proven_at_ms": 5, "model": "m", "request_id": "r"}}}"#;
        let entry: CatalogEntry = serde_json::from_str(text).unwrap();
        assert_eq!(entry.tested("m").unwrap().proven_at_ms, Some(5));
        assert_eq!(entry.tested("n"), None);
    }
}
