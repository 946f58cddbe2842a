//! The catalog in memory: the models that each instance's upstream lists, the evidence about each instance, and the
//! merged facts. Several threads read it; the lock is only held for a lookup or a small change.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use shared::hex;
use shared::key_hash::KeyHasher;
use shared::routing::{InstanceReach, Origin, ProviderInstance};

use super::documents::{
    CATALOG, DocumentStore, PRICES, PRICES_FILE, open_catalog, open_prices, reread, write_copy,
};
use super::entry::CatalogEntry;
use super::evidence::CatalogEvidence;
use super::facts::KnownModel;
use super::file::{self, CatalogEntries};
use super::prices::PriceList;
use crate::db::documents::PackedDocument;
use crate::db::engine::Db;
use crate::routing::config::Provider;

/// The catalog, shared between threads.
#[derive(Debug)]
pub(crate) struct CatalogCache {
    dir: PathBuf,
    content: Mutex<ShelfContent>,
    /// Stores the catalog and the price list; empty until the writer thread runs.
    store: OnceLock<DocumentStore>,
    /// Held while a document is stored, so that the newest content is stored last.
    saving: tokio::sync::Mutex<()>,
}

/// Distinguishes versions of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    modified: SystemTime,
    bytes: u64,
}

#[derive(Debug)]
struct ShelfContent {
    entries: CatalogEntries,
    list: Arc<PriceList>,
    known: Arc<Vec<KnownModel>>,
}

impl CatalogCache {
    /// Loads the catalog and the price list of the state in `dir`, whose database is `db`.
    pub(crate) fn load(dir: &Path, db: &mut Db) -> Arc<Self> {
        Arc::new(Self::of(dir, open_catalog(db, dir), open_prices(db, dir)))
    }

    fn of(dir: &Path, entries: CatalogEntries, list: PriceList) -> Self {
        let content = ShelfContent { entries, list: Arc::new(list), known: Arc::default() };
        Self {
            dir: dir.to_owned(),
            content: Mutex::new(content),
            store: OnceLock::new(),
            saving: tokio::sync::Mutex::default(),
        }
    }

    /// Takes over what other nodes have stored, unless this one has newer lists or evidence itself.
    pub(crate) fn reread(&self, db: &Db) {
        let (entries, list) = reread(db);
        let mut content = self.lock();
        for (provider, theirs) in entries.into_iter().flatten() {
            let ours = content.entries.get(&provider);
            if ours.is_none_or(|ours| ours.changed_at_ms() <= theirs.changed_at_ms()) {
                content.entries.insert(provider, theirs);
            }
        }
        if let Some(list) = list.filter(|list| list.as_of > content.list.as_of) {
            content.list = Arc::new(list);
        }
    }

    /// Stores all later changes in `store`.
    pub(crate) fn store_in(&self, store: DocumentStore) {
        // Set once, at the start.
        let _ = self.store.set(store);
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

    /// Stores the catalog in the database, and writes its copy.
    pub(crate) async fn save(&self) -> Result<(), String> {
        let _saving = self.saving.lock().await;
        let entries = self.lock().entries.clone();
        let bytes = blocking(move || file::encode(entries).map_err(|error| error.to_string())).await?;
        self.store(CATALOG, bytes.into(), self.dir.join(file::NAME)).await
    }

    /// Returns the price list.
    pub(crate) fn list(&self) -> Arc<PriceList> {
        Arc::clone(&self.lock().list)
    }

    /// Accepts the price list in `bytes` if it is newer than the current one, stores it, writes its copy in the state
    /// directory, and returns its date in that case.
    pub(crate) async fn take_prices(&self, bytes: Bytes) -> Result<Option<String>, String> {
        let text = bytes.clone();
        let list = blocking(move || PriceList::read(&text)).await?;
        self.take(list, bytes).await
    }

    /// Reads the stamp of the price list in the state directory. Returns `None` without such a file.
    pub(crate) fn price_file(&self) -> Option<FileStamp> {
        let found = fs::metadata(self.dir.join(PRICES_FILE)).ok()?;
        Some(FileStamp { modified: found.modified().ok()?, bytes: found.len() })
    }

    /// Accepts the price list in the state directory if it is newer than the current one, stores it, and returns its date
    /// in that case.
    pub(crate) async fn take_price_file(&self) -> Result<Option<String>, String> {
        let path = self.dir.join(PRICES_FILE);
        match blocking(move || PriceList::of_file(&path)).await? {
            Some((bytes, list)) => self.take(list, bytes.into()).await,
            None => Ok(None),
        }
    }

    async fn take(&self, list: PriceList, bytes: Bytes) -> Result<Option<String>, String> {
        let _saving = self.saving.lock().await;
        if list.as_of <= self.list().as_of {
            return Ok(None);
        }
        self.store(PRICES, bytes, self.dir.join(PRICES_FILE)).await?;
        let as_of = list.as_of.clone();
        self.lock().list = Arc::new(list);
        Ok(Some(as_of))
    }

    /// Stores a document, then its copy at `path`.
    async fn store(&self, name: &'static str, bytes: Bytes, path: PathBuf) -> Result<(), String> {
        let store = self.store.get().ok_or("the writer thread does not run yet")?;
        let text = bytes.clone();
        let pack = move || PackedDocument::new(name, &text).map_err(|error| error.to_string());
        store.put(&blocking(pack).await?).await?;
        blocking(move || {
            write_copy(&path, &bytes);
            Ok(())
        })
        .await
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
    /// Returns an empty catalog that is stored nowhere.
    fn default() -> Self {
        Self::of(Path::new("/nowhere"), CatalogEntries::new(), PriceList::embedded())
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

/// Runs `work`, which takes time or uses files, on a thread for that.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?
}
