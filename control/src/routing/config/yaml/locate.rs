//! Maps a path in the tree back to its line and column: parses again and fails on purpose at the wanted node, because
//! the parser reports positions only with errors.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Position, YamlSpot, YamlStep};

/// Returns the position of `path` in `text`, or of its nearest existing ancestor.
pub(crate) fn locate(text: &str, path: &[YamlStep], spot: YamlSpot) -> Position {
    for length in (0..=path.len()).rev() {
        let Some(path) = path.get(..length) else { continue };
        let found = RefCell::new(false);
        let seek = Seek { path, spot, found: &found };
        let result = seek.deserialize(serde_yaml::Deserializer::from_str(text));
        if let (Err(error), true) = (result, found.into_inner())
            && let Some(location) = error.location()
        {
            return Position::of(&location, text);
        }
    }
    Position::START
}

/// Descends along `path` and fails at its end, so that the parser reports the position.
struct Seek<'a> {
    path: &'a [YamlStep],
    spot: YamlSpot,
    found: &'a RefCell<bool>,
}

impl Seek<'_> {
    fn arrive<E: serde::de::Error>(&self) -> E {
        *self.found.borrow_mut() = true;
        E::custom("here")
    }
}

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.path.is_empty() {
            // A visitor that accepts nothing: the error of its first call gets the position of this node.
            return deserializer.deserialize_any(Stop(&self));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node on the way")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Some((YamlStep::Item(index), rest)) = self.path.split_first() else {
            return Err(A::Error::custom("no list expected"));
        };
        for _ in 0..*index {
            items.next_element::<IgnoredAny>()?;
        }
        items.next_element_seed(Seek { path: rest, ..self })?;
        Err(A::Error::custom("no such item"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Some((YamlStep::Key(wanted), rest)) = self.path.split_first() else {
            return Err(A::Error::custom("no map expected"));
        };
        let at = match (rest.is_empty(), self.spot) {
            (true, YamlSpot::Key) => Some(1),
            (true, YamlSpot::Repeat) => Some(2),
            (false, _) => None,
        };
        let mut seen = 0;
        loop {
            let stop = at == Some(seen + 1);
            match entries.next_key_seed(SeekKey { wanted, stop, seek: &self })? {
                None => return Err(A::Error::custom("no such key")),
                Some(false) => {
                    entries.next_value::<IgnoredAny>()?;
                }
                Some(true) if at.is_none() => {
                    return entries.next_value_seed(Seek { path: rest, ..self });
                }
                Some(true) => {
                    seen += 1;
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
    }
}

/// Compares a key with the wanted one, or fails there.
struct SeekKey<'a, 'b> {
    wanted: &'a str,
    stop: bool,
    seek: &'b Seek<'b>,
}

impl<'de> DeserializeSeed<'de> for SeekKey<'_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for SeekKey<'_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<bool, E> {
        match text == self.wanted {
            true if self.stop => Err(self.seek.arrive()),
            equal => Ok(equal),
        }
    }
}

/// Rejects any node.
struct Stop<'a, 'b>(&'a Seek<'b>);

impl<'de> Visitor<'de> for Stop<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Err(self.0.arrive())
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        Err(self.0.arrive())
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        Err(self.0.arrive())
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        Err(self.0.arrive())
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        Err(self.0.arrive())
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        Err(self.0.arrive())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(self.0.arrive())
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(self.0.arrive())
    }
}
