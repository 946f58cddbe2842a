//! Remembers which target served a session last. The entry of a session that is silent for an hour does not count.

use shared::access::Access;
use shared::clock::unix_ms;
use shared::id::EndpointName;
use shared::routing::Target;

use super::{ResponseAffinity, owner};

/// Bits of an entry: the target, and the minute of the last request.
pub(super) const NUMBER_BITS: u32 = TARGET_BITS + MINUTE_BITS;
const TARGET_BITS: u32 = 20;
const MINUTE_BITS: u32 = 12;
/// The longest silence of a session whose target is remembered, in minutes.
const SILENCE_TIME_MAX: u32 = 60;
const MINUTE_MS: u64 = 60_000;

/// Hash of a session of one owner at one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionHash(u64);

impl ResponseAffinity {
    /// Returns the hash of the session that a caller's requests to an endpoint name.
    pub(in crate::plan) fn session(
        &self,
        caller: &Access,
        endpoint: &EndpointName,
        key: &str,
    ) -> SessionHash {
        SessionHash(self.hasher.session(owner(caller), endpoint.as_str(), key))
    }

    /// Remembers that `target` served the session.
    pub(crate) fn note_session(&self, SessionHash(session): SessionHash, target: &Target) {
        self.note_session_at(session, target, minute(unix_ms()));
    }

    /// Returns true if `target` served the session last.
    pub(in crate::plan) fn is_target_of(&self, SessionHash(session): SessionHash, target: &Target) -> bool {
        self.is_target_at(session, target, minute(unix_ms()))
    }

    fn note_session_at(&self, session: u64, target: &Target, minute: u32) {
        self.changed();
        self.sessions.put(session, self.target(target) << MINUTE_BITS | minute);
    }

    fn is_target_at(&self, session: u64, target: &Target, minute: u32) -> bool {
        self.sessions.get(session).is_some_and(|kept| {
            let silence = minute.wrapping_sub(kept) & MINUTE_MASK;
            kept >> MINUTE_BITS == self.target(target) && silence <= SILENCE_TIME_MAX
        })
    }

    fn target(&self, target: &Target) -> u32 {
        let hash = self.hasher.target(target.provider.id.as_str(), target.model.id.as_str());
        u32::try_from(hash >> (u64::BITS - TARGET_BITS)).unwrap_or_default()
    }
}

const MINUTE_MASK: u32 = (1 << MINUTE_BITS) - 1;

/// Returns the minute without its highest bits: silences of up to 68 hours are told apart.
fn minute(now_ms: u64) -> u32 {
    u32::try_from((now_ms / MINUTE_MS) & u64::from(MINUTE_MASK)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fixture::{NoOrigins, echo, target};
    use crate::plan::response_affinity::AffinityParams;
    use shared::access::Role;
    use shared::port::KeptTables as _;
    use shared::secret::Secret;

    fn tables() -> ResponseAffinity {
        ResponseAffinity::new(AffinityParams {
            table_key: Secret::new([1; 32]),
            state_key: Secret::new([1; 32]),
            origins: Arc::new(NoOrigins),
        })
    }

    #[test]
    fn a_session_is_forgotten_after_an_hour_of_silence() {
        let tables = tables();
        let [a, b] = ["a", "b"].map(|id| target(&Arc::new(echo(id, Default::default()))));
        for start in [0, 100, MINUTE_MASK - 30] {
            tables.note_session_at(7, &a, start);
            for (later, is_known) in [(0, true), (60, true), (61, false), (1_000, false), (4_095, false)] {
                let now = (start + later) & MINUTE_MASK;
                assert_eq!(tables.is_target_at(7, &a, now), is_known, "{start} + {later}");
                assert!(!tables.is_target_at(7, &b, now) && !tables.is_target_at(8, &a, now));
            }
        }
        tables.note_session_at(7, &b, 100);
        assert!(tables.is_target_at(7, &b, 100) && !tables.is_target_at(7, &a, 100), "the newest counts");
    }

    #[test]
    fn sessions_of_other_callers_and_endpoints_are_others() {
        let tables = tables();
        let [one, other] = ["key_1", "key_2"].map(|key| Access::new(key, Role::Project));
        let [line, fast] = ["line", "fast"].map(EndpointName::new);
        let first = tables.session(&one, &line, "s");
        assert_eq!(first, tables.session(&one, &line, "s"));
        for other in [
            tables.session(&other, &line, "s"),
            tables.session(&one, &fast, "s"),
            tables.session(&one, &line, "t"),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn sessions_survive_a_restart() {
        let before = tables();
        let served = target(&Arc::new(echo("a", Default::default())));
        before.note_session_at(7, &served, 9);
        let after = tables();
        assert!(after.restore(&before.content()));
        assert!(after.is_target_at(7, &served, 9));
    }
}
