//! Sign-ins that have begun and not ended. What completes one is a sealed row of the database, so a flow survives a restart,
//! and the process that deletes the row completes it.
//!
//! A flow is found by its `state`, which is sealed, and taken by the first callback of the browser that began it. That
//! browser holds a cookie for the path of the callback, because the session's own cookie is not sent there.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use shared::hex;
use shared::secret::Secret;

use crate::admin::gate::Admission;
use crate::common::actor::Actor;
use crate::common::vault::{RandomError, SealError, SealPlace, VaultKeys, random};
use crate::db::sign_in_flows::SignInFlowRow;

/// A sign-in of a human that has begun.
#[derive(Clone, Debug)]
pub(super) struct SignIn {
    /// The random name of the flow.
    pub(super) id: String,
    pub(super) provider: String,
    /// The human who signs in.
    pub(super) owner: String,
    /// The binding of the issuer that the sign-in began with.
    pub(super) binding: String,
    /// The session or key that began it.
    pub(super) admission: Admission,
    pub(super) actor: Actor,
}

/// How the human consents.
#[derive(Debug)]
pub(super) enum FlowWay {
    /// A browser was sent to the vendor.
    Browser(BrowserFlow),
    /// Another device; the vendor is asked.
    Device(DeviceFlow),
}

/// The state of a flow that the callback of a browser completes.
#[derive(Debug)]
pub(super) struct BrowserFlow {
    /// SHA-256 of the browser's cookie.
    pub(super) cookie: [u8; 32],
    pub(super) redirect_uri: String,
    /// The PKCE verifier (RFC 7636 section 4.1).
    pub(super) verifier: Secret<String>,
}

/// The state of a flow on another device, for which the vendor is asked until the human has consented.
#[derive(Debug)]
pub(super) struct DeviceFlow {
    pub(super) device_code: Secret<String>,
    /// The pause between two questions.
    pub(super) interval_s: u64,
}

/// The sealed value of the column `flow`.
#[derive(Serialize, Deserialize)]
struct SealedFlow {
    owner: String,
    binding: String,
    admission: Admission,
    actor: Actor,
    way: SealedWay,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SealedWay {
    Browser { cookie: [u8; 32], redirect_uri: String, verifier: String },
    Device { device_code: String, interval_s: u64 },
}

/// The `state` of a flow and the cookie of its browser.
#[derive(Debug)]
pub(super) struct FlowTickets {
    pub(super) state: String,
    pub(super) cookie_name: String,
    pub(super) cookie: Secret<String>,
}

/// The reason why a callback belongs to no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoFlow {
    /// The `state` was not issued here.
    Forged,
    /// It was used already, has expired, or a later sign-in replaced it.
    Over,
    /// Another browser began it.
    Stolen,
}

impl FlowTickets {
    /// Creates the tickets of the flow `id`.
    pub(super) fn new(keys: &VaultKeys, id: &str) -> Result<Self, FlowError> {
        let state = BASE64_URL_SAFE_NO_PAD.encode(keys.seal(&STATE, id.as_bytes())?);
        Ok(Self { state, cookie_name: cookie_name(id), cookie: random_text()? })
    }

    /// Returns what is stored of the cookie.
    pub(super) fn cookie_hash(&self) -> [u8; 32] {
        hash(self.cookie.expose())
    }
}

impl BrowserFlow {
    /// Fails if `cookie_of` does not return the cookie of the browser that began the flow `id`.
    pub(super) fn check_browser<'a>(
        &self,
        id: &str,
        cookie_of: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<(), NoFlow> {
        let cookie = cookie_of(&cookie_name(id)).ok_or(NoFlow::Stolen)?;
        Secret::new(self.cookie.to_vec()).is(&hash(cookie)).then_some(()).ok_or(NoFlow::Stolen)
    }
}

/// Seals a flow for the database.
pub(super) fn sealed(
    keys: &VaultKeys,
    sign_in: &SignIn,
    way: &FlowWay,
    ends_at_ms: u64,
) -> Result<SignInFlowRow, FlowError> {
    let flow = SealedFlow {
        owner: sign_in.owner.clone(),
        binding: sign_in.binding.clone(),
        admission: sign_in.admission.clone(),
        actor: sign_in.actor.clone(),
        way: match way {
            FlowWay::Browser(BrowserFlow { cookie, redirect_uri, verifier }) => SealedWay::Browser {
                cookie: *cookie,
                redirect_uri: redirect_uri.clone(),
                verifier: verifier.expose().clone(),
            },
            FlowWay::Device(DeviceFlow { device_code, interval_s }) => {
                SealedWay::Device { device_code: device_code.expose().clone(), interval_s: *interval_s }
            }
        },
    };
    let plain = serde_json::to_vec(&flow).map(Secret::new).map_err(|_| FlowError)?;
    let flow = Some(keys.seal(&place(&sign_in.id), plain.expose())?);
    let (provider, id) = (sign_in.provider.clone(), sign_in.id.clone());
    Ok(SignInFlowRow { provider, id, flow, ends_at_ms, failure: None })
}

/// Opens a flow of the database; `None` if it has failed or cannot be read.
pub(super) fn opened(keys: &VaultKeys, row: SignInFlowRow) -> Option<(SignIn, FlowWay)> {
    let SignInFlowRow { provider, id, flow, .. } = row;
    let plain = keys.open(&place(&id), &flow?).ok()?;
    let flow: SealedFlow = serde_json::from_slice(plain.expose()).ok()?;
    let SealedFlow { owner, binding, admission, actor, way } = flow;
    let way = match way {
        SealedWay::Browser { cookie, redirect_uri, verifier } => {
            FlowWay::Browser(BrowserFlow { cookie, redirect_uri, verifier: Secret::new(verifier) })
        }
        SealedWay::Device { device_code, interval_s } => {
            FlowWay::Device(DeviceFlow { device_code: Secret::new(device_code), interval_s })
        }
    };
    Some((SignIn { id, provider, owner, binding, admission, actor }, way))
}

/// Returns the name of a new flow.
pub(super) fn new_id() -> Result<String, RandomError> {
    Ok(hex::encode(&random::<16>()?))
}

/// Returns the text of 256 random bits, also a PKCE verifier (RFC 7636 section 4.1).
pub(super) fn random_text() -> Result<Secret<String>, RandomError> {
    Ok(Secret::new(BASE64_URL_SAFE_NO_PAD.encode(random::<32>()?)))
}

/// Returns the name of the flow in a `state` that was sealed here.
pub(super) fn id_of(keys: &VaultKeys, state: &str) -> Result<String, NoFlow> {
    let sealed = BASE64_URL_SAFE_NO_PAD.decode(state).map_err(|_| NoFlow::Forged)?;
    let id = keys.open(&STATE, &sealed).map_err(|_| NoFlow::Forged)?;
    String::from_utf8(id.expose().clone()).map_err(|_| NoFlow::Forged)
}

/// Returns the name of a flow's cookie; sign-ins to two providers may be under way in one browser.
fn cookie_name(id: &str) -> String {
    format!("llmgw_oauth_{}", id.get(..8).unwrap_or_default())
}

fn hash(text: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    hash
}

fn place(id: &str) -> SealPlace<'_> {
    SealPlace { table: "sign_in_flows", column: "flow", id }
}

/// The reason why a flow could not begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowError;

impl From<RandomError> for FlowError {
    fn from(_: RandomError) -> Self {
        Self
    }
}

impl From<SealError> for FlowError {
    fn from(_: SealError) -> Self {
        Self
    }
}

/// The place that a `state` is sealed to. It is never stored.
const STATE: SealPlace<'static> = SealPlace { table: "oauth_flows", column: "state", id: "" };
/// The time in which a human must consent.
pub(super) const FLOW_TIME_MAX: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::actor::Who;
    use shared::id::PrincipalId;
    use shared::key_hash::KeyHash;

    fn keys() -> VaultKeys {
        VaultKeys { key_hash_key: Secret::new([1; 32]), data_key: Secret::new([2; 32]) }
    }

    fn sign_in() -> SignIn {
        let who = Who::Human(PrincipalId::new("prn_1"));
        SignIn {
            id: new_id().unwrap(),
            provider: "p".to_owned(),
            owner: "prn_1".to_owned(),
            binding: "b".to_owned(),
            admission: Admission::Key(KeyHash([5; 32])),
            actor: Actor { who, address: Some([127, 0, 0, 1].into()), request_id: None },
        }
    }

    fn browser(cookie: [u8; 32]) -> FlowWay {
        let verifier = Secret::new("the-verifier".to_owned());
        FlowWay::Browser(BrowserFlow { cookie, redirect_uri: "https://gw/cb".to_owned(), verifier })
    }

    #[test]
    fn a_flow_is_read_as_it_was_begun_and_only_in_its_row() {
        let (keys, begun) = (keys(), sign_in());
        let device =
            FlowWay::Device(DeviceFlow { device_code: Secret::new("the-code".to_owned()), interval_s: 7 });
        for way in [browser([3; 32]), device] {
            let row = sealed(&keys, &begun, &way, 9).unwrap();
            let stored = String::from_utf8_lossy(row.flow.as_ref().unwrap()).into_owned();
            assert!(!stored.contains("the-verifier") && !stored.contains("the-code"), "{stored}");
            let (read, read_way) = opened(&keys, row.clone()).unwrap();
            assert_eq!(format!("{read:?}"), format!("{begun:?}"));
            match (read_way, &way) {
                (FlowWay::Browser(read), FlowWay::Browser(_)) => {
                    assert_eq!((read.cookie, read.verifier.expose().as_str()), ([3; 32], "the-verifier"));
                }
                (FlowWay::Device(read), FlowWay::Device(_)) => {
                    assert_eq!((read.interval_s, read.device_code.expose().as_str()), (7, "the-code"));
                }
                other => panic!("{other:?}"),
            }
            assert!(opened(&keys, SignInFlowRow { id: new_id().unwrap(), ..row.clone() }).is_none());
            assert!(opened(&keys, SignInFlowRow { flow: None, ..row }).is_none());
        }
    }

    #[test]
    fn a_state_names_its_flow_and_only_the_cookie_of_its_browser_admits() {
        let (keys, id) = (keys(), new_id().unwrap());
        let tickets = FlowTickets::new(&keys, &id).unwrap();
        assert_eq!(id_of(&keys, &tickets.state), Ok(id.clone()));
        for forged in ["", &tickets.state[1..], &id] {
            assert_eq!(id_of(&keys, forged), Err(NoFlow::Forged), "{forged}");
        }
        let FlowWay::Browser(flow) = browser(tickets.cookie_hash()) else { unreachable!() };
        let own = |name: &str| (name == tickets.cookie_name).then_some(tickets.cookie.expose().as_str());
        assert_eq!(flow.check_browser(&id, own), Ok(()));
        for other in [None, Some("another"), Some("")] {
            assert_eq!(flow.check_browser(&id, |_| other), Err(NoFlow::Stolen), "{other:?}");
        }
        assert!(!format!("{tickets:?}").contains(tickets.cookie.expose().as_str()));
    }
}
