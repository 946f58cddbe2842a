//! Whatever one caller does, others can still do theirs.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body::Frame;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use shared::port::{Body, BoxError, BoxFuture, Exchanges, full};
use shared::running::RunningExchanges;
use tokio::task::JoinSet;

use super::humans::Team;
use super::{ADMIN, Gateway, text};

/// A body that never ends.
struct Stalled;

impl http_body::Body for Stalled {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Pending
    }
}

impl Gateway {
    /// Sends a request, and returns the status and message of its answer.
    async fn send_now(&self, request: Request<Body>) -> (u16, String) {
        answered(self.handler.handle(request, ([127, 0, 0, 1], 1).into()).await).await
    }
}

async fn answered(answer: http::Response<Body>) -> (u16, String) {
    let (parts, body) = answer.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    (parts.status.as_u16(), value["error"]["message"].as_str().unwrap_or_default().to_owned())
}

fn post(headers: &[(String, String)], body: Body) -> Request<Body> {
    let mut request = Request::post("/admin/api/keys").header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.body(body).unwrap()
}

#[test]
fn bodies_that_a_human_never_finishes_keep_nobody_else_out() {
    let gateway = Gateway::with_sso();
    let Team { project, people, .. } = gateway.team();
    let [owner, _, member, ..] = &people;
    let administrator = [("x-api-key".to_owned(), ADMIN.to_owned())];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut sent = JoinSet::new();
        for _ in 0..64 {
            let answer =
                gateway.handler.handle(post(&member.headers, Body::new(Stalled)), ([127, 0, 0, 1], 1).into());
            sent.spawn(async move { answered(answer.await).await });
        }
        for _ in 0..48 {
            let (status, message) = sent.join_next().await.unwrap().unwrap();
            assert_eq!(status, 503);
            assert!(
                message.starts_with("16 of your ") && message.contains("the most for one caller"),
                "{message}"
            );
        }
        for (headers, acts_as) in [(&owner.headers[..], Some(&owner.id)), (&administrator[..], None)] {
            let key = json!({"name": "k", "project": project, "acts_as": acts_as});
            assert_eq!(gateway.send_now(post(headers, full(key.to_string()))).await.0, 201);
        }
        sent.shutdown().await;
        let key = json!({"name": "k", "project": project, "acts_as": member.id});
        assert_eq!(gateway.send_now(post(&member.headers, full(key.to_string()))).await.0, 201);
    });
    gateway.stop();
}

#[test]
fn streams_that_a_human_holds_open_keep_nobody_else_out() {
    let gateway = Gateway::with_sso();
    let Team { people, .. } = gateway.team();
    let (eve, bob) = (&people[3], &people[2]);
    let administrator = [("x-api-key".to_owned(), ADMIN.to_owned())];
    let open = |headers: &[(String, String)], path: &str| {
        let mut request = Request::builder().method(Method::GET).uri(format!("/admin/api/{path}"));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        gateway.handler.handle(request.body(full("")).unwrap(), ([127, 0, 0, 1], 1).into())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        for (path, own) in [("live", 8), ("usage/export", 1)] {
            let mut held = Vec::new();
            for _ in 0..own {
                let answer = open(&eve.headers, path).await;
                assert_eq!(answer.status(), 200, "{path}");
                held.push(answer);
            }
            if path == "live" {
                let (status, message) = answered(open(&eve.headers, path).await).await;
                assert_eq!((status, message.starts_with("8 of your live streams are running")), (503, true));
            }
            for headers in [&bob.headers[..], &administrator[..]] {
                assert_eq!(open(headers, path).await.status(), 200, "{path}");
            }
        }
    });
    gateway.stop();
}

/// A data plane with a defect.
#[derive(Debug)]
struct Broken;

impl Exchanges for Broken {
    fn running(&self) -> BoxFuture<RunningExchanges> {
        Box::pin(async { panic!("a defect") })
    }

    fn cancel(&self, _: &str) -> BoxFuture<bool> {
        Box::pin(async { false })
    }
}

#[test]
fn a_panic_behind_the_live_streams_ends_them_and_the_next_one_begins_anew() {
    let gateway = Gateway::start_beside(Arc::new(Broken), &[]);
    for _ in 0..2 {
        let request = Request::get("/admin/api/live").header("x-api-key", ADMIN).body(full("")).unwrap();
        let (ended, stream) = std::sync::mpsc::channel();
        let body = gateway.send(request).into_body();
        std::thread::spawn(move || ended.send(text(body)));
        let events = stream.recv_timeout(Duration::from_secs(20)).expect("the stream ends");
        assert!(events.contains("event: hello"), "{events}");
    }
}
