//! The consumption that an answer reports in addition to its tokens.

use shared::usage::Units;

/// Units, service tier, picture kind and the vendor's own cost. Each value is a running total: a later report replaces
/// an earlier one and is never added to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Consumption that is not counted in tokens.
    pub units: Units,
    /// The service tier, as in [`UsageEvent::tier`](shared::usage::UsageEvent::tier).
    pub tier: Option<Box<str>>,
    /// The kind of picture that was generated: `size` or `quality/size`.
    pub picture: Option<Box<str>>,
    /// The cost that the vendor reports, in nano-dollars.
    pub vendor_cost_nano_usd: Option<u64>,
}

impl Extras {
    /// Applies a later report. Counts never decrease.
    pub(crate) fn replace_by(&mut self, later: Self) {
        self.raise(&later.units);
        self.tier = later.tier.or_else(|| self.tier.take());
        self.picture = later.picture.or_else(|| self.picture.take());
        self.vendor_cost_nano_usd = later.vendor_cost_nano_usd.or(self.vendor_cost_nano_usd);
    }

    /// Raises each count to at least that of `units`.
    pub(crate) fn raise(&mut self, units: &Units) {
        let mut counts = self.units.list();
        for (count, other) in counts.iter_mut().zip(units.list()) {
            *count = other.max(*count);
        }
        self.units = Units::of_list(counts);
    }
}

/// The maximum length of one term of a tier; the rest is cut off.
const TERM_BYTES_MAX: usize = 32;
/// Names for a vendor's standard tier, or for the absence of a tier.
const STANDARD: [&str; 9] = [
    "auto",
    "default",
    "standard",
    "standard_only",
    "on_demand",
    "unspecified",
    "none",
    "global",
    "not_available",
];

/// Returns a term of a tier as it is recorded: in lower case, at most 32 safe characters. `None` for a vendor's
/// standard tier.
pub(crate) fn term(raw: &[u8]) -> Option<Box<str>> {
    let is_standard = |name: &&str| raw.eq_ignore_ascii_case(name.as_bytes());
    if STANDARD.iter().any(is_standard) { None } else { word(raw) }
}

/// Returns a word in lower case, at most 32 safe characters; `None` if it is empty.
fn word(raw: &[u8]) -> Option<Box<str>> {
    if raw.is_empty() {
        return None;
    }
    let safe = |byte: &u8| match byte.to_ascii_lowercase() {
        byte @ (b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.') => char::from(byte),
        _ => '_',
    };
    Some(raw.iter().take(TERM_BYTES_MAX).map(safe).collect::<String>().into_boxed_str())
}

/// Joins the terms to one tier: sorted and separated by `+`.
pub(crate) fn joined(terms: impl IntoIterator<Item = Box<str>>) -> Option<Box<str>> {
    let mut terms: Vec<Box<str>> = terms.into_iter().collect();
    terms.sort_unstable();
    (!terms.is_empty()).then(|| terms.join("+").into_boxed_str())
}

/// Returns the kind of a picture of this quality and size, as far as they are known; `auto` counts as unknown.
pub fn picture(quality: Option<&str>, size: Option<&str>) -> Option<Box<str>> {
    let known =
        |name: Option<&str>| name.filter(|name| *name != "auto").and_then(|name| word(name.as_bytes()));
    match (known(quality), known(size)) {
        (Some(quality), Some(size)) => Some(format!("{quality}/{size}").into_boxed_str()),
        (None, size) => size,
        // Price lists have no kind for a quality without a size.
        (Some(_), None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_tier_has_no_name() {
        for name in ["", "auto", "default", "STANDARD", "on_demand", "not_available", "global"] {
            assert_eq!(term(name.as_bytes()), None, "{name}");
        }
        for (name, want) in [("flex", "flex"), ("Priority", "priority"), ("a b\"+\u{e9}", "a_b____")] {
            assert_eq!(term(name.as_bytes()).as_deref(), Some(want), "{name}");
        }
        assert_eq!(term(&[b'x'; 40]).unwrap().len(), TERM_BYTES_MAX);
    }

    #[test]
    fn tier_terms_are_sorted_and_joined() {
        let terms = ["priority", "fast", "geo:us"].map(Box::from);
        assert_eq!(joined(terms).as_deref(), Some("fast+geo:us+priority"));
        assert_eq!(joined([]), None);
    }

    #[test]
    fn later_totals_replace_earlier_ones() {
        let units = |searches, tool_calls| Units { searches, tool_calls, ..Units::ZERO };
        let mut extras = Extras { units: units(2, 0), tier: Some("flex".into()), ..Extras::default() };
        extras.replace_by(Extras { units: units(1, 3), vendor_cost_nano_usd: Some(7), ..Extras::default() });
        let want = Extras {
            units: units(2, 3),
            tier: Some("flex".into()),
            picture: None,
            vendor_cost_nano_usd: Some(7),
        };
        assert_eq!(extras, want);
    }
}
