//! Names of things, one type a name, so that a provider's id can never stand where an endpoint's belongs.

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
            /// Takes the text as it is; whoever reads it from outside has checked it.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The name as text.
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
    /// One configured upstream connection; holds no `/` (SEL-3).
    ProviderId
);
id!(
    /// A named failover list; holds no `/` and never equals a [`ProviderId`] (SEL-3).
    EndpointName
);
id!(
    /// What a provider instance calls one of its models; may hold `/`.
    ModelId
);
id!(
    /// A key that opens the data plane: a project key's id, or `admin` and `local` for the two without one.
    KeyId
);
id!(
    /// The unit that owns keys and quotas.
    ProjectId
);
id!(
    /// A human identity.
    PrincipalId
);

/// Whether `text` may name a provider instance or an endpoint: 1 to 64 of `A-Z a-z 0-9 . _ -`, the first
/// one a letter or digit (SEL-3 forbids `/`; the rest keeps names safe in URLs, headers and logs).
pub fn is_name(text: &str) -> bool {
    let first_ok = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    first_ok && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}
