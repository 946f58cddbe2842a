//! Rules of a provider instance for errors of its upstream, which take precedence over the built-in table (FAIL-3).

/// One rule. It has a status, a text, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRule {
    /// The status of the errors; `None` for any.
    pub status: Option<u16>,
    /// A text in lower case that the code, the type or the message contains; `None` for any.
    pub contains: Option<Box<str>>,
    /// The next step.
    pub then: ErrorThen,
}

/// The step after an error that fits a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorThen {
    /// The next target is tried. No circuit counts the error.
    Next,
    /// The same target is tried again by its retry settings, then the next one.
    Retry,
    /// The model rests, as after a rate limit.
    Rest,
    /// The client gets the error. No circuit counts it.
    Stop,
}

/// A rule that applied: its place in the list of its instance, and its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppliedRule {
    /// The place, from 0.
    pub place: usize,
    /// The step.
    pub then: ErrorThen,
}

impl ErrorRule {
    /// Returns the first of `rules` that fits an error with this status and these texts.
    pub fn first_of(rules: &[Self], status: u16, texts: [Option<&str>; 3]) -> Option<AppliedRule> {
        if rules.is_empty() {
            return None;
        }
        let texts = texts.map(|text| text.unwrap_or_default().to_lowercase());
        let place = rules.iter().position(|rule| {
            let has_text = |part: &str| texts.iter().any(|text| text.contains(part));
            rule.status.is_none_or(|own| own == status) && rule.contains.as_deref().is_none_or(has_text)
        })?;
        Some(AppliedRule { place, then: rules.get(place)?.then })
    }

    /// Returns true if this rule fits every error that `other` fits.
    pub fn covers(&self, other: &Self) -> bool {
        let covers_text = |own: &str| other.contains.as_deref().is_some_and(|text| text.contains(own));
        self.status.is_none_or(|own| other.status == Some(own))
            && self.contains.as_deref().is_none_or(covers_text)
    }
}

impl ErrorThen {
    /// Every step.
    pub const ALL: [Self; 4] = [Self::Next, Self::Retry, Self::Rest, Self::Stop];

    /// Returns the word in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Retry => "retry",
            Self::Rest => "rest",
            Self::Stop => "stop",
        }
    }
}

impl std::fmt::Display for AppliedRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "errors[{}]: {}", self.place, self.then.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(status: Option<u16>, contains: Option<&str>, then: ErrorThen) -> ErrorRule {
        ErrorRule { status, contains: contains.map(Box::from), then }
    }

    #[test]
    fn the_first_rule_that_fits_applies() {
        let rules = [
            rule(Some(400), Some("inspection"), ErrorThen::Next),
            rule(None, Some("slow down"), ErrorThen::Rest),
            rule(Some(409), None, ErrorThen::Retry),
            rule(Some(400), Some("data_"), ErrorThen::Stop),
        ];
        for (status, texts, want) in [
            (400, [Some("Data_Inspection_Failed"), None, None], Some((0, ErrorThen::Next))),
            (400, [None, Some("data_"), Some("x")], Some((3, ErrorThen::Stop))),
            (401, [Some("data_inspection_failed"), None, None], None),
            (500, [None, None, Some("Please SLOW DOWN, friend")], Some((1, ErrorThen::Rest))),
            (409, [None; 3], Some((2, ErrorThen::Retry))),
            (200, [None; 3], None),
        ] {
            let found = ErrorRule::first_of(&rules, status, texts).map(|rule| (rule.place, rule.then));
            assert_eq!(found, want, "{status} {texts:?}");
        }
        assert_eq!(ErrorRule::first_of(&[], 400, [Some("x"), None, None]), None);
        assert_eq!(AppliedRule { place: 2, then: ErrorThen::Rest }.to_string(), "errors[2]: rest");
    }

    #[test]
    fn a_rule_covers_narrower_ones() {
        for (one, other, want) in [
            ((None, Some("a")), (Some(400), Some("bab")), true),
            ((Some(400), None), (Some(400), Some("x")), true),
            ((Some(400), Some("x")), (Some(400), Some("x")), true),
            ((Some(400), Some("x")), (None, Some("x")), false),
            ((None, Some("ab")), (None, Some("a")), false),
            ((None, Some("a")), (Some(400), None), false),
            ((Some(400), None), (Some(401), None), false),
        ] {
            let [one, other] = [one, other].map(|(status, text)| rule(status, text, ErrorThen::Next));
            assert_eq!(one.covers(&other), want, "{one:?} {other:?}");
        }
    }
}
