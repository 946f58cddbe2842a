//! The short text in a record that identifies the prices used for its cost.

use std::sync::Arc;

use ring::digest::{SHA256, digest};

use super::Prices;
use super::form::fields;
use crate::hex;
use crate::usage::Class;

impl Prices {
    /// Returns a text that identifies these prices and their source (`source`, optionally with a date), such as
    /// `config in 0.59 cached 0 out 0.79`: the standard tier's prices as written. Thresholds, tiers and image prices
    /// are shortened to a digest. Equal prices from one source have equal labels.
    pub fn label(&self, source: &str) -> Arc<str> {
        let mut label = source.to_owned();
        for field in fields() {
            if let Some(femto) = self.base.rates.get(field.class) {
                label.push_str(&format!(" {} {}", short(field.class, field.name), field.text(femto)));
            }
        }
        if let Some(tokens) = self.base.input_tokens_max {
            label.push_str(&format!(" up to {tokens}"));
        }
        if !(self.tiers.is_empty() && self.base.above.is_empty() && self.base.pictures.is_empty()) {
            let more = format!("{:?}{:?}{:?}", self.tiers, self.base.above, self.base.pictures);
            let digest = digest(&SHA256, more.as_bytes());
            label.push_str(" more ");
            label.push_str(&hex::encode(digest.as_ref().get(..4).unwrap_or_default()));
        }
        label.into()
    }
}

fn short(class: Class, name: &'static str) -> &'static str {
    match class {
        Class::Input => "in",
        Class::CacheRead => "cached",
        Class::CacheWrite => "write",
        Class::CacheWrite1h => "write_1h",
        Class::Output => "out",
        _ => name,
    }
}
