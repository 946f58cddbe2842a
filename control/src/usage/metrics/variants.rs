//! Values of an instrument by the value of its own label.

use std::collections::BTreeMap;

use super::OTHER;

/// Values by label. Labels beyond [`VARIANTS_MAX`] are counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variants<T>(BTreeMap<Box<str>, T>);

impl<T> Default for Variants<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Default> Variants<T> {
    /// Changes the value of a label. Only a new label is allocated.
    pub(crate) fn update(&mut self, label: &str, change: impl FnOnce(&mut T)) {
        if let Some(value) = self.0.get_mut(label) {
            return change(value);
        }
        let label = if self.0.len() < VARIANTS_MAX { label } else { OTHER };
        change(self.0.entry(label.into()).or_default());
    }
}

impl<T> Variants<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(label, value)| (&**label, value))
    }
}

/// There are fewer kinds of errors, results of attempts, and classes of tokens.
const VARIANTS_MAX: usize = 48;
