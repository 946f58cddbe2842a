//! Extensions: services outside the process that provide models in a documented protocol (ADM-7).

mod hostile;
mod issuer;
mod records;
mod relay;
mod sign_in;

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::net::{TcpStream, UnixListener};
use tokio::task::JoinHandle;

use crate::support::upstream::Received;
use crate::support::{Answer, Upstream};

/// The secret that the gateways and extensions of these tests share.
pub(crate) fn secret() -> String {
    format!("whsec_{}", BASE64_STANDARD.encode(*b"planted-extension-secret"))
}

/// Starts a scripted extension that has one provider, `lab`, with the models `m` and `n`.
pub(crate) async fn lab() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.answering(|request| described(request).unwrap_or_else(Answer::unscripted));
    upstream
}

/// Returns the answer to a request for the description or for the models of `lab`.
pub(crate) fn described(request: &Received) -> Option<Answer> {
    let body = match path(request) {
        "/v1/info" => json!({"protocol": 1, "name": "Lab", "version": "1.2", "providers": [
            {"id": "lab", "name": "The lab", "protocols": ["chat"]},
        ]}),
        "/v1/lab/models" => json!({"data": [{"id": "m"}, {"id": "n"}]}),
        _ => return None,
    };
    Some(Answer::json(200, body.to_string()))
}

pub(crate) fn path(request: &Received) -> &str {
    request.head.split(' ').nth(1).unwrap()
}

/// Returns the address of an upstream as that of an extension.
pub(crate) fn url(upstream: &Upstream) -> String {
    format!("http://{}", upstream.address())
}

/// Returns a request for `POST extensions`.
pub(crate) fn new(name: &str, url: &str) -> Value {
    json!({"name": name, "url": url, "secret": secret()})
}

/// Checks the bearer token and the signature of a request (Standard Webhooks), and returns its ID.
pub(crate) fn expect_signed(request: &Received) -> String {
    let header =
        |name| request.header(name).unwrap_or_else(|| panic!("{name} in {}", request.head)).to_owned();
    assert_eq!(header("authorization"), format!("Bearer {}", secret()));
    let (id, time) = (header("webhook-id"), header("webhook-timestamp").parse().unwrap());
    let key = shared::standard_webhooks::WebhookKey::read(&secret()).unwrap();
    let signed = key.sign(&id, time, std::iter::once(request.body.as_ref()));
    assert_eq!(header("webhook-signature"), signed[2].1.to_str().unwrap());
    let now = shared::clock::unix_ms() / 1_000;
    assert!(now.abs_diff(time) < 300, "{time} is not the present");
    id
}

/// A Unix socket whose connections are those of an upstream. It stops listening when dropped.
pub(crate) struct Socket {
    path: PathBuf,
    listening: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Socket {
    pub(crate) fn before(upstream: &Upstream) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (path, address) = (folder.path().join("e.sock"), upstream.address());
        let listener = UnixListener::bind(&path).unwrap();
        let listening = tokio::spawn(async move {
            while let Ok((mut unix, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut tcp = TcpStream::connect(address).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut unix, &mut tcp).await;
                });
            }
        });
        Self { path, listening, _folder: folder }
    }

    pub(crate) fn url(&self) -> String {
        format!("unix:{}", self.path().display())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.listening.abort();
    }
}
