//! The dimensions of reports. The sums have one column per `Column`; tags, end user and client of an exchange are only
//! in its record, because clients may use any number of different ones.

use records::varint::{put_text, take_text};
use records::{Record, RecordName};
use shared::tags;

use super::requests::Column;

/// A dimension that a report is grouped by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dimension {
    Column(Column),
    /// The tag with this name.
    Tag(String),
    EndUser,
    /// The client's product and version.
    Client,
}

impl Dimension {
    /// The name in the API.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Column(column) => column.name().to_owned(),
            Self::Tag(name) => format!("{TAG}{name}"),
            Self::EndUser => END_USER.to_owned(),
            Self::Client => CLIENT.to_owned(),
        }
    }

    /// The column of the sums; `None` if they have none for this dimension.
    pub(crate) fn column(&self) -> Option<Column> {
        match self {
            Self::Column(column) => Some(*column),
            Self::Tag(_) | Self::EndUser | Self::Client => None,
        }
    }

    /// Returns the exchange's value; empty if it has none.
    pub(crate) fn of<'a>(&self, record: &Record<'a>) -> &'a str {
        match self {
            Self::Column(column) => column.of(record),
            Self::Tag(name) => tag(record.name(RecordName::Tags), name).unwrap_or_default(),
            Self::EndUser => record.name(RecordName::EndUser),
            Self::Client => record.name(RecordName::Client),
        }
    }
}

/// The names of a group as one key: each with its length.
#[expect(clippy::derived_hash_with_manual_eq, reason = "equal keys have equal bytes, and so equal hashes")]
#[derive(Clone, Debug, Default, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NameKey(Vec<u8>);

impl PartialEq for NameKey {
    /// Compares the bytes, if there are any: without names, the vectors point to no memory. Where `memcmp` loads by mask
    /// (AVX-512), comparing zero bytes there takes the processor some hundred cycles, for each record of a chart.
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && (self.0.is_empty() || self.0 == other.0)
    }
}

impl NameKey {
    /// Replaces the names.
    pub(crate) fn set<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        self.clear();
        names.for_each(|name| self.push(name));
    }

    /// Removes the names.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a name.
    pub(crate) fn push(&mut self, name: &str) {
        put_text(&mut self.0, name);
    }

    /// Returns the names.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(|| take_text(&mut rest).map(str::to_owned)).collect()
    }
}

/// Conditions on values that only records contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Names and values of tags, all of which must match.
    pub(crate) tags: Vec<(String, String)>,
    /// End users, one of which must match.
    pub(crate) end_users: Vec<String>,
    /// A product, with its version or for all of them.
    pub(crate) client: Option<String>,
}

impl Marks {
    pub(crate) fn is_empty(&self) -> bool {
        self.tags.is_empty() && self.end_users.is_empty() && self.client.is_none()
    }

    /// True if an exchange meets the conditions.
    pub(crate) fn fit(&self, record: &Record<'_>) -> bool {
        self.has_tags(record.name(RecordName::Tags))
            && self.has_end_user(record.name(RecordName::EndUser))
            && self.has_client(record.name(RecordName::Client))
    }

    /// True if a block with these names may contain an exchange that meets the conditions.
    pub(crate) fn may_fit(&self, names: &[&str]) -> bool {
        let any = |is_it: &dyn Fn(&str) -> bool| names.iter().any(|name| is_it(name));
        (self.tags.is_empty() || any(&|name| self.has_tags(name)))
            && (self.end_users.is_empty() || any(&|name| self.has_end_user(name)))
            && (self.client.is_none() || any(&|name| self.has_client(name)))
    }

    fn has_tags(&self, tags: &str) -> bool {
        self.tags.iter().all(|(name, value)| tag(tags, name) == Some(value))
    }

    fn has_end_user(&self, end_user: &str) -> bool {
        self.end_users.is_empty() || self.end_users.iter().any(|wanted| wanted == end_user)
    }

    fn has_client(&self, client: &str) -> bool {
        self.client.as_deref().is_none_or(|wanted| is_client(client, wanted))
    }
}

/// True if `client` is `wanted`, or a version of it: after `/`, or after a space as in `OpenAI/Python 2.8.1`.
fn is_client(client: &str, wanted: &str) -> bool {
    client.strip_prefix(wanted).is_some_and(|version| version.is_empty() || version.starts_with(['/', ' ']))
}

fn tag<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    tags::pairs(text).find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// The prefix of a tag in [`Dimension::name`].
pub(crate) const TAG: &str = "tag:";
/// The name of [`Dimension::EndUser`].
pub(crate) const END_USER: &str = "end_user";
/// The name of [`Dimension::Client`].
pub(crate) const CLIENT: &str = "client";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_match_all_tags_and_any_end_user() {
        let mut record = Record::default();
        record.set_name(RecordName::Tags, "job=7,team=a");
        record.set_name(RecordName::EndUser, "anna");
        let marks = |tags: &[(&str, &str)], users: &[&str]| Marks {
            tags: tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            end_users: users.iter().map(|user| (*user).to_owned()).collect(),
            client: None,
        };
        for (marks, fits) in [
            (marks(&[], &[]), true),
            (marks(&[("team", "a")], &[]), true),
            (marks(&[("team", "a"), ("job", "7")], &["anna"]), true),
            (marks(&[("team", "")], &[]), false),
            (marks(&[("eam", "a")], &[]), false),
            (marks(&[("team", "a"), ("job", "8")], &[]), false),
            (marks(&[], &["bob", "anna"]), true),
            (marks(&[], &["bob"]), false),
        ] {
            assert_eq!(marks.fit(&record), fits, "{marks:?}");
            assert_eq!(marks.may_fit(&["m", "anna", "job=7,team=a"]), fits, "{marks:?}");
        }
        assert_eq!(Dimension::Tag("team".into()).of(&record), "a");
        assert_eq!(Dimension::Tag("tea".into()).of(&record), "");
        assert_eq!(Dimension::EndUser.of(&record), "anna");
    }

    #[test]
    fn a_client_matches_its_product_with_and_without_the_version() {
        let mut record = Record::default();
        record.set_name(RecordName::Client, "OpenAI/Python 2.8.1");
        for (wanted, fits) in [
            ("OpenAI/Python 2.8.1", true),
            ("OpenAI/Python", true),
            ("OpenAI", true),
            ("Open", false),
            ("curl", false),
        ] {
            let marks = Marks { client: Some(wanted.to_owned()), ..Marks::default() };
            assert_eq!(marks.fit(&record), fits, "{wanted}");
            assert_eq!(marks.may_fit(&["m", "OpenAI/Python 2.8.1"]), fits, "{wanted}");
        }
        assert_eq!(Dimension::Client.of(&record), "OpenAI/Python 2.8.1");
    }
}
