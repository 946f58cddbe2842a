//! The catalog in memory: the models that each instance's upstream lists, the evidence about each instance, and the
//! merged facts. Several threads read it; the lock is only held for a lookup or a small change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use std::{fs, io};

use shared::hex;
use shared::key_hash::KeyHasher;
use shared::routing::{InstanceReach, Origin, ProviderInstance};

use super::entry::CatalogEntry;
use super::evidence::CatalogEvidence;
use super::facts::KnownModel;
use super::file;
use super::prices::PriceList;
use crate::routing::config::Provider;

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
