//! All limits in memory, indexed for finding those that count a request or record.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use records::{Record, RecordName, Trace};
use shared::quota::Subject;

use super::spent::parts;
use super::{ALL, Of, QuotaRow, of_subject};
use crate::db::engine::{Db, DbResult};
use crate::db::keys::{self, OpeningKey};

/// Limits by subject, in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    by_subject: HashMap<Of, Vec<Arc<QuotaRow>>>,
}

impl Rules {
    /// Loads all limits.
    pub(crate) fn load(db: &Db) -> DbResult<Self> {
        let mut rules = Self::default();
        rules.add(db, ALL)?;
        if rules.by_subject.keys().any(|of| of.kind == Subject::Key) {
            rules.load_families(db)?;
        }
        Ok(rules)
    }

    /// Returns the limits in `rules`, loaded on first use.
    pub(crate) fn loaded<'a>(rules: &'a mut Option<Self>, db: &Db) -> DbResult<&'a Self> {
        match rules {
            Some(rules) => Ok(rules),
            None => Ok(rules.insert(Self::load(db)?)),
        }
    }

    /// Loads the limits of `subjects`, and those that may count a request of one of these keys.
    pub(crate) fn load_of(
        db: &Db,
        openings: &[OpeningKey],
        subjects: impl IntoIterator<Item = Of>,
    ) -> DbResult<Self> {
        let mut rules = Self::default();
        rules.add(db, EVERYWHERE)?;
        // A subject without limits leaves no trace in the rules.
        let mut read = HashSet::new();
        for of in subjects {
            rules.refresh(db, &of)?;
            read.insert(of);
        }
        for key in openings {
            rules.refresh_key(db, &key.id)?;
            let owners = [(Subject::Project, Some(&key.project)), (Subject::Principal, key.acts_as.as_ref())];
            for (kind, id) in owners {
                let Some(id) = id else { continue };
                let of = Of { kind, id: id.clone() };
                if !read.contains(&of) {
                    rules.refresh(db, &of)?;
                    read.insert(of);
                }
            }
        }
        Ok(rules)
    }

    /// Reloads the limits of a project or human.
    pub(crate) fn refresh(&mut self, db: &Db, of: &Of) -> DbResult<()> {
        self.set(of, of_subject(db, of)?.into_iter().map(Arc::new).collect());
        Ok(())
    }

    /// Reloads the limits of a key's family.
    pub(crate) fn refresh_key(&mut self, db: &Db, key: &str) -> DbResult<()> {
        let Some(family) = keys::family(db, key)? else { return Ok(()) };
        let of = Of { kind: Subject::Key, id: family };
        let rows: Vec<_> = of_subject(db, &of)?.into_iter().map(Arc::new).collect();
        for id in keys::of_family(db, &of.id)? {
            self.set(&Of { kind: Subject::Key, id }, rows.clone());
        }
        self.set(&of, rows);
        Ok(())
    }

    fn add(&mut self, db: &Db, sql: &str) -> DbResult<()> {
        let mut statement = db.prepare(sql)?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let row = Arc::new(QuotaRow::of(row)?);
            self.by_subject.entry(row.counted.subject.clone()).or_default().push(row);
        }
        Ok(())
    }

    fn set(&mut self, of: &Of, rows: Vec<Arc<QuotaRow>>) {
        if rows.is_empty() {
            self.by_subject.remove(of);
        } else {
            self.by_subject.insert(of.clone(), rows);
        }
    }

    /// True if there are no limits.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_subject.is_empty()
    }

    /// Returns every limit once.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<QuotaRow>> {
        // The map contains the limits of a family under each of its keys.
        let own = |(of, rows): (&Of, &'_ Vec<Arc<QuotaRow>>)| {
            rows.first().is_some_and(|row| row.counted.subject == *of)
        };
        self.by_subject.iter().filter(move |entry| own(*entry)).flat_map(|(_, rows)| rows)
    }

    /// Adds an entry for each key of a family with limits, because records and requests contain the key's id.
    fn load_families(&mut self, db: &Db) -> DbResult<()> {
        let mut statement = db.prepare(LIMITED_KEYS)?;
        let mut keys = statement.query(())?;
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

    /// Returns the limits of these subjects. A subject that does not exist is passed as an empty id.
    pub(crate) fn of<'a, const N: usize>(
        &'a self,
        subjects: [(Subject, &str); N],
    ) -> impl Iterator<Item = &'a Arc<QuotaRow>> + use<'a, N> {
        let subjects = subjects.map(|(kind, id)| Of { kind, id: id.to_owned() });
        subjects.into_iter().filter_map(|of| self.by_subject.get(&of)).flatten()
    }

    /// Returns the limits that count the usage of an exchange at a provider instance's model. Limits of the gateway and
    /// of humans count only exchanges of project keys: an administrator may act as a human too.
    pub(crate) fn of_record<'a>(
        &'a self,
        record: &Record<'a>,
        (provider, model): (&'a str, &'a str),
    ) -> impl Iterator<Item = &'a Arc<QuotaRow>> + use<'a> {
        let (project, endpoint) = (record.name(RecordName::Project), record.name(RecordName::Endpoint));
        let is_administrators = project.is_empty();
        let gateway = self.by_subject.get(&GATEWAY).filter(|_| !is_administrators);
        let subjects = [
            (Subject::Key, record.name(RecordName::Key)),
            (Subject::Project, project),
            (Subject::Principal, if is_administrators { "" } else { record.name(RecordName::Principal) }),
            (Subject::Provider, provider),
        ];
        let rows = self.of(subjects).chain(gateway.into_iter().flatten());
        rows.filter(move |row| row.counted.covers(provider, model, endpoint))
    }

    /// Calls `each` with every limit that counts a part of an exchange, and the amount, unless that is 0.
    pub(crate) fn each_amount(
        &self,
        record: &Record<'_>,
        trace: Trace<'_>,
        mut each: impl FnMut(&QuotaRow, u64),
    ) {
        if self.is_empty() {
            return;
        }
        for (spent, target) in parts(record, trace) {
            for row in self.of_record(record, target) {
                if let Some(amount) = spent.amount(row.metric).filter(|amount| *amount > 0) {
                    each(row, amount);
                }
            }
        }
    }
}

/// The subject of limits on the whole gateway.
const GATEWAY: Of = Of { kind: Subject::Gateway, id: String::new() };

const EVERYWHERE: &str = "SELECT * FROM quotas WHERE kind IN ('provider', 'gateway') ORDER BY id";
const LIMITED_KEYS: &str = "SELECT id, family FROM keys \
     WHERE family IN (SELECT subject FROM quotas WHERE kind = 'key') \
     UNION ALL SELECT id, family FROM former_keys \
     WHERE family IN (SELECT subject FROM quotas WHERE kind = 'key')";
