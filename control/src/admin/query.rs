//! Query parameters: each is taken by name, and the error names any parameter that no handler took.

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

    /// Rejects any parameter that is left.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(ApiError::parameter(name, format!("Unknown parameter {name}."))),
        }
    }
}

/// Parses `text` as a time in milliseconds since the Unix epoch; accepts such a number or RFC 3339.
pub(crate) fn moment(name: &str, text: &str) -> Result<u64, ApiError> {
    let number = text.parse::<u64>().ok();
    let parsed = || text.parse::<Timestamp>().ok().and_then(|at| u64::try_from(at.as_millisecond()).ok());
    number.or_else(parsed).filter(|at| *at <= MOMENT_MAX).ok_or_else(|| {
        let message = format!("{name} must be RFC 3339 (2026-01-31T12:00:00Z) or milliseconds since 1970.");
        ApiError::parameter(name, message)
    })
}

/// Same as `moment`, but also accepts a date or a local date and time in `zone`.
fn moment_in(name: &str, text: &str, zone: &TimeZone) -> Result<u64, ApiError> {
    let shown = text.parse::<DateTime>().ok().filter(|_| text.contains('-') && !text.ends_with(['Z', 'z']));
    let at = shown.and_then(|shown| shown.to_zoned(zone.clone()).ok());
    match at.and_then(|at| u64::try_from(at.timestamp().as_millisecond()).ok()) {
        Some(at) => Ok(at),
        None => moment(name, text),
    }
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
/// The end of the year 9999.
const MOMENT_MAX: u64 = 253_402_300_799_999;
