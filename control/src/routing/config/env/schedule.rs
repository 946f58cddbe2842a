//! Schedules in cron syntax, such as `30 3 * * *`, in UTC unless a time zone follows: `30 3 * * * Europe/Berlin`.

use cronexpr::{Crontab, FallbackTimezoneOption, ParseOptions, parse_crontab_with};
use jiff::Timestamp;

/// Times given by a cron expression.
#[derive(Clone, Debug)]
pub struct Schedule {
    text: String,
    times: Crontab,
}

impl Schedule {
    /// Parses an expression. The error states what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str =
            "must be five fields in cron syntax, e.g. 30 3 * * *, and a time zone if it is not UTC";
        if !text.is_ascii() || text.len() > LENGTH_MAX {
            return Err(FORM.to_owned());
        }
        let mut options = ParseOptions::default();
        options.fallback_timezone_option = FallbackTimezoneOption::UTC;
        match parse_crontab_with(text, options) {
            Ok(times) => Ok(Self { text: text.to_owned(), times }),
            Err(_) => Err(FORM.to_owned()),
        }
    }

    /// Returns the first time after `after_ms`, both in milliseconds since the Unix epoch; `None` if there is none within
    /// four years.
    pub(crate) fn next(&self, after_ms: u64) -> Option<u64> {
        let after = Timestamp::from_millisecond(i64::try_from(after_ms).ok()?).ok()?;
        let next = self.times.find_next(after).ok()?;
        u64::try_from(next.timestamp().as_millisecond()).ok()
    }

    /// Returns the expression.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

const LENGTH_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(time: &str) -> u64 {
        time.parse::<Timestamp>().unwrap().as_millisecond().try_into().unwrap()
    }

    #[test]
    fn a_schedule_has_its_times_in_utc_or_in_its_time_zone() {
        for (text, after, want) in [
            ("30 3 * * *", "2026-11-22T03:29:59Z", "2026-11-22T03:30:00Z"),
            ("30 3 * * *", "2026-11-22T03:30:00Z", "2026-11-23T03:30:00Z"),
            ("*/15 * * * *", "2026-11-22T03:31:00Z", "2026-11-22T03:45:00Z"),
            ("0 4 * * SUN", "2026-11-23T00:00:00Z", "2026-11-29T04:00:00Z"),
            ("30 3 * * * Europe/Berlin", "2026-11-22T03:00:00Z", "2026-11-23T02:30:00Z"),
        ] {
            assert_eq!(Schedule::parse(text).unwrap().next(ms(after)), Some(ms(want)), "{text}");
        }
        assert_eq!(Schedule::parse("0 0 31 2 *").unwrap().next(ms("2026-11-22T00:00:00Z")), None);
    }

    #[test]
    fn text_that_is_no_schedule_is_rejected() {
        let long = "1,".repeat(200);
        for text in ["", "daily", "* * * *", "61 * * * *", "* * * * * Nowhere/City", "ä * * * *", &long] {
            assert!(Schedule::parse(text).unwrap_err().contains("cron syntax"), "{text}");
        }
    }
}
