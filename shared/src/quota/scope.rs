//! The requests that a limit counts: those of its subject, optionally narrowed to an endpoint, a provider instance or
//! a model.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{EndpointName, ModelId, ProviderId};
use crate::routing::Target;

/// The subject of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// One key, including all keys created by rotating it.
    Key,
    /// A project: all of its keys together.
    Project,
    /// A human: all keys that act as this human.
    Principal,
    /// A provider instance: all requests to it.
    Provider,
    /// The gateway: all project keys together.
    Gateway,
}

/// Restricts a limit to some requests of its subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only requests that name this endpoint.
    pub endpoint: Option<EndpointName>,
    /// Only requests to this provider instance.
    pub provider: Option<ProviderId>,
    /// Only requests to this model of the provider instance.
    pub model: Option<ModelId>,
}

impl Subject {
    /// Every subject.
    pub const ALL: [Self; 5] = [Self::Key, Self::Project, Self::Principal, Self::Provider, Self::Gateway];

    /// Returns the name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Project => "project",
            Self::Principal => "principal",
            Self::Provider => "provider",
            Self::Gateway => "gateway",
        }
    }
}

impl Scope {
    /// Returns true if the target determines whether the limit counts a request.
    pub fn needs_target(&self) -> bool {
        self.provider.is_some()
    }

    /// Returns true if the limit counts a request for `endpoint`, or for no endpoint, that goes to `target`.
    pub fn covers(&self, endpoint: Option<&EndpointName>, target: &Target) -> bool {
        self.names(endpoint)
            && self.provider.as_ref().is_none_or(|provider| *provider == target.provider.id)
            && self.model.as_ref().is_none_or(|model| *model == target.model.id)
    }

    /// Returns true if the limit counts a request for `endpoint`, or for no endpoint, regardless of its target.
    pub fn covers_all(&self, endpoint: Option<&EndpointName>) -> bool {
        !self.needs_target() && self.names(endpoint)
    }

    fn names(&self, endpoint: Option<&EndpointName>) -> bool {
        self.endpoint.as_ref().is_none_or(|wanted| Some(wanted) == endpoint)
    }
}

/// Formats the scope as in ", model openai/gpt-5, endpoint line".
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(provider), Some(model)) = (&self.provider, &self.model) {
            write!(f, ", model {provider}/{model}")?;
        }
        match &self.endpoint {
            Some(endpoint) => write!(f, ", endpoint {endpoint}"),
            None => Ok(()),
        }
    }
}
