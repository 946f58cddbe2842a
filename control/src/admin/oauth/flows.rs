//! Sign-ins that have begun and not ended. They are kept in memory, because the session that began them is too: a restart
//! ends both.
//!
//! A flow is found by its `state`, which is sealed, and taken by the first callback of the browser that began it. That
//! browser holds a cookie for the path of the callback, because the session's own cookie is not sent there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use shared::clock::unix_ms;
use shared::hex;
use shared::secret::Secret;
use tokio::task::AbortHandle;

use crate::admin::gate::Admission;
use crate::common::actor::Actor;
use crate::common::credential::oauth::TokenIssuer;
use crate::common::vault::{RandomError, SealError, SealPlace, VaultKeys, random};

/// The sign-ins under way, one at most for each provider instance.
#[derive(Debug, Default)]
pub(crate) struct SignInFlows {
    by_provider: Mutex<HashMap<String, BegunFlow>>,
    failures: Mutex<HashMap<String, (u64, String)>>,
}

/// A sign-in of a human.
#[derive(Clone, Debug)]
pub(super) struct SignIn {
    pub(super) provider: String,
    /// The human who signs in.
    pub(super) owner: String,
    pub(super) issuer: Arc<TokenIssuer>,
    /// The binding of `issuer`.
    pub(super) binding: String,
    /// The session or key that began it.
    pub(super) admission: Admission,
    pub(super) actor: Actor,
}

/// A sign-in for which a browser was sent to the vendor.
#[derive(Debug)]
pub(super) struct BrowserFlow {
    pub(super) sign_in: SignIn,
    pub(super) redirect_uri: String,
    /// The PKCE verifier (RFC 7636 section 4.1).
    pub(super) verifier: Secret<String>,
}

#[derive(Debug)]
struct BegunFlow {
    id: FlowId,
    /// In milliseconds of the monotonic clock.
    end_ms: u64,
    way: FlowWay,
}

#[derive(Debug)]
enum FlowWay {
    Browser {
        /// SHA-256 of the browser's cookie.
        cookie: [u8; 32],
        flow: Box<BrowserFlow>,
    },
    /// Asks the vendor if the human has consented on another device.
    Device { _task: EndingTask },
}

/// A task that ends with its owner.
#[derive(Debug)]
struct EndingTask(AbortHandle);

impl Drop for EndingTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The random name of a flow.
pub(super) type FlowId = [u8; 16];

/// The `state` of a flow and the cookie of its browser.
#[derive(Debug)]
pub(super) struct FlowTickets {
    pub(super) id: FlowId,
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

impl SignInFlows {
    /// Begins a flow in a browser, in place of an earlier one of the same provider instance.
    pub(super) fn begin(
        &self,
        keys: &VaultKeys,
        now_ms: u64,
        flow: BrowserFlow,
    ) -> Result<FlowTickets, FlowError> {
        let id: FlowId = random()?;
        let cookie = random_text()?;
        let state = BASE64_URL_SAFE_NO_PAD.encode(keys.seal(&STATE, &id)?);
        let (provider, end_ms) =
            (flow.sign_in.provider.clone(), now_ms.saturating_add(millis(FLOW_TIME_MAX)));
        let way = FlowWay::Browser { cookie: hash(cookie.expose()), flow: Box::new(flow) };
        self.insert(&provider, now_ms, BegunFlow { id, end_ms, way });
        Ok(FlowTickets { id, state, cookie_name: cookie_name(&id), cookie })
    }

    /// Adds a flow on another device, whose `task` ends it. Returns the name under which the task ends it.
    pub(super) fn begin_device(
        &self,
        provider: &str,
        now_ms: u64,
        life: Duration,
        task: impl FnOnce(FlowId) -> AbortHandle,
    ) -> Result<(), FlowError> {
        let id: FlowId = random()?;
        let way = FlowWay::Device { _task: EndingTask(task(id)) };
        self.insert(provider, now_ms, BegunFlow { id, end_ms: now_ms.saturating_add(millis(life)), way });
        Ok(())
    }

    fn insert(&self, provider: &str, now_ms: u64, begun: BegunFlow) {
        let mut by_provider = self.living(now_ms);
        if by_provider.len() >= FLOWS_MAX {
            let oldest = by_provider.iter().min_by_key(|(_, begun)| begun.end_ms);
            let oldest = oldest.map(|(provider, _)| provider.clone());
            oldest.and_then(|provider| by_provider.remove(&provider));
        }
        lock(&self.failures).remove(provider);
        by_provider.insert(provider.to_owned(), begun);
    }

    /// Removes the flows in browsers whose time is over, which have failed, and returns the others. A flow on another device is
    /// ended by its task.
    fn living(&self, now_ms: u64) -> MutexGuard<'_, HashMap<String, BegunFlow>> {
        let mut by_provider = lock(&self.by_provider);
        let is_over =
            |begun: &BegunFlow| begun.end_ms <= now_ms && matches!(begun.way, FlowWay::Browser { .. });
        for (provider, begun) in by_provider.extract_if(|_, begun| is_over(begun)) {
            let ago_ms = now_ms.saturating_sub(begun.end_ms);
            self.failed(&provider, unix_ms().saturating_sub(ago_ms), EXPIRED);
        }
        by_provider
    }

    /// Takes the flow of `state`, if `cookie_of` returns the cookie of the browser that began it. A callback of another
    /// browser does not end the flow.
    pub(super) fn take<'a>(
        &self,
        keys: &VaultKeys,
        now_ms: u64,
        state: &str,
        cookie_of: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<BrowserFlow, NoFlow> {
        let id = opened(keys, state).ok_or(NoFlow::Forged)?;
        let mut by_provider = self.living(now_ms);
        let begun = by_provider.iter().find(|(_, begun)| begun.id == id).ok_or(NoFlow::Over)?;
        let (provider, FlowWay::Browser { cookie: expected, .. }) = (begun.0.clone(), &begun.1.way) else {
            return Err(NoFlow::Forged);
        };
        let cookie = cookie_of(&cookie_name(&id)).ok_or(NoFlow::Stolen)?;
        if !Secret::new(expected.to_vec()).is(&hash(cookie)) {
            return Err(NoFlow::Stolen);
        }
        by_provider.remove(&provider).and_then(|begun| begun.way.browser()).ok_or(NoFlow::Over)
    }

    /// Removes the flow `id`, which has ended.
    pub(super) fn end(&self, id: &FlowId) {
        lock(&self.by_provider).retain(|_, begun| begun.id != *id);
    }

    /// True if a sign-in to this provider instance is under way.
    pub(in crate::admin) fn is_waiting(&self, provider: &str, now_ms: u64) -> bool {
        lock(&self.by_provider).get(provider).is_some_and(|begun| begun.end_ms > now_ms)
    }

    /// Ends the sign-in to a provider instance that is under way, if any.
    pub(super) fn cancel(&self, provider: &str) {
        lock(&self.by_provider).remove(provider);
        lock(&self.failures).remove(provider);
    }

    /// Records that the last sign-in to a provider instance failed.
    pub(super) fn failed(&self, provider: &str, at_ms: u64, why: &str) {
        let mut failures = lock(&self.failures);
        if failures.len() < FLOWS_MAX || failures.contains_key(provider) {
            failures.insert(provider.to_owned(), (at_ms, why.to_owned()));
        }
    }

    /// Returns the time and reason of the last sign-in's failure, if it failed.
    pub(in crate::admin) fn failure(&self, provider: &str, now_ms: u64) -> Option<(u64, String)> {
        drop(self.living(now_ms));
        lock(&self.failures).get(provider).cloned()
    }
}

impl FlowWay {
    fn browser(self) -> Option<BrowserFlow> {
        match self {
            Self::Browser { flow, .. } => Some(*flow),
            Self::Device { .. } => None,
        }
    }
}

/// Returns the text of 256 random bits, also a PKCE verifier (RFC 7636 section 4.1).
pub(super) fn random_text() -> Result<Secret<String>, RandomError> {
    Ok(Secret::new(BASE64_URL_SAFE_NO_PAD.encode(random::<32>()?)))
}

/// Returns the ID in a `state` that was sealed here.
fn opened(keys: &VaultKeys, state: &str) -> Option<FlowId> {
    let sealed = BASE64_URL_SAFE_NO_PAD.decode(state).ok()?;
    FlowId::try_from(keys.open(&STATE, &sealed).ok()?.expose().as_slice()).ok()
}

/// Returns the name of a flow's cookie; sign-ins to two providers may be under way in one browser.
fn cookie_name(id: &FlowId) -> String {
    let (start, _) = id.split_at(4);
    format!("llmgw_oauth_{}", hex::encode(start))
}

fn hash(text: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    hash
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
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
const EXPIRED: &str = "the vendor sent no consent within ten minutes";
/// The maximum number of sign-ins under way.
const FLOWS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::actor::Who;
    use crate::common::credential::oauth::{ClientAuth, OauthSettings};
    use shared::key_hash::KeyHash;

    fn keys() -> VaultKeys {
        VaultKeys { key_hash_key: Secret::new([1; 32]), data_key: Secret::new([2; 32]) }
    }

    fn flow(provider: &str) -> BrowserFlow {
        let settings = OauthSettings {
            authorize_url: None,
            token_url: String::new(),
            userinfo_url: None,
            revocation_url: None,
            device_authorization_url: None,
            issuer: None,
            scopes: Vec::new(),
            client_auth: ClientAuth::Basic,
            authorize_params: std::collections::BTreeMap::new(),
            client: None,
        };
        let sign_in = SignIn {
            provider: provider.to_owned(),
            owner: "prn_1".to_owned(),
            issuer: Arc::new(TokenIssuer::Vendor(Box::new(settings))),
            binding: String::new(),
            admission: Admission::Key(KeyHash([0; 32])),
            actor: Actor { who: Who::admin(), address: None, request_id: None },
        };
        BrowserFlow { sign_in, redirect_uri: String::new(), verifier: Secret::new("verifier".to_owned()) }
    }

    #[test]
    fn a_state_is_taken_once_within_ten_minutes_and_by_its_browser_alone() {
        let (keys, flows) = (keys(), SignInFlows::default());
        let tickets = flows.begin(&keys, 0, flow("p")).unwrap();
        let own = |name: &str| (name == tickets.cookie_name).then_some(tickets.cookie.expose().as_str());
        let take =
            |now_ms, state: &str| flows.take(&keys, now_ms, state, own).map(|flow| flow.sign_in.provider);
        assert_eq!(take(0, "").unwrap_err(), NoFlow::Forged);
        assert_eq!(take(0, &tickets.state[1..]).unwrap_err(), NoFlow::Forged);
        for other in [None, Some("another")] {
            assert_eq!(flows.take(&keys, 0, &tickets.state, |_| other).unwrap_err(), NoFlow::Stolen);
        }
        assert!(flows.is_waiting("p", 599_999) && !flows.is_waiting("p", 600_000));
        assert_eq!(flows.failure("p", 599_999), None);
        assert_eq!(take(599_999, &tickets.state).unwrap(), "p", "a stolen state does not end the flow");
        assert_eq!(take(599_999, &tickets.state).unwrap_err(), NoFlow::Over);
        let late = flows.begin(&keys, 0, flow("p")).unwrap();
        assert_eq!(take(600_000, &late.state).unwrap_err(), NoFlow::Over);
        assert_eq!(flows.failure("p", 600_000).unwrap().1, EXPIRED);
        flows.begin(&keys, 600_001, flow("p")).unwrap();
        assert_eq!(flows.failure("p", 600_001), None, "the next sign-in begins without it");
        let shown = format!("{flows:?} {tickets:?}");
        assert!(!shown.contains(tickets.cookie.expose().as_str()), "{shown}");
    }

    #[test]
    fn a_later_sign_in_to_the_same_provider_replaces_the_earlier_one() {
        let (keys, flows) = (keys(), SignInFlows::default());
        let first = flows.begin(&keys, 0, flow("p")).unwrap();
        let second = flows.begin(&keys, 0, flow("p")).unwrap();
        let take = |tickets: &FlowTickets| {
            flows.take(&keys, 1, &tickets.state, |_| Some(tickets.cookie.expose().as_str())).map(|_| ())
        };
        assert_eq!((take(&first), take(&second)), (Err(NoFlow::Over), Ok(())));
        let many: Vec<_> =
            (0..=FLOWS_MAX as u64).map(|n| flows.begin(&keys, n, flow(&n.to_string())).unwrap()).collect();
        assert_eq!((take(&many[0]), take(&many[1])), (Err(NoFlow::Over), Ok(())), "the oldest gives way");
    }

    #[tokio::test]
    async fn a_device_flow_ends_with_its_task_and_its_task_with_it() {
        let (keys, flows) = (keys(), SignInFlows::default());
        let (held, ended) = tokio::sync::oneshot::channel::<()>();
        let task = |_| {
            tokio::spawn(async move {
                let _held = held;
                std::future::pending::<()>().await;
            })
            .abort_handle()
        };
        flows.begin_device("p", 0, Duration::from_secs(9), task).unwrap();
        assert!(flows.is_waiting("p", 8_999) && !flows.is_waiting("p", 9_000));
        flows.begin(&keys, 1, flow("p")).unwrap();
        assert!(ended.await.is_err(), "the later sign-in has ended the task");
    }
}
