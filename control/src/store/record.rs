//! One exchange as bytes: the form it has in the journal and in the table `usage`. It names everything by text,
//! so that what one release wrote another can read; only the way a text is written differs between the two.

use super::varint;

/// One exchange, borrowed from where its bytes are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) request_id: &'a str,
    pub(crate) started_at_ms: u64,
    pub(crate) duration_us: u64,
    /// By [`Name`]; one that is absent is empty.
    pub(crate) names: [&'a str; Name::COUNT],
    pub(crate) stream: bool,
    pub(crate) status: u16,
    pub(crate) tokens: Tokens,
    pub(crate) head_us: Option<u64>,
    pub(crate) first_content_us: Option<u64>,
}

/// A text that many exchanges have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Operation,
    Key,
    Project,
    Principal,
    Selector,
    Endpoint,
    Provider,
    Model,
    Outcome,
    Error,
    Provenance,
}

impl Name {
    pub(crate) const COUNT: usize = 11;
}

/// Token classes, disjoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Tokens {
    pub(crate) input: u64,
    pub(crate) cache_read: u64,
    pub(crate) cache_write: u64,
    pub(crate) output: u64,
    pub(crate) reasoning: u64,
}

/// One target that was considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step<'a> {
    pub(crate) provider: &'a str,
    pub(crate) model: &'a str,
    pub(crate) result: &'a str,
    pub(crate) status: Option<u64>,
    pub(crate) head_us: Option<u64>,
    pub(crate) spent_us: Option<u64>,
}

impl<'a> Record<'a> {
    pub(crate) fn name(&self, name: Name) -> &'a str {
        self.names.get(name as usize).copied().unwrap_or_default()
    }

    /// Appends everything but the trace; `text` writes a text and is told which one it is.
    pub(crate) fn put(&self, out: &mut Vec<u8>, mut text: impl FnMut(&mut Vec<u8>, usize, &str)) {
        varint::put_text(out, self.request_id);
        varint::put(out, self.started_at_ms);
        varint::put(out, self.duration_us);
        for (at, name) in self.names.iter().enumerate() {
            text(out, at, name);
        }
        varint::put(out, u64::from(self.status) << 1 | u64::from(self.stream));
        let Tokens { input, cache_read, cache_write, output, reasoning } = self.tokens;
        for count in [input, cache_read, cache_write, output, reasoning] {
            varint::put(out, count);
        }
        put_option(out, self.head_us);
        put_option(out, self.first_content_us);
    }

    /// Reads what [`put`](Self::put) wrote; what is left is the trace. `None` for anything else.
    pub(crate) fn take(bytes: &'a [u8], texts: Texts<'a>) -> Option<(Self, Trace<'a>)> {
        let mut rest = bytes;
        let bytes = &mut rest;
        let request_id = varint::take_text(bytes)?;
        let (started_at_ms, duration_us) = (varint::take(bytes)?, varint::take(bytes)?);
        let mut names = [""; Name::COUNT];
        for name in &mut names {
            *name = texts.take(bytes)?;
        }
        let status = varint::take(bytes)?;
        let record = Self {
            request_id,
            started_at_ms,
            duration_us,
            names,
            stream: status & 1 == 1,
            status: u16::try_from(status >> 1).ok()?,
            tokens: Tokens {
                input: varint::take(bytes)?,
                cache_read: varint::take(bytes)?,
                cache_write: varint::take(bytes)?,
                output: varint::take(bytes)?,
                reasoning: varint::take(bytes)?,
            },
            head_us: take_option(bytes)?,
            first_content_us: take_option(bytes)?,
        };
        Some((record, Trace { bytes: rest, texts }))
    }
}

impl Step<'_> {
    /// Appends the step; `text` as in [`Record::put`], with numbers after the last [`Name`].
    pub(crate) fn put(&self, out: &mut Vec<u8>, mut text: impl FnMut(&mut Vec<u8>, usize, &str)) {
        for (at, name) in (Name::COUNT..).zip([self.provider, self.model, self.result]) {
            text(out, at, name);
        }
        put_option(out, self.status);
        put_option(out, self.head_us);
        put_option(out, self.spent_us);
    }
}

/// Different texts of a record and its steps.
pub(crate) const TEXTS: usize = Name::COUNT + 3;

/// How texts are written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Texts<'a> {
    /// In place.
    Inline,
    /// As a place in this list, counted from 1; 0 is the empty text.
    Listed(&'a [&'a str]),
}

impl<'a> Texts<'a> {
    fn take(self, bytes: &mut &'a [u8]) -> Option<&'a str> {
        match self {
            Self::Inline => varint::take_text(bytes),
            Self::Listed(names) => match varint::take(bytes)? {
                0 => Some(""),
                at => names.get(usize::try_from(at - 1).ok()?).copied(),
            },
        }
    }
}

/// The steps of a record, in order; ends early where the bytes are none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace<'a> {
    bytes: &'a [u8],
    texts: Texts<'a>,
}

impl<'a> Iterator for Trace<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        let bytes = &mut self.bytes;
        Some(Step {
            provider: self.texts.take(bytes)?,
            model: self.texts.take(bytes)?,
            result: self.texts.take(bytes)?,
            status: take_option(bytes)?,
            head_us: take_option(bytes)?,
            spent_us: take_option(bytes)?,
        })
    }
}

/// A count small enough that no sum of counts overflows: an upstream may say anything.
pub(crate) fn bounded(count: u64) -> u64 {
    count.min(COUNT_MAX)
}

fn put_option(out: &mut Vec<u8>, number: Option<u64>) {
    varint::put(out, number.map_or(0, |number| number.saturating_add(1)));
}

#[expect(clippy::option_option, reason = "the outer one says whether there are bytes for the inner one")]
fn take_option(bytes: &mut &[u8]) -> Option<Option<u64>> {
    Some(varint::take(bytes)?.checked_sub(1))
}

/// 69 thousand million tokens, or 19 hours in microseconds; 134 million of them fit into a sum.
const COUNT_MAX: u64 = 1 << 36;
