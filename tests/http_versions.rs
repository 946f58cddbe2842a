//! The version of HTTP in which requests go upstream, as `docs/decisions/0006-http2-upstreams.md` decides it in its tables.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use shared::operation::Operation;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::every_route::{EVERYTHING, routes};
use crate::support::gateway::Setup;
use crate::support::tls::Authority;
use crate::support::{Gateway, Yaml, chat};

const RECORD: &str = include_str!("../docs/decisions/0006-http2-upstreams.md");

/// Returns the cells of the table whose head begins with `first`.
fn table(first: &str) -> Vec<Vec<&'static str>> {
    let mut lines = RECORD.lines().skip_while(|line| !line.starts_with(&format!("| {first} |"))).skip(2);
    let rows = lines.by_ref().take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// An upstream that records the version in which it is spoken to, and closes each connection.
struct Listener {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<&'static str>>>,
    listening: tokio::task::JoinHandle<()>,
}

impl Listener {
    async fn start(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::<Mutex<Vec<_>>>::default();
        let record = Arc::clone(&heard);
        let listening = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let version = match &tls {
                    None => version(tcp).await,
                    Some(tls) => match tls.accept(tcp).await {
                        Ok(stream) => version(stream).await,
                        Err(_) => None,
                    },
                };
                record.lock().unwrap_or_else(PoisonError::into_inner).extend(version);
            }
        });
        Self { address, heard, listening }
    }

    /// Returns the versions of the connections since the last call.
    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Reads the first bytes of a connection; `None` if there are none.
async fn version(mut stream: impl AsyncRead + Unpin) -> Option<&'static str> {
    let mut first = [0; 4];
    stream.read_exact(&mut first).await.ok()?;
    Some(if &first == b"PRI " { "HTTP/2" } else { "HTTP/1.1" })
}

/// A gateway whose provider `up` is reached by `scheme` and has these members.
async fn before(upstream: &Listener, scheme: &str, members: &str, authority: &Authority) -> Gateway {
    let base_url = format!("{scheme}://localhost:{}/v1", upstream.address.port());
    let yaml = Yaml::new().provider_with("up", base_url, members);
    Setup::new(&yaml).env("LLMGW_EXTRA_CA_FILE", authority.ca_file().to_str().unwrap()).start().await
}

#[tokio::test]
async fn the_setting_and_the_address_decide_the_version() {
    let rows = table("`http_version`");
    let settings: Vec<_> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(settings, ["`auto` (default)", "`\"1.1\"`", "`\"2\"`"]);
    for row in rows {
        let setting = row[0].split('`').nth(1).unwrap();
        let member = format!("http_version: {setting}");
        let members = if row[0].contains("default") { vec!["", &member] } else { vec![member.as_str()] };
        for members in members {
            let ways: [(&str, &[&[u8]]); 3] =
                [("https", &[b"h2", b"http/1.1"]), ("https", &[b"http/1.1"]), ("http", &[])];
            for ((scheme, offers), &wanted) in ways.into_iter().zip(&row[1..]) {
                let authority = Authority::new(offers);
                let upstream = Listener::start((scheme == "https").then(|| authority.acceptor())).await;
                let gateway = before(&upstream, scheme, members, &authority).await;
                assert_eq!(gateway.client().chat(chat::request("m")).await.status, 502);
                let wanted = if wanted == "an error" { vec![] } else { vec![wanted] };
                assert_eq!(upstream.take(), wanted, "{members} {scheme} {offers:?}");
            }
        }
    }
}

#[tokio::test]
async fn no_operation_has_a_version_of_its_own() {
    let listed: Vec<_> = table("operations")
        .iter()
        .flat_map(|row| {
            row[0].split(", ").map(|name| Operation::named(name.trim_matches('`')).unwrap().name())
        })
        .collect();
    let others = [Operation::StoredResponses, Operation::CompactResponses];
    let all =
        Operation::GRANTABLE.into_iter().chain(others).filter(|operation| operation.dialect().is_some());
    let all: BTreeSet<_> = all.map(Operation::name).collect();
    assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), all);
    assert_eq!(listed.len(), all.len(), "each is listed once");
    let authority = Authority::new(&[b"h2", b"http/1.1"]);
    let upstream = Listener::start(Some(authority.acceptor())).await;
    let gateway = before(&upstream, "https", EVERYTHING, &authority).await;
    for (path, content_type, body) in routes() {
        let client = gateway.client().with("content-type", content_type);
        let answer = client.send("POST", path, body("m").into()).await.unwrap();
        let heard = upstream.take();
        assert!(
            !heard.is_empty() && heard.iter().all(|version| *version == "HTTP/2"),
            "{path}: {heard:?} {answer:?}"
        );
    }
}
