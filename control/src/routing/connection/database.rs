//! Provider instances of the database, opened and parsed. A row is opened again only when it has changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use shared::id::{PrincipalId, ProjectId};

use super::open_written;
use crate::common::vault::VaultKeys;
use crate::db::engine::{Db, DbResult};
use crate::db::providers::{self, Binding, ProviderRow, Stamp};
use crate::routing::config::{
    ConnectionAuth, Environment, FieldFault, Provider, WrittenProvider, provider_of,
};

/// A provider instance of the database.
#[derive(Clone, Debug)]
pub(crate) struct StoredProvider {
    pub(crate) row: ProviderRow,
    pub(crate) bindings: Vec<Binding>,
    /// The parsed instance, or the reason why it cannot be used.
    pub(crate) read: Result<Arc<Provider>, String>,
}

impl StoredProvider {
    /// Opens and parses `row` with its `bindings`.
    pub(crate) fn of(
        row: ProviderRow,
        bindings: Vec<Binding>,
        keys: &VaultKeys,
        environment: &Environment,
    ) -> Self {
        let read = match open_written(keys, &row) {
            Ok(written) => Self::read(&row, &bindings, &written, chosen_auth(&row), environment)
                .map_err(|faults| summary(&faults)),
            Err(_) => Err("its stored secrets cannot be decrypted; delete it and create it again".to_owned()),
        };
        Self { row, bindings, read }
    }

    /// Returns OAuth if the row selects it. `None` if the provider kind determines the sign-in method.
    pub(crate) fn chosen_auth(&self) -> Option<ConnectionAuth> {
        chosen_auth(&self.row)
    }

    /// Parses `written` for the instance of `row`.
    pub(crate) fn read(
        row: &ProviderRow,
        bindings: &[Binding],
        written: &WrittenProvider,
        auth: Option<ConnectionAuth>,
        environment: &Environment,
    ) -> Result<Arc<Provider>, Vec<FieldFault>> {
        let provider = provider_of(&row.id, written, auth, environment)?;
        Ok(Arc::new(Provider {
            owner: row.owner.as_deref().map(PrincipalId::new),
            is_anonymous: row.is_anonymous,
            shared_with: bindings.iter().map(|binding| ProjectId::new(binding.project.as_str())).collect(),
            ..provider
        }))
    }
}

/// Returns OAuth if the row selects it. `None` if the provider kind determines the sign-in method.
fn chosen_auth(row: &ProviderRow) -> Option<ConnectionAuth> {
    ConnectionAuth::named(&row.auth).filter(|auth| *auth == ConnectionAuth::Oauth)
}

fn summary(faults: &[FieldFault]) -> String {
    let lines: Vec<String> =
        faults.iter().map(|fault| format!("{}: {}", fault.field, fault.message)).collect();
    lines.join("; ")
}

/// Every provider instance of the database, as of the last [`DatabaseInstances::refresh`].
#[derive(Clone, Debug, Default)]
pub(crate) struct DatabaseInstances {
    by_id: BTreeMap<String, (Stamp, Arc<StoredProvider>)>,
}

impl DatabaseInstances {
    /// Reads the rows that have changed since the last call.
    pub(crate) fn refresh(&mut self, db: &Db, keys: &VaultKeys, environment: &Environment) -> DbResult<()> {
        let mut bound: HashMap<String, Vec<Binding>> = HashMap::new();
        for (provider, binding) in providers::all_bindings(db)? {
            bound.entry(provider).or_default().push(binding);
        }
        let mut fresh = BTreeMap::new();
        for (id, stamp) in providers::stamps(db)? {
            let bindings = bound.remove(&id).unwrap_or_default();
            let known = self.by_id.remove(&id);
            if let Some((_, held)) =
                known.filter(|(known, held)| *known == stamp && held.bindings == bindings)
            {
                fresh.insert(id, (stamp, held));
            } else if let Some(row) = providers::find(db, &id)? {
                let held = StoredProvider::of(row, bindings, keys, environment);
                if let Err(reason) = &held.read {
                    tracing::warn!(provider.id = id, "a stored provider cannot be used: {reason}");
                }
                fresh.insert(id, (stamp, Arc::new(held)));
            }
        }
        self.by_id = fresh;
        Ok(())
    }

    /// Iterates over the instances in order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<StoredProvider>> {
        self.by_id.values().map(|(_, held)| held)
    }
}
