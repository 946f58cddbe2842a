//! Builds configuration files for tests. Retries are off unless a test enables them, so that each upstream call in a
//! record has one cause.

use std::fmt::Write as _;

/// A builder for a configuration file.
#[derive(Clone, Default)]
pub(crate) struct Yaml {
    providers: String,
    endpoints: String,
    policies: Option<String>,
    further: String,
}

impl Yaml {
    /// Creates an empty configuration.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Creates a configuration with one provider `up` with the model `m`, behind `base_url`. Clients select `up/m` or
    /// `m`.
    pub(crate) fn one(base_url: impl AsRef<str>) -> Self {
        Self::new().provider("up", base_url)
    }

    /// Creates a configuration with the providers `p0`, `p1`, ... with the model `m` each, in that order behind the
    /// endpoint `line`.
    pub(crate) fn line(base_urls: &[String]) -> Self {
        let names: Vec<String> = (0..base_urls.len()).map(|index| format!("p{index}")).collect();
        let yaml =
            names.iter().zip(base_urls).fold(Self::new(), |yaml, (name, url)| yaml.provider(name, url));
        let targets: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "m")).collect();
        yaml.endpoint("line", &targets)
    }

    /// Adds a compatible provider with the model `m`.
    pub(crate) fn provider(self, id: &str, base_url: impl AsRef<str>) -> Self {
        self.provider_with(id, base_url, "")
    }

    /// Like [`Yaml::provider`], with additional `key: value` members, one per line.
    pub(crate) fn provider_with(mut self, id: &str, base_url: impl AsRef<str>, members: &str) -> Self {
        let base_url = base_url.as_ref();
        let _ = writeln!(self.providers, "  {id}:\n    type: compatible\n    base_url: {base_url}");
        let _ = writeln!(self.providers, "    api_key: upstream-secret-of-{id}");
        if !members.contains("models:") {
            let _ = writeln!(self.providers, "    models: [m]");
        }
        for line in members.lines() {
            let _ = writeln!(self.providers, "    {line}");
        }
        self
    }

    /// Adds an endpoint over `(provider, model)` pairs.
    pub(crate) fn endpoint(mut self, name: &str, targets: &[(&str, &str)]) -> Self {
        let _ = writeln!(self.endpoints, "  {name}:\n    failover:");
        for (provider, model) in targets {
            let _ = writeln!(self.endpoints, "      - {{ provider: {provider}, model: {model} }}");
        }
        self
    }

    /// Replaces the members of `policies.defaults`, one per line.
    pub(crate) fn policies(mut self, members: &str) -> Self {
        self.policies = Some(members.to_owned());
        self
    }

    /// Adds the text of further sections.
    pub(crate) fn further(mut self, sections: &str) -> Self {
        self.further.push_str(sections);
        self
    }

    /// Returns the text of the file.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (section, members) in [("providers", &self.providers), ("endpoints", &self.endpoints)] {
            if !members.is_empty() {
                let _ = write!(text, "{section}:\n{members}");
            }
        }
        let policies =
            self.policies.as_deref().unwrap_or("retry_max_attempts: 1\ncircuit_failure_threshold: 0");
        text.push_str("policies:\n  defaults:\n");
        for line in policies.lines() {
            let _ = writeln!(text, "    {line}");
        }
        text.push_str(&self.further);
        text
    }
}
