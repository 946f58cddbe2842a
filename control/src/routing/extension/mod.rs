//! Extensions: services outside the process that provide models in the protocol of `docs/extensions.md`.

pub(crate) mod probe;
pub(crate) mod protocol;
pub(crate) mod shown;

use shared::clock::unix_ms;
use shared::provider::signer::ExtensionSigner;
use shared::secret::Secret;

use crate::common::credential::extension::ExtensionAccess;
use crate::common::vault::{SealError, SealPlace, VaultKeys};
use crate::db::extensions::ExtensionRow;
use crate::db::ids::new_id;
use crate::routing::config::BaseUrl;

/// Opens the secret of a row. Returns the address of the extension and the access to it.
pub(crate) fn open(row: &ExtensionRow, keys: &VaultKeys) -> Result<(BaseUrl, ExtensionAccess), SealError> {
    let plain = keys.open(&place(&row.name), &row.secret)?;
    let secret = std::str::from_utf8(plain.expose()).map_err(|_| SealError)?;
    let address = BaseUrl::extension(&row.url).map_err(|_| SealError)?;
    let signer = signer(&Secret::new(secret.to_owned())).ok_or(SealError)?;
    let access = ExtensionAccess::new(address.below(""), address.socket(), signer);
    Ok((address, access))
}

/// Returns a signer of requests to an extension. The IDs of its requests begin with random characters.
pub(crate) fn signer(secret: &Secret<String>) -> Option<ExtensionSigner> {
    let prefix = format!("{}_", new_id("msg", unix_ms()).ok()?);
    ExtensionSigner::new(secret, prefix)
}

/// Seals the shared secret of the extension called `name`.
pub(crate) fn seal_secret(keys: &VaultKeys, name: &str, secret: &str) -> Result<Vec<u8>, SealError> {
    keys.seal(&place(name), secret.as_bytes())
}

fn place(name: &str) -> SealPlace<'_> {
    SealPlace { table: "extensions", column: "secret", id: name }
}
