//! Connects provider instances of the kind `extension` to their extensions, which set their address, their secret and the
//! issuer of their tokens.

use std::collections::BTreeMap;
use std::sync::Arc;

use shared::provider::path::Place;
use shared::routing::Origin;

use crate::common::credential::extension::ExtensionAccess;
use crate::common::credential::oauth::{ExtensionIssuer, TokenIssuer};
use crate::common::vault::VaultKeys;
use crate::db::engine::{Db, DbResult};
use crate::db::extensions;
use crate::routing::config::{BaseUrl, ConnectionAuth, ExtensionLink, Provider};
use crate::routing::extension::open;

/// The extensions of the database, opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extensions(BTreeMap<String, OpenedExtension>);

#[derive(Clone, Debug)]
struct OpenedExtension {
    enabled: bool,
    /// `None` if its secret cannot be decrypted.
    opened: Option<(BaseUrl, Arc<ExtensionAccess>)>,
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
    pub(crate) fn read(db: &Db, keys: &VaultKeys) -> DbResult<Self> {
        let opened = |row: extensions::ExtensionRow| {
            let opened = open(&row, keys).ok().map(|(address, access)| (address, Arc::new(access)));
            if opened.is_none() {
                tracing::warn!(
                    extension = row.name,
                    "the secret of an extension cannot be decrypted; set it again"
                );
            }
            (row.name, OpenedExtension { enabled: row.enabled, opened })
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
        let Some((origin, access)) = extension
            .opened
            .as_ref()
            .and_then(|(address, access)| Some((origin(address, link, provider)?, access)))
        else {
            let why = format!("The secret of the extension '{name}' cannot be decrypted. Set it again.");
            return ConnectedProvider::Faulty(why);
        };
        let connected = Arc::new(Provider {
            origin: Some(origin),
            issuer: (provider.auth == ConnectionAuth::Oauth)
                .then(|| Arc::new(TokenIssuer::Extension(ExtensionIssuer::new(access, &link.provider)))),
            extension: Some(ExtensionLink { access: Some(Arc::clone(access)), ..link.clone() }),
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

fn origin(address: &BaseUrl, link: &ExtensionLink, provider: &Provider) -> Option<Origin> {
    let place = Place { provider: Some(&link.provider), ..Place::default() };
    address.origin(provider.kind.layout("")?, true, &place, link.http).ok()
}
