//! What some exchanges used together: the figures of the tables `usage_hour` and `usage_day`.

use rusqlite::Row;

use super::record::Record;

/// The sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) requests: u64,
    /// Of those, the ones whose cost is not known.
    pub(crate) unpriced: u64,
    /// What is known of the cost.
    pub(crate) cost_nano_usd: u64,
    pub(crate) input: u64,
    pub(crate) cache_read: u64,
    pub(crate) cache_write: u64,
    pub(crate) output: u64,
    pub(crate) reasoning: u64,
    pub(crate) duration_us: u64,
    pub(crate) first_content_us: u64,
    /// Of how many exchanges that is.
    pub(crate) first_contents: u64,
}

/// A figure that groups can be sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    Cost,
    Requests,
    Unpriced,
    Input,
    CacheRead,
    CacheWrite,
    Output,
    Reasoning,
    /// All classes together.
    Tokens,
}

impl Sums {
    pub(crate) const COUNT: usize = 11;

    /// Of one exchange.
    pub(crate) fn of(record: &Record<'_>) -> Self {
        let tokens = record.tokens;
        Self {
            requests: 1,
            unpriced: u64::from(record.cost_nano_usd.is_none()),
            cost_nano_usd: record.cost_nano_usd.unwrap_or(0),
            input: tokens.input,
            cache_read: tokens.cache_read,
            cache_write: tokens.cache_write,
            output: tokens.output,
            reasoning: tokens.reasoning,
            duration_us: record.duration_us,
            first_content_us: record.first_content_us.unwrap_or(0),
            first_contents: u64::from(record.first_content_us.is_some()),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, more) in self.list_mut().into_iter().zip(other.list()) {
            *sum = sum.saturating_add(more);
        }
    }

    /// The tokens of all classes together.
    pub(crate) fn tokens(&self) -> u64 {
        let classes = [self.input, self.cache_read, self.cache_write, self.output, self.reasoning];
        classes.into_iter().fold(0, u64::saturating_add)
    }

    pub(crate) fn figure(&self, figure: Figure) -> u64 {
        match figure {
            Figure::Cost => self.cost_nano_usd,
            Figure::Requests => self.requests,
            Figure::Unpriced => self.unpriced,
            Figure::Input => self.input,
            Figure::CacheRead => self.cache_read,
            Figure::CacheWrite => self.cache_write,
            Figure::Output => self.output,
            Figure::Reasoning => self.reasoning,
            Figure::Tokens => self.tokens(),
        }
    }

    /// In the order of the tables' columns.
    pub(crate) fn list(&self) -> [u64; Self::COUNT] {
        let mut copy = *self;
        copy.list_mut().map(|sum| *sum)
    }

    fn list_mut(&mut self) -> [&mut u64; Self::COUNT] {
        [
            &mut self.requests,
            &mut self.unpriced,
            &mut self.cost_nano_usd,
            &mut self.input,
            &mut self.cache_read,
            &mut self.cache_write,
            &mut self.output,
            &mut self.reasoning,
            &mut self.duration_us,
            &mut self.first_content_us,
            &mut self.first_contents,
        ]
    }

    /// Reads the first columns of a row of [`SELECTED`].
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let mut sums = Self::default();
        for (at, sum) in sums.list_mut().into_iter().enumerate() {
            *sum = row.get(at)?;
        }
        Ok(sums)
    }
}

/// The sums over rows of the tables.
pub(crate) const SELECTED: &str = "sum(requests), sum(unpriced), sum(cost_nano_usd), sum(input_tokens), \
     sum(cache_read_tokens), sum(cache_write_tokens), sum(output_tokens), sum(reasoning_tokens), \
     sum(duration_us), sum(first_content_us), sum(first_contents)";
