//! The rules of a provider instance for errors of its upstream. A rule that would never apply is a fault.

use shared::error_rule::{ErrorRule, ErrorThen};

use super::provider::{ProviderReader, key};
use super::raw;
use super::yaml::YamlStep;

impl ProviderReader<'_> {
    pub(super) fn error_rules(&mut self) -> Vec<ErrorRule> {
        let mut rules: Vec<ErrorRule> = Vec::new();
        for (place, raw) in self.raw.errors.iter().enumerate() {
            let at = [key("errors"), YamlStep::Item(place)];
            let Some(then) = raw.then else {
                self.note(&at, "then is missing: set next, retry, rest or stop");
                continue;
            };
            if raw.status.is_none() && raw.contains.is_none() {
                self.note(&at, "fits every error: set status, contains or both");
                continue;
            }
            let contains = raw.contains.as_deref().map(|text| text.to_lowercase().into());
            let rule = ErrorRule { status: raw.status, contains, then: step(then) };
            if let Some(earlier) = rules.iter().position(|earlier| earlier.covers(&rule)) {
                let message = format!(
                    "has no effect: errors[{earlier}] fits the same errors; move it up, or remove it"
                );
                self.note(&at, message);
            }
            rules.push(rule);
        }
        rules
    }
}

fn step(raw: raw::ErrorStep) -> ErrorThen {
    match raw {
        raw::ErrorStep::Next => ErrorThen::Next,
        raw::ErrorStep::Retry => ErrorThen::Retry,
        raw::ErrorStep::Rest => ErrorThen::Rest,
        raw::ErrorStep::Stop => ErrorThen::Stop,
    }
}
