//! The TLS settings of a provider instance: its own authorities, and the client certificate by which it identifies the gateway.
//!
//! The private key is a secret: it is never shown, and the database contains only a reference to it.

use shared::routing::Origin;
use shared::secret::Secret;
use shared::upstream_tls::{TlsTexts, UpstreamTls};

use super::credential::is_reference;
use super::model::ShownTls;
use super::provider::{ProviderReader, WrittenIn, key};
use super::raw;
use super::stored::DOTS;
use super::yaml::YamlStep;

impl ProviderReader<'_> {
    /// Returns the TLS settings that the instance has, and the texts that show them.
    pub(super) fn tls(
        &mut self,
        makes_connections: bool,
        origin: Option<&Origin>,
    ) -> (Option<UpstreamTls>, Option<ShownTls>) {
        let Some(raw) = &self.raw.tls else { return (None, None) };
        let at = [key(TLS)];
        if !makes_connections {
            self.note(&at, "this type makes no connections with TLS; omit it");
        } else if origin.is_some_and(|origin| !origin.tls) {
            self.note(&at, "has no effect without TLS; begin base_url with https://, or omit it");
        }
        match (&raw.ca, &raw.certificate, &raw.key) {
            (None, None, None) => {
                self.note(&at, "sets nothing; set ca, or certificate and key, or omit it");
            }
            (_, Some(_), None) => self.note(&at, "has a certificate without its key; set key"),
            (_, None, Some(_)) => self.note(&at, "has a key without its certificate; set certificate"),
            _ => {}
        }
        let is_stored = self.place != WrittenIn::File;
        if let Some(text) = raw.key.as_deref().filter(|text| is_stored && !is_reference(text.trim())) {
            let message = match text.trim() == DOTS {
                true => "is the placeholder of a secret; write ${ENV:NAME}, or omit it",
                false => {
                    "must be ${ENV:NAME}: a private key is not stored. In the configuration file ${FILE:/path} is \
                     possible too, which is read again when the file changes"
                }
            };
            self.note(&[key(TLS), key(KEY)], message);
            return (None, Some(ShownTls::of(raw)));
        }
        let read = if self.raw.disabled { None } else { self.read_tls(raw) };
        (read, Some(ShownTls::of(raw)))
    }

    fn read_tls(&mut self, raw: &raw::Tls) -> Option<UpstreamTls> {
        let texts = [(CA, &raw.ca), (CERTIFICATE, &raw.certificate), (KEY, &raw.key)];
        let [ca, certificate, private] = texts.map(|(name, text)| {
            let text = text.as_deref()?;
            Some(self.pem(&[key(TLS), key(name)], text.trim()))
        });
        let identity = match (certificate, private) {
            (Some(certificate), Some(private)) => Some((certificate?, private?)),
            _ => None,
        };
        let texts = TlsTexts { ca: ca.map_or(Some(None), |ca| ca.map(Some))?, identity };
        let Some(reader) = self.environment.tls_reader() else {
            self.note(&[key(TLS)], "cannot be used here: this program makes no connections to providers");
            return None;
        };
        match reader.read(&texts) {
            Ok(tls) => {
                let warnings = tls.warnings.iter().map(|why| format!("providers.{}: tls.{why}", self.id));
                self.warnings.extend(warnings);
                Some(tls)
            }
            Err(faults) => {
                for fault in faults {
                    self.note(&[key(TLS), key(fault.member)], fault.message);
                }
                None
            }
        }
    }

    /// Returns a text in PEM, which is written itself or by one reference.
    fn pem(&mut self, at: &[YamlStep], text: &str) -> Option<Secret<String>> {
        if text.starts_with("${") { self.referenced(at, text) } else { Some(Secret::new(text.to_owned())) }
    }
}

impl ShownTls {
    fn of(raw: &raw::Tls) -> Self {
        let key = raw.key.as_deref().map(|text| {
            let text = text.trim();
            let is_shown = text.starts_with("${") && text.ends_with('}');
            if is_shown { text.to_owned() } else { DOTS.to_owned() }
        });
        Self { ca: raw.ca.clone(), certificate: raw.certificate.clone(), key }
    }
}

const TLS: &str = "tls";
const CA: &str = "ca";
const CERTIFICATE: &str = "certificate";
const KEY: &str = "key";
