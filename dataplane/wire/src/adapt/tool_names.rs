//! Names of tools. One that the target takes passes as it is; another is replaced by a short one made of it alone, so
//! that a later turn finds the same one, and the answer's calls get the client's own name back.

use std::borrow::Cow;

use super::call_id::letters;
use crate::json;

/// The names of tools that a target takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rule {
    /// Any text.
    #[default]
    Any,
    /// Letters, digits, `_` and `-`, so many at most.
    Word(usize),
    /// The same with `.` and `:`, up to 128; a letter or `_` first.
    Google,
}

/// Names of one request and what stands for them at the target.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolNames {
    rule: Rule,
    replaced: Vec<Replaced>,
}

#[derive(Clone, Debug)]
struct Replaced {
    client: String,
    target: String,
}

/// Characters of a name that a target takes in any case.
pub(super) const WORD_MAX: usize = 64;
const GOOGLE_MAX: usize = 128;
/// Letters of the hash at the end of a name that replaces another.
const HASH_LETTERS: u32 = 16;

impl ToolNames {
    pub(super) fn new(rule: Rule) -> Self {
        Self { rule, replaced: Vec::new() }
    }

    /// `name` as the target takes it. One that is replaced is remembered for the answer.
    pub(super) fn fit<'a>(&mut self, name: &'a str) -> Cow<'a, str> {
        if self.rule.takes(name) {
            return Cow::Borrowed(name);
        }
        if let Some(known) = self.replaced.iter().find(|replaced| replaced.client == name) {
            return Cow::Owned(known.target.clone());
        }
        let target = short(name);
        self.replaced.push(Replaced { client: name.to_owned(), target: target.clone() });
        Cow::Owned(target)
    }

    /// The client's name of the tool that the target calls `name`.
    pub(super) fn restore<'a>(&'a self, name: &'a str) -> &'a str {
        self.found(name.as_bytes()).map_or(name, |replaced| &replaced.client)
    }

    /// The same of a name as it stands between the quotes of JSON.
    pub(super) fn restore_escaped<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(replaced) = self.found(name) else { return Cow::Borrowed(name) };
        let quoted = json::quote(&replaced.client).into_bytes();
        let inside = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
        Cow::Owned(inside.to_vec())
    }

    fn found(&self, name: &[u8]) -> Option<&Replaced> {
        self.replaced.iter().find(|replaced| replaced.target.as_bytes() == name)
    }
}

impl Rule {
    fn takes(self, name: &str) -> bool {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        match self {
            Self::Any => true,
            Self::Word(most) => (1..=most).contains(&name.len()) && name.bytes().all(is_word),
            Self::Google => {
                let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
                let rest = |byte: u8| is_word(byte) || byte == b'.' || byte == b':';
                begins && name.len() <= GOOGLE_MAX && name.bytes().all(rest)
            }
        }
    }
}

/// A name that every target takes: the end of `name`, which tells the tools of one server apart, and a hash of all of it.
fn short(name: &str) -> String {
    let kept = WORD_MAX.saturating_sub(usize::try_from(HASH_LETTERS).unwrap_or(0)).saturating_sub(2);
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let skipped = name.chars().count().saturating_sub(kept);
    let end: String = name.chars().skip(skipped).map(plain).collect();
    format!("t{}_{}", letters(name.as_bytes(), HASH_LETTERS), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_the_target_refuses_gets_the_same_short_one_every_time() {
        let long = "mcp__server__".to_owned() + &"read_".repeat(30);
        let rows = [
            (Rule::Any, &*long, true),
            (Rule::Word(64), "get_weather-2", true),
            (Rule::Word(64), &long[..64], true),
            (Rule::Word(64), &long[..65], false),
            (Rule::Word(128), &long[..128], true),
            (Rule::Word(128), &long, false),
            (Rule::Word(64), "files.read", false),
            (Rule::Word(64), "", false),
            (Rule::Word(64), "größe", false),
            (Rule::Google, "files.read:all", true),
            (Rule::Google, "3d", false),
            (Rule::Google, "-x", false),
            (Rule::Google, &long[..128], true),
            (Rule::Google, &long, false),
        ];
        for (rule, name, stays) in rows {
            let mut names = ToolNames::new(rule);
            let fitted = names.fit(name).into_owned();
            assert_eq!(fitted == name, stays, "{name}");
            assert_eq!(names.restore(&fitted), name);
            assert_eq!(ToolNames::new(rule).fit(name), fitted, "another request has the same one");
            assert!(rule == Rule::Any || Rule::Google.takes(&fitted) || stays, "{fitted}");
            assert!(rule == Rule::Any || rule.takes(&fitted), "{fitted}");
            assert!(stays || Rule::Word(64).takes(&fitted), "{fitted}");
        }
    }

    #[test]
    fn names_that_differ_are_replaced_by_names_that_differ() {
        let mut names = ToolNames::new(Rule::Word(64));
        let long = "x".repeat(100);
        let all = [long.clone() + "a", long.clone() + "b", "a".to_owned() + &long, "é\"".to_owned()];
        let fitted = all.clone().map(|name| names.fit(&name).into_owned());
        for (name, fitted) in all.iter().zip(&fitted) {
            assert_eq!(names.restore(fitted), name);
        }
        assert_eq!(&*names.restore_escaped(fitted[3].as_bytes()), "é\\\"".as_bytes());
        assert_eq!(&*names.restore_escaped(b"other"), b"other");
    }
}
