//! One value for each model of an instance that needs one, such as a circuit. Most models need none: while no model has
//! a value, a look-up costs one atomic load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::bounds::MODEL_STATES;
use crate::id::ModelId;

/// The values of one instance's models. Reads take no lock.
#[derive(Debug)]
pub(super) struct PerModel<T> {
    /// False while `entries` is empty.
    any: AtomicBool,
    /// Sorted by ID.
    entries: ArcSwap<Vec<(ModelId, Arc<T>)>>,
    /// Held while `entries` is replaced.
    replacing: Mutex<()>,
}

impl<T> Default for PerModel<T> {
    fn default() -> Self {
        Self { any: AtomicBool::default(), entries: ArcSwap::default(), replacing: Mutex::default() }
    }
}

impl<T: Default> PerModel<T> {
    /// Returns the value of a model, if it has one.
    pub(super) fn get(&self, model_id: &ModelId) -> Option<Arc<T>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let entries = self.entries.load();
        let place = entries.binary_search_by(|(id, _)| id.cmp(model_id)).ok()?;
        entries.get(place).map(|(_, value)| Arc::clone(value))
    }

    /// Returns the value of a model. Creates it if it does not exist; removes the values for which `is_over` returns true
    /// if there is no room, and returns `None` if that makes none.
    pub(super) fn get_or_new(&self, model_id: &ModelId, is_over: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.replace(|entries| {
            if entries.len() >= MODEL_STATES.max() {
                entries.retain(|(id, value)| id == model_id || !is_over(value));
            }
            match entries.binary_search_by(|(id, _)| id.cmp(model_id)) {
                Ok(place) => entries.get(place).map(|(_, value)| Arc::clone(value)),
                Err(_) if MODEL_STATES.is_full(entries.len()) => None,
                Err(place) => {
                    let value = Arc::<T>::default();
                    entries.insert(place, (model_id.clone(), Arc::clone(&value)));
                    Some(value)
                }
            }
        })
    }

    /// Removes the value of a model.
    pub(super) fn remove(&self, model_id: &ModelId) {
        self.replace(|entries| entries.retain(|(id, _)| id != model_id));
    }

    /// Returns all values, sorted by model.
    pub(super) fn all(&self) -> Arc<Vec<(ModelId, Arc<T>)>> {
        self.entries.load_full()
    }

    fn replace<R>(&self, change: impl FnOnce(&mut Vec<(ModelId, Arc<T>)>) -> R) -> R {
        let _alone = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = Vec::clone(&self.entries.load());
        let result = change(&mut entries);
        let any = !entries.is_empty();
        self.entries.store(Arc::new(entries));
        self.any.store(any, Ordering::Release);
        result
    }
}
