//! Where what a Responses request refers to was made: a stored response, or reasoning that only the account that
//! encrypted it can read. Other targets of an endpoint could not serve the request, and must not be shown it.
//!
//! Nothing of an answer is kept but hashes, and how many tokens a response is: tables of fixed size, without a lock, in
//! which the newest win. What is not in them, after a restart for example, goes to the targets in their order, and each of
//! them says that it does not know it.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use memchr::memmem::{Finder, FinderRev};
use shared::access::Access;
use shared::routing::Target;
use wire::request::Head;

/// Responses and reasoning items that are remembered.
const SLOTS: usize = 1 << 16;
/// Bits of a slot that name the target.
const HOME_BITS: u32 = 16;
/// Bits of a slot that hold tokens, and the most that they can.
const TOKENS_BITS: u32 = 32;
const TOKENS_MAX: u64 = u32::MAX as u64;
/// Bytes of encrypted reasoning that tell it from any other: a nonce stands at its beginning.
const SAMPLE_BYTES: usize = 64;

/// What is remembered. See the module.
pub(crate) struct Homes {
    slots: Box<[AtomicU64]>,
    /// Half of a response's hash, and its tokens.
    tokens: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl std::fmt::Debug for Homes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Homes").finish_non_exhaustive()
    }
}

/// A response, by the hash of its id and its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseHash(u64);

/// One target, by the hash of its instance, its credential and its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home(u16);

impl Homes {
    pub(crate) fn new() -> Self {
        let empty = || (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self { slots: empty(), tokens: empty(), hasher: RandomState::new() }
    }

    /// The home that `target` is.
    pub(crate) fn of(&self, target: &Target) -> Home {
        let provider = &target.provider;
        let hash = self.hasher.hash_one((provider.id.as_str(), provider.identity, target.model.id.as_str()));
        Home(u16::try_from(hash >> (u64::BITS - HOME_BITS)).unwrap_or_default())
    }

    /// Remembers that everything in `answer` that a later request of this caller may refer to was made at `home`.
    /// Returns the first response that it names.
    pub(crate) fn note(&self, answer: &[u8], caller: &Access, home: Home) -> Option<ResponseHash> {
        let mut first = None;
        for at in RESPONSE.find_iter(answer) {
            let id = answer.get(at.saturating_add(1)..).unwrap_or_default();
            if let Some(end) = memchr::memchr(b'"', id.get(..ID_BYTES_MAX).unwrap_or(id)) {
                let response = self.response(id.get(..end).unwrap_or_default(), caller);
                first = first.or(Some(ResponseHash(response)));
                self.put(response, home);
            }
        }
        for at in ENCRYPTED.find_iter(answer) {
            if let Some(sample) = sample(answer, at) {
                self.put(self.hasher.hash_one(sample), home);
            }
        }
        first
    }

    /// Remembers how many tokens a response is, with all that came before it: a request that goes on from it is as long.
    pub(crate) fn note_tokens(&self, ResponseHash(response): ResponseHash, tokens: u64) {
        if let Some(slot) = self.place(response).and_then(|place| self.tokens.get(place)) {
            slot.store(half(response) | tokens.min(TOKENS_MAX), Ordering::Relaxed);
        }
    }

    /// The tokens of the response that a request goes on from, where they are remembered.
    pub(crate) fn tokens(&self, head: &Head, caller: &Access) -> Option<u64> {
        let response = self.response(head.state.previous_response_id.as_deref()?.as_bytes(), caller);
        let kept = self.tokens.get(self.place(response)?)?.load(Ordering::Relaxed);
        (kept != 0 && kept & !TOKENS_MAX == half(response)).then_some(kept & TOKENS_MAX)
    }

    /// Where the request must go; none if it refers to nothing, or to nothing that is remembered.
    pub(crate) fn wanted(&self, head: &Head, body: &[Bytes], caller: &Access) -> Option<Home> {
        let stored = head.state.previous_response_id.as_deref();
        let stored = stored.and_then(|id| self.get(self.response(id.as_bytes(), caller)));
        stored.or_else(|| {
            let last = body
                .iter()
                .rev()
                .filter(|_| head.state.encrypted_content)
                .find_map(|segment| sample(segment, ENCRYPTED_LAST.rfind(segment.as_ref())?))?;
            self.get(self.hasher.hash_one(last))
        })
    }

    /// A response belongs to the key that asked for it: for another one it is unknown.
    fn response(&self, id: &[u8], caller: &Access) -> u64 {
        self.hasher.hash_one((caller.key.as_str(), id))
    }

    fn put(&self, hash: u64, Home(home): Home) {
        if let Some(slot) = self.slot(hash) {
            slot.store((hash << HOME_BITS) | u64::from(home), Ordering::Relaxed);
        }
    }

    fn get(&self, hash: u64) -> Option<Home> {
        let kept = self.slot(hash)?.load(Ordering::Relaxed);
        let same = kept >> HOME_BITS == (hash << HOME_BITS) >> HOME_BITS;
        let home = u16::try_from(kept & u64::from(u16::MAX)).unwrap_or_default();
        (same && kept != 0).then_some(Home(home))
    }

    /// The slot is chosen by the bits of a hash that it does not keep.
    fn slot(&self, hash: u64) -> Option<&AtomicU64> {
        self.slots.get(self.place(hash)?)
    }

    fn place(&self, hash: u64) -> Option<usize> {
        usize::try_from(hash >> (u64::BITS - HOME_BITS)).ok()
    }
}

/// The half of a hash that is kept beside tokens.
fn half(hash: u64) -> u64 {
    hash << TOKENS_BITS
}

/// The beginning of what stands after the name found at `at`.
fn sample(text: &[u8], at: usize) -> Option<&[u8]> {
    let after = text.get(at.checked_add(NAME.len())?..)?.trim_ascii_start().strip_prefix(b":")?;
    after.trim_ascii_start().strip_prefix(b"\"")?.get(..SAMPLE_BYTES)
}

const NAME: &[u8] = br#""encrypted_content""#;
const ID_BYTES_MAX: usize = 256;
static RESPONSE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""resp_"#));
static ENCRYPTED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(NAME));
static ENCRYPTED_LAST: LazyLock<FinderRev<'static>> = LazyLock::new(|| FinderRev::new(NAME));
