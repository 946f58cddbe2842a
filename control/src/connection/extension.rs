//! Connects provider instances of the kind `extension` to their extensions, which set their address and their secret.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::Connection as Db;
use shared::provider::path::Place;
use shared::routing::Origin;

use crate::config::{ExtensionLink, Provider};
use crate::db::extensions;
use crate::extension::ExtensionAccess;
use crate::vault::VaultKeys;

/// The extensions of the database, opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extensions(BTreeMap<String, OpenedExtension>);

#[derive(Clone, Debug)]
struct OpenedExtension {
    enabled: bool,
    /// `None` if its secret cannot be decrypted.
    access: Option<ExtensionAccess>,
}

/// A provider instance as it can be used.
#[derive(Debug)]
pub(crate) enum ConnectedProvider {
    /// The instance; for the kind `extension`, with address and secret.
    Ready(Arc<Provider>),
    /// The instance, disabled because its extension is; holds the reason.
    Disabled(Arc<Provider>, String),
    /// The reason why the instance cannot be used.
    Faulty(String),
}

impl Extensions {
    /// Reads and opens all extensions.
    pub(crate) fn read(db: &Db, keys: &VaultKeys) -> rusqlite::Result<Self> {
        let opened = |row: extensions::ExtensionRow| {
            let access = ExtensionAccess::open(&row, keys).ok();
            if access.is_none() {
                tracing::warn!(
                    extension = row.name,
                    "the secret of an extension cannot be decrypted; set it again"
                );
            }
            (row.name, OpenedExtension { enabled: row.enabled, access })
        };
        Ok(Self(extensions::page(db, None, "", i64::MAX)?.into_iter().map(opened).collect()))
    }

    /// Connects an instance to its extension. Instances of other kinds are returned unchanged.
    pub(crate) fn connect(&self, provider: &Arc<Provider>) -> ConnectedProvider {
        let Some(link) = provider.extension.as_ref().filter(|_| !provider.disabled) else {
            return ConnectedProvider::Ready(Arc::clone(provider));
        };
        let name = &link.name;
        let Some(extension) = self.0.get(name) else {
            let why = format!("There is no extension '{name}'. Add it with POST extensions.");
            return ConnectedProvider::Faulty(why);
        };
        let Some((origin, secret)) = extension
            .access
            .as_ref()
            .and_then(|access| Some((origin(access, link, provider)?, access.secret().clone())))
        else {
            let why = format!("The secret of the extension '{name}' cannot be decrypted. Set it again.");
            return ConnectedProvider::Faulty(why);
        };
        let connected = Arc::new(Provider {
            origin: Some(origin),
            extension: Some(ExtensionLink { secret: Some(secret), ..link.clone() }),
            disabled: !extension.enabled,
            ..Provider::clone(provider)
        });
        if extension.enabled {
            ConnectedProvider::Ready(connected)
        } else {
            ConnectedProvider::Disabled(connected, format!("Its extension '{name}' is disabled."))
        }
    }
}

fn origin(access: &ExtensionAccess, link: &ExtensionLink, provider: &Provider) -> Option<Origin> {
    let place = Place { provider: Some(&link.provider), ..Place::default() };
    access.address().origin(provider.kind.layout("")?, true, &place, link.http).ok()
}
