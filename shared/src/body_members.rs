//! Changes of the top-level members of JSON requests to an upstream.

use std::fmt;

/// The changes of a provider instance, or of one of its models. No name occurs twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyMembers {
    members: Box<[BodyMember]>,
}

/// The change of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyMember {
    /// The name of the member.
    pub name: Box<str>,
    /// The change.
    pub change: MemberChange,
}

/// A change of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// The member gets this value if the request has none, or null.
    Default(MemberValue),
    /// The member gets this value.
    Set(MemberValue),
    /// The member is left out.
    Remove,
}

/// A value, with secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct MemberValue {
    /// The value as it is sent, in JSON.
    pub json: Box<str>,
    /// The value as it is shown, in JSON: with references in place of their values.
    pub shown: Box<str>,
}

impl BodyMembers {
    /// The most members of a provider instance or model.
    pub const COUNT_MAX: usize = 64;
    /// The most bytes of a name, which consists of ASCII letters, digits, `_`, `-` and `.`.
    pub const NAME_BYTES_MAX: usize = 64;
    /// The most bytes of a value in JSON.
    pub const VALUE_BYTES_MAX: usize = 64 << 10;

    /// Creates the changes; `None` if there are none.
    pub fn new(members: Vec<BodyMember>) -> Option<Self> {
        (!members.is_empty()).then(|| Self { members: members.into() })
    }

    /// Returns the changes in order of their names.
    pub fn all(&self) -> &[BodyMember] {
        &self.members
    }

    /// Returns the change of a member, if there is one.
    pub fn of(&self, name: &str) -> Option<&MemberChange> {
        self.members.iter().find(|member| *member.name == *name).map(|member| &member.change)
    }
}

impl MemberChange {
    /// Returns the word for records.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Default(_) => "default",
            Self::Set(_) => "set",
            Self::Remove => "removed",
        }
    }

    /// Returns the value that the change gives to a member.
    pub fn value(&self) -> Option<&MemberValue> {
        match self {
            Self::Default(value) | Self::Set(value) => Some(value),
            Self::Remove => None,
        }
    }
}

/// The value as it is sent may contain secrets.
impl fmt::Debug for MemberValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}
