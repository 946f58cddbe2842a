//! Resolves the ID of a stored response to the provider instance that has it.

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use shared::error_kind::ErrorKind;
use shared::id::ProviderId;
use shared::operation::Dialect;
use shared::port::StateOrigin;
use shared::routing::{InstanceReach, ProviderInstance};

use super::super::inference::AuthorizedRequest;
use crate::error::Fault;

/// Returns the ID in a percent-encoded segment of a path.
pub(super) fn id_of(segment: &str) -> Result<Cow<'_, str>, Fault> {
    let id = percent_decode_str(segment).decode_utf8().ok();
    // No provider is asked for a name that could reach another path.
    let is_plain = |id: &Cow<'_, str>| !id.contains('/') && id != "." && id != "..";
    id.filter(is_plain).ok_or_else(|| unknown(segment))
}

/// Returns the provider instance, with the key, that made the caller's response with this ID.
pub(super) async fn holder(
    authorized: &AuthorizedRequest<'_>,
    id: &str,
) -> Result<Arc<ProviderInstance>, Fault> {
    let (tables, access) = (&authorized.worker().process.response_affinity, authorized.access);
    if let Some(recall) = tables.missing_response(id, access) {
        recall.run(tables).await?;
    }
    let account = tables.account_of(id, access).ok_or_else(|| unknown(id))?;
    let providers = &authorized.snapshot.providers;
    let found: Vec<_> =
        providers.iter().filter_map(|provider| tables.instance_with(provider, account)).collect();
    let instance = match &*found {
        [only] => only,
        // The table keeps a short hash of the account, which two providers may share; the database has the provider's ID.
        several => match tables.recall_of(id, access).origin(tables).await? {
            StateOrigin::Own { provider, .. } => {
                let named = several.iter().find(|instance| instance.id == provider);
                named.ok_or_else(|| gone(Some(&provider)))?
            }
            StateOrigin::Foreign | StateOrigin::Unknown if several.is_empty() => return Err(gone(None)),
            StateOrigin::Foreign | StateOrigin::Unknown => return Err(unsure()),
        },
    };
    usable(authorized, instance)?;
    Ok(Arc::clone(instance))
}

/// Checks that the caller may use the instance, and that it serves stored responses.
fn usable(authorized: &AuthorizedRequest<'_>, instance: &ProviderInstance) -> Result<(), Fault> {
    let id = &instance.id;
    if !authorized.access.may_use(instance) {
        let message = format!(
            "'{id}', which stores the response, is a private provider. Use a key that acts as its owner, or have the \
             provider shared with the key's project."
        );
        return Err(Fault::new(ErrorKind::PrivateProvider, message));
    }
    if let Some(why) = instance.unready {
        let message = format!("'{id}', which stores the response, cannot be used: {why}.");
        return Err(Fault::new(ErrorKind::NoEligibleTarget, message));
    }
    let is_network = matches!(instance.reach, InstanceReach::Network(_));
    if !is_network || !instance.dialects.contains(&Dialect::Responses) {
        return Err(unsupported(id));
    }
    Ok(())
}

/// Returns the error for a provider that has no such operation.
pub(super) fn unsupported(provider: &ProviderId) -> Fault {
    let message = format!(
        "'{provider}', which made the response, does not serve stored responses: only providers with a native Responses \
         API do. Send the whole conversation with the next request."
    );
    Fault::new(ErrorKind::UnsupportedRoute, message)
}

/// Returns the same error for responses of other owners and for those that do not exist, so that clients cannot tell them
/// apart.
fn unknown(id: &str) -> Fault {
    let id = id.split_at(id.floor_char_boundary(ID_BYTES_SHOWN)).0;
    let message = format!(
        "Response with id '{id}' not found. It is not stored ('store': false), was deleted or is older than 30 days, \
         another project made it, or it was not made through this gateway. Use the 'id' of a response that this key's \
         project received."
    );
    Fault::new(ErrorKind::NotFound, message).param("response_id")
}

fn gone(provider: Option<&ProviderId>) -> Fault {
    let named = provider.map(|provider| format!("'{provider}', ")).unwrap_or_default();
    let message = format!(
        "The provider that stores the response, {named}is disabled or deleted, or has another address or key now. An \
         administrator can restore it."
    );
    Fault::new(ErrorKind::NoEligibleTarget, message)
}

/// Returns the error for a response whose provider only the database can tell, while the record that says so is on its way
/// there.
fn unsure() -> Fault {
    let message = "The provider of the response is being recorded. Try again.";
    Fault::new(ErrorKind::Overloaded, message).retry_after(std::time::Duration::from_secs(1))
}

/// The length of a client's ID in an error text.
const ID_BYTES_SHOWN: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_segment_of_a_path() {
        for (segment, want) in [
            ("resp_1", Some("resp_1")),
            ("resp%5F1%3Aa", Some("resp_1:a")),
            ("resp_1%2Fcancel", None),
            ("%2e%2E", None),
            (".", None),
            ("%ff", None),
        ] {
            let id = id_of(segment);
            assert_eq!(id.as_deref().ok(), want, "{segment}");
            assert!(id.is_ok() || id.unwrap_err().status() == 404, "{segment}");
        }
    }
}
