//! A scripted HTTP proxy: it leads every request to one upstream, whatever its name, or misbehaves. It records the head of
//! the first request of each connection.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// What the proxy does with a connection.
#[derive(Clone)]
pub(crate) enum Manner {
    /// Leads it to this address: by a tunnel after CONNECT, otherwise by the path of the absolute URI.
    Lead(SocketAddr),
    /// Answers with these bytes and closes it.
    Answer(&'static [u8]),
    /// Closes it after the request.
    Close,
    /// Never answers.
    Hang,
}

/// A scripted proxy. It stops listening when dropped.
pub(crate) struct HttpProxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    listening: tokio::task::JoinHandle<()>,
}

impl HttpProxy {
    /// Listens on a free port of the loopback address.
    pub(crate) async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let record = Arc::clone(&heads);
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, manner.clone(), Arc::clone(&record)));
            }
        });
        Self { address, heads, listening }
    }

    /// Returns its URL, with this user and password if they are not empty.
    pub(crate) fn url(&self, user: &str) -> String {
        let at = if user.is_empty() { "" } else { "@" };
        format!("http://{user}{at}{}", self.address)
    }

    /// Returns the heads of the first requests of all connections.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the first lines of these heads.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.heads().iter().map(|head| head.lines().next().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for HttpProxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn serve(mut client: TcpStream, manner: Manner, heads: Arc<Mutex<Vec<String>>>) {
    let mut bytes = Vec::new();
    let end = loop {
        match client.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if let Some(at) = memchr::memmem::find(&bytes, b"\r\n\r\n") {
            break at + 4;
        }
    };
    let body = bytes.split_off(end);
    let head = String::from_utf8(bytes).unwrap();
    heads.lock().unwrap_or_else(PoisonError::into_inner).push(head.clone());
    match manner {
        Manner::Answer(answer) => drop(client.write_all(answer).await),
        Manner::Close => {}
        Manner::Hang => std::future::pending().await,
        Manner::Lead(upstream) => drop(lead(client, upstream, (&head, &body)).await),
    }
}

async fn lead(
    mut client: TcpStream,
    upstream: SocketAddr,
    (head, body): (&str, &[u8]),
) -> std::io::Result<()> {
    let mut upstream = TcpStream::connect(upstream).await?;
    if head.starts_with("CONNECT ") {
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    } else {
        let (line, rest) = head.split_once("\r\n").unwrap_or((head, ""));
        let words: Vec<&str> = line.split(' ').collect();
        let (_, path) = words[1].strip_prefix("http://").and_then(|rest| rest.split_once('/')).unwrap();
        let rest: String =
            rest.split_inclusive("\r\n").filter(|line| !line.to_lowercase().starts_with("proxy-")).collect();
        upstream.write_all(format!("{} /{path} {}\r\n{rest}", words[0], words[2]).as_bytes()).await?;
    }
    upstream.write_all(body).await?;
    copy_bidirectional(&mut client, &mut upstream).await.map(drop)
}
