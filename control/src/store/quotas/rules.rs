//! All limits in memory, found by the requests and records that they count.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::Connection;
use shared::quota::Subject;

use super::{ALL, Of, Row};
use crate::store::record::{Name, Record};

/// All limits, by the key, project or human that they bind.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) all: Vec<Arc<Row>>,
    by_subject: HashMap<Of, Vec<Arc<Row>>>,
}

impl Rules {
    pub(crate) fn load(db: &Connection) -> rusqlite::Result<Self> {
        let mut rules = Self::default();
        for row in db.prepare_cached(ALL)?.query_map([], Row::of)? {
            let row = Arc::new(row?);
            rules.by_subject.entry(row.counted.subject.clone()).or_default().push(Arc::clone(&row));
            rules.all.push(row);
        }
        if rules.all.iter().any(|row| row.counted.subject.kind == Subject::Key) {
            rules.load_families(db)?;
        }
        Ok(rules)
    }

    /// Adds each key of a family with limits, because records and requests name the key.
    fn load_families(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let mut statement = db.prepare_cached(LIMITED_KEYS)?;
        let mut keys = statement.query([])?;
        while let Some(found) = keys.next()? {
            let (key, family): (String, String) = (found.get("id")?, found.get("family")?);
            if key != family
                && let Some(rows) = self.by_subject.get(&Of { kind: Subject::Key, id: family })
            {
                let rows = rows.clone();
                self.by_subject.insert(Of { kind: Subject::Key, id: key }, rows);
            }
        }
        Ok(())
    }

    /// The limits that bind a key of this project that acts as this human; what is not there is empty.
    pub(crate) fn of<'a, const N: usize>(
        &'a self,
        subjects: [(Subject, &str); N],
    ) -> impl Iterator<Item = &'a Arc<Row>> + use<'a, N> {
        let subjects = subjects.map(|(kind, id)| Of { kind, id: id.to_owned() });
        subjects.into_iter().filter_map(|of| self.by_subject.get(&of)).flatten()
    }

    /// The limits that count what an exchange used at a model of a provider instance. Those of the gateway and of
    /// humans count exchanges of project keys only: an administrator may act as a human too.
    pub(crate) fn of_record<'a>(
        &'a self,
        record: &Record<'a>,
        (provider, model): (&'a str, &'a str),
    ) -> impl Iterator<Item = &'a Arc<Row>> + use<'a> {
        let (project, endpoint) = (record.name(Name::Project), record.name(Name::Endpoint));
        let is_administrators = project.is_empty();
        let gateway = self.by_subject.get(&GATEWAY).filter(|_| !is_administrators);
        let subjects = [
            (Subject::Key, record.name(Name::Key)),
            (Subject::Project, project),
            (Subject::Principal, if is_administrators { "" } else { record.name(Name::Principal) }),
            (Subject::Provider, provider),
        ];
        let rows = self.of(subjects).chain(gateway.into_iter().flatten());
        rows.filter(move |row| row.counted.covers(provider, model, endpoint))
    }
}

/// The subject of the limits of the whole gateway.
const GATEWAY: Of = Of { kind: Subject::Gateway, id: String::new() };

const LIMITED_KEYS: &str = "SELECT id, family FROM keys \
     WHERE family IN (SELECT subject FROM quotas WHERE kind = 'key') \
     UNION ALL SELECT id, family FROM former_keys \
     WHERE family IN (SELECT subject FROM quotas WHERE kind = 'key')";
