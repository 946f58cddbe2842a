//! The catalog in memory: the models that each instance's upstream lists, the evidence about each instance, and the
//! merged facts. Several threads read it; the lock is only held for a lookup or a small change.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use shared::key_hash::KeyHasher;
use shared::routing::{InstanceReach, Origin, ProviderInstance};

use super::evidence::CatalogEvidence;
use super::file;
use super::listing::ListedModel;
use super::merge::KnownModel;
use super::prices::PriceList;
use crate::config::Provider;

/// The catalog of one instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CatalogEntry {
    /// The URL of the model list. An instance that has moved to another URL does not use this entry.
    pub(crate) url: String,
    /// A keyed hash that distinguishes the credential of the evidence from others without revealing it.
    pub(crate) credential: String,
    pub(crate) evidence: CatalogEvidence,
    /// The listed models, by id.
    pub(crate) models: BTreeMap<String, ListedModel>,
}

/// The catalog, shared between threads.
#[derive(Debug)]
pub(crate) struct CatalogCache {
    dir: PathBuf,
    content: Mutex<ShelfContent>,
    /// Held while the file is written, so that the newest content is written last.
    saving: Mutex<()>,
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
        let holds = instance.is_none_or(|(instance, hasher)| {
            entry.url == models_url(instance) && entry.credential == mark(instance, hasher)
        });
        if holds { entry.evidence.clone() } else { CatalogEvidence::default() }
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
    list.unwrap_or_else(|| format!("{scheme}://{}", origin.authority))
}

/// Returns a short keyed hash that distinguishes the credential from others.
fn mark(instance: &ProviderInstance, hasher: &KeyHasher) -> String {
    hasher.hash(&instance.identity).0.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

const FILE: &str = "catalog.json";
const PRICES: &str = "prices.json";
