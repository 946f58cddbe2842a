//! Administrator keys, retention and partner settings, which only the environment sets.

use shared::secret::Secret;

use super::env::{Schedule, VariableValue};
use super::layer::Layers;
use super::model::{AdminKey, Lifetimes, Partner};
use super::oauth::{CLIENT_ID, CLIENT_SECRET};

type IdentityKeys = (Vec<AdminKey>, Secret<[u8; 32]>);

pub(super) fn keys(layers: &mut Layers<'_>, warnings: &mut Vec<String>) -> Option<IdentityKeys> {
    const HOW: &str = "make one with `openssl rand -base64 32`";
    let environment = layers.environment;
    let first = layers.secret("LLMGW_API_KEY", environment.secret("LLMGW_API_KEY"));
    let further = match environment.value("LLMGW_API_KEYS") {
        Some(VariableValue::Secrets(keys)) => keys.clone(),
        _ => Vec::new(),
    };
    layers.secret("LLMGW_API_KEYS", Some(()).filter(|()| !further.is_empty()));
    let encryption =
        layers.secret("LLMGW_CREDENTIAL_ENCRYPTION_KEY", environment.key("LLMGW_CREDENTIAL_ENCRYPTION_KEY"));
    if first.is_none() && !layers.faulty("LLMGW_API_KEY") {
        layers.fault("LLMGW_API_KEY", format!("is not set. Set it to an administrator key ({HOW}), or run `llmgw quickstart`, which makes one"));
    }
    if encryption.is_none() && !layers.faulty("LLMGW_CREDENTIAL_ENCRYPTION_KEY") {
        let message = format!(
            "is required: base64 of 32 bytes; {HOW} for new state, and never replace the one that existing state \
             was encrypted with"
        );
        layers.fault("LLMGW_CREDENTIAL_ENCRYPTION_KEY", message);
    }
    let unnamed = first.iter().map(|key| AdminKey { id: ADMIN.to_owned(), key: key.clone() });
    let keys: Vec<_> = unnamed.chain(further.iter().flat_map(admin_keys)).collect();
    if keys.iter().any(|key| key.key.expose().len() < KEY_CHARS_MIN) {
        warnings.push(format!(
            "an administrator key has fewer than {KEY_CHARS_MIN} characters and is easy to guess; {HOW}"
        ));
    }
    first.and(encryption).map(|encryption| (keys, encryption))
}

/// Returns the keys of one entry of `LLMGW_API_KEYS`: `NAME=KEY` names the holder of `KEY`. The whole entry is a key
/// too, so that keys that contain `=` keep working. An entry has no name if the part before the first `=` is not a
/// valid name, or if the part after it is too short for a key.
fn admin_keys(entry: &Secret<String>) -> Vec<AdminKey> {
    let named =
        entry.expose().split_once('=').filter(|(name, key)| is_name(name) && key.len() >= KEY_CHARS_MIN);
    match named {
        None => vec![AdminKey { id: ADMIN.to_owned(), key: entry.clone() }],
        Some((name, key)) => [Secret::new(key.to_owned()), entry.clone()]
            .map(|key| AdminKey { id: format!("{ADMIN}:{name}"), key })
            .into(),
    }
}

fn is_name(text: &str) -> bool {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= NAME_CHARS_MAX
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(is_safe)
}

pub(super) fn lifetimes(layers: &mut Layers<'_>) -> Lifetimes {
    let mut count =
        |name, default: u32| u32::try_from(layers.count(name, None, u64::from(default))).unwrap_or(u32::MAX);
    Lifetimes {
        usage_days: count("LLMGW_RETENTION_USAGE_DAYS", 90),
        audit_days: count("LLMGW_RETENTION_AUDIT_DAYS", 365),
        delivered_outbox_days: count("LLMGW_RETENTION_DELIVERED_OUTBOX_DAYS", 400),
        backups_kept: count("LLMGW_BACKUP_KEEP", BACKUPS_KEPT),
    }
}

pub(super) fn backup_schedule(layers: &mut Layers<'_>) -> Option<Schedule> {
    let schedule = layers.environment.schedule(BACKUP_SCHEDULE);
    layers.take(
        BACKUP_SCHEDULE,
        schedule.as_ref().map(|schedule| schedule.text().to_owned()),
        None,
        String::new(),
    );
    schedule
}

/// Returns the settings of OAuth connections, with warnings about what cannot work. `needed_by` are the providers of the
/// file that a human signs in to.
pub(super) fn partner(layers: &mut Layers<'_>, needed_by: &[&str], warnings: &mut Vec<String>) -> Partner {
    let secret = layers.environment.secret(CLIENT_SECRET);
    let partner = Partner {
        client_id: layers.optional(CLIENT_ID, None),
        has_client_secret: layers.secret(CLIENT_SECRET, secret).is_some(),
        public_base_url: layers.optional(PUBLIC_BASE_URL, None),
    };
    let providers = needed_by.join(", ");
    match (&partner.client_id, &partner.public_base_url) {
        (None, _) if !needed_by.is_empty() => warnings.push(format!(
            "{CLIENT_ID} is not set, so no sign-in to the OAuth providers of the file ({providers}) can begin"
        )),
        (None, _) if partner.has_client_secret => {
            warnings.push(format!("{CLIENT_SECRET} has no effect without {CLIENT_ID}"));
        }
        (Some(_), None) => warnings.push(format!(
            "{CLIENT_ID} is set without {PUBLIC_BASE_URL}, so OAuth sign-ins work with a device code only"
        )),
        // Sign-ins at extensions need no client.
        (None, _) | (Some(_), Some(_)) => {}
    }
    partner
}

pub(super) const BACKUP_SCHEDULE: &str = "LLMGW_BACKUP_SCHEDULE";
const PUBLIC_BASE_URL: &str = "LLMGW_OAUTH_PUBLIC_BASE_URL";
/// The default number of backups to keep.
pub(super) const BACKUPS_KEPT: u32 = 7;
/// The minimum length of a key: a shorter administrator key causes a warning, and cannot have a name.
const KEY_CHARS_MIN: usize = 16;
const NAME_CHARS_MAX: usize = 32;
/// The id of administrators without a name.
const ADMIN: &str = "admin";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_entry_may_name_its_holder_and_the_key_may_hold_equals_signs() {
        let long = "0123456789abcdef";
        for (entry, id, keys) in [
            (format!("ops={long}"), "admin:ops", vec![long.to_owned(), format!("ops={long}")]),
            (
                format!("a.b-c_9={long}="),
                "admin:a.b-c_9",
                vec![format!("{long}="), format!("a.b-c_9={long}=")],
            ),
            (format!("{long}="), "admin", vec![format!("{long}=")]),
            ("ops=0123456789abcde".to_owned(), "admin", vec!["ops=0123456789abcde".to_owned()]),
            (format!("9ops={long}"), "admin", vec![format!("9ops={long}")]),
            (format!("o/s={long}"), "admin", vec![format!("o/s={long}")]),
            (format!("={long}"), "admin", vec![format!("={long}")]),
            (format!("{}={long}", "n".repeat(33)), "admin", vec![format!("{}={long}", "n".repeat(33))]),
        ] {
            let found = admin_keys(&Secret::new(entry.clone()));
            assert!(found.iter().all(|key| key.id == id), "{entry}");
            let found: Vec<_> = found.iter().map(|key| key.key.expose().clone()).collect();
            assert_eq!(found, keys, "{entry}");
        }
    }
}
