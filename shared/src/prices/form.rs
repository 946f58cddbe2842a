//! The written form of prices, in YAML, JSON and the price list: dollars per million tokens or characters, per
//! second, per image and per call.

use std::fmt;
use std::str::FromStr as _;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::{ONE, Prices, Rates, Schedule, Tier};
use crate::usage::Class;

/// The name and unit of a written price.
#[derive(Clone, Copy, Debug)]
pub struct PriceField {
    /// The class to which the price applies.
    pub class: Class,
    /// The name of the field.
    pub name: &'static str,
    /// The unit and the meaning, as help text.
    pub description: &'static str,
    /// Femto-dollars per counted unit in one nano-dollar of the written price.
    scale: u64,
}

impl PriceField {
    const fn new(class: Class, name: &'static str, scale: u64, description: &'static str) -> Self {
        Self { class, name, description, scale }
    }

    /// Converts a written price. Returns `None` if it is negative, not a number or too high.
    fn femto(&self, dollars: f64) -> Option<u64> {
        let nano = nano(dollars).filter(|_| (0.0..=self.dollars_max()).contains(&dollars))?;
        nano.checked_mul(self.scale)
    }

    /// Returns the highest valid price.
    pub fn dollars_max(&self) -> f64 {
        if self.scale == PER_MILLION { DOLLARS_MAX } else { DOLLARS_EACH_MAX }
    }

    /// Returns the unit and bounds of the field for error texts.
    fn bounds(&self) -> String {
        match self.scale {
            PER_MILLION => format!("dollars per million, from 0 to {}", self.dollars_max()),
            _ => format!("dollars, from 0 to {}", self.dollars_max()),
        }
    }
}

/// Converts dollars per million tokens to femto-dollars per token. Returns `None` if the price is invalid.
pub fn femto_a_token(dollars: f64) -> Option<u64> {
    let [input, ..] = &FIELDS;
    input.femto(dollars)
}

/// Returns the schedule's fields for the price of a class.
pub fn fields() -> &'static [PriceField; Class::COUNT] {
    &FIELDS
}

static FIELDS: [PriceField; Class::COUNT] = [
    PriceField::new(Class::Input, "input", PER_MILLION, "Input that no cache served, per million tokens."),
    PriceField::new(
        Class::CacheRead,
        "cached_input",
        PER_MILLION,
        "Input read from the provider's cache, per million tokens.",
    ),
    PriceField::new(
        Class::CacheWrite,
        "cache_write",
        PER_MILLION,
        "Input written to the provider's cache for its default lifetime, per million tokens.",
    ),
    PriceField::new(
        Class::CacheWrite1h,
        "cache_write_1h",
        PER_MILLION,
        "Input written to the provider's cache for an hour, per million tokens.",
    ),
    PriceField::new(Class::Output, "output", PER_MILLION, "Output, per million tokens."),
    PriceField::new(
        Class::Reasoning,
        "reasoning",
        PER_MILLION,
        "Reasoning, where it is billed apart from output, per million tokens.",
    ),
    PriceField::new(Class::AudioInput, "audio_input", PER_MILLION, "Audio input, per million tokens."),
    PriceField::new(Class::AudioOutput, "audio_output", PER_MILLION, "Audio output, per million tokens."),
    PriceField::new(Class::ImageInput, "image_input", PER_MILLION, "Image input, per million tokens."),
    PriceField::new(Class::ImageOutput, "image_output", PER_MILLION, "Generated images, per million tokens."),
    PriceField::new(
        Class::Characters,
        "characters",
        PER_MILLION,
        "Text to be spoken, per million characters.",
    ),
    PriceField::new(Class::AudioMs, "audio_second", PER_SECOND, "A second of audio."),
    PriceField::new(Class::VideoMs, "video_second", PER_SECOND, "A second of video."),
    PriceField::new(Class::Images, "image", EACH, "A generated picture of any size; see `pictures`."),
    PriceField::new(Class::Searches, "search", EACH, "A search that the provider makes for an answer."),
    PriceField::new(Class::ToolCalls, "tool_call", EACH, "A call of another billed tool of the provider."),
];

/// The maximum price per million tokens or characters.
const DOLLARS_MAX: f64 = 1e6;
/// The maximum price of a second, an image or a call.
const DOLLARS_EACH_MAX: f64 = 1e4;
const PER_MILLION: u64 = 1;
const PER_SECOND: u64 = 1_000;
const EACH: u64 = 1_000_000;
/// The maximum number of steps, of tiers and of image prices of one model.
const PARTS_MAX: usize = 64;

/// Converts dollars to nano-dollars, rounded.
fn nano(dollars: f64) -> Option<u64> {
    format!("{:.0}", dollars * 1e9).parse().ok()
}

/// Converts femto-dollars to dollars of the written price, through text, which rounds once.
fn dollars(femto: u64, scale: u64) -> f64 {
    let nano = femto / scale;
    f64::from_str(&format!("{}.{:09}", nano / 1_000_000_000, nano % 1_000_000_000)).unwrap_or_default()
}

impl<'de> Deserialize<'de> for Prices {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let form = from.deserialize_map(FormVisitor { has_tiers: true })?;
        if form.times.is_some() {
            return Err(de::Error::custom("`times` is only valid in an entry of `tiers`"));
        }
        let mut tiers = form.tiers;
        tiers.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(Self { base: form.schedule, tiers, cached_as_input: false })
    }
}

/// The parsed members of a schedule or of an entry of `tiers`.
#[derive(Default)]
struct Form {
    schedule: Schedule,
    tiers: Vec<(Box<str>, Tier)>,
    times: Option<u64>,
    /// The `input_tokens` of an entry of `above`.
    input_tokens: Option<u64>,
}

struct FormVisitor {
    /// True for the top level; the tiers themselves have no `tiers`.
    has_tiers: bool,
}

impl<'de> Visitor<'de> for FormVisitor {
    type Value = Form;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("prices in dollars by class")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Form, A::Error> {
        let mut form = Form::default();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "input_tokens_max" => form.schedule.input_tokens_max = map.next_value()?,
                "input_tokens" => form.input_tokens = map.next_value()?,
                "above" => form.schedule.above = above(map.next_value()?)?,
                "pictures" => form.schedule.pictures = pictures(map.next_value()?)?,
                "times" => form.times = Some(times(map.next_value()?)?),
                "tiers" if self.has_tiers => form.tiers = map.next_value::<Tiers>()?.0,
                _ => rate(&name, &mut map, &mut form.schedule.rates)?,
            }
        }
        Ok(form)
    }
}

fn rate<'de, A: MapAccess<'de>>(name: &str, map: &mut A, rates: &mut Rates) -> Result<(), A::Error> {
    let Some(field) = FIELDS.iter().find(|field| field.name == name) else {
        return Err(de::Error::unknown_field(name, OTHER_FIELDS));
    };
    if let Some(dollars) = map.next_value::<Option<f64>>()? {
        let femto = field.femto(dollars);
        let fault = || de::Error::custom(format!("`{name}` must be {}", field.bounds()));
        rates.set(field.class, Some(femto.ok_or_else(fault)?));
    }
    Ok(())
}

fn above<E: de::Error>(steps: Vec<Step>) -> Result<Vec<(u64, Rates)>, E> {
    let mut above: Vec<(u64, Rates)> = steps.into_iter().map(|step| (step.0, step.1)).collect();
    above.sort_by_key(|(from, _)| *from);
    if above.len() > PARTS_MAX {
        return Err(E::custom(format!("`above` has more than {PARTS_MAX} entries")));
    }
    Ok(above)
}

fn pictures<E: de::Error>(
    written: std::collections::BTreeMap<String, f64>,
) -> Result<Vec<(Box<str>, u64)>, E> {
    if written.len() > PARTS_MAX {
        return Err(E::custom(format!("`pictures` has more than {PARTS_MAX} entries")));
    }
    let [.., image, _, _] = &FIELDS;
    let read = |(sort, dollars): (String, f64)| match image.femto(dollars) {
        Some(femto) => Ok((sort.into_boxed_str(), femto)),
        None => Err(E::custom(format!("`pictures.{sort}` must be {}", image.bounds()))),
    };
    written.into_iter().map(read).collect()
}

/// Converts a factor to millionths.
fn times<E: de::Error>(factor: f64) -> Result<u64, E> {
    let millionths = format!("{:.0}", factor * 1e6).parse().ok();
    let is_factor = (0.0..=TIMES_MAX).contains(&factor);
    millionths
        .filter(|_| is_factor)
        .ok_or_else(|| E::custom(format!("`times` must be from 0 to {TIMES_MAX}")))
}

/// An entry of `above`.
struct Step(u64, Rates);

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let form = from.deserialize_map(FormVisitor { has_tiers: false })?;
        let from = form.input_tokens.ok_or_else(|| de::Error::missing_field("input_tokens"))?;
        Ok(Self(from, form.schedule.rates))
    }
}

/// The entries of `tiers`.
struct Tiers(Vec<(Box<str>, Tier)>);

impl<'de> Deserialize<'de> for Tiers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let written = std::collections::BTreeMap::<String, Tier>::deserialize(from)?;
        if written.len() > PARTS_MAX {
            return Err(de::Error::custom(format!("`tiers` has more than {PARTS_MAX} entries")));
        }
        Ok(Self(written.into_iter().map(|(name, tier)| (name.into_boxed_str(), tier)).collect()))
    }
}

impl<'de> Deserialize<'de> for Tier {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let form = from.deserialize_map(FormVisitor { has_tiers: false })?;
        match form.times {
            None => Ok(Self::Own(Box::new(form.schedule))),
            Some(times) if form.schedule == Schedule::default() => Ok(Self::Times(times)),
            Some(_) => Err(de::Error::custom("`times` and prices cannot be combined")),
        }
    }
}

impl Serialize for Prices {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        put_schedule::<S>(&mut map, &self.base)?;
        if !self.tiers.is_empty() {
            map.serialize_entry("tiers", &Mapped(&self.tiers))?;
        }
        map.end()
    }
}

fn put_schedule<S: Serializer>(map: &mut S::SerializeMap, schedule: &Schedule) -> Result<(), S::Error> {
    put_rates::<S>(map, &schedule.rates)?;
    if !schedule.pictures.is_empty() {
        let written = schedule.pictures.iter().map(|(sort, femto)| (sort, dollars(*femto, EACH)));
        map.serialize_entry("pictures", &written.collect::<std::collections::BTreeMap<_, _>>())?;
    }
    if let Some(tokens) = schedule.input_tokens_max {
        map.serialize_entry("input_tokens_max", &tokens)?;
    }
    if !schedule.above.is_empty() {
        let steps: Vec<Above<'_>> = schedule.above.iter().map(Above).collect();
        map.serialize_entry("above", &steps)?;
    }
    Ok(())
}

fn put_rates<S: Serializer>(map: &mut S::SerializeMap, rates: &Rates) -> Result<(), S::Error> {
    for field in &FIELDS {
        if let Some(femto) = rates.get(field.class) {
            map.serialize_entry(field.name, &dollars(femto, field.scale))?;
        }
    }
    Ok(())
}

struct Above<'a>(&'a (u64, Rates));

impl Serialize for Above<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("input_tokens", &self.0.0)?;
        put_rates::<S>(&mut map, &self.0.1)?;
        map.end()
    }
}

impl Serialize for Tier {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        match self {
            Self::Own(schedule) => put_schedule::<S>(&mut map, schedule)?,
            Self::Times(times) => {
                let (whole, rest) = (times / ONE, times % ONE);
                let factor = f64::from_str(&format!("{whole}.{rest:06}")).unwrap_or_default();
                map.serialize_entry("times", &factor)?;
            }
        }
        map.end()
    }
}

/// Pairs that are serialized as a map.
struct Mapped<'a>(&'a [(Box<str>, Tier)]);

impl Serialize for Mapped<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, tier)| (name, tier)))
    }
}

impl PriceField {
    /// Returns the written price of `femto` as text without trailing zeros.
    pub(super) fn text(&self, femto: u64) -> String {
        let nano = femto / self.scale;
        let text = format!("{}.{:09}", nano / 1_000_000_000, nano % 1_000_000_000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// The names that error texts list for an unknown field.
const OTHER_FIELDS: &[&str] = &[
    "input",
    "cached_input",
    "cache_write",
    "cache_write_1h",
    "output",
    "reasoning",
    "audio_input",
    "audio_output",
    "image_input",
    "image_output",
    "characters",
    "audio_second",
    "video_second",
    "image",
    "pictures",
    "search",
    "tool_call",
    "input_tokens_max",
    "above",
    "tiers",
];
const TIMES_MAX: f64 = 1_000.0;
