//! Requests for access tokens of Microsoft Entra, for Azure: with a registered application and its client secret, or
//! with the managed identity of the machine that the gateway runs on.

use bytes::Bytes;
use http::Request;
use serde::Deserialize;
use shared::port::MetadataServer;
use shared::secret::Secret;

use super::grant::{encoded, is_safe, post};
use super::{CredentialContext, Surroundings, fits};

/// An identity of Microsoft Entra that can request access tokens.
#[derive(Clone, Debug)]
pub(super) enum Entra {
    Application {
        authority: String,
        client_id: String,
        client_secret: Secret<String>,
        resource: &'static str,
    },
    Machine {
        client_id: Option<String>,
        resource: &'static str,
        surroundings: Surroundings,
    },
}

/// The output of `az ad sp create-for-rbac`, in all its field spellings.
#[derive(Deserialize)]
struct EntraFile {
    #[serde(alias = "tenantId", alias = "tenant_id")]
    tenant: String,
    #[serde(rename = "appId", alias = "clientId", alias = "client_id")]
    client_id: String,
    #[serde(rename = "password", alias = "clientSecret", alias = "client_secret")]
    client_secret: String,
}

/// A Microsoft cloud: the domain suffix of its resources, the authority that issues tokens, and the token resource.
type Cloud = (&'static str, &'static str, &'static str);

const PUBLIC: Cloud =
    (".azure.com", "https://login.microsoftonline.com", "https://cognitiveservices.azure.com");
const OTHERS: [Cloud; 2] = [
    (".azure.us", "https://login.microsoftonline.us", "https://cognitiveservices.azure.us"),
    (".azure.cn", "https://login.partner.microsoftonline.cn", "https://cognitiveservices.azure.cn"),
];

impl Entra {
    /// Parses `key` as an Entra identity. Returns `None` if it is a plain API key.
    pub(super) fn read(key: &str, around: &CredentialContext<'_>) -> Option<Result<Self, &'static str>> {
        let (_, authority, resource) = cloud(around.host);
        let mut parts = key.splitn(3, ':').map(str::trim);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(MACHINE), client_id, None) => Some(Self::machine(client_id, resource, around.surroundings)),
            (Some(_), None, None) if !key.starts_with('{') => None,
            _ => Some(file(key).and_then(|file| {
                let authority = around.surroundings.authority.as_deref().unwrap_or(authority);
                Self::application(file, authority, resource)
            })),
        }
    }

    fn machine(
        client_id: Option<&str>,
        resource: &'static str,
        surroundings: &Surroundings,
    ) -> Result<Self, &'static str> {
        if !client_id.is_none_or(is_name) {
            return Err("must be managed_identity or managed_identity:CLIENT_ID");
        }
        let client_id = client_id.map(str::to_owned);
        Ok(Self::Machine { client_id, resource, surroundings: surroundings.clone() })
    }

    fn application(file: EntraFile, authority: &str, resource: &'static str) -> Result<Self, &'static str> {
        let EntraFile { tenant, client_id, client_secret } = file;
        if !is_name(&tenant) || !is_name(&client_id) || client_secret.is_empty() {
            return Err(SHAPE);
        }
        fits(&client_secret)?;
        let client_secret = Secret::new(client_secret);
        let authority = authority.trim_end_matches('/');
        let with_scheme =
            if authority.contains("://") { authority.to_owned() } else { format!("https://{authority}") };
        let authority = format!("{with_scheme}/{tenant}/oauth2/v2.0/token");
        if !is_safe(&authority) {
            return Err("uses AZURE_AUTHORITY_HOST, which is not an https:// address");
        }
        Ok(Self::Application { authority, client_id, client_secret, resource })
    }

    /// True if this is the managed identity of the machine.
    pub(super) fn is_machine(&self) -> bool {
        matches!(self, Self::Machine { .. })
    }

    /// Returns a text that distinguishes this identity from others; contains the client secret.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Application { authority, client_id, client_secret, resource } => {
                format!("{authority}\n{client_id}\n{}\n{resource}", client_secret.expose())
            }
            Self::Machine { client_id, resource, .. } => {
                format!("managed identity {}\n{resource}", client_id.as_deref().unwrap_or_default())
            }
        }
    }

    /// Returns the token request.
    pub(super) fn request(&self) -> Result<Request<Bytes>, &'static str> {
        match self {
            Self::Application { authority, client_id, client_secret, resource } => {
                let fields = [
                    ("grant_type", "client_credentials"),
                    ("client_id", client_id),
                    ("client_secret", client_secret.expose()),
                    ("scope", &format!("{resource}/.default")),
                ];
                post(authority, &fields)
            }
            Self::Machine { client_id, resource, surroundings } => {
                ask_machine(client_id.as_deref(), resource, surroundings)
            }
        }
    }

    /// Returns the secret to redact from error texts of the token server.
    pub(super) fn secret(&self) -> Option<&str> {
        match self {
            Self::Application { client_secret, .. } => Some(client_secret.expose()),
            Self::Machine { surroundings, .. } => {
                surroundings.identity_header.as_ref().map(|secret| secret.expose().as_str())
            }
        }
    }
}

/// Builds a token request to the endpoint in IDENTITY_ENDPOINT, or else to the metadata server of the virtual machine.
fn ask_machine(
    client_id: Option<&str>,
    resource: &str,
    surroundings: &Surroundings,
) -> Result<Request<Bytes>, &'static str> {
    let who = client_id.map(|id| format!("&client_id={id}")).unwrap_or_default();
    let query = format!("resource={}{who}", encoded(resource));
    if let (Some(endpoint), Some(header)) = (&surroundings.identity_endpoint, &surroundings.identity_header) {
        return Request::get(format!("{endpoint}?api-version=2019-08-01&{query}"))
            .header("x-identity-header", header.expose())
            .body(Bytes::new())
            .map_err(|_| "IDENTITY_ENDPOINT or IDENTITY_HEADER is invalid");
    }
    let (host, path) = (MetadataServer::ADDRESS, MetadataServer::AZURE_TOKEN_PATH);
    let mut request = Request::get(format!("http://{host}{path}?api-version=2018-02-01&{query}"))
        .header("metadata", "true")
        .body(Bytes::new())
        .map_err(|_| SHAPE)?;
    request.extensions_mut().insert(MetadataServer);
    Ok(request)
}

/// True if `host` is an Azure AI resource, so that a token of the machine may be sent to it.
pub(super) fn is_azure(host: &str) -> bool {
    let services = ["openai", "services.ai", "cognitiveservices", "models.ai"];
    let clouds = OTHERS.iter().chain([&PUBLIC]);
    clouds.filter_map(|(end, ..)| host.strip_suffix(end)).any(|name| {
        services.iter().any(|service| name.strip_suffix(service).is_some_and(|rest| rest.ends_with('.')))
    })
}

fn cloud(host: Option<&str>) -> Cloud {
    let host = host.unwrap_or_default();
    OTHERS.into_iter().find(|(end, ..)| host.ends_with(end)).unwrap_or(PUBLIC)
}

fn file(key: &str) -> Result<EntraFile, &'static str> {
    if key.starts_with('{') {
        return serde_json::from_str(key).map_err(|_| SHAPE);
    }
    let mut parts = key.splitn(3, ':').map(|part| part.trim().to_owned());
    match (parts.next(), parts.next(), parts.next()) {
        (Some(tenant), Some(client_id), Some(secret)) => {
            Ok(EntraFile { tenant, client_id, client_secret: secret })
        }
        _ => Err(SHAPE),
    }
}

/// True if `text` has the characters of an Entra id or a domain name.
fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    !text.is_empty() && text.bytes().all(fits) && !text.starts_with('.')
}

/// The credential text that selects the managed identity instead of a key.
const MACHINE: &str = "managed_identity";
const SHAPE: &str =
    "must be a key, an Entra application (TENANT_ID:CLIENT_ID:CLIENT_SECRET) or managed_identity";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        key: &str,
        host: Option<&str>,
        surroundings: &Surroundings,
    ) -> Option<Result<Entra, &'static str>> {
        Entra::read(key, &CredentialContext { region: None, host, surroundings })
    }

    fn token_request(key: &str, host: Option<&str>, surroundings: &Surroundings) -> Request<Bytes> {
        read(key, host, surroundings).unwrap().unwrap().request().unwrap()
    }

    #[test]
    fn an_application_requests_its_token_from_its_tenant() {
        let none = Surroundings::default();
        let form = "grant_type=client_credentials&client_id=c-1&client_secret=s~%3A%2F1&scope=https%3A%2F%2F\
                    cognitiveservices.azure.com%2F.default";
        let json = r#"{"appId": "c-1", "displayName": "x", "password": "s~:/1", "tenant": "t-1"}"#;
        for key in ["t-1:c-1:s~:/1", json] {
            let request = token_request(key, Some("r.openai.azure.com"), &none);
            assert_eq!(request.uri(), "https://login.microsoftonline.com/t-1/oauth2/v2.0/token");
            assert_eq!(request.body(), form);
        }
        let request = token_request("t:c:s", Some("r.openai.azure.us"), &none);
        assert_eq!(request.uri().host(), Some("login.microsoftonline.us"));
        assert!(request.body().ends_with(b"cognitiveservices.azure.us%2F.default"));
        let moved = Surroundings { authority: Some("login.example.com/".into()), ..none };
        let request = token_request("t:c:s", None, &moved);
        assert_eq!(request.uri(), "https://login.example.com/t/oauth2/v2.0/token");
        assert!(!format!("{:?}", read("t:c:hidden-one", None, &moved)).contains("hidden-one"));
    }

    #[test]
    fn a_managed_identity_requests_its_token_from_the_platform() {
        let none = Surroundings::default();
        let request = token_request("managed_identity:c-1", None, &none);
        let want = "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&resource=\
                    https%3A%2F%2Fcognitiveservices.azure.com&client_id=c-1";
        assert_eq!(request.uri(), want);
        assert_eq!(request.headers()["metadata"], "true");
        assert!(request.extensions().get::<MetadataServer>().is_some());
        let platform = Surroundings {
            identity_endpoint: Some("http://127.0.0.1:4141/msi/token".into()),
            identity_header: Some(Secret::new("h-1".to_owned())),
            ..none
        };
        let request = token_request("managed_identity", None, &platform);
        assert!(request.uri().to_string().starts_with("http://127.0.0.1:4141/msi/token?api-version=2019"));
        assert_eq!(request.headers()["x-identity-header"], "h-1");
        assert!(request.extensions().get::<MetadataServer>().is_none(), "it may go where any request may");
    }

    #[test]
    fn a_plain_key_is_no_entra_grant_and_an_invalid_grant_is_rejected() {
        let none = Surroundings::default();
        assert!(read("0123456789abcdef", None, &none).is_none());
        for (key, want) in [
            ("t:c", "TENANT_ID:CLIENT_ID"),
            ("t/x:c:s", "TENANT_ID:CLIENT_ID"),
            ("t:c:", "TENANT_ID:CLIENT_ID"),
            ("{}", "TENANT_ID:CLIENT_ID"),
            ("t:c:a b", "invalid in a header"),
            ("managed_identity:a&b=c", "managed_identity:CLIENT_ID"),
        ] {
            assert!(read(key, None, &none).unwrap().unwrap_err().contains(want), "{key}");
        }
        let open = Surroundings { authority: Some("http://example.com".into()), ..none };
        assert!(read("t:c:s", None, &open).unwrap().unwrap_err().contains("https://"));
    }

    #[test]
    fn managed_identity_tokens_are_sent_to_azure_hosts_only() {
        for (host, want) in [
            ("blue.openai.azure.com", true),
            ("blue.services.ai.azure.com", true),
            ("blue.openai.azure.us", true),
            ("openai.azure.com", false),
            ("blue.cloudapp.azure.com", false),
            ("blueopenai.azure.com", false),
            ("blue.openai.azure.com.example.com", false),
        ] {
            assert_eq!(is_azure(host), want, "{host}");
        }
    }
}
