//! The consumption for which a stored record counts.

use records::{Record, RecordName, Trace, rare_fields};
use shared::quota::Spent;
use shared::usage::Outcome;

/// Returns the consumption of an exchange by provider and model: first that of the attempt that served it, then that of
/// each failed attempt. Follows the rule of [`Spent::of`].
pub(crate) fn parts<'a>(
    record: &Record<'a>,
    trace: Trace<'a>,
) -> impl Iterator<Item = (Spent, (&'a str, &'a str))> {
    let failed = record.name(RecordName::Outcome) == Outcome::Failed.name();
    let outcome = if failed { Outcome::Failed } else { Outcome::Completed };
    let spent = Spent::of(outcome, &record.tokens, record.cost_nano_usd.or(record.quota_nano_usd));
    let target = (record.name(RecordName::Provider), record.name(RecordName::Model));
    let lost = rare_fields::lost(&record.lost).filter_map(move |(place, lost)| {
        let step = { trace }.nth(place)?;
        Some((Spent::of_lost(&lost), (step.provider, step.model)))
    });
    std::iter::once((spent, target)).chain(lost)
}
