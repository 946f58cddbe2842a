//! The steps of a record's trace.
//!
//! ```text
//!  provider, model, result, status, head, spent, [which, [start,] [retry after,] [skip wait,] [key,] [message]]
//! ```
//!
//! Earlier releases wrote steps without the part in the outer brackets; a bit of the record's `status` marks steps that
//! have it. Each bit of `which` marks the presence of one of its fields.

use super::{RecordName, Texts, put_option, take_option};
use crate::varint;

/// A target that was considered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordStep<'a> {
    pub provider: &'a str,
    pub model: &'a str,
    pub result: &'a str,
    /// The encoded provider, model and result: equal bytes are equal texts. Empty if not known.
    pub names_read: &'a [u8],
    pub status: Option<u64>,
    pub head_us: Option<u64>,
    pub spent_us: Option<u64>,
    /// The start of the attempt, from the request's head.
    pub start_us: Option<u64>,
    /// The error of a failed attempt, or empty.
    pub message: &'a str,
    pub retry_after_ms: Option<u64>,
    /// The remaining time of the cooldown or the rest for which the target was skipped.
    pub skip_wait_ms: Option<u64>,
    /// The number of the key, if the provider has several.
    pub credential: Option<u64>,
}

/// The texts of a step: provider, model and result.
pub(super) type StepNames<'a> = [&'a str; STEP_NAMES];
pub(super) const STEP_NAMES: usize = 3;

/// The encoding of a record's steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepLayout {
    /// The fixed fields alone, as earlier releases wrote them.
    Fixed,
    /// The fixed fields and the optional ones.
    WithParts,
}

/// The steps of a record, in order. Ends early at malformed bytes.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    pub(super) bytes: &'a [u8],
    /// The texts of the next step if they have been read, and their encoded bytes.
    pub(super) names: Option<(StepNames<'a>, &'a [u8])>,
    pub(super) texts: Texts<'a>,
    pub(super) layout: StepLayout,
}

impl RecordStep<'_> {
    /// Appends the step; `text` is the same as in [`Record::put`](super::Record::put), with numbers after the last
    /// [`RecordName`].
    pub fn put(&self, out: &mut Vec<u8>, mut text: impl FnMut(&mut Vec<u8>, usize, &str)) {
        for (at, name) in (RecordName::COUNT..).zip([self.provider, self.model, self.result]) {
            text(out, at, name);
        }
        put_option(out, self.status);
        put_option(out, self.head_us);
        put_option(out, self.spent_us);
        varint::put(out, self.which());
        let numbers = [self.start_us, self.retry_after_ms, self.skip_wait_ms, self.credential];
        numbers.into_iter().flatten().for_each(|number| varint::put(out, number));
        if !self.message.is_empty() {
            text(out, MESSAGE_PLACE, self.message);
        }
    }

    fn which(&self) -> u64 {
        let flag = |is_there: bool, bit: u64| if is_there { bit } else { 0 };
        flag(self.start_us.is_some(), START)
            | flag(self.retry_after_ms.is_some(), RETRY_AFTER)
            | flag(self.skip_wait_ms.is_some(), SKIP_WAIT)
            | flag(self.credential.is_some(), CREDENTIAL)
            | flag(!self.message.is_empty(), MESSAGE)
    }
}

impl<'a> Iterator for Trace<'a> {
    type Item = RecordStep<'a>;

    fn next(&mut self) -> Option<RecordStep<'a>> {
        let bytes = &mut self.bytes;
        let ([provider, model, result], names_read) = match self.names.take() {
            Some(names) => names,
            None => (self.texts.take_some(bytes)?, &[][..]),
        };
        let (status, head_us, spent_us) = (take_option(bytes)?, take_option(bytes)?, take_option(bytes)?);
        let mut step = RecordStep {
            provider,
            model,
            result,
            names_read,
            status,
            head_us,
            spent_us,
            ..RecordStep::default()
        };
        if self.layout == StepLayout::WithParts {
            let which = varint::take(bytes)?;
            for (bit, number) in [
                (START, &mut step.start_us),
                (RETRY_AFTER, &mut step.retry_after_ms),
                (SKIP_WAIT, &mut step.skip_wait_ms),
                (CREDENTIAL, &mut step.credential),
            ] {
                if which & bit != 0 {
                    *number = Some(varint::take(bytes)?);
                }
            }
            if which & MESSAGE != 0 {
                step.message = self.texts.take(bytes)?;
            }
        }
        Some(step)
    }
}

const START: u64 = 1;
const RETRY_AFTER: u64 = 1 << 1;
const MESSAGE: u64 = 1 << 2;
const SKIP_WAIT: u64 = 1 << 3;
const CREDENTIAL: u64 = 1 << 4;

/// Number of different texts of a step.
pub(super) const STEP_TEXTS: usize = 4;
/// The number of the message among the texts of a step.
pub(crate) const STEP_MESSAGE: usize = 3;
/// The number of the message among the texts of a record and its steps.
const MESSAGE_PLACE: usize = RecordName::COUNT + STEP_MESSAGE;

#[cfg(test)]
mod tests {
    use super::super::Record;
    use super::*;

    const FIXED: RecordStep<'_> = RecordStep {
        provider: "p",
        model: "m",
        result: "status",
        names_read: &[],
        status: Some(503),
        head_us: Some(0),
        spent_us: Some(9),
        start_us: None,
        message: "",
        retry_after_ms: None,
        skip_wait_ms: None,
        credential: None,
    };

    #[test]
    fn optional_fields_of_a_step_round_trip_alone_and_together() {
        let steps = [
            FIXED,
            RecordStep { start_us: Some(0), ..FIXED },
            RecordStep { message: "over capacity", ..FIXED },
            RecordStep { retry_after_ms: Some(u64::MAX), ..FIXED },
            RecordStep { skip_wait_ms: Some(18_000), message: "m", ..FIXED },
            RecordStep { credential: Some(2), ..FIXED },
            RecordStep { credential: Some(64), skip_wait_ms: Some(1), message: "m", ..FIXED },
            RecordStep { start_us: Some(u64::MAX), message: "m", retry_after_ms: Some(0), ..FIXED },
            FIXED,
        ];
        let text = |out: &mut Vec<u8>, _, text: &str| varint::put_text(out, text);
        let mut bytes = Vec::new();
        Record::default().put(&mut bytes, text);
        let head = bytes.len();
        steps.iter().for_each(|step| step.put(&mut bytes, text));
        let read = |bytes| Record::take(bytes, Texts::Inline).unwrap().1;
        assert_eq!(read(&bytes).collect::<Vec<_>>(), steps);
        for cut in head..bytes.len() {
            assert!(read(&bytes[..cut]).count() < steps.len(), "{cut}");
        }
    }
}
