//! The endpoints that lose targets, and the warnings about a change.

use std::sync::Arc;

use shared::routing::{Endpoint, Target};
use shared::snapshot::Route;

use super::comparison::{Comparison, is_target};
use super::{EffectWarning, SHOWN_MAX};
use crate::common::bounds::EFFECT_WARNINGS;

impl Comparison<'_> {
    /// Returns the names of the endpoints that lose a target.
    pub(super) fn thinned(&self) -> Vec<String> {
        let (before, after) = (&self.preview.before.endpoints, &self.preview.after.endpoints);
        let loses = |endpoint: &&Arc<Endpoint>| {
            let kept = endpoint_named(after, endpoint);
            kept.is_some_and(|kept| endpoint.targets.iter().any(|target| !has(&kept.targets, target)))
        };
        before.iter().filter(loses).map(|endpoint| endpoint.name.to_string()).collect()
    }

    pub(super) fn warnings(&self) -> Vec<EffectWarning> {
        let mut warnings: Vec<_> = self.unpriced_warning().into_iter().collect();
        let aliases = self.rerouted.iter().filter_map(|name| self.alias_warning(name));
        warnings.extend(bounded(aliases));
        let (before, after) = (&self.preview.before.endpoints, &self.preview.after.endpoints);
        let had_targets = |endpoint: &Arc<Endpoint>| {
            endpoint_named(before, endpoint).is_none_or(|before| !before.targets.is_empty())
        };
        let empty = after.iter().filter(|endpoint| endpoint.targets.is_empty() && had_targets(endpoint));
        warnings.extend(bounded(empty.map(|endpoint| EffectWarning {
            code: "endpoint_without_target",
            param: None,
            message: format!("The endpoint '{}' has no target left. Requests for it fail.", endpoint.name),
            objects: vec![endpoint.name.to_string()],
        })));
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
    /// named first, those before the others that are tried first.
    fn unpriced_warning(&self) -> Option<EffectWarning> {
        let keys = self.unpriced.values().max()?;
        let place = |name: &String| {
            let places = self.preview.after.endpoints.iter();
            places
                .filter_map(|endpoint| endpoint.targets.iter().position(|target| is_named(target, name)))
                .min()
        };
        let mut named: Vec<_> =
            self.unpriced.keys().map(|name| (place(name).unwrap_or(usize::MAX), name)).collect();
        named.sort();
        let objects: Vec<String> = named.into_iter().take(SHOWN_MAX).map(|(_, name)| name.clone()).collect();
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
            Some(Route::Endpoint(endpoint)) => {
                let param = if endpoint.name.as_str() == name { "name" } else { "also" };
                ("alias_replaced", param, "Requests with this name will use the endpoint.")
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

/// Returns the first warnings of a kind.
fn bounded(warnings: impl Iterator<Item = EffectWarning>) -> Vec<EffectWarning> {
    let mut warnings: Vec<_> = warnings.collect();
    EFFECT_WARNINGS.cut(&mut warnings);
    warnings
}

/// The most models that the text of a warning names.
const NAMED_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::tests::passes;

    #[test]
    fn warnings_beyond_the_maximum_are_left_out_and_counted() {
        let warning = |n: usize| EffectWarning {
            code: "alias",
            param: None,
            message: n.to_string(),
            objects: Vec::new(),
        };
        let all = (0..=EFFECT_WARNINGS.max()).map(warning);
        let kept = passes(&EFFECT_WARNINGS, || bounded(all));
        assert_eq!((kept.len(), kept[0].message.as_str()), (EFFECT_WARNINGS.max(), "0"));
    }
}
