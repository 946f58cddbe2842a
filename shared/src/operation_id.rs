//! IDs of long-running operations, as returned to clients (VID-1). An ID contains everything that a later request
//! needs to find the target of the operation, sealed with AES-256-GCM under a key of the database. The gateway stores
//! nothing, and a modified ID does not open.
//!
//! An ID is `vop_` followed by the base64url encoding of a 12-byte nonce, the sealed part, and a 16-byte tag. The
//! sealed part contains the start time in seconds, a byte for the kind of owner, four length-prefixed texts, and the eight
//! bytes that identify the key, if the provider has several.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::access::Access;
use crate::id::{KeyId, ModelId, ProjectId, ProviderId};
use crate::secret::Secret;

/// An operation that has been started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The provider instance that runs it.
    pub provider: ProviderId,
    /// The requested model.
    pub model: ModelId,
    /// The upstream's name of the operation.
    pub name: Box<str>,
    /// The owner, who may access the operation.
    pub owner: Owner,
    /// The start time, in seconds since the Unix epoch.
    pub at_s: u64,
    /// Identifies the key that started it, if the provider instance had several.
    pub credential: Option<u64>,
}

/// The owner of an operation: a project, or one key if the key has no project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Any key of the project.
    Project(ProjectId),
    /// This key only.
    Key(KeyId),
}

impl Owner {
    /// Returns the owner of operations that `access` starts.
    pub fn of(access: &Access) -> Self {
        match &access.project {
            Some(project) => Self::Project(project.clone()),
            None => Self::Key(access.key.clone()),
        }
    }
}

/// Seals and opens operation IDs.
#[derive(Clone, Default)]
pub struct OperationIds(Option<Arc<LessSafeKey>>);

impl fmt::Debug for OperationIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperationIds(••••)")
    }
}

impl OperationIds {
    /// Creates a sealer that uses `key`. The default has no key; it seals and opens nothing.
    pub fn new(key: &Secret<[u8; 32]>) -> Self {
        Self(UnboundKey::new(&AES_256_GCM, key.expose()).ok().map(|key| Arc::new(LessSafeKey::new(key))))
    }

    /// Returns the ID of `started`. Returns `None` if one of its texts is too long or the system provides no random bytes.
    pub fn seal(&self, started: &Started) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = written(started)?;
        let aad = Aad::from(PURPOSE);
        self.0
            .as_ref()?
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .ok()?;
        let mut id = String::with_capacity(ID_BYTES_USUAL);
        id.push_str(PREFIX);
        BASE64_URL_SAFE_NO_PAD.encode_string([&nonce[..], &sealed].concat(), &mut id);
        (id.len() <= ID_BYTES_MAX).then_some(id)
    }

    /// Returns the content of `id` if it was sealed under this key and is unmodified.
    pub fn open(&self, id: &str) -> Option<Started> {
        let text = id.strip_prefix(PREFIX).filter(|_| id.len() <= ID_BYTES_MAX)?;
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let mut sealed = sealed.to_vec();
        read(self.0.as_ref()?.open_in_place(nonce, Aad::from(PURPOSE), &mut sealed).ok()?)
    }
}

/// Serializes `started` for sealing.
fn written(started: &Started) -> Option<Vec<u8>> {
    let (sort, owner) = match &started.owner {
        Owner::Project(project) => (PROJECT, project.as_str()),
        Owner::Key(key) => (KEY, key.as_str()),
    };
    let mut out = started.at_s.to_be_bytes().to_vec();
    out.push(sort);
    for text in [started.provider.as_str(), started.model.as_str(), &started.name, owner] {
        out.extend_from_slice(&u16::try_from(text.len()).ok()?.to_be_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    out.extend(started.credential.into_iter().flat_map(u64::to_be_bytes));
    Some(out)
}

fn read(plain: &[u8]) -> Option<Started> {
    let (at_s, rest) = plain.split_first_chunk()?;
    let (sort, mut rest) = rest.split_first()?;
    let mut text = || {
        let (length, after) = rest.split_first_chunk()?;
        let (text, after) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
        rest = after;
        std::str::from_utf8(text).ok()
    };
    let (provider, model, name, owner) = (text()?, text()?, text()?, text()?);
    let owner = match *sort {
        PROJECT => Owner::Project(ProjectId::new(owner)),
        KEY => Owner::Key(KeyId::new(owner)),
        _ => return None,
    };
    let (provider, model) = (ProviderId::new(provider), ModelId::new(model));
    let at_s = u64::from_be_bytes(*at_s);
    let credential = match rest.split_first_chunk() {
        Some((mark, [])) => Some(u64::from_be_bytes(*mark)),
        _ if rest.is_empty() => None,
        _ => return None,
    };
    Some(Started { provider, model, name: name.into(), owner, at_s, credential })
}

const PREFIX: &str = "vop_";
const PROJECT: u8 = 1;
const KEY: u8 = 2;
/// Bound into the tag, so that data sealed for another purpose under the same key does not open here.
const PURPOSE: &[u8] = b"llmgw video operation 1";
/// The initial capacity for an ID. Vertex AI's operation names are the longest, about 300 bytes.
const ID_BYTES_USUAL: usize = 512;
/// The maximum length of an ID in bytes. Longer IDs are neither created nor opened.
pub const ID_BYTES_MAX: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(key: u8) -> OperationIds {
        OperationIds::new(&Secret::new([key; 32]))
    }

    fn started(name: &str) -> Started {
        Started {
            provider: ProviderId::new("google"),
            model: ModelId::new("veo-3.1-generate-preview"),
            name: name.into(),
            owner: Owner::Project(ProjectId::new("prj_0123456789abcdef")),
            at_s: 1_795_000_000,
            credential: None,
        }
    }

    #[test]
    fn an_id_opens_only_with_its_key_and_differs_each_time() {
        let vertex = "projects/a-project-of-thirty-letters-01/locations/us-central1/publishers/google/models/\
                      veo-3.1-generate-preview/operations/01234567-89ab-cdef-0123-456789abcdef";
        let id = ids(7).seal(&started(vertex)).unwrap();
        assert!(id.len() <= 512, "{} bytes: {id}", id.len());
        assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)), "{id}");
        assert!(!id.contains("google") && id.starts_with("vop_"));
        assert_eq!(ids(7).open(&id), Some(started(vertex)));
        assert_eq!(ids(8).open(&id), None);
        assert_ne!(ids(7).seal(&started(vertex)).unwrap(), id);
    }

    #[test]
    fn a_changed_or_cut_id_does_not_open() {
        let id = ids(7).seal(&started("operations/1")).unwrap();
        for at in 0..id.len() {
            for other in [b'A', b'B', b'_', b'=', b' '] {
                let mut changed = id.clone().into_bytes();
                if changed[at] != other {
                    changed[at] = other;
                    assert_eq!(ids(7).open(&String::from_utf8(changed).unwrap()), None, "byte {at}");
                }
            }
            assert_eq!(ids(7).open(&id[..at]), None, "cut at {at}");
        }
        for more in ["A", "AAAA", "="] {
            assert_eq!(ids(7).open(&format!("{id}{more}")), None);
        }
    }

    #[test]
    fn an_id_that_is_too_long_is_neither_sealed_nor_opened() {
        for length in [3_100, 70_000] {
            assert_eq!(ids(7).seal(&started(&"n".repeat(length))), None, "{length}");
        }
        assert_eq!(ids(7).open(&format!("vop_{}", "A".repeat(ID_BYTES_MAX))), None);
        assert_eq!(OperationIds::default().seal(&started("n")), None, "without a key");
    }

    proptest! {
        #[test]
        fn every_operation_id_round_trips(
            provider in ".{0,40}", model in ".{0,80}", name in ".{0,300}", owner in ".{0,40}", key: bool, at_s: u64,
            credential: Option<u64>,
        ) {
            let owner =
                if key { Owner::Key(KeyId::new(owner)) } else { Owner::Project(ProjectId::new(owner)) };
            let (provider, model) = (ProviderId::new(provider), ModelId::new(model));
            let started = Started { provider, model, name: name.into(), owner, at_s, credential };
            let id = ids(7).seal(&started).unwrap();
            prop_assert_eq!(ids(7).open(&id), Some(started));
        }

        #[test]
        fn random_bytes_never_panic(plain: Vec<u8>, id in "(vop_)?[A-Za-z0-9_=-]{0,600}") {
            let _ = read(&plain);
            prop_assert_eq!(ids(7).open(&id), None);
        }
    }
}
