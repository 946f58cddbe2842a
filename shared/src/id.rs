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

/// Returns true if `text` is a valid name of a provider instance or an endpoint: 1 to 64 of `A-Z a-z 0-9 . _ -`,
/// starting with a letter or digit (SEL-3 forbids `/`; the rest keeps names safe in URLs, headers and logs).
pub fn is_name(text: &str) -> bool {
    let first_ok = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    first_ok && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}
