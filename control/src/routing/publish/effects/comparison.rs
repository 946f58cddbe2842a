//! The comparison of all callers before and after a change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use shared::access::{Access, Allowlist, Role};
use shared::id::{PrincipalId, ProjectId};
use shared::quota::{Quota, Subject};
use shared::routing::Target;
use shared::snapshot::Route;

use super::super::preview::{ChangePreview, PreviewedKey};
use super::{DeletedParts, Effects, KEYS_SHOWN, KeyEffect, SHOWN_MAX};
use crate::routing::selector_access::{Obstacle, SelectorAccess, listed, obstacle};

/// The comparison of all callers.
pub(super) struct Comparison<'a> {
    pub(super) preview: &'a ChangePreview,
    until: Instant,
    /// Selectors that exist before or after the change, in alphabetical order.
    all: Vec<&'a str>,
    /// The selectors that lead elsewhere after the change.
    pub(super) rerouted: Vec<&'a str>,
    /// The differences of callers whose access is the same.
    known: HashMap<(Option<CallerClass>, Option<CallerClass>), Rc<Difference<'a>>>,
    losing: Vec<(&'a str, Rc<Difference<'a>>)>,
    gaining: Vec<(&'a str, Rc<Difference<'a>>)>,
    /// The number of keys that newly lack a price, by the exact name of the model.
    pub(super) unpriced: BTreeMap<String, usize>,
    /// New keys that may use nothing.
    pub(super) useless: Vec<&'a str>,
    /// The number of keys to which a hard limit applies newly, or becomes stricter.
    limited: usize,
    is_complete: bool,
}

/// The properties that determine the access of a caller. Callers of one class may use the same selectors.
#[derive(Clone, PartialEq, Eq, Hash)]
struct CallerClass {
    /// The addresses of the allowlists and of the hard limits on cost, which are shared.
    lists: Vec<usize>,
    cost_limits: Vec<usize>,
    project: Option<ProjectId>,
    acts_as: Option<PrincipalId>,
}

/// The difference for one caller.
#[derive(Default)]
struct Difference<'a> {
    lost: Selectors<'a>,
    gained: Selectors<'a>,
    /// Models that the caller newly cannot use for lack of a price.
    unpriced: BTreeSet<String>,
}

/// Some selectors, of which the first are kept.
#[derive(Default)]
struct Selectors<'a> {
    first: Vec<&'a str>,
    total: usize,
}

impl<'a> Selectors<'a> {
    fn add(&mut self, selector: &'a str) {
        self.total += 1;
        if self.first.len() < SHOWN_MAX {
            self.first.push(selector);
        }
    }

    fn shown(&self, key: &str) -> KeyEffect {
        let selectors = self.first.iter().map(|selector| (*selector).to_owned()).collect();
        KeyEffect { key: key.to_owned(), key_name: None, selectors, selectors_total: self.total }
    }
}

impl CallerClass {
    fn of(access: &Access) -> Self {
        let cost_limits = access.quotas.iter().filter(|quota| quota.bounds_cost());
        Self {
            lists: access.allowlists.iter().map(|list| Arc::<Allowlist>::as_ptr(list).addr()).collect(),
            cost_limits: cost_limits.map(|quota| Arc::<Quota>::as_ptr(quota).addr()).collect(),
            project: access.project.clone(),
            acts_as: access.acts_as.clone(),
        }
    }
}

impl<'a> Comparison<'a> {
    pub(super) fn new(preview: &'a ChangePreview, until: Instant) -> Self {
        let (before, after) = (&preview.before, &preview.after);
        let names: BTreeSet<&str> = before.names().chain(after.names()).collect();
        let all: Vec<&str> = names.into_iter().collect();
        let rerouted = match Arc::ptr_eq(&before.routes, &after.routes) {
            true => Vec::new(),
            false => {
                let differs = |name: &&str| !is_same(before.of(name), after.of(name));
                all.iter().copied().filter(differs).collect()
            }
        };
        Self {
            preview,
            until,
            all,
            rerouted,
            known: HashMap::new(),
            losing: Vec::new(),
            gaining: Vec::new(),
            unpriced: BTreeMap::new(),
            useless: Vec::new(),
            limited: 0,
            is_complete: preview.is_complete,
        }
    }

    /// Compares the keys that the change affects directly, over all selectors.
    pub(super) fn changed_keys(&mut self) {
        let preview = self.preview;
        for PreviewedKey { id, hash, after } in &preview.keys {
            if self.is_late() {
                return;
            }
            let before = preview.callers.keys.get(hash).filter(|access| access.role == Role::Project);
            if let (Some(before), Some(after)) = (before, after) {
                self.limited += usize::from(is_limited(before, after));
            }
            let difference = self.difference(before.map(Arc::as_ref), after.as_ref(), Span::All);
            if before.is_none() && after.is_some() && difference.gained.total == 0 {
                self.useless.push(id);
            }
            self.note(id, difference);
        }
    }

    /// Compares all other keys, over the selectors that lead elsewhere.
    pub(super) fn other_keys(&mut self) {
        let preview = self.preview;
        if self.rerouted.is_empty() && preview.everywhere.is_none() {
            return;
        }
        let changed: BTreeSet<&str> = preview.keys.iter().map(|key| key.id.as_str()).collect();
        let others = preview.callers.keys.values().filter(|access| access.role == Role::Project);
        for access in others.filter(|access| !changed.contains(access.key.as_str())) {
            if self.is_late() {
                return;
            }
            let difference = match &preview.everywhere {
                None => self.difference(Some(access), Some(access), Span::Rerouted),
                Some(everywhere) => {
                    let after = with_limits(access, everywhere);
                    self.limited += usize::from(is_limited(access, &after));
                    self.difference(Some(access), Some(&after), Span::All)
                }
            };
            self.note(access.key.as_str(), difference);
        }
    }

    /// True if the time is up; the effects are then incomplete.
    fn is_late(&mut self) -> bool {
        let is_late = Instant::now() > self.until;
        self.is_complete &= !is_late;
        is_late
    }

    fn note(&mut self, key: &'a str, difference: Rc<Difference<'a>>) {
        for model in &difference.unpriced {
            *self.unpriced.entry(model.clone()).or_default() += 1;
        }
        if difference.lost.total > 0 {
            self.losing.push((key, Rc::clone(&difference)));
        }
        if difference.gained.total > 0 {
            self.gaining.push((key, difference));
        }
    }

    fn difference(
        &mut self,
        before: Option<&Access>,
        after: Option<&Access>,
        span: Span,
    ) -> Rc<Difference<'a>> {
        let class = (before.map(CallerClass::of), after.map(CallerClass::of));
        if let Some(known) = self.known.get(&class) {
            return Rc::clone(known);
        }
        let selectors = match span {
            Span::All => &self.all,
            Span::Rerouted => &self.rerouted,
        };
        let preview = self.preview;
        let mut difference = Difference::default();
        for selector in selectors {
            let route = (preview.before.of(selector), preview.after.of(selector));
            difference.compare(selector, before.zip(route.0), after.zip(route.1));
        }
        let difference = Rc::new(difference);
        self.known.insert(class, Rc::clone(&difference));
        difference
    }

    pub(super) fn effects(mut self) -> Effects {
        self.losing.sort_by_key(|(key, _)| *key);
        self.gaining.sort_by_key(|(key, _)| *key);
        let warnings = self.warnings();
        Effects {
            loses: self.losing.iter().take(KEYS_SHOWN).map(|(key, found)| found.lost.shown(key)).collect(),
            gains: self.gaining.iter().take(KEYS_SHOWN).map(|(key, found)| found.gained.shown(key)).collect(),
            keys_losing: self.losing.len(),
            keys_gaining: self.gaining.len(),
            keys_limited: self.limited,
            deletes: DeletedParts::default(),
            endpoints: self.thinned(),
            warnings,
            complete: self.is_complete,
        }
    }
}

/// The selectors that a comparison looks at.
#[derive(Clone, Copy)]
enum Span {
    All,
    Rerouted,
}

impl<'a> Difference<'a> {
    fn compare(
        &mut self,
        selector: &'a str,
        before: Option<(&Access, &Route)>,
        after: Option<(&Access, &Route)>,
    ) {
        let found = |side: Option<(&Access, &Route)>| {
            side.map(|(access, route)| SelectorAccess::of(access, route)).unwrap_or_default()
        };
        let (was, is) = (found(before), found(after));
        match (was.is_allowed(), is.is_allowed()) {
            (true, false) => self.lost.add(selector),
            (false, true) => self.gained.add(selector),
            (true, true) | (false, false) => {}
        }
        if let Some((access, route)) = after
            && is.reasons.contains(&Obstacle::NoPrice)
            && !was.reasons.contains(&Obstacle::NoPrice)
        {
            let lacks_price =
                |target: &&Target| obstacle(access, route.endpoint(), target) == Some(Obstacle::NoPrice);
            let targets = listed(route).iter().filter(lacks_price);
            self.unpriced.extend(targets.map(|target| format!("{}/{}", target.provider.id, target.model.id)));
        }
    }
}

/// Returns the access of a key after the limits of the gateway and of providers have changed.
fn with_limits(access: &Access, everywhere: &[Arc<Quota>]) -> Access {
    let is_own = |quota: &&Arc<Quota>| !matches!(quota.subject, Subject::Provider | Subject::Gateway);
    Access {
        key: access.key.clone(),
        role: access.role,
        project: access.project.clone(),
        acts_as: access.acts_as.clone(),
        expires_at_ms: access.expires_at_ms,
        tags: access.tags.clone(),
        allowlists: access.allowlists.clone(),
        quotas: access.quotas.iter().filter(is_own).chain(everywhere).cloned().collect(),
    }
}

/// True if a hard limit binds the caller only after the change, or is lower then.
fn is_limited(before: &Access, after: &Access) -> bool {
    let is_known = |limit: &Arc<Quota>| {
        let mut known = before.quotas.iter().filter(|known| known.is_hard && known.id == limit.id);
        known.any(|known| known.limit <= limit.limit)
    };
    after.quotas.iter().any(|limit| limit.is_hard && !is_known(limit))
}

/// True if a selector leads to the same targets, with the same owners, for everyone.
fn is_same(before: Option<&Route>, after: Option<&Route>) -> bool {
    let (Some(before), Some(after)) = (before, after) else { return before.is_none() == after.is_none() };
    let (one, other) = (listed(before), listed(after));
    std::mem::discriminant(before) == std::mem::discriminant(after)
        && one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| {
            is_target(one, other)
                && one.provider.owner == other.provider.owner
                && one.provider.shared_with == other.provider.shared_with
                && one.provider.unready.is_some() == other.provider.unready.is_some()
                && one.model.prices.is_some() == other.model.prices.is_some()
        })
}

pub(super) fn is_target(one: &Target, other: &Target) -> bool {
    one.provider.id == other.provider.id && one.model.id == other.model.id
}
