//! Values of an instrument by the value of its own label.

use std::collections::BTreeMap;

use super::OTHER;

/// Values by label. Labels beyond `MAX` are counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variants<T, const MAX: usize = VARIANTS_MAX>(BTreeMap<Box<str>, T>);

impl<T, const MAX: usize> Default for Variants<T, MAX> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Default, const MAX: usize> Variants<T, MAX> {
    /// Changes the value of a label. Only a new label is allocated.
    pub(crate) fn update(&mut self, label: &str, change: impl FnOnce(&mut T)) {
        if let Some(value) = self.0.get_mut(label) {
            return change(value);
        }
        let label = if self.0.len() < MAX { label } else { OTHER };
        change(self.0.entry(label.into()).or_default());
    }
}

impl<T, const MAX: usize> Variants<T, MAX> {
    /// Returns the value of a label; `None` if it has none of its own.
    pub(crate) fn get(&self, label: &str) -> Option<&T> {
        self.0.get(label)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(label, value)| (&**label, value))
    }
}

/// There are fewer kinds of errors, results of attempts, and classes of tokens.
const VARIANTS_MAX: usize = 48;
