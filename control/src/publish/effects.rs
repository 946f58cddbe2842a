//! The effects of a change on callers and endpoints: a comparison of two routing views and of the access to them,
//! computed away from the writer thread and within a time limit.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use shared::access::{Access, Allowlist, Role};
use shared::id::{PrincipalId, ProjectId};
use shared::quota::{Quota, Subject};
use shared::routing::{Endpoint, Target};
use shared::snapshot::Route;

use super::preview::{ChangePreview, PreviewedKey};
use crate::selector_access::{Obstacle, SelectorAccess, listed, obstacle};

/// The effects of a change.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Effects {
    /// Keys that lose selectors, in the order of their ids; at most 100.
    pub(crate) loses: Vec<KeyEffect>,
    /// Keys that gain selectors, in the order of their ids; at most 100.
    pub(crate) gains: Vec<KeyEffect>,
    /// The number of keys that lose selectors.
    pub(crate) keys_losing: usize,
    /// The number of keys that gain selectors.
    pub(crate) keys_gaining: usize,
    /// The names of the endpoints that lose a target.
    pub(crate) endpoints: Vec<String>,
    pub(crate) warnings: Vec<EffectWarning>,
    /// False if more keys may be affected: there are too many of them, or comparing them took too long.
    pub(crate) complete: bool,
}

/// The selectors that a key loses or gains.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct KeyEffect {
    /// The id of the key.
    pub(crate) key: String,
    /// The name of the key; null for a key that the change creates.
    pub(crate) key_name: Option<String>,
    /// The selectors in alphabetical order; at most 20.
    pub(crate) selectors: Vec<String>,
    /// The number of selectors.
    pub(crate) selectors_total: usize,
}

/// A consequence that does not prevent the change.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct EffectWarning {
    /// `no_price`, `alias_replaced`, `alias_ambiguous`, `endpoint_without_target` or `key_without_selector`.
    pub(crate) code: &'static str,
    /// The field of the request that causes it, if known.
    pub(crate) param: Option<&'static str>,
    pub(crate) message: String,
    /// The names of the models, endpoints or keys that the warning is about; at most 20.
    pub(crate) objects: Vec<String>,
}

impl ChangePreview {
    /// Compares the access of all callers before and after the change. Stops at `until`.
    pub(crate) fn effects(&self, until: Instant) -> Effects {
        let mut comparison = Comparison::new(self, until);
        comparison.changed_keys();
        comparison.other_keys();
        comparison.effects()
    }
}

/// The comparison of all callers.
struct Comparison<'a> {
    preview: &'a ChangePreview,
    until: Instant,
    /// Selectors that exist before or after the change, in alphabetical order.
    all: Vec<&'a str>,
    /// The selectors that lead elsewhere after the change.
    rerouted: Vec<&'a str>,
    /// The differences of callers whose access is the same.
    known: HashMap<(Option<CallerClass>, Option<CallerClass>), Rc<Difference<'a>>>,
    losing: Vec<(&'a str, Rc<Difference<'a>>)>,
    gaining: Vec<(&'a str, Rc<Difference<'a>>)>,
    /// The number of keys that newly lack a price, by the exact name of the model.
    unpriced: BTreeMap<String, usize>,
    /// New keys that may use nothing.
    useless: Vec<&'a str>,
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
    fn new(preview: &'a ChangePreview, until: Instant) -> Self {
        let (before, after) = (&preview.before.routes, &preview.after.routes);
        let names: BTreeSet<&str> = before.keys().chain(after.keys()).map(|name| &**name).collect();
        let all: Vec<&str> = names.into_iter().collect();
        let rerouted = match Arc::ptr_eq(before, after) {
            true => Vec::new(),
            false => {
                let differs = |name: &&str| !is_same(before.get(*name), after.get(*name));
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
            is_complete: preview.is_complete,
        }
    }

    /// Compares the keys that the change affects directly, over all selectors.
    fn changed_keys(&mut self) {
        let preview = self.preview;
        for PreviewedKey { id, hash, after } in &preview.keys {
            if self.is_late() {
                return;
            }
            let before = preview.callers.keys.get(hash).filter(|access| access.role == Role::Project);
            let difference = self.difference(before.map(Arc::as_ref), after.as_ref(), Span::All);
            if before.is_none() && after.is_some() && difference.gained.total == 0 {
                self.useless.push(id);
            }
            self.note(id, difference);
        }
    }

    /// Compares all other keys, over the selectors that lead elsewhere.
    fn other_keys(&mut self) {
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
            let route = (preview.before.routes.get(*selector), preview.after.routes.get(*selector));
            difference.compare(selector, before.zip(route.0), after.zip(route.1));
        }
        let difference = Rc::new(difference);
        self.known.insert(class, Rc::clone(&difference));
        difference
    }

    fn effects(mut self) -> Effects {
        self.losing.sort_by_key(|(key, _)| *key);
        self.gaining.sort_by_key(|(key, _)| *key);
        let warnings = self.warnings();
        Effects {
            loses: self.losing.iter().take(KEYS_SHOWN).map(|(key, found)| found.lost.shown(key)).collect(),
            gains: self.gaining.iter().take(KEYS_SHOWN).map(|(key, found)| found.gained.shown(key)).collect(),
            keys_losing: self.losing.len(),
            keys_gaining: self.gaining.len(),
            endpoints: self.thinned(),
            warnings,
            complete: self.is_complete,
        }
    }

    /// Returns the names of the endpoints that lose a target.
    fn thinned(&self) -> Vec<String> {
        let (before, after) = (&self.preview.before.endpoints, &self.preview.after.endpoints);
        let loses = |endpoint: &&Arc<Endpoint>| {
            let kept = endpoint_named(after, endpoint);
            kept.is_some_and(|kept| endpoint.targets.iter().any(|target| !has(&kept.targets, target)))
        };
        before.iter().filter(loses).map(|endpoint| endpoint.name.to_string()).collect()
    }

    fn warnings(&self) -> Vec<EffectWarning> {
        let mut warnings: Vec<_> = self.unpriced_warning().into_iter().collect();
        let aliases = self.rerouted.iter().filter_map(|name| self.alias_warning(name));
        warnings.extend(aliases.take(WARNINGS_MAX));
        let (before, after) = (&self.preview.before.endpoints, &self.preview.after.endpoints);
        let had_targets = |endpoint: &Arc<Endpoint>| {
            endpoint_named(before, endpoint).is_none_or(|before| !before.targets.is_empty())
        };
        let empty = after.iter().filter(|endpoint| endpoint.targets.is_empty() && had_targets(endpoint));
        warnings.extend(empty.take(WARNINGS_MAX).map(|endpoint| EffectWarning {
            code: "endpoint_without_target",
            param: None,
            message: format!("The endpoint '{}' has no target left. Requests for it fail.", endpoint.name),
            objects: vec![endpoint.name.to_string()],
        }));
        if !self.useless.is_empty() {
            let message =
                "The key can use no model and no endpoint: its lists, or those of its project, permit none.";
            warnings.push(EffectWarning {
                code: "key_without_selector",
                param: None,
                message: message.to_owned(),
                objects: self.useless.iter().take(SHOWN_MAX).map(|key| (*key).to_owned()).collect(),
            });
        }
        warnings
    }

    /// Returns the warning about models without a price for keys with a hard limit on cost. Targets of endpoints are
    /// named first.
    fn unpriced_warning(&self) -> Option<EffectWarning> {
        let keys = self.unpriced.values().max()?;
        let is_target = |name: &String| {
            let mut targets = self.preview.after.endpoints.iter().flat_map(|endpoint| &endpoint.targets);
            targets.any(|target| is_named(target, name))
        };
        let (targets, others): (Vec<_>, Vec<_>) = self.unpriced.keys().partition(|name| is_target(name));
        let objects: Vec<String> = targets.into_iter().chain(others).take(SHOWN_MAX).cloned().collect();
        let more = self.unpriced.len().saturating_sub(NAMED_MAX);
        let named: Vec<&str> = objects.iter().take(NAMED_MAX).map(String::as_str).collect();
        let mut names = named.join(", ");
        if more > 0 {
            names.push_str(&format!(" and {more} more"));
        }
        let whose = if *keys == 1 {
            "A key with a cost limit".to_owned()
        } else {
            format!("{keys} keys with a cost limit")
        };
        let message =
            format!("The price of {names} is not known. {whose} cannot use it. Set the price, or no limit.");
        Some(EffectWarning { code: "no_price", param: None, message, objects })
    }

    /// Returns the warning about a bare model name that means something else after the change.
    fn alias_warning(&self, name: &str) -> Option<EffectWarning> {
        let Route::Alias(target) = self.preview.before.routes.get(name)? else { return None };
        let exact = format!("{}/{}", target.provider.id, target.model.id);
        let (code, param, consequence) = match self.preview.after.routes.get(name) {
            Some(Route::Endpoint(_)) => {
                ("alias_replaced", "name", "Requests with this name will use the endpoint.")
            }
            Some(Route::Ambiguous(_)) => (
                "alias_ambiguous",
                "models",
                "Several models will have this name: callers who may use more than one of them get an error.",
            ),
            None if self.preview.after.routes.contains_key(exact.as_str()) => {
                ("alias_replaced", "id", "A provider will have this name: requests with it get an error.")
            }
            Some(Route::Alias(_) | Route::Model(_)) | None => return None,
        };
        Some(EffectWarning {
            code,
            param: Some(param),
            message: format!("'{name}' means '{exact}' today. {consequence}"),
            objects: vec![name.to_owned(), exact],
        })
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
        allowlists: access.allowlists.clone(),
        quotas: access.quotas.iter().filter(is_own).chain(everywhere).cloned().collect(),
    }
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

fn is_target(one: &Target, other: &Target) -> bool {
    one.provider.id == other.provider.id && one.model.id == other.model.id
}

fn is_named(target: &Target, exact: &str) -> bool {
    exact.split_once('/') == Some((target.provider.id.as_str(), target.model.id.as_str()))
}

fn has(targets: &[Target], wanted: &Target) -> bool {
    targets.iter().any(|target| is_target(target, wanted))
}

fn endpoint_named<'a>(endpoints: &'a [Arc<Endpoint>], wanted: &Endpoint) -> Option<&'a Arc<Endpoint>> {
    let place = endpoints.binary_search_by(|endpoint| endpoint.name.cmp(&wanted.name)).ok()?;
    endpoints.get(place)
}

/// The most keys in each of the two lists.
const KEYS_SHOWN: usize = 100;
/// The most selectors of a key, and the most objects of a warning.
const SHOWN_MAX: usize = 20;
/// The most models that the text of a warning names.
const NAMED_MAX: usize = 5;
/// The most warnings of a kind.
const WARNINGS_MAX: usize = 20;
