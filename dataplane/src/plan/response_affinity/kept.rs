//! The tables as bytes, which the next process takes: hashes, account hashes and token counts, which mean nothing
//! without the key.
//!
//! ```text
//!  check   8   the hash of a fixed text: another key, or another hash function, has another one
//!  then for reasoning, stored responses, token counts and sessions, which earlier releases lack:
//!  count   4   the number of entries
//!  entries     place 4, value 8
//! ```
//!
//! Each entry of reasoning has the first 16 bits of its hash as its place, by which earlier releases find it.

use std::sync::atomic::{AtomicU64, Ordering};

use shared::port::KeptTables;
use shared::secret::Secret;

use super::{ACCOUNT_BITS, Owner, ResponseAffinity};
use crate::plan::siphash::SipHash;

/// Hashes with a key. It is hashed first; the state after it is as secret as the key.
#[derive(Clone)]
pub(super) struct KeyedHasher(SipHash);

impl KeyedHasher {
    pub(super) fn new(key: &Secret<[u8; 32]>) -> Self {
        Self(SipHash::new().bytes(key.expose()))
    }

    /// Hashes the host that a provider instance calls.
    pub(super) fn account(&self, provider: &str, host: &str) -> u64 {
        self.start().text(provider).text(host).finish()
    }

    /// Hashes the mark of a credential.
    pub(super) fn credential(&self, mark: u64) -> u64 {
        self.start().bytes(b"credential").bytes(&mark.to_be_bytes()).finish()
    }

    /// Hashes a response ID with its owner.
    pub(super) fn response(&self, (is_project, owner): Owner<'_>, id: &str) -> u64 {
        self.start().bytes(&[u8::from(is_project)]).text(owner).text(id).finish()
    }

    /// Hashes a conversation ID with its owner, or for any owner.
    pub(super) fn conversation(&self, owner: Option<Owner<'_>>, id: &str) -> u64 {
        let hash = self.start().bytes(&u64::from(owner.is_some()).to_le_bytes());
        let hash = match owner {
            Some((is_project, owner)) => hash.bytes(&[u8::from(is_project)]).text(owner),
            None => hash,
        };
        hash.text("conversation").text(id).finish()
    }

    /// Hashes the first bytes of encrypted reasoning.
    pub(super) fn reasoning(&self, sample: &[u8]) -> u64 {
        let length = u64::try_from(sample.len()).unwrap_or(u64::MAX);
        self.start().bytes(&length.to_le_bytes()).bytes(sample).finish()
    }

    /// Hashes the name of a session with its owner and endpoint.
    pub(super) fn session(&self, (is_project, owner): Owner<'_>, endpoint: &str, name: &str) -> u64 {
        let hash = self.start().bytes(&[u8::from(is_project)]).text(owner).text("session");
        hash.text(endpoint).text(name).finish()
    }

    /// Hashes a target.
    pub(super) fn target(&self, provider: &str, model: &str) -> u64 {
        self.start().text("target").text(provider).text(model).finish()
    }

    /// Hashes a fixed text.
    fn check(&self) -> u64 {
        self.start().bytes(&[1]).text("the layout of these tables").finish()
    }

    fn start(&self) -> SipHash {
        self.0.clone()
    }
}

impl KeptTables for ResponseAffinity {
    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    fn content(&self) -> Vec<u8> {
        let mut content = self.hasher.check().to_le_bytes().to_vec();
        put(&mut content, &self.reasoning.numbers().map(of_reasoning).collect::<Vec<_>>());
        put(&mut content, &self.stored.entries().collect::<Vec<_>>());
        put(&mut content, &entries(&self.tokens).collect::<Vec<_>>());
        put(&mut content, &self.sessions.entries().collect::<Vec<_>>());
        content
    }

    fn restore(&self, content: &[u8]) -> bool {
        let Some(KeptEntries { reasoning, stored, tokens, sessions }) = self.parse(content) else {
            return false;
        };
        for (place, value) in reasoning {
            let account = u32::try_from(value & u64::from(u16::MAX)).unwrap_or_default();
            self.reasoning.put((u64::from(place) << PLACE_SHIFT) | (value >> ACCOUNT_BITS), account);
        }
        for (place, value) in stored {
            self.stored.restore(place, value);
        }
        for (place, value) in sessions {
            self.sessions.restore(place, value);
        }
        for (place, value) in tokens {
            if let Some(slot) = usize::try_from(place).ok().and_then(|place| self.tokens.get(place)) {
                slot.store(value, Ordering::Relaxed);
            }
        }
        true
    }
}

impl ResponseAffinity {
    fn parse(&self, content: &[u8]) -> Option<KeptEntries> {
        let (check, mut rest) = content.split_first_chunk()?;
        if u64::from_le_bytes(*check) != self.hasher.check() {
            return None;
        }
        let (reasoning, stored, tokens) = (take(&mut rest)?, take(&mut rest)?, take(&mut rest)?);
        let sessions = if rest.is_empty() { Vec::new() } else { take(&mut rest)? };
        rest.is_empty().then_some(KeptEntries { reasoning, stored, tokens, sessions })
    }
}

/// The entries of the tables.
struct KeptEntries {
    reasoning: Vec<Entry>,
    stored: Vec<Entry>,
    tokens: Vec<Entry>,
    sessions: Vec<Entry>,
}

/// The place of an entry in its table, and its value.
type Entry = (u32, u64);

/// Returns the entry of reasoning with this hash, which its account made.
fn of_reasoning((hash, account): (u64, u32)) -> Entry {
    let place = u32::try_from(hash >> PLACE_SHIFT).unwrap_or_default();
    (place, (hash << ACCOUNT_BITS) | u64::from(account))
}

fn entries(table: &[AtomicU64]) -> impl Iterator<Item = Entry> {
    let values = table.iter().map(|slot| slot.load(Ordering::Relaxed));
    (0_u32..).zip(values).filter(|(_, value)| *value != 0)
}

fn put(content: &mut Vec<u8>, entries: &[Entry]) {
    content.extend(u32::try_from(entries.len()).unwrap_or(u32::MAX).to_le_bytes());
    for (place, value) in entries {
        content.extend(place.to_le_bytes());
        content.extend(value.to_le_bytes());
    }
}

fn take(rest: &mut &[u8]) -> Option<Vec<Entry>> {
    let (count, entries) = rest.split_first_chunk()?;
    let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
    let (entries, after) = entries.split_at_checked(count.checked_mul(ENTRY_BYTES)?)?;
    *rest = after;
    let entry = |bytes: &[u8]| {
        let (place, value) = bytes.split_first_chunk()?;
        Some((u32::from_le_bytes(*place), u64::from_le_bytes(value.try_into().ok()?)))
    };
    entries.chunks_exact(ENTRY_BYTES).map(entry).collect()
}

const ENTRY_BYTES: usize = 12;
/// The place of an entry of reasoning has the bits of its hash above these.
const PLACE_SHIFT: u32 = u64::BITS - ACCOUNT_BITS;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fixture::NoOrigins;
    use crate::plan::response_affinity::{AccountHash, AffinityParams};

    fn tables(key: u8) -> ResponseAffinity {
        ResponseAffinity::new(AffinityParams {
            table_key: Secret::new([key; 32]),
            state_key: Secret::new([key; 32]),
            origins: Arc::new(NoOrigins),
        })
    }

    fn id(tables: &ResponseAffinity) -> u64 {
        tables.hasher.response((true, "prj_1"), "resp_1")
    }

    /// Hashes that the hasher of Rust's standard library computed for an earlier release, which stored them.
    #[test]
    fn tables_of_earlier_releases_are_understood() {
        let hasher = KeyedHasher::new(&Secret::new([9; 32]));
        let project = (true, "prj_1");
        for (hash, want) in [
            (hasher.account("openai", "api.openai.com"), 0xae0e_5494_7496_c060_u64),
            (hasher.response(project, "resp_1"), 0x8fad_a581_5e1d_4579),
            (hasher.response((false, "key_1"), "resp_1"), 0xe2f3_3b25_dec6_3a04),
            (hasher.conversation(Some(project), "conv_1"), 0x8600_5036_91c6_4885),
            (hasher.conversation(None, "conv_1"), 0x2b97_f724_7a81_bcd1),
            (hasher.reasoning(&[0xee; 64]), 0xcdc4_fd82_9b29_310c),
            (hasher.check(), 0xa938_783a_41d1_4806),
        ] {
            assert_eq!(hash, want);
        }
    }

    #[test]
    fn restored_tables_know_what_was_stored() {
        let before = tables(1);
        let (empty, none) = (before.content(), before.changes());
        let answer = format!(r#"{{"encrypted_content":"{}"}}"#, "gAAAAABh".repeat(20));
        before.note_reasoning(answer.as_bytes(), AccountHash(7));
        before.stored.put(id(&before), 9);
        assert_ne!(before.changes(), none);
        let content = before.content();
        let after = tables(1);
        assert!(after.restore(&content));
        assert_eq!(after.content(), content);
        assert_eq!(after.stored.get(id(&after)), Some(9));
        assert!(after.changes() == 0 && content.len() == empty.len() + 2 * ENTRY_BYTES);
    }

    /// As many as an hour of many agents makes: none may push out another one.
    #[test]
    fn ten_thousand_items_of_reasoning_are_known_before_and_after_a_restart() {
        let before = tables(1);
        let account = |number: u16| AccountHash(1 + number % 7);
        let item = |number: u16| {
            format!(r#"{{"type":"reasoning","encrypted_content":"{number:064}"}}"#).into_bytes()
        };
        (0..10_000).for_each(|number| before.note_reasoning(&item(number), account(number)));
        let after = tables(1);
        assert!(after.restore(&before.content()));
        assert_eq!(after.content(), before.content());
        for table in [before, after] {
            let hash = |number| table.hasher.reasoning(format!("{number:064}").as_bytes());
            let lost = (0..10_000)
                .filter(|number| table.reasoning.get(hash(*number)) != Some(u32::from(account(*number).0)));
            assert_eq!(lost.count(), 0);
        }
    }

    #[test]
    fn another_key_and_cut_content_restore_nothing() {
        let before = tables(1);
        before.stored.put(id(&before), 9);
        let content = before.content();
        assert!(!tables(2).restore(&content), "another key");
        let earlier_release = content.len() - 4;
        for end in (0..content.len()).filter(|end| *end != earlier_release) {
            let after = tables(1);
            assert!(!after.restore(&content[..end]), "cut at {end}");
            assert_eq!(after.content(), tables(1).content());
        }
        assert!(!tables(1).restore(&[&content[..], &[0]].concat()), "longer than its tables");
        let after = tables(1);
        assert!(after.restore(&content[..earlier_release]), "an earlier release had no sessions");
        assert_eq!(after.content(), content);
        let mut beyond = content;
        let place = beyond.len() - 8 - ENTRY_BYTES;
        beyond[place..place + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(tables(1).restore(&beyond), "a place that no table has is left out");
    }
}
