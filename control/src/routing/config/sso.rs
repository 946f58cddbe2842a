//! The settings of single sign-on, which only the environment sets (AUTH-7).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::HeaderName;

use super::env::VariableValue;
use super::layer::Layers;
use super::model::Sso;

/// The headers of a proxy.
struct Preset {
    name: &'static str,
    user: &'static str,
    /// Empty if the proxy sends no such header.
    email: &'static str,
    full_name: &'static str,
    groups: &'static str,
    groups_separator: char,
    /// Where a browser ends its session with the proxy; empty if that depends on the installation.
    sign_out: &'static str,
}

/// The first one is the default.
const PRESETS: [Preset; 5] = [
    Preset {
        name: "oauth2-proxy",
        user: "x-forwarded-user",
        email: "x-forwarded-email",
        full_name: "x-forwarded-preferred-username",
        groups: "x-forwarded-groups",
        groups_separator: ',',
        sign_out: "/oauth2/sign_out",
    },
    Preset {
        name: "authelia",
        user: "remote-user",
        email: "remote-email",
        full_name: "remote-name",
        groups: "remote-groups",
        groups_separator: ',',
        sign_out: "",
    },
    Preset {
        name: "authentik",
        user: "x-authentik-uid",
        email: "x-authentik-email",
        full_name: "x-authentik-name",
        groups: "x-authentik-groups",
        groups_separator: '|',
        sign_out: "/outpost.goauthentik.io/sign_out",
    },
    Preset {
        name: "cloudflare-access",
        user: "cf-access-authenticated-user-email",
        email: "cf-access-authenticated-user-email",
        full_name: "",
        groups: "",
        groups_separator: ',',
        sign_out: "/cdn-cgi/access/logout",
    },
    Preset {
        name: "mod_auth_openidc",
        user: "oidc_claim_sub",
        email: "oidc_claim_email",
        full_name: "oidc_claim_name",
        groups: "oidc_claim_groups",
        groups_separator: ',',
        sign_out: "",
    },
];

pub(super) fn sso(layers: &mut Layers<'_>, warnings: &mut Vec<String>) -> Option<Sso> {
    let environment = layers.environment;
    let enabled = layers.flag("LLMGW_SSO_ENABLED", None);
    let secret = layers.secret("LLMGW_SSO_SHARED_SECRET", environment.secret("LLMGW_SSO_SHARED_SECRET"));
    let trusted_proxies = trusted_proxies(layers);
    let admin_group = environment.text("LLMGW_SSO_ADMIN_GROUP");
    let admin_group = layers.take("LLMGW_SSO_ADMIN_GROUP", admin_group, None, "llmgw-admin".to_owned());
    let auto_provision = layers.flag("LLMGW_SSO_AUTO_PROVISION", None);
    let [default, ..] = &PRESETS;
    let preset =
        layers.take("LLMGW_SSO_PRESET", environment.text("LLMGW_SSO_PRESET"), None, default.name.to_owned());
    let preset = PRESETS.iter().find(|known| known.name == preset).unwrap_or(default);
    let user_header = header(layers, "LLMGW_SSO_USER_HEADER", preset.user);
    let email_header = header(layers, "LLMGW_SSO_EMAIL_HEADER", preset.email);
    let name_header = header(layers, "LLMGW_SSO_NAME_HEADER", preset.full_name);
    let groups_header = header(layers, "LLMGW_SSO_GROUPS_HEADER", preset.groups);
    let sign_out_url = sign_out_url(layers, preset);
    if !enabled {
        warnings.extend(unused(layers));
        return None;
    }
    if secret.is_none() && !layers.faulty("LLMGW_SSO_SHARED_SECRET") {
        let message = "is required while LLMGW_SSO_ENABLED is true: the proxy sends it in X-LLMGW-SSO-Secret; make one \
                       with `openssl rand -base64 32`";
        layers.fault("LLMGW_SSO_SHARED_SECRET", message);
    }
    let sso = Sso {
        shared_secret: secret?,
        trusted_proxies,
        admin_group,
        auto_provision,
        preset: preset.name,
        user_header: user_header?,
        email_header,
        name_header,
        groups_header,
        groups_separator: preset.groups_separator,
        sign_out_url,
    };
    warnings.extend(sso.problems());
    Some(sso)
}

/// Takes a header's name; `None` if the preset has none and none is set.
fn header(layers: &mut Layers<'_>, name: &str, preset: &'static str) -> Option<HeaderName> {
    let written = match layers.environment.value(name) {
        Some(VariableValue::Header(header)) => Some(header.to_string()),
        _ => None,
    };
    HeaderName::try_from(layers.take(name, written, None, preset.to_owned())).ok()
}

fn sign_out_url(layers: &mut Layers<'_>, preset: &Preset) -> Option<String> {
    const NAME: &str = "LLMGW_SSO_SIGN_OUT_URL";
    let written = layers.environment.text(NAME);
    let url = layers.take(NAME, written, None, preset.sign_out.to_owned());
    let is_path = url.starts_with('/') && !url.starts_with("//") && !url.starts_with("/\\");
    if !url.is_empty() && !is_path && !url.starts_with("https://") {
        layers.fault(NAME, "must be a path such as /oauth2/sign_out, or an https URL");
    }
    Some(url).filter(|url| !url.is_empty())
}

/// Returns warnings about settings that have no effect because single sign-on is off.
fn unused(layers: &Layers<'_>) -> Vec<String> {
    let is_set = |name: &&&str| layers.environment.value(name).is_some();
    let unused = DEPENDENT.iter().filter(is_set);
    unused.map(|name| format!("{name} has no effect, because LLMGW_SSO_ENABLED is not true")).collect()
}

fn trusted_proxies(layers: &mut Layers<'_>) -> Vec<(IpAddr, u8)> {
    let default = vec![(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8), (Ipv6Addr::LOCALHOST.into(), 128)];
    let written = match layers.environment.value(TRUSTED_PROXIES) {
        Some(VariableValue::Blocks(blocks)) => Some(blocks.clone()),
        _ => None,
    };
    let shown = |blocks: &Vec<(IpAddr, u8)>| {
        let blocks: Vec<String> = blocks.iter().map(|(address, bits)| format!("{address}/{bits}")).collect();
        blocks.join(",")
    };
    layers.take(TRUSTED_PROXIES, written.as_ref().map(shown), None, shown(&default));
    written.unwrap_or(default)
}

impl Sso {
    /// True if a connection from this address may assert identities.
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted_proxies.iter().any(|(network, bits)| is_in(address, *network, *bits))
    }

    /// Returns the headers that assert an identity.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        let optional = [&self.email_header, &self.name_header, &self.groups_header];
        [&self.user_header].into_iter().chain(optional.into_iter().flatten())
    }

    /// Returns what cannot work or is dangerous, a sentence each.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.groups_header.is_none() {
            problems.push(
                "single sign-on makes nobody an administrator, because no header with groups is configured: set \
                 LLMGW_SSO_GROUPS_HEADER, or administer with a key"
                    .to_owned(),
            );
        }
        if self.email_header.is_none() && !self.auto_provision {
            problems.push(
                "single sign-on admits only humans whose sso_subject is set, because no header with e-mail addresses is \
                 configured and LLMGW_SSO_AUTO_PROVISION is not true"
                    .to_owned(),
            );
        }
        if self.trusted_proxies.iter().any(|(_, bits)| *bits == 0) {
            problems.push(
                "LLMGW_SSO_TRUSTED_PROXIES trusts every address: the secret alone protects every account; name the \
                 addresses of the proxy"
                    .to_owned(),
            );
        }
        if self.shared_secret.expose().len() < SECRET_CHARS_MIN {
            problems.push(format!(
                "LLMGW_SSO_SHARED_SECRET has fewer than {SECRET_CHARS_MIN} characters and is easy to guess; make one \
                 with `openssl rand -base64 32`"
            ));
        }
        problems
    }
}

/// True if the first `bits` bits of both addresses are equal. Addresses of different families never match.
fn is_in(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let differing = address.to_bits() ^ network.to_bits();
            differing.leading_zeros() >= u32::from(bits)
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let differing = address.to_bits() ^ network.to_bits();
            differing.leading_zeros() >= u32::from(bits)
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

const TRUSTED_PROXIES: &str = "LLMGW_SSO_TRUSTED_PROXIES";
/// The names of the presets, for the table of variables.
pub(super) const PRESET_NAMES: &[&str] =
    &["oauth2-proxy", "authelia", "authentik", "cloudflare-access", "mod_auth_openidc"];
/// Variables that have an effect only while single sign-on is on.
const DEPENDENT: [&str; 10] = [
    "LLMGW_SSO_SHARED_SECRET",
    TRUSTED_PROXIES,
    "LLMGW_SSO_ADMIN_GROUP",
    "LLMGW_SSO_AUTO_PROVISION",
    "LLMGW_SSO_PRESET",
    "LLMGW_SSO_USER_HEADER",
    "LLMGW_SSO_EMAIL_HEADER",
    "LLMGW_SSO_NAME_HEADER",
    "LLMGW_SSO_GROUPS_HEADER",
    "LLMGW_SSO_SIGN_OUT_URL",
];
const SECRET_CHARS_MIN: usize = 16;
