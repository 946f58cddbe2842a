//! The kinds of values that environment variables hold.

/// The kind of value that a variable holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum VariableKind {
    Text,
    Path,
    Secret,
    Secrets,
    /// Base64 of exactly 32 bytes.
    Key,
    Flag,
    /// A whole number between two inclusive bounds.
    Count(u64, u64),
    Choice(&'static [&'static str]),
    Address,
    Origin,
    /// The path below which a reverse proxy publishes the gateway.
    BasePath,
    /// `https`, or `http` to this machine.
    Url,
    /// `http` or `https`.
    HttpUrl,
    /// Headers `name=value`, separated by commas, whose values are secrets.
    SecretHeaders,
    Blocks,
    Header,
    /// A cron expression.
    Schedule,
    /// The URL of a database of PostgreSQL, with its password.
    Database,
    /// The URL of an HTTP proxy, perhaps with its password.
    Proxy,
}

impl VariableKind {
    pub(super) fn is_secret(self) -> bool {
        matches!(
            self,
            Self::Secret | Self::Secrets | Self::Key | Self::SecretHeaders | Self::Database | Self::Proxy
        )
    }

    /// Describes the accepted values.
    pub(super) fn holds(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Secret => "a secret".to_owned(),
            Self::Secrets => "secrets separated by commas".to_owned(),
            Self::Key => "base64 of exactly 32 bytes".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Count(min, u64::MAX) => format!("a whole number from {min}"),
            Self::Count(min, max) => format!("a whole number from {min} to {max}"),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Address => "an IP address or localhost".to_owned(),
            Self::Origin => "an origin such as https://llmgw.example.com".to_owned(),
            Self::BasePath => "a path such as /llm".to_owned(),
            Self::Url => "an https URL such as https://prices.example.com/prices.json".to_owned(),
            Self::HttpUrl => "an http or https URL such as http://127.0.0.1:4318".to_owned(),
            Self::SecretHeaders => "headers such as api-key=VALUE,tenant=VALUE".to_owned(),
            Self::Blocks => "addresses or CIDR blocks separated by commas".to_owned(),
            Self::Header => "a header name".to_owned(),
            Self::Database => "a URL such as postgres://user:password@host:5432/database".to_owned(),
            Self::Proxy => "a URL such as http://user:password@proxy.example:3128".to_owned(),
            Self::Schedule => "a schedule in cron syntax such as 30 3 * * *".to_owned(),
        }
    }
}
