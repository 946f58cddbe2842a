//! Names of tools. A name that the target accepts passes unchanged; any other is replaced by a short one derived from
//! it alone, so that later turns use the same one. Calls in the answer get the client's name back.

use std::borrow::Cow;

use super::call_id::letters;
use crate::chat::escape;

/// The tool names that a target accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rule {
    /// Any text.
    #[default]
    Any,
    /// Letters, digits, `_` and `-`, up to this many.
    Word(usize),
    /// Letters, digits, `_`, `-`, `.` and `:`, up to 128, beginning with a letter or `_`.
    Google,
}

/// The replaced names of one request.
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

/// The length of a name that every target accepts.
pub(super) const WORD_MAX: usize = 64;
const GOOGLE_MAX: usize = 128;
/// The number of hash letters in a replacement name.
const HASH_LETTERS: u32 = 16;

impl ToolNames {
    pub(super) fn new(rule: Rule) -> Self {
        Self { rule, replaced: Vec::new() }
    }

    /// Returns `name` in the form that the target accepts. A replacement is remembered for the answer.
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

    /// Returns the client's name of the tool that the target calls `name`.
    pub(super) fn restore<'a>(&'a self, name: &'a str) -> &'a str {
        self.found(name.as_bytes()).map_or(name, |replaced| &replaced.client)
    }

    /// Like `restore`, for a name still escaped as in JSON, without its quotes.
    pub(super) fn restore_escaped<'a>(&self, name: &'a str) -> Cow<'a, str> {
        let found = self.found(name.as_bytes());
        found.map_or(Cow::Borrowed(name), |replaced| escape(replaced.client.clone().into()))
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

/// Returns a name that every target accepts: a hash of `name`, and its end, which distinguishes the tools of one
/// server.
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
    fn a_rejected_tool_name_is_shortened_deterministically() {
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
    fn shortened_tool_names_are_unique_and_restored() {
        let mut names = ToolNames::new(Rule::Word(64));
        let long = "x".repeat(100);
        let all = [long.clone() + "a", long.clone() + "b", "a".to_owned() + &long, "é\"".to_owned()];
        let fitted = all.clone().map(|name| names.fit(&name).into_owned());
        for (name, fitted) in all.iter().zip(&fitted) {
            assert_eq!(names.restore(fitted), name);
        }
        assert_eq!(&*names.restore_escaped(&fitted[3]), "é\\\"");
        assert_eq!(&*names.restore_escaped("other"), "other");
    }
}
