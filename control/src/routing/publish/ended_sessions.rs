//! The console sessions that were ended before their time, in memory: no request reads them from the database. A ticket is
//! valid by itself, so whatever is missing here is open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::db::ended_sessions::SessionEnd;

/// The ended sessions. The publisher writes them, and the authentication of the admin API reads them.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndedSessions(Arc<Mutex<EndsByHolder>>);

/// The ends by holder, and by the digest of the session's ID.
type EndsByHolder = HashMap<String, HashMap<String, SessionEnd>>;

impl EndedSessions {
    /// True if the session of a holder, which began at this time, was ended.
    pub(crate) fn contains(&self, holder: &str, session: &str, began_ms: u64) -> bool {
        let ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of_holder) = ends.get(holder) else { return false };
        of_holder.contains_key(session) || of_holder.get(ALL).is_some_and(|all| began_ms <= all.began_ms)
    }

    /// Adds ends, and removes those that are out of date.
    pub(super) fn add(&self, added: Vec<SessionEnd>, now_ms: u64) {
        if added.is_empty() {
            return;
        }
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        added.into_iter().for_each(|end| add(&mut ends, end));
        ends.retain(|_, of_holder| {
            of_holder.retain(|_, end| end.until_ms > now_ms);
            !of_holder.is_empty()
        });
    }
}

/// Adds an end by the rules of the table `ended_sessions`, so that the memory has the same bound.
fn add(ends: &mut EndsByHolder, end: SessionEnd) {
    let of_holder = ends.entry(end.holder.clone()).or_default();
    let (is_of_all, began_ms) = (end.is_of_all(), end.began_ms);
    let known = of_holder.entry(end.session.clone()).or_insert_with(|| end.clone());
    if known.began_ms < began_ms {
        *known = end;
    }
    if is_of_all {
        of_holder.retain(|session, end| session == ALL || end.began_ms > began_ms);
    }
}

/// The digest in the end of all sessions of a holder.
const ALL: &str = "";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_all_covers_the_sessions_that_began_before_it() {
        let ended = EndedSessions::default();
        let single = |session: &str, began_ms| SessionEnd {
            session: session.to_owned(),
            ..SessionEnd::of_human("ada", began_ms)
        };
        ended.add(vec![single("one", 5), single("two", 9)], 0);
        assert!(ended.contains("principal/ada", "one", 5) && ended.contains("principal/ada", "two", 9));
        assert!(!ended.contains("principal/ada", "three", 5) && !ended.contains("principal/bob", "one", 5));
        ended.add(vec![SessionEnd::of_human("ada", 7), SessionEnd::of_human("ada", 6)], 0);
        assert!(ended.contains("principal/ada", "three", 7) && !ended.contains("principal/ada", "three", 8));
        assert!(ended.contains("principal/ada", "one", 5) && ended.contains("principal/ada", "two", 9));
        assert_eq!(ended.0.lock().unwrap()["principal/ada"].len(), 2, "the end of all and the later one");
    }

    #[test]
    fn ends_that_are_out_of_date_are_removed() {
        let ended = EndedSessions::default();
        let first = SessionEnd::of_human("ada", 1);
        let until_ms = first.until_ms;
        ended.add(vec![first], 1);
        ended.add(vec![SessionEnd::of_human("bob", 2)], until_ms);
        assert_eq!(ended.0.lock().unwrap().keys().collect::<Vec<_>>(), ["principal/bob"]);
    }
}
