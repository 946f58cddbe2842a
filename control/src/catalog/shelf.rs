//! The catalog in memory: what each instance's upstream offers, the evidence about it, and what all of it together
//! makes known. Several threads look at it; nobody holds its lock for longer than a look.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use shared::key_hash::KeyHasher;
use shared::routing::{InstanceReach, Origin, ProviderInstance};

use super::evidence::CatalogEvidence;
use super::file;
use super::listing::Offer;
use super::merge::KnownModel;
use super::prices::PriceList;
use crate::config::Provider;

/// What is remembered of one instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CatalogEntry {
    /// Where the models were listed. An instance that has moved has nothing to do with what is here.
    pub(crate) url: String,
    /// Tells the credential of the evidence from any other, and nothing about it.
    pub(crate) credential: String,
    pub(crate) evidence: CatalogEvidence,
    /// By model id.
    pub(crate) models: BTreeMap<String, Offer>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct CatalogShelf {
    dir: PathBuf,
    content: Mutex<ShelfContent>,
    /// Held while the file is written, so that the newest content is what stays.
    saving: Mutex<()>,
}

#[derive(Debug)]
struct ShelfContent {
    entries: BTreeMap<String, Arc<CatalogEntry>>,
    list: Arc<PriceList>,
    known: Arc<Vec<KnownModel>>,
}

impl CatalogShelf {
    /// The catalog of the state directory `dir`.
    pub(crate) fn load(dir: &Path) -> Self {
        let content = ShelfContent {
            entries: file::load(&dir.join(FILE)),
            list: Arc::new(PriceList::load(&dir.join(PRICES))),
            known: Arc::default(),
        };
        Self { dir: dir.to_owned(), content: Mutex::new(content), saving: Mutex::new(()) }
    }

    /// What is remembered of the instance called `provider`, if its models are listed at `url` still.
    pub(crate) fn entry(&self, provider: &str, url: &str) -> Option<Arc<CatalogEntry>> {
        self.lock().entries.get(provider).filter(|entry| entry.url == url).cloned()
    }

    /// The same of a configured provider.
    pub(crate) fn entry_of(&self, provider: &Provider) -> Option<Arc<CatalogEntry>> {
        self.entry(provider.id.as_str(), &url_of(provider.origin.as_ref()?))
    }

    /// What is known of the connection `provider`. With an `instance`, only what its present credential has shown.
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

    /// Changes what is remembered of `instance`. Evidence about another credential goes, and all that was listed at
    /// another address.
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

    /// Forgets instances that are not among `providers`.
    pub(crate) fn keep(&self, providers: &BTreeSet<&str>) {
        self.lock().entries.retain(|provider, _| providers.contains(provider.as_str()));
    }

    /// Writes the file. Blocks for as long as the disk takes.
    pub(crate) fn save(&self) -> io::Result<()> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = self.lock().entries.clone();
        file::save(&self.dir.join(FILE), entries)
    }

    /// The price list.
    pub(crate) fn list(&self) -> Arc<PriceList> {
        Arc::clone(&self.lock().list)
    }

    /// Looks for a newer price list. Reads a file.
    pub(crate) fn reload_prices(&self) {
        let list = Arc::new(PriceList::load(&self.dir.join(PRICES)));
        self.lock().list = list;
    }

    /// Takes the price list in `bytes` if it is newer than the present one, keeps it in the state directory, and
    /// returns its date then. Writes a file.
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

    /// Every model of the published snapshot with where its facts come from, by provider and id.
    pub(crate) fn known(&self) -> Arc<Vec<KnownModel>> {
        Arc::clone(&self.lock().known)
    }

    /// What the snapshot that is being published makes known.
    pub(crate) fn show(&self, known: Vec<KnownModel>) {
        self.lock().known = Arc::new(known);
    }

    fn lock(&self) -> MutexGuard<'_, ShelfContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Default for CatalogShelf {
    /// Without a file.
    fn default() -> Self {
        Self::load(Path::new("/nowhere"))
    }
}

/// Where an instance lists its models; empty for one that answers in the process.
pub(crate) fn models_url(instance: &ProviderInstance) -> String {
    match &instance.reach {
        InstanceReach::Network(origin) => url_of(origin),
        InstanceReach::Echo(_) | InstanceReach::Speech => String::new(),
    }
}

/// The address of the first list of models at `origin`, or its own where nothing lists them.
pub(crate) fn url_of(origin: &Origin) -> String {
    let scheme = if origin.tls { "https" } else { "http" };
    let list = origin.lists.first().map(|list| list.url.clone());
    list.unwrap_or_else(|| format!("{scheme}://{}", origin.authority))
}

/// A short keyed hash of what tells the credential from another.
fn mark(instance: &ProviderInstance, hasher: &KeyHasher) -> String {
    hasher.hash(&instance.identity).0.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

const FILE: &str = "catalog.json";
const PRICES: &str = "prices.json";
