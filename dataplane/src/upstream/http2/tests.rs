//! Tests of the connections with an upstream on a real socket.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use rustls::{ClientConfig, RootCertStore};
use shared::alarm::Alarm;
use shared::provider::path::Paths;
use shared::proxy::Proxies;
use shared::routing::{HttpVersion, Origin};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinSet, LocalSet};

use super::connection::{Pings, STREAMS_MAX, SharedConnection};
use super::sharing::{DIALS_MAX, Place, SharedConnections, StreamLease};
use crate::upstream::SendError;
use crate::upstream::dial::{Tls, UpstreamIo};
use crate::upstream::pool::{AGE_SECONDS_MAX, IDLE_SECONDS_MAX};
use crate::upstream::request::SegmentedBody;
use crate::upstream::resolve::Resolver;

/// Pings that need not be waited for long.
const SOON: Pings = Pings { after: Duration::from_millis(50), timeout: Duration::from_millis(50) };

/// A SETTINGS frame without a setting.
const NO_SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// A connection, and the upstream's end of it, which has sent its settings.
async fn connected() -> (SharedConnection, UnixStream) {
    let (near, mut far) = UnixStream::pair().unwrap();
    let (connection, _) = SharedConnection::with_pings(UpstreamIo::Unix(near), SOON).await.unwrap();
    far.write_all(NO_SETTINGS).await.unwrap();
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
        let lease = StreamLease::of_single_request(&connection);
        assert!(!connection.is_idle(1_000, IDLE_SECONDS_MAX), "it has a request");
        drop(lease);
        assert!(!connection.is_idle(1_001, IDLE_SECONDS_MAX), "it had one until now");
        assert!(!connection.is_idle(1_000 + IDLE_SECONDS_MAX, IDLE_SECONDS_MAX));
        assert!(connection.is_idle(1_001 + IDLE_SECONDS_MAX, IDLE_SECONDS_MAX));
    };
    LocalSet::new().run_until(sweeping).await;
}

/// An origin behind a Unix socket that does not exist yet, and the path of the socket.
fn origin(name: &str) -> (Origin, std::path::PathBuf) {
    let path = std::env::temp_dir().join(format!("llmgw-{}-{name}", std::process::id()));
    let origin = Origin {
        tls: false,
        authority: "upstream.example".parse().unwrap(),
        host: "upstream.example".to_owned(),
        port: 80,
        socket: Some(path.to_str().unwrap().into()),
        way: None,
        paths: Paths::default(),
        lists: Vec::new(),
        http: HttpVersion::Http2,
    };
    (origin, path)
}

fn tls() -> Arc<Tls> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    Arc::new(Tls::new(config, Resolver::start(&Alarm::default()).unwrap(), Proxies::default()))
}

/// Starts `count` requests that wait for a place.
fn wait_for_places(
    shared: &Rc<SharedConnections>,
    origin: &Origin,
    count: usize,
) -> JoinSet<Result<Place, SendError>> {
    let (mut waiting, tls) = (JoinSet::new(), tls());
    for _ in 0..count {
        let (shared, origin, tls) = (Rc::clone(shared), origin.clone(), Arc::clone(&tls));
        waiting.spawn_local(async move { shared.place(&origin, &tls).await });
    }
    waiting
}

#[tokio::test]
async fn one_of_the_requests_that_share_a_failed_dial_reports_it() {
    let failing = async {
        let (origin, _) = origin("absent");
        let shared = Rc::default();
        let outcomes = wait_for_places(&shared, &origin, 20).join_all().await;
        let reports = outcomes.iter().filter(|outcome| matches!(outcome, Err(SendError::Dial(_)))).count();
        let others = outcomes.iter().filter(|outcome| matches!(outcome, Err(SendError::Followed(_)))).count();
        assert_eq!((reports, others), (1, 19));
        assert!(shared.is_empty());
    };
    LocalSet::new().run_until(failing).await;
}

/// The request that began a dial may end before it: the others get the connection.
#[tokio::test]
async fn a_dial_outlives_the_request_that_began_it() {
    let leaving = async {
        let (origin, path) = origin("leaving");
        let listener = UnixListener::bind(&path).unwrap();
        let shared = Rc::default();
        let first = wait_for_places(&shared, &origin, 1);
        tokio::task::yield_now().await;
        let mut second = wait_for_places(&shared, &origin, 1);
        drop(first);
        let (_far, _) = listener.accept().await.unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(second.join_next().await, Some(Ok(Ok(Place::Stream(_))))));
    };
    LocalSet::new().run_until(leaving).await;
}

/// A place that becomes free goes to the request that has waited longest, before any dial has brought another.
#[tokio::test]
async fn the_place_of_an_ended_request_goes_to_a_waiting_one() {
    let passing = async {
        let (origin, path) = origin("passing");
        let listener = UnixListener::bind(&path).unwrap();
        let shared = Rc::default();
        let mut first = wait_for_places(&shared, &origin, 1);
        let (mut far, _) = listener.accept().await.unwrap();
        std::fs::remove_file(&path).unwrap();
        // A connection without settings takes one request.
        let place = first.join_next().await.unwrap().unwrap().unwrap();
        let mut second = wait_for_places(&shared, &origin, 1);
        tokio::task::yield_now().await;
        assert!(second.try_join_next().is_none(), "there is no place yet");
        drop(place);
        let place = second.join_next().await.unwrap().unwrap().unwrap();
        far.write_all(NO_SETTINGS).await.unwrap();
        let more = wait_for_places(&shared, &origin, 5).join_all().await;
        assert!(more.iter().all(Result::is_ok), "the upstream sets no limit");
        drop(place);
    };
    LocalSet::new().run_until(passing).await;
}

/// The sweep closes a connection without requests, and keeps one with a request.
#[tokio::test]
async fn an_idle_connection_is_closed() {
    let sweeping = async {
        let (origin, path) = origin("idle");
        let listener = UnixListener::bind(&path).unwrap();
        let shared: Rc<SharedConnections> = Rc::default();
        let mut waiting = wait_for_places(&shared, &origin, 1);
        let (mut far, _) = listener.accept().await.unwrap();
        std::fs::remove_file(&path).unwrap();
        far.write_all(NO_SETTINGS).await.unwrap();
        let place = waiting.join_next().await.unwrap().unwrap().unwrap();
        let sweep = |now| shared.sweep(now, IDLE_SECONDS_MAX, u32::MAX);
        [0, 1_000].into_iter().for_each(sweep);
        assert!(!shared.is_empty(), "it has a request");
        drop(place);
        [1_001, 1_000 + IDLE_SECONDS_MAX].into_iter().for_each(sweep);
        assert!(!shared.is_empty(), "not before its time");
        sweep(1_001 + IDLE_SECONDS_MAX);
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(20), far.read_to_end(&mut rest)).await;
        assert!(closed.is_ok() && shared.is_empty(), "the socket is closed");
    };
    LocalSet::new().run_until(sweeping).await;
}

/// The name of the upstream may have another address by then.
#[tokio::test]
async fn an_old_connection_finishes_its_requests_and_takes_no_others() {
    let ageing = async {
        let (origin, path) = origin("old");
        let listener = UnixListener::bind(&path).unwrap();
        let shared: Rc<SharedConnections> = Rc::default();
        let mut waiting = wait_for_places(&shared, &origin, 1);
        let (mut first, _) = listener.accept().await.unwrap();
        first.write_all(NO_SETTINGS).await.unwrap();
        let place = waiting.join_next().await.unwrap().unwrap().unwrap();
        let sweep = |now| shared.sweep(now, IDLE_SECONDS_MAX, AGE_SECONDS_MAX);
        [5, 4 + AGE_SECONDS_MAX].into_iter().for_each(sweep);
        let young = wait_for_places(&shared, &origin, 1).join_all().await;
        sweep(5 + AGE_SECONDS_MAX);
        let mut later = wait_for_places(&shared, &origin, 1);
        let _second = listener.accept().await.unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(later.join_next().await.unwrap().unwrap().is_ok(), "it gets another connection");
        drop(young);
        let mut rest = [0; 1 << 10];
        let open = async { while first.read(&mut rest).await.unwrap() > 0 {} };
        assert!(tokio::time::timeout(Duration::from_millis(50), open).await.is_err(), "a request is on it");
        drop(place);
        let closed = tokio::time::timeout(Duration::from_secs(20), first.read_to_end(&mut Vec::new())).await;
        assert!(closed.is_ok(), "the socket is closed");
    };
    LocalSet::new().run_until(ageing).await;
}

#[tokio::test]
async fn the_number_of_dials_is_bounded() {
    let dialling = async {
        let (origin, path) = origin("bounded");
        let listener = UnixListener::bind(&path).unwrap();
        let shared = Rc::default();
        let _waiting = wait_for_places(&shared, &origin, 2 * DIALS_MAX * STREAMS_MAX);
        let mut connections = Vec::new();
        for _ in 0..DIALS_MAX {
            connections.push(listener.accept().await.unwrap());
        }
        let another = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
        assert!(another.is_err(), "{another:?}");
        // A connection that has stated its limit makes room for the next dial.
        connections[0].0.write_all(NO_SETTINGS).await.unwrap();
        listener.accept().await.unwrap();
        std::fs::remove_file(&path).unwrap();
    };
    LocalSet::new().run_until(dialling).await;
}
