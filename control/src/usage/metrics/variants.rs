//! Values of an instrument by the value of its own label.

use std::collections::BTreeMap;

use super::OTHER;

/// Values by label. Labels beyond [`VARIANTS_MAX`] are counted together.
#[derive(Clone, Debug)]
pub(super) struct Variants<T>(BTreeMap<Box<str>, T>);

impl<T> Default for Variants<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Default> Variants<T> {
    /// Returns the value of a label.
    pub(super) fn of(&mut self, label: &str) -> &mut T {
        let is_known = self.0.len() < VARIANTS_MAX || self.0.contains_key(label);
        self.0.entry(if is_known { label } else { OTHER }.into()).or_default()
    }
}

impl<T> Variants<T> {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(label, value)| (&**label, value))
    }
}

/// There are fewer kinds of errors, results of attempts, and classes of tokens.
const VARIANTS_MAX: usize = 48;
