//! Query parameters. Structs take them by the names of their fields, and the error names any parameter that none took. The
//! documentation of parameters is generated from the same structs.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use percent_encoding::percent_decode_str;
use serde::de::value::{MapDeserializer, StringDeserializer};
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

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

    /// Takes the parameters of a struct, or of each struct of a tuple. An empty value counts as absent. A field whose name
    /// ends with [`ANY_NAME`] takes all parameters that begin with the rest of its name.
    pub(crate) fn take<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        serde_path_to_error::deserialize(Taking(self)).map_err(|error| {
            let place = error.path().iter().next_back().map(ToString::to_string);
            let Misfit { missing, message } = error.into_inner();
            let name = missing.map_or_else(|| place.unwrap_or_default(), str::to_owned);
            ApiError::parameter(&name, format!("{name} {message}"))
        })
    }

    /// Takes all parameters; any other one is an error.
    pub(crate) fn take_all<T: DeserializeOwned>(mut self) -> Result<T, ApiError> {
        let taken = self.take()?;
        self.finish()?;
        Ok(taken)
    }

    fn text(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.swap_remove(at).1).filter(|value| !value.is_empty())
    }

    /// Takes every parameter whose name starts with `prefix`, and strips the prefix from the names.
    fn with_prefix(&mut self, prefix: &str) -> Vec<(String, String)> {
        let (taken, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.0).into_iter().partition(|(name, _)| name.starts_with(prefix));
        self.0 = left;
        let bare = |(name, value): (String, String)| Some((name.strip_prefix(prefix)?.to_owned(), value));
        taken.into_iter().filter_map(bare).filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Rejects any parameter that is left.
    fn finish(self) -> Result<(), ApiError> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(ApiError::parameter(name, format!("Unknown parameter {name}."))),
        }
    }
}

/// Deserializes structs, each of which takes its parameters.
struct Taking<'a>(&'a mut Query);

impl<'de> Deserializer<'de> for Taking<'_> {
    type Error = Misfit;

    /// Nothing is taken for `()`.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_seq(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        let present = fields.iter().filter_map(|name| match name.strip_suffix(ANY_NAME) {
            Some(prefix) => Some((*name, Parameter::Named(self.0.with_prefix(prefix)))),
            None => Some((*name, Parameter::Text(self.0.text(name)?))),
        });
        visitor.visit_map(MapDeserializer::new(present))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple_struct map enum identifier ignored_any
    }
}

impl<'de> de::SeqAccess<'de> for Taking<'_> {
    type Error = Misfit;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Misfit> {
        seed.deserialize(Taking(self.0)).map(Some)
    }
}

/// A parameter of a field.
enum Parameter {
    Text(String),
    /// Several parameters, by the rest of their names.
    Named(Vec<(String, String)>),
}

impl IntoDeserializer<'_, Misfit> for Parameter {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Parameter {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self {
            Self::Text(text) => visitor.visit_string(text),
            Self::Named(pairs) => MapDeserializer::new(pairs.into_iter()).deserialize_seq(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self {
            Self::Text(text) if text == "true" => visitor.visit_bool(true),
            Self::Text(text) if text == "false" => visitor.visit_bool(false),
            _ => Err(de::Error::unknown_variant("", &["true", "false"])),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match self {
            Self::Text(text) => StringDeserializer::new(text).deserialize_enum(name, variants, visitor),
            Self::Named(_) => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// A parameter that is missing or breaks a rule.
#[derive(Debug)]
struct Misfit {
    missing: Option<&'static str>,
    /// Follows the name of the parameter.
    message: String,
}

impl Display for Misfit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Misfit {}

impl de::Error for Misfit {
    fn custom<T: Display>(message: T) -> Self {
        Self { missing: None, message: message.to_string() }
    }

    fn unknown_variant(_: &str, names: &'static [&'static str]) -> Self {
        Self::custom(one_of(names))
    }

    fn missing_field(name: &'static str) -> Self {
        Self { missing: Some(name), message: "is missing.".to_owned() }
    }
}

fn one_of(names: &[&str]) -> String {
    format!("must be one of: {}.", names.join(", "))
}

/// A whole number of at least `MIN` and at most `MAX`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Number<const MIN: u64, const MAX: u64>(pub(crate) u64);

impl<const MIN: u64, const MAX: u64> TryFrom<String> for Number<MIN, MAX> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = text.parse().ok().filter(|number| (MIN..=MAX).contains(number));
        number.map(Self).ok_or_else(|| format!("must be a number from {MIN} to {MAX}."))
    }
}

impl<const MIN: u64, const MAX: u64> Number<MIN, MAX> {
    /// Returns the number as a number of rows.
    pub(crate) fn rows(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Any whole number.
pub(crate) type Count = Number<0, { u64::MAX }>;

/// A type whose values have names.
pub(crate) trait Named: Sized {
    /// Returns the values with their names.
    fn named() -> Vec<(&'static str, Self)>;
}

/// A value by its name.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String", bound = "T: Named")]
pub(crate) struct Choice<T>(pub(crate) T);

impl<T: Named> TryFrom<String> for Choice<T> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let named = T::named();
        let rule = one_of(&named.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        named.into_iter().find(|(name, _)| *name == text).map(|(_, value)| Self(value)).ok_or(rule)
    }
}

/// Values, separated by commas.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String", bound = "T: DeserializeOwned")]
pub(crate) struct CommaList<T>(pub(crate) Vec<T>);

impl<T: DeserializeOwned> TryFrom<String> for CommaList<T> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let values = parts.map(|part| T::deserialize(Parameter::Text(part.to_owned())));
        values.collect::<Result<_, _>>().map(Self).map_err(|misfit| misfit.message)
    }
}

/// A time in milliseconds since the Unix epoch; accepts such a number or RFC 3339.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Moment(pub(crate) u64);

impl TryFrom<String> for Moment {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        exact(&text).map(Self).ok_or(MOMENT_RULE)
    }
}

/// The start and the end of a time, in milliseconds since the Unix epoch.
pub(crate) type SpanMs = (Option<u64>, Option<u64>);

/// A time.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Span {
    /// The start of the time.
    from: Option<Moment>,
    /// The end of the time, exclusive.
    to: Option<Moment>,
}

impl Span {
    /// Returns the start and the end, in milliseconds since the Unix epoch.
    pub(crate) fn ms(&self) -> Result<SpanMs, ApiError> {
        in_order((self.from.map(|from| from.0), self.to.map(|to| to.0)))
    }
}

/// A time, whose start and end may be local times of a zone.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LocalSpan {
    /// The start of the time.
    #[cfg_attr(test, schemars(with = "Option<Moment>"))]
    from: Option<String>,
    /// The end of the time, exclusive.
    #[cfg_attr(test, schemars(with = "Option<Moment>"))]
    to: Option<String>,
    /// The IANA name of the time zone of days and of local times, such as `Europe/Berlin`. UTC if absent.
    tz: Option<String>,
}

impl LocalSpan {
    /// Returns the start and the end, in milliseconds since the Unix epoch, and the zone.
    pub(crate) fn ms(&self) -> Result<(SpanMs, TimeZone), ApiError> {
        let zone = self.tz.as_deref().map_or(Ok(TimeZone::UTC), zone)?;
        let read =
            |name, text: &Option<String>| text.as_ref().map(|text| moment_in(name, text, &zone)).transpose();
        Ok((in_order((read("from", &self.from)?, read("to", &self.to)?))?, zone))
    }
}

fn zone(name: &str) -> Result<TimeZone, ApiError> {
    TimeZone::get(name).map_err(|_| {
        ApiError::parameter("tz", "tz must be the name of an IANA time zone, such as Europe/Berlin or UTC.")
    })
}

fn in_order((from, to): SpanMs) -> Result<SpanMs, ApiError> {
    if from.zip(to).is_some_and(|(from, to)| from > to) {
        return Err(ApiError::parameter("from", "from must not be after to."));
    }
    Ok((from, to))
}

/// Parses `text` as a time in milliseconds since the Unix epoch; accepts such a number or RFC 3339.
pub(crate) fn moment(name: &str, text: &str) -> Result<u64, ApiError> {
    exact(text).ok_or_else(|| ApiError::parameter(name, format!("{name} {MOMENT_RULE}")))
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
        ApiError::parameter(name, format!("{name} {}", one_of(&known)))
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

/// The end of the names of fields that take several parameters.
pub(crate) const ANY_NAME: &str = "NAME";
const MOMENT_RULE: &str = "must be RFC 3339 (2026-01-31T12:00:00Z) or milliseconds since 1970.";
const PARAMETERS_MAX: usize = 32;
/// The shape of a date, before its time.
const DATE: &str = "0000-00-00";
/// The end of the year 9999.
const MOMENT_MAX: u64 = 253_402_300_799_999;

/// The shapes of values in the documentation.
#[cfg(test)]
mod shapes {
    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{Choice, CommaList, Moment, Named, Number};

    impl<const MIN: u64, const MAX: u64> JsonSchema for Number<MIN, MAX> {
        fn schema_name() -> std::borrow::Cow<'static, str> {
            format!("Number{MIN}To{MAX}").into()
        }

        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            let mut schema = json_schema!({"type": "integer", "minimum": MIN});
            if MAX < u64::MAX {
                schema.insert("maximum".to_owned(), MAX.into());
            }
            schema
        }
    }

    impl<T: Named> JsonSchema for Choice<T> {
        fn schema_name() -> std::borrow::Cow<'static, str> {
            std::any::type_name::<T>().into()
        }

        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            let names: Vec<&str> = T::named().into_iter().map(|(name, _)| name).collect();
            json_schema!({"type": "string", "enum": names})
        }
    }

    impl<T: JsonSchema> JsonSchema for CommaList<T> {
        fn schema_name() -> std::borrow::Cow<'static, str> {
            format!("CommaListOf{}", T::schema_name()).into()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            json_schema!({"type": "array", "items": generator.subschema_for::<T>()})
        }
    }

    impl JsonSchema for Moment {
        fn schema_name() -> std::borrow::Cow<'static, str> {
            "Moment".into()
        }

        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            json_schema!({"$ref": "#/components/schemas/Moment"})
        }
    }
}

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
