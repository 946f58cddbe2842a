//! Remembers which account created the state that a Responses request refers to: a stored response, or encrypted
//! reasoning. Only that account can read it, with any of its models and keys; targets of other accounts could not serve
//! the request and must not see it. The account is the one behind a provider instance at an address.
//!
//! Stored responses belong to the project that requested them: an id that is not known as the caller's own is refused,
//! because the provider account serves other projects too. Encrypted reasoning has no id: its origin is remembered to
//! try that account first, and if it is unknown, the targets are tried in their usual order.
//!
//! Only hashes and token counts of answers are kept, in lock-free tables of fixed size in which new entries replace old
//! ones. The hashes are keyed with a secret of the state, so control can store the tables over a restart (`kept.rs`). What the
//! tables do not know of stored responses, the database of control may know (`recall.rs`): it gets their origins with the
//! usage events.

mod by_id;
mod kept;
mod recall;
mod sessions;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use memchr::memmem::{Finder, FinderRev};
use shared::access::Access;
use shared::id::ProviderId;
use shared::port::StateOrigins;
use shared::routing::{InstanceReach, ProviderInstance, Target};
use shared::secret::Secret;
use shared::usage::{StateHasher, StoredState, TokenCounts};
use wire::request::Head;

use self::kept::KeyedHasher;
pub(crate) use self::recall::Recall;
pub(crate) use self::sessions::SessionHash;
use super::recent::Recent;

/// Number of slots for the token counts of responses.
const SLOTS: usize = 1 << 16;
/// Bits of a slot that identify the account.
const ACCOUNT_BITS: u32 = 16;
/// Bits of a slot that hold the token count.
const TOKENS_BITS: u32 = 32;
const TOKENS_MAX: u64 = u32::MAX as u64;
/// Leading bytes of encrypted reasoning that identify it; they include its nonce.
const SAMPLE_BYTES: usize = 64;

/// Lock-free tables that map hashes of responses, conversations and reasoning to the accounts that created them.
pub(crate) struct ResponseAffinity {
    /// Encrypted reasoning.
    reasoning: Recent<ACCOUNT_BITS>,
    /// Responses and conversations by owner, and conversations regardless of their owner.
    stored: Recent<ACCOUNT_BITS>,
    /// The targets of sessions.
    sessions: Recent<{ sessions::NUMBER_BITS }>,
    /// Half of a response's hash, and its token count.
    tokens: Box<[AtomicU64]>,
    /// The number of changes of the tables.
    changes: AtomicU64,
    hasher: KeyedHasher,
    /// Hashes the IDs of stored state for the database.
    states: StateHasher,
    /// Knows the origins of stored state that are not in the tables.
    origins: Arc<dyn StateOrigins>,
}

/// The parts of the affinity of responses that belong to the state.
#[derive(Clone)]
pub struct AffinityParams {
    /// The key of the hashes in the tables that control keeps.
    pub table_key: Secret<[u8; 32]>,
    /// The key of the hashes of stored state in usage events.
    pub state_key: Secret<[u8; 32]>,
    /// Knows the origins of stored state that are not in the tables.
    pub origins: Arc<dyn StateOrigins>,
}

impl std::fmt::Debug for AffinityParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AffinityParams").field("origins", &self.origins).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ResponseAffinity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseAffinity").finish_non_exhaustive()
    }
}

/// Provider state that a request refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateReference {
    /// No provider state, or encrypted reasoning or a conversation of unknown origin.
    Nothing,
    /// State of this account.
    At(AccountHash),
    /// The request contains an id that is not known as the caller's own.
    Unknown,
}

/// Hash of a response's id and owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseHash(u64);

/// Truncated hash of an account: a provider instance and the host that it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccountHash(u16);

impl ResponseAffinity {
    /// Returns empty tables.
    pub(crate) fn new(params: AffinityParams) -> Self {
        Self {
            reasoning: Recent::default(),
            stored: Recent::default(),
            sessions: Recent::default(),
            tokens: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            changes: AtomicU64::new(0),
            hasher: KeyedHasher::new(&params.table_key),
            states: StateHasher::new(&params.state_key),
            origins: params.origins,
        }
    }

    /// Returns the hash of the account that `target` uses. Keys are rotated and headers change while the account stays,
    /// so neither is part of it, unless the provider has several keys: each may be of another account.
    pub(crate) fn account(&self, target: &Target) -> AccountHash {
        self.account_at(&target.provider.id, &self.place_of(&target.provider))
    }

    /// Returns the address that identifies the account of an instance: with the key, if it is one of several.
    fn place_of<'t>(&self, provider: &'t ProviderInstance) -> Cow<'t, str> {
        match provider.lane {
            None => Cow::Borrowed(address(provider)),
            Some(_) => Cow::Owned(self.place_of_key(provider)),
        }
    }

    fn place_of_key(&self, provider: &ProviderInstance) -> String {
        format!("{}#{:016x}", address(provider), self.hasher.credential(provider.credential_mark()))
    }

    /// Returns true if `target` has the account, with any of its keys.
    pub(super) fn has_account(&self, target: &Target, account: AccountHash) -> bool {
        self.account(target) == account || self.of_key(target, account).is_some()
    }

    /// Returns the lane of a target that has the account. State that the provider made while it had one key is taken to
    /// be of the key that is listed first.
    pub(super) fn lane_of<'t>(
        &self,
        target: &'t Target,
        account: AccountHash,
    ) -> Option<&'t Arc<ProviderInstance>> {
        let lanes = &target.provider.lanes;
        let place = lanes.iter().position(|lane| self.is_of_key(lane, account));
        lanes.get(place.unwrap_or(0))
    }

    /// Returns the instance with the key that has the account, also if it is the only key now.
    fn of_key<'t>(&self, target: &'t Target, account: AccountHash) -> Option<&'t ProviderInstance> {
        target.provider.each_lane().find(|lane| self.is_of_key(lane, account))
    }

    fn is_of_key(&self, lane: &ProviderInstance, account: AccountHash) -> bool {
        self.account_at(&lane.id, &self.place_of_key(lane)) == account
    }

    /// Returns the hash of the account behind a provider instance at an address.
    fn account_at(&self, provider: &ProviderId, address: &str) -> AccountHash {
        let hash = self.hasher.account(provider.as_str(), address);
        let hash = u16::try_from(hash >> (u64::BITS - ACCOUNT_BITS)).unwrap_or_default();
        // The lowest number stands for no account.
        AccountHash(hash.max(1))
    }

    /// Remembers that the response with this id was created by `account` for this caller, in the conversation named by its
    /// request.
    pub(crate) fn note_response(
        &self,
        id: &str,
        head: &Head,
        caller: &Access,
        account: AccountHash,
    ) -> ResponseHash {
        let response = self.response(id, caller);
        self.changed();
        self.stored.put(response, account.0.into());
        if let Some(conversation) = &head.state.conversation {
            self.stored.put(self.conversation(conversation, Some(caller)), account.0.into());
            self.stored.put(self.conversation(conversation, None), account.0.into());
        }
        ResponseHash(response)
    }

    /// Remembers that the encrypted reasoning in `answer` was created by `account`.
    pub(crate) fn note_reasoning(&self, answer: &[u8], account: AccountHash) {
        for at in ENCRYPTED.find_iter(answer) {
            if let Some(sample) = sample(answer, at) {
                self.changed();
                self.reasoning.put(self.hasher.reasoning(sample), account.0.into());
            }
        }
    }

    /// Remembers the tokens of a response including its whole history: a request that continues it is as long.
    pub(crate) fn note_tokens(&self, ResponseHash(response): ResponseHash, tokens: u64) {
        if let Some(slot) = self.place(response).and_then(|place| self.tokens.get(place)) {
            slot.store(half(response) | tokens.min(TOKENS_MAX), Ordering::Relaxed);
            self.changed();
        }
    }

    /// Returns the tokens of the response that a request continues, if they are remembered.
    pub(crate) fn tokens(&self, head: &Head, caller: &Access) -> Option<u64> {
        let response = self.response(head.state.previous_response_id.as_deref()?, caller);
        let kept = self.tokens.get(self.place(response)?)?.load(Ordering::Relaxed);
        (kept != 0 && kept & !TOKENS_MAX == half(response)).then_some(kept & TOKENS_MAX)
    }

    /// Returns the provider state that the request refers to.
    pub(crate) fn wanted(&self, head: &Head, body: &[Bytes], caller: &Access) -> StateReference {
        let state = &head.state;
        if let Some(id) = &state.previous_response_id {
            return self.account_of(id, caller).map_or(StateReference::Unknown, StateReference::At);
        }
        if let Some(id) = &state.conversation {
            // Conversations are created outside the gateway: each belongs to the owner that uses it first.
            let own = self.stored.get(self.conversation(id, Some(caller)));
            let is_used = self.stored.get(self.conversation(id, None)).is_some();
            return match own {
                Some(account) => StateReference::At(kept(account)),
                None if is_used => StateReference::Unknown,
                None => StateReference::Nothing,
            };
        }
        let mut segments = body.iter().rev().filter(|_| state.encrypted_content);
        let last = segments.find_map(|segment| sample(segment, ENCRYPTED_LAST.rfind(segment.as_ref())?));
        let account = last.and_then(|last| self.reasoning.get(self.hasher.reasoning(last)));
        account.map_or(StateReference::Nothing, |account| StateReference::At(kept(account)))
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Hashes a response id with its owner, so that other owners cannot find it.
    fn response(&self, id: &str, caller: &Access) -> u64 {
        self.hasher.response(owner(caller), id)
    }

    fn conversation(&self, id: &str, caller: Option<&Access>) -> u64 {
        self.hasher.conversation(caller.map(owner), id)
    }

    /// Returns the slot of a response's token count.
    fn place(&self, hash: u64) -> Option<usize> {
        usize::try_from(hash >> (u64::BITS - ACCOUNT_BITS)).ok()
    }
}

/// Records the parts of a relayed Responses answer that only its account can interpret: its ID and its encrypted reasoning.
#[derive(Debug)]
pub(crate) struct AffinityRecorder {
    table: Arc<ResponseAffinity>,
    access: Arc<Access>,
    account: AccountHash,
    /// The hash of the answer's ID, if the ID is known.
    response: Option<ResponseHash>,
    /// The state that the answer's provider stores, until it is in the record.
    stored: Option<Box<StoredState>>,
}

impl AffinityRecorder {
    pub(crate) fn new(table: &Arc<ResponseAffinity>, access: &Arc<Access>, target: &Target) -> Self {
        Self {
            table: Arc::clone(table),
            access: Arc::clone(access),
            account: table.account(target),
            response: None,
            stored: None,
        }
    }

    pub(crate) fn note_bytes(&self, bytes: &[u8]) {
        self.table.note_reasoning(bytes, self.account);
    }

    /// Records the ID of an answer of `target`.
    pub(crate) fn note_id(&mut self, id: Option<String>, head: &Head, target: &Target) {
        let Some(id) = id else { return };
        self.response = Some(self.table.note_response(&id, head, &self.access, self.account));
        if head.state.store != Some(false) {
            let states = &self.table.states;
            self.stored = Some(Box::new(StoredState {
                response: states.response(&id),
                conversation: head.state.conversation.as_deref().map(|id| states.conversation(id)),
                address: self.table.place_of(&target.provider).into(),
                is_deleted: false,
            }));
        }
    }

    /// Takes the state that the provider stores, for the record of the exchange.
    pub(crate) fn take_stored(&mut self) -> Option<Box<StoredState>> {
        self.stored.take()
    }

    /// Records the number of tokens of the answer and of everything before it.
    pub(crate) fn note_usage(&self, tokens: &TokenCounts) {
        if let Some(response) = self.response {
            self.table.note_tokens(response, tokens.total());
        }
    }
}

/// The account of a response that was deleted, and of a conversation that is another owner's.
const NO_ACCOUNT: AccountHash = AccountHash(0);

/// Returns the host and port that an instance is at; empty for one in the process.
fn address(provider: &ProviderInstance) -> &str {
    match &provider.reach {
        InstanceReach::Network(origin) => origin.authority.as_str(),
        InstanceReach::Echo(_) | InstanceReach::Speech => "",
    }
}

/// Returns the account hash that the table of responses keeps.
fn kept(number: u32) -> AccountHash {
    AccountHash(u16::try_from(number).unwrap_or_default())
}

/// The owner of responses: the ID of a project (true) or of a key.
type Owner<'a> = (bool, &'a str);

/// Returns the owner of the responses of `caller`: its project, or its key if it has no project.
fn owner(caller: &Access) -> Owner<'_> {
    match &caller.project {
        Some(project) => (true, project.as_str()),
        None => (false, caller.key.as_str()),
    }
}

/// Returns the half of a hash that is stored beside the token count.
fn half(hash: u64) -> u64 {
    hash << TOKENS_BITS
}

/// Returns the first bytes of the string value that follows the member name found at `at`.
fn sample(text: &[u8], at: usize) -> Option<&[u8]> {
    let after = text.get(at.checked_add(NAME.len())?..)?.trim_ascii_start().strip_prefix(b":")?;
    after.trim_ascii_start().strip_prefix(b"\"")?.get(..SAMPLE_BYTES)
}

const NAME: &[u8] = br#""encrypted_content""#;
static ENCRYPTED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(NAME));
static ENCRYPTED_LAST: LazyLock<FinderRev<'static>> = LazyLock::new(|| FinderRev::new(NAME));
