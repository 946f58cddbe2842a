//! Values of an instrument by the value of its own label.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use shared::bound::Bound;

use super::OTHER;
use crate::common::bounds::METRIC_VARIANTS;

/// Values by label. Labels beyond the bound are counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variants<T, B = OfInstrument>(BTreeMap<Box<str>, T>, PhantomData<B>);

/// The bound of the labels of a kind.
pub(crate) trait LabelBound {
    /// Returns the bound.
    fn bound() -> &'static Bound;
}

/// The labels of an instrument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfInstrument;

impl LabelBound for OfInstrument {
    fn bound() -> &'static Bound {
        &METRIC_VARIANTS
    }
}

impl<T, B> Default for Variants<T, B> {
    fn default() -> Self {
        Self(BTreeMap::new(), PhantomData)
    }
}

impl<T: Default, B: LabelBound> Variants<T, B> {
    /// Changes the value of a label. Only a new label is allocated.
    pub(crate) fn update(&mut self, label: &str, change: impl FnOnce(&mut T)) {
        if let Some(value) = self.0.get_mut(label) {
            return change(value);
        }
        let label = if B::bound().is_full(self.0.len()) { OTHER } else { label };
        change(self.0.entry(label.into()).or_default());
    }
}

impl<T, B> Variants<T, B> {
    /// Returns the value of a label; `None` if it has none of its own.
    pub(crate) fn get(&self, label: &str) -> Option<&T> {
        self.0.get(label)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(label, value)| (&**label, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::tests::passes;

    #[test]
    fn labels_beyond_the_maximum_are_counted_together() {
        let mut variants = Variants::<u64>::default();
        let names: Vec<String> = (0..METRIC_VARIANTS.max() + 2).map(|n| n.to_string()).collect();
        passes(&METRIC_VARIANTS, || names.iter().for_each(|name| variants.update(name, |sum| *sum += 1)));
        assert_eq!(variants.iter().map(|(_, sum)| sum).sum::<u64>(), names.len() as u64);
        assert_eq!(variants.iter().find(|(name, _)| *name == OTHER), Some((OTHER, &2)));
    }
}
