//! Parses YAML text into a tree, and maps a path in the tree back to its line and column.
//!
//! The parser silently keeps the last of two equal keys, so repeats are collected here. It reports positions only with
//! errors, so a position is found by parsing again and failing there on purpose. The tree is bounded regardless of
//! aliases (P21).

mod locate;

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

pub(crate) use locate::locate;

/// One step from a node to a node inside it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum YamlStep {
    Key(String),
    Item(usize),
}

/// The path of a node, from the document down.
pub(crate) type YamlPath = Vec<YamlStep>;

/// Formats `path` in the usual notation: `endpoints.fast.failover[2].model`.
pub(crate) fn path_text(path: &[YamlStep]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            YamlStep::Key(key) if text.is_empty() => text.push_str(key),
            YamlStep::Key(key) => text.extend([".", key]),
            YamlStep::Item(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text.chars().take(PATH_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Line and column, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Position {
    const START: Self = Self { line: 1, column: 1 };

    /// Converts the parser's location. Its line does not serve: it also counts U+0085, U+2028 and U+2029 as line breaks (YAML
    /// 1.1), which editors and YAML 1.2 (5.4) do not. Its index counts characters.
    fn of(location: &serde_yaml::Location, text: &str) -> Self {
        let mut position = Self::START;
        let mut characters = text.chars().take(location.index()).peekable();
        while let Some(character) = characters.next() {
            let ends_line = character == '\n' || (character == '\r' && characters.peek() != Some(&'\n'));
            position = if ends_line {
                Self { line: position.line + 1, column: 1 }
            } else {
                Self { column: position.column + 1, ..position }
            };
        }
        position
    }
}

/// The spot to locate at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum YamlSpot {
    /// The key, or the item itself.
    Key,
    /// The key's second occurrence.
    Repeat,
}

/// A document as a tree.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) tree: Value,
    /// Keys that occur more than once in their map.
    pub(crate) repeats: Vec<YamlPath>,
}

/// Text that is not valid YAML, or uses features that the gateway does not accept.
#[derive(Debug)]
pub(crate) struct BrokenYaml {
    pub(crate) position: Position,
    pub(crate) message: String,
}

/// Parses `text`. An empty document is an empty map.
pub(crate) fn parse(text: &str) -> Result<Document, BrokenYaml> {
    let whole = |line, message| BrokenYaml { position: Position { line, column: 1 }, message };
    if let Some(line) = too_deep(text) {
        return Err(whole(line, format!("is nested deeper than {DEPTH_MAX} levels")));
    }
    if text.bytes().filter(|byte| STRUCTURE.contains(byte)).count() > STRUCTURE_MAX {
        return Err(whole(1, format!("the document has more than {NODES_MAX} values")));
    }
    let state = RefCell::new(YamlState::default());
    let tree = Node { state: &state }
        .deserialize(serde_yaml::Deserializer::from_str(text))
        .map_err(|error| broken(&error, text))?;
    let tree = if tree.is_null() { Value::Object(Map::new()) } else { tree };
    Ok(Document { tree, repeats: state.into_inner().repeats })
}

fn broken(error: &serde_yaml::Error, text: &str) -> BrokenYaml {
    let position = error.location().map_or(Position::START, |location| Position::of(&location, text));
    let message = error.to_string();
    let cause = message.split_once(" at line ").map_or(message.as_str(), |(cause, _)| cause);
    let cause = cause.rsplit_once(": ").map_or(cause, |(_, cause)| cause);
    let message = if is_indented_with_tab(text, position.line) {
        format!("line {} is indented with a tab; YAML accepts only spaces there", position.line)
    } else {
        format!("cannot be read as YAML: {cause}")
    };
    BrokenYaml { position, message }
}

fn is_indented_with_tab(text: &str, line: usize) -> bool {
    let line = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    line.trim_start_matches(' ').starts_with('\t')
}

/// Returns the first line whose flow brackets nest deeper than in any real configuration. The parser's scanner takes
/// time quadratic in that depth, so such text must not reach it.
fn too_deep(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (number, line) in text.lines().enumerate() {
        for byte in line.bytes() {
            match byte {
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > BRACKETS_MAX {
                return Some(number + 1);
            }
        }
    }
    None
}

#[derive(Default)]
struct YamlState {
    path: YamlPath,
    repeats: Vec<YamlPath>,
    nodes: usize,
    bytes: usize,
}

/// Deserializes one node and its descendants.
struct Node<'a> {
    state: &'a RefCell<YamlState>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        {
            let mut state = self.state.borrow_mut();
            state.nodes += 1;
            if state.nodes > NODES_MAX {
                return Err(D::Error::custom(format!("the document has more than {NODES_MAX} values")));
            }
            if state.path.len() > DEPTH_MAX {
                return Err(D::Error::custom(format!("nested deeper than {DEPTH_MAX} levels")));
            }
        }
        deserializer.deserialize_any(self)
    }
}

impl Node<'_> {
    fn text<E: serde::de::Error>(&self, text: &str) -> Result<String, E> {
        let mut state = self.state.borrow_mut();
        state.bytes = state.bytes.saturating_add(text.len());
        if state.bytes > EXPANDED_BYTES_MAX {
            return Err(E::custom("aliases expand to too much text"));
        }
        Ok(text.to_owned())
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("infinity and .nan are not supported"))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        self.text(text).map(Value::String)
    }

    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, _: A) -> Result<Value, A::Error> {
        Err(A::Error::custom("tags such as !name are not supported"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            self.state.borrow_mut().path.push(YamlStep::Item(list.len()));
            let item = items.next_element_seed(Node { state: self.state })?;
            self.state.borrow_mut().path.pop();
            match item {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<YamlKey>()? {
            let key = self.text(&key.0)?;
            self.state.borrow_mut().path.push(YamlStep::Key(key.clone()));
            if map.contains_key(&key) {
                let mut state = self.state.borrow_mut();
                let path = state.path.clone();
                if !state.repeats.contains(&path) && state.repeats.len() < REPEATS_MAX {
                    state.repeats.push(path);
                }
            }
            let value = entries.next_value_seed(Node { state: self.state })?;
            self.state.borrow_mut().path.pop();
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// A key: any scalar, as its text.
struct YamlKey(String);

impl<'de> serde::Deserialize<'de> for YamlKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = YamlKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name as key")
            }

            fn visit_str<E>(self, text: &str) -> Result<YamlKey, E> {
                Ok(YamlKey(text.to_owned()))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

const PATH_CHARS_MAX: usize = 200;
const DEPTH_MAX: usize = 32;
const BRACKETS_MAX: usize = 256;
const NODES_MAX: usize = 200_000;
/// Characters that start or end a value. The parser needs about 150 bytes for each, so their number is bounded too.
const STRUCTURE: &[u8] = b",[{:-?\n";
const STRUCTURE_MAX: usize = 2_000_000;
const EXPANDED_BYTES_MAX: usize = 16 << 20;
const REPEATS_MAX: usize = 100;
