//! Tests of the connections with an upstream on a real socket.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::task::LocalSet;

use super::connection::{Pings, SharedConnection};
use crate::upstream::dial::UpstreamIo;
use crate::upstream::pool::IDLE_SECONDS_MAX;
use crate::upstream::request::SegmentedBody;

/// Pings that need not be waited for long.
const SOON: Pings = Pings { after: Duration::from_millis(50), timeout: Duration::from_millis(50) };

/// A connection, and the upstream's end of it, which has sent its settings.
async fn connected() -> (SharedConnection, UnixStream) {
    let (near, mut far) = UnixStream::pair().unwrap();
    let connection = SharedConnection::with_pings(UpstreamIo::Unix(near), SOON).await.unwrap();
    far.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    (connection, far)
}

fn post() -> Request<SegmentedBody> {
    let body = SegmentedBody::new(vec![Bytes::from_static(b"{}")]);
    Request::post("http://upstream.example/").body(body).unwrap()
}

/// Without an answer to a PING, the connection and the requests on it end, whatever their own timeout is.
#[tokio::test]
async fn a_request_to_a_silent_upstream_ends() {
    let request = async {
        let (mut connection, _far) = connected().await;
        let error = connection.sender.try_send_request(post()).await.unwrap_err().into_error();
        assert!(error.is_timeout(), "{error:?}");
    };
    LocalSet::new().run_until(request).await;
}

/// The same for a connection without a request, so that the next one does not meet it.
#[tokio::test]
async fn a_silent_connection_without_requests_ends() {
    let waiting = async {
        let (connection, _far) = connected().await;
        while connection.is_usable() {
            tokio::time::sleep(SOON.after).await;
        }
    };
    LocalSet::new().run_until(waiting).await;
}

#[tokio::test]
async fn a_connection_is_idle_only_without_requests() {
    let sweeping = async {
        let (connection, _far) = connected().await;
        assert!(!connection.is_idle(5, IDLE_SECONDS_MAX), "it is idle from now on");
        assert!(!connection.is_idle(4 + IDLE_SECONDS_MAX, IDLE_SECONDS_MAX));
        let lease = connection.lease();
        assert!(!connection.is_idle(1_000, IDLE_SECONDS_MAX), "it has a request");
        drop(lease);
        assert!(!connection.is_idle(1_001, IDLE_SECONDS_MAX), "it had one until now");
        assert!(!connection.is_idle(1_000 + IDLE_SECONDS_MAX, IDLE_SECONDS_MAX));
        assert!(connection.is_idle(1_001 + IDLE_SECONDS_MAX, IDLE_SECONDS_MAX));
    };
    LocalSet::new().run_until(sweeping).await;
}
