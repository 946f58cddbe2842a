//! Query parameters: each is taken by name, and the error names any parameter that no handler took.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use percent_encoding::percent_decode_str;

use super::ApiError;

/// The parameters of a request that have not been taken yet.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses `a=b&c=d`. A name may occur only once.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err(ApiError::parameter(&name, format!("The parameter {name} occurs twice.")));
            }
            if pairs.len() >= PARAMETERS_MAX {
                return Err(ApiError::parameter(&name, "The query has too many parameters."));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// Takes the text of `name`. An empty value counts as absent.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.swap_remove(at).1).filter(|value| !value.is_empty())
    }

    /// Takes every parameter whose name starts with `prefix`, and strips the prefix from the names.
    pub(crate) fn with_prefix(&mut self, prefix: &str) -> Vec<(String, String)> {
        let (taken, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.0).into_iter().partition(|(name, _)| name.starts_with(prefix));
        self.0 = left;
        let bare = |(name, value): (String, String)| Some((name.strip_prefix(prefix)?.to_owned(), value));
        taken.into_iter().filter_map(bare).filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Takes `name` as a number from `min` to `max`.
    pub(crate) fn number<T>(&mut self, name: &str, min: T, max: T) -> Result<Option<T>, ApiError>
    where
        T: FromStr + PartialOrd + Display + Copy,
    {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse::<T>() {
            Ok(number) if number >= min && number <= max => Ok(Some(number)),
            Ok(_) | Err(_) => {
                Err(ApiError::parameter(name, format!("{name} must be a number from {min} to {max}.")))
            }
        }
    }

    /// Takes `name` as a time in milliseconds since the Unix epoch; accepts such a number or RFC 3339.
    pub(crate) fn moment(&mut self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        moment(name, &text).map(Some)
    }

    /// Takes `from` and `to` as times.
    pub(crate) fn span(&mut self) -> Result<(Option<u64>, Option<u64>), ApiError> {
        let (from, to) = (self.moment("from")?, self.moment("to")?);
        if from.zip(to).is_some_and(|(from, to)| from > to) {
            return Err(ApiError::parameter("from", "from must not be after to."));
        }
        Ok((from, to))
    }

    /// Takes `from` and `to` as times, or as dates and times in `zone`.
    pub(crate) fn span_in(&mut self, zone: &TimeZone) -> Result<(Option<u64>, Option<u64>), ApiError> {
        let mut read = |name| self.text(name).map(|text| moment_in(name, &text, zone)).transpose();
        let (from, to) = (read("from")?, read("to")?);
        if from.zip(to).is_some_and(|(from, to)| from > to) {
            return Err(ApiError::parameter("from", "from must not be after to."));
        }
        Ok((from, to))
    }

    /// Takes `name` as one of `choices`.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        name: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, ApiError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        choose(name, &text, choices).map(Some)
    }

    /// Takes `name`, which is `true` or `false`.
    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        self.choice(name, &[("true", true), ("false", false)])
    }

    /// Takes `sort`, one of `columns`, and `order`, which is `desc` if absent.
    pub(crate) fn sorting<C: Copy>(
        &mut self,
        columns: &[(&'static str, C)],
    ) -> Result<Option<Sorting<C>>, ApiError> {
        let descending = self.choice("order", &[("desc", true), ("asc", false)])?;
        let choices: Vec<_> = columns.iter().map(|(name, column)| (*name, (*name, *column))).collect();
        let sort = self.choice("sort", &choices)?;
        if sort.is_none() && descending.is_some() {
            return Err(ApiError::parameter(
                "order",
                "order requires sort, which names the field to sort by.",
            ));
        }
        let descending = descending.unwrap_or(true);
        Ok(sort.map(|(name, column)| Sorting { name, column, descending }))
    }

    /// Rejects any parameter that is left.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(ApiError::parameter(name, format!("Unknown parameter {name}."))),
        }
    }
}

/// The column by which a list is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sorting<C> {
    pub(crate) name: &'static str,
    pub(crate) column: C,
    pub(crate) descending: bool,
}

/// Parses `text` as a time in milliseconds since the Unix epoch; accepts such a number or RFC 3339.
pub(crate) fn moment(name: &str, text: &str) -> Result<u64, ApiError> {
    exact(text).ok_or_else(|| {
        let message = format!("{name} must be RFC 3339 (2026-01-31T12:00:00Z) or milliseconds since 1970.");
        ApiError::parameter(name, message)
    })
}

/// Same as `moment`, but also accepts a date or a local date and time in `zone`. The offset of a time takes precedence over
/// the zone.
fn moment_in(name: &str, text: &str, zone: &TimeZone) -> Result<u64, ApiError> {
    exact(text).or_else(|| local(text, zone)).ok_or_else(|| {
        let message = format!(
            "{name} must be RFC 3339 (2026-01-31T12:00:00Z), a date or time of tz (2026-01-31, 2026-01-31T12:00) or \
             milliseconds since 1970."
        );
        ApiError::parameter(name, message)
    })
}

/// Reads a number of milliseconds, or a time with an offset. A plus that the client did not encode has become a space.
fn exact(text: &str) -> Option<u64> {
    let plus = text.rsplit_once(' ').filter(|(time, _)| time.contains(':'));
    let text = plus.map_or(Cow::Borrowed(text), |(time, offset)| format!("{time}+{offset}").into());
    let parsed = || u64::try_from(text.parse::<Timestamp>().ok()?.as_millisecond()).ok();
    text.parse::<u64>().ok().or_else(parsed).filter(|at| *at <= MOMENT_MAX)
}

/// Reads a date, or a date and time without an offset or the name of another zone, by the clock of `zone`.
fn local(text: &str, zone: &TimeZone) -> Option<u64> {
    // The parser accepts an offset and a zone, and ignores both.
    let time = text.get(DATE.len()..).filter(|time| !time.contains(['+', '-', '[', 'Z', 'z']))?;
    let shown = text.parse::<DateTime>().ok().filter(|_| time.is_empty() || time.contains(':'))?;
    let at = shown.to_zoned(zone.clone()).ok()?.timestamp().as_millisecond();
    u64::try_from(at).ok().filter(|at| *at <= MOMENT_MAX)
}

/// Returns the choice that is named `text`.
pub(crate) fn choose<T: Clone>(name: &str, text: &str, choices: &[(&str, T)]) -> Result<T, ApiError> {
    choices.iter().find(|(known, _)| *known == text).map(|(_, choice)| choice.clone()).ok_or_else(|| {
        let known: Vec<&str> = choices.iter().map(|(known, _)| *known).collect();
        ApiError::parameter(name, format!("{name} must be one of: {}.", known.join(", ")))
    })
}

/// Percent-decodes a path segment, in which a plus is literal.
pub(crate) fn decode_part(text: &str) -> Result<String, ApiError> {
    decode(&text.replace('+', "%2B"))
}

/// Percent-decodes a name or value of a query.
fn decode(text: &str) -> Result<String, ApiError> {
    let broken = || ApiError::parameter("", "The query or path is not valid percent-encoding.");
    let is_escape = |rest: &str| rest.get(..2).is_some_and(|hex| hex.bytes().all(|c| c.is_ascii_hexdigit()));
    if !text.split('%').skip(1).all(is_escape) {
        return Err(broken());
    }
    let text = text.replace('+', " ");
    Ok(percent_decode_str(&text).decode_utf8().map_err(|_| broken())?.into_owned())
}

const PARAMETERS_MAX: usize = 32;
/// The shape of a date, before its time.
const DATE: &str = "0000-00-00";
/// The end of the year 9999.
const MOMENT_MAX: u64 = 253_402_300_799_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_with_its_own_offset_and_only_without_one_by_the_zone() {
        let noon = 1_769_860_800_000;
        const HOUR: u64 = 3_600_000;
        for (text, utc, berlin) in [
            ("1769860800000", Some(noon), Some(noon)),
            ("2026-01-31T12:00:00Z", Some(noon), Some(noon)),
            ("2026-01-31t12:00:00z", Some(noon), Some(noon)),
            ("2026-01-31T12:00:00.000+00:00", Some(noon), Some(noon)),
            ("2026-01-31T17:30:00+05:30", Some(noon), Some(noon)),
            ("2026-01-31T17:30:00 05:30", Some(noon), Some(noon)),
            ("2026-01-31T08:30:00-03:30", Some(noon), Some(noon)),
            ("2026-01-31 17:45:00+05:45", Some(noon), Some(noon)),
            ("2026-01-31 17:45:00 05:45", Some(noon), Some(noon)),
            ("2026-01-31T12:00:00", Some(noon), Some(noon - HOUR)),
            ("2026-01-31T12:00", Some(noon), Some(noon - HOUR)),
            ("2026-01-31 12:00", Some(noon), Some(noon - HOUR)),
            ("2026-01-31", Some(noon - 12 * HOUR), Some(noon - 13 * HOUR)),
            // The hour that daylight-saving time skips, and the first of those that it repeats.
            ("2026-03-29T02:30:00", Some(1_774_751_400_000), Some(1_774_751_400_000 - HOUR)),
            ("2026-10-25T02:30:00", Some(1_792_895_400_000), Some(1_792_895_400_000 - 2 * HOUR)),
            ("2026-10-25T02:30:00+01:00", Some(1_792_895_400_000 - HOUR), Some(1_792_895_400_000 - HOUR)),
            ("2026-01-31T12:00:00[Asia/Kolkata]", None, None),
            ("2026-01-31T12:00+05:30x", None, None),
            ("2026-01-31+05:30", None, None),
            ("2026-01-31Z", None, None),
            ("2026-01-32", None, None),
            ("20260131", Some(20_260_131), Some(20_260_131)),
            ("12:00", None, None),
            ("1969-12-31T23:59:59Z", None, None),
            ("", None, None),
        ] {
            let zones = [(TimeZone::UTC, utc), (TimeZone::get("Europe/Berlin").unwrap(), berlin)];
            for (zone, want) in zones {
                assert_eq!(moment_in("from", text, &zone).ok(), want, "{text} {zone:?}");
            }
        }
    }
}
