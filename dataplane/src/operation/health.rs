//! `GET /health` and `GET /ready` (HEALTH-1, ROUTE-5).

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use serde_json::json;
use shared::build::BuildIdentity;
use shared::error_kind::ErrorKind;
use shared::freshness::Doubt;
use shared::snapshot::Snapshot;

use crate::error::Fault;
use crate::relay::ResponseBody;
use crate::worker::Worker;

/// Answers `GET /health`: the process runs, and its build identity. Independent of the state of providers.
pub(crate) fn health(build: &BuildIdentity) -> Response<ResponseBody> {
    ok(&json!({
        "status": "ok",
        "version": build.version,
        "commit": build.commit,
        "built_at": build.built_at,
        "target": build.target,
    }))
}

/// Answers `GET /ready`: 200 if a snapshot is published and not in doubt, usage can be recorded, the gateway is not stopping and none of
/// its threads has died.
pub(crate) fn ready(worker: &Worker) -> Result<Response<ResponseBody>, Fault> {
    let process = &worker.process;
    if process.is_draining() {
        return Err(Fault::new(ErrorKind::Draining, "The gateway is stopping."));
    }
    if let Some(cause) = process.alarm.cause() {
        return Err(Fault::new(ErrorKind::Draining, format!("The gateway is stopping: {cause}.")));
    }
    serves_by(&process.snapshots.load())?;
    if !worker.usage.has_room() {
        return Err(Fault::new(ErrorKind::Overloaded, UNRECORDED));
    }
    Ok(ok(&json!({"status": "ready"})))
}

/// Returns an error if keys are refused because of the snapshot.
fn serves_by(snapshot: &Snapshot) -> Result<(), Fault> {
    if snapshot.generation == 0 {
        return Err(Fault::new(ErrorKind::Overloaded, "The gateway is starting."));
    }
    let reason = match snapshot.freshness.doubt() {
        None => return Ok(()),
        Some(Doubt::Stale) => STALE,
        Some(Doubt::WrongClock) => WRONG_CLOCK,
    };
    Err(Fault::new(ErrorKind::DatabaseUnreachable, reason))
}

const STALE: &str = "The node has not reached its database for so long that it refuses project keys.";
const WRONG_CLOCK: &str =
    "The clocks of the node and of its database differ by more than 30 s, so the node refuses project keys.";
const UNRECORDED: &str = "Usage cannot be recorded: the disk of the state directory is full or faulty, or \
                          too many records are waiting for the database. Requests get 503 until this is \
                          fixed.";

fn ok(body: &serde_json::Value) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(Bytes::from(body.to_string())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Request;
    use shared::freshness::{Freshness, Moment};
    use shared::port;

    use super::*;
    use crate::fixture::{Fixture, echo, whole};

    #[test]
    fn a_node_is_not_ready_before_its_first_snapshot_when_that_is_stale_and_while_its_clock_is_wrong() {
        let freshness = Freshness::new(Duration::from_mins(5));
        let snapshot = Snapshot { freshness: freshness.clone(), ..Snapshot::empty() };
        assert_eq!(serves_by(&snapshot).unwrap_err().kind, ErrorKind::Overloaded);
        let snapshot = Snapshot { generation: 1, ..snapshot };
        assert_eq!(serves_by(&snapshot).unwrap_err().kind, ErrorKind::DatabaseUnreachable);
        freshness.confirm(Moment::now());
        assert!(serves_by(&snapshot).is_ok());
        freshness.compare_clocks(true);
        assert!(serves_by(&snapshot).unwrap_err().message.contains("clocks of the node and of its database"));
    }

    #[tokio::test]
    async fn a_gateway_with_a_dead_thread_is_not_ready() {
        let fixture = Fixture::start(vec![echo("up", shared::routing::EchoOptions::default())]);
        let ready = || Request::get("/ready").body(port::full("")).unwrap();
        assert_eq!(whole(fixture.send(ready()).await).await.0, 200);
        fixture.dataplane.process.alarm.raise("thread data-1", &std::io::Error::other("it panicked"));
        let (status, body) = whole(fixture.send(ready()).await).await;
        assert_eq!(status, 503);
        assert!(
            body["error"]["message"].as_str().unwrap().contains("thread data-1 ended: it panicked"),
            "{body}"
        );
    }
}
