//! The way out of the gateway: the proxy of a provider instance, and those of the variables.

use std::sync::Arc;

use shared::percent;
use shared::provider::{ProviderKind, Reach};
use shared::proxy::{ConnectTo, OwnWay, Proxies, Proxy, WayProxy};
use shared::routing::Origin;
use shared::secret::Secret;

use super::address;
use super::layer::Layers;
use super::model::ShownTls;
use super::provider::{ProviderReader, WrittenIn, key};
use super::yaml::YamlStep;

/// The texts that show the way that an instance sets.
#[derive(Debug, Default)]
pub(super) struct ShownWay {
    pub(super) proxy: Option<String>,
    pub(super) tls: Option<ShownTls>,
    pub(super) connect_to: Option<String>,
}

impl ProviderReader<'_> {
    /// Returns `origin` with the way that the instance sets, if it sets one, and the texts that show it.
    pub(super) fn with_way(
        &mut self,
        kind: &ProviderKind,
        origin: Option<Origin>,
    ) -> (Option<Origin>, ShownWay) {
        let makes_connections = !matches!(kind.reach, Reach::InProcess(_) | Reach::Extension);
        let (proxy, shown_proxy) = self.way_proxy(kind, makes_connections);
        let (tls, shown_tls) = self.tls(makes_connections, origin.as_ref());
        let connect_to = self.connect_to(makes_connections, origin.as_ref());
        let with_way = |origin: Origin| match (proxy, tls, connect_to) {
            (WayProxy::OfVariables, None, None) => origin,
            (proxy, tls, connect_to) => {
                let way = OwnWay::new(origin.authority.as_str(), proxy, tls, connect_to);
                Origin { way: Some(Arc::new(way)), ..origin }
            }
        };
        let shown = ShownWay { proxy: shown_proxy, tls: shown_tls, connect_to: self.raw.connect_to.clone() };
        (origin.map(with_way), shown)
    }

    fn connect_to(&mut self, makes_connections: bool, origin: Option<&Origin>) -> Option<ConnectTo> {
        let text = self.raw.connect_to.as_deref()?.trim();
        let at = [key("connect_to")];
        if !makes_connections {
            self.note(&at, "this type makes no connections to an address; omit it");
            return None;
        }
        // Without an address there is a fault already.
        address::connect_to(text, origin?).map_err(|why| self.note(&at, why)).ok()
    }

    fn way_proxy(&mut self, kind: &ProviderKind, makes_connections: bool) -> (WayProxy, Option<String>) {
        let Some(text) = self.raw.proxy.as_deref().map(str::trim) else {
            return (WayProxy::OfVariables, None);
        };
        let at = [key("proxy")];
        if !makes_connections {
            self.note(&at, format!("type {} makes no connections of this kind; omit proxy", kind.name));
        }
        let is_stored = self.place != WrittenIn::File;
        match text {
            DIRECT => (WayProxy::Direct, Some(DIRECT.to_owned())),
            _ => match self.proxy(&at, text) {
                Some(proxy) => {
                    let shown = if is_stored { text.to_owned() } else { proxy.to_string() };
                    (WayProxy::Own(Arc::new(proxy)), Some(shown))
                }
                None => (WayProxy::OfVariables, Some(text.to_owned()).filter(|_| is_stored)),
            },
        }
    }

    /// Reads the URL of a proxy. A disabled instance keeps its settings and needs no working credential.
    fn proxy(&mut self, at: &[YamlStep], text: &str) -> Option<Proxy> {
        if self.place != WrittenIn::File && has_password(text) {
            self.note(
                at,
                "must not contain a password, because it is stored as it is; write ${ENV:NAME} in its place",
            );
            return None;
        }
        if self.raw.disabled {
            return None;
        }
        let url = self.proxy_url(at, text)?;
        match Proxy::parse(url.expose()) {
            Ok(proxy) => Some(proxy),
            Err(why) => {
                self.note(at, why);
                None
            }
        }
    }

    /// Returns the URL of a proxy with the values of its references: it may be a reference as a whole, or contain some.
    fn proxy_url(&mut self, at: &[YamlStep], text: &str) -> Option<Secret<String>> {
        if text.starts_with("${") && text.find('}') == Some(text.len() - 1) {
            return self.referenced(at, text);
        }
        let mut url = String::new();
        let mut rest = text;
        while let Some((before, reference)) = rest.split_once("${") {
            let Some((inner, after)) = reference.split_once('}') else {
                self.note(at, "contains a reference without its end: write ${ENV:NAME} or ${FILE:/path}");
                return None;
            };
            let value = self.referenced(at, &format!("${{{inner}}}"))?;
            url.push_str(before);
            url.extend(percent::encode(value.expose(), percent::RESERVED));
            rest = after;
        }
        url.push_str(rest);
        Some(Secret::new(url))
    }
}

/// True if the URL of a proxy contains a password that is no reference.
fn has_password(text: &str) -> bool {
    let mut literal = text.to_owned();
    while let Some((before, reference)) = literal.split_once("${") {
        literal = [before, reference.split_once('}').map_or("", |(_, after)| after)].concat();
    }
    let place = literal.split_once("://").map_or(literal.as_str(), |(_, rest)| rest);
    let user = place.rsplit_once('@').map_or("", |(user, _)| user);
    user.split_once(':').is_some_and(|(_, password)| !password.is_empty())
}

/// Returns the proxies of the variables.
pub(super) fn proxies(layers: &mut Layers<'_>) -> Proxies {
    let [http, https, all] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].map(|name| {
        let proxy = layers.environment.proxy(name);
        layers.take(name, proxy.as_ref().map(ToString::to_string), None, String::new());
        proxy
    });
    let no_proxy = layers.optional("NO_PROXY", None).unwrap_or_default();
    Proxies::new(http.or_else(|| all.clone()), https.or(all), &no_proxy)
}

/// The value for an upstream that is reached without a proxy, whatever the variables say.
const DIRECT: &str = "direct";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_found_unless_it_is_a_reference() {
        for (text, want) in [
            ("http://u:p@h:1", true),
            ("u:p@h:1", true),
            ("http://u:x${ENV:A}@h:1", true),
            ("http://u:p:@h@h:1", true),
            ("http://h:1", false),
            ("http://u@h:1", false),
            ("http://u:${ENV:A}@h:1", false),
            ("http://${ENV:U}:${ENV:A}@h:1", false),
            ("${ENV:PROXY}", false),
            ("http://u:${ENV:A", false),
            ("direct", false),
        ] {
            assert_eq!(has_password(text), want, "{text}");
        }
    }
}
