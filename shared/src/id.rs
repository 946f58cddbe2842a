//! Identifier types, one per kind of object, so that the compiler rejects a provider ID where an endpoint name belongs.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Creates an ID from `text` unchanged. Code that reads IDs from outside must validate them first.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// Returns the ID as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

id!(
    /// The ID of a configured upstream connection; contains no `/` (SEL-3).
    ProviderId
);
id!(
    /// The name of an endpoint; contains no `/` and never equals a [`ProviderId`] (SEL-3).
    EndpointName
);
id!(
    /// A provider instance's own name for one of its models; may contain `/`.
    ModelId
);
id!(
    /// The ID of a key for the data plane: a project key's ID, or `admin` and `local` for the two callers without one.
    KeyId
);
id!(
    /// The ID of a project, the unit that owns keys and quotas.
    ProjectId
);
id!(
    /// The ID of a principal, a human identity.
    PrincipalId
);

/// The number of one of several keys of a provider instance, written `c2`. In the configuration file it is the place in the
/// list. The API gives a new key the number after the highest of the instance's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CredentialNumber(pub u32);

impl CredentialNumber {
    /// Returns the number that `text`, such as `c2`, names.
    pub fn named(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('c').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        digits?.parse().ok().filter(|number| *number > 0).map(Self)
    }
}

impl fmt::Display for CredentialNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

impl Serialize for CredentialNumber {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CredentialNumber {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::named(&text).ok_or_else(|| serde::de::Error::custom("must be the ID of a key, such as c2"))
    }
}

/// Returns true if `text` is a valid name of a provider instance or an endpoint: 1 to 64 of `A-Z a-z 0-9 . _ -`,
/// starting with a letter or digit (SEL-3 forbids `/`; the rest keeps names safe in URLs, headers and logs).
pub fn is_name(text: &str) -> bool {
    let first_ok = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    first_ok && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}
