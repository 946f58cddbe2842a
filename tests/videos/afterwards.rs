//! Access to a video's state, the upstream that is queried for it, and the source from which the video is fetched.

use serde_json::{Value, json};

use super::{GEMINI_NAME, PATH, Rig, VERTEX_NAME, config, decoded, done_at, film, mp4, post, redirect};
use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::raw::{self, Raw};
use crate::support::{Answer, Client, Gate, Upstream, Yaml, gateway::ADMIN_KEY, wait};

#[tokio::test]
async fn a_changed_operation_id_is_rejected_without_a_call() {
    let rig = Rig::start().await;
    let operation = rig.begin_gemini().await;
    let mut changed = operation.clone().into_bytes();
    let middle = changed.len() / 2;
    changed[middle] = if changed[middle] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    for id in [
        changed.as_str(),
        &operation[..operation.len() - 1],
        &operation[..20],
        &operation[4..],
        "vop_",
        "vop_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        GEMINI_NAME,
        "",
    ] {
        let answer = rig.poll("gemini/veo", id).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("operation")), "{id}");
    }
    for more in [json!({"prompt": "a cat"}), json!({"seconds": 8}), json!({"stream": false})] {
        let mut body = json!({"model": "gemini/veo", "operation": operation});
        let (name, value) = more.as_object().unwrap().iter().next().unwrap();
        body[name] = value.clone();
        let answer = post(&rig.client(), body).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(name)));
    }
    assert_eq!(rig.upstream.requests().len(), 1, "no upstream was asked");
}

#[tokio::test]
async fn a_video_operation_belongs_to_its_project() {
    let rig = Rig::start().await;
    let admin = Admin(rig.client());
    let (blue, red) = (admin.project("blue").await, admin.project("red").await);
    let client =
        async |settings: Value| Client::new(rig.gateway.address(), Some(&admin.key(settings).await.key));
    let owner = client(json!({"project": blue})).await;
    let colleague = client(json!({"project": blue})).await;
    let barred = client(json!({"project": blue, "models": ["openai/*"]})).await;
    let stranger = client(json!({"project": red})).await;
    let operation = rig.begin(&owner, "line", json!({"name": GEMINI_NAME})).await;
    let body = json!({"model": "line", "operation": operation});
    for asking in [&owner, &colleague] {
        rig.upstream.then(Answer::json(200, json!({"name": GEMINI_NAME}).to_string()));
        assert_eq!(post(asking, body.clone()).await.status, 200);
    }
    let before = rig.upstream.requests().len();
    for asking in [&stranger, &rig.client(), &barred] {
        let answer = post(asking, body.clone()).await;
        assert_eq!((answer.status, answer.error_code().as_str()), (404, "operation_not_found"));
    }
    // A video started with the administrator's key belongs to no project.
    let own = rig.begin_gemini().await;
    let answer = post(&stranger, json!({"model": "line", "operation": own})).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (404, "operation_not_found"));
    assert_eq!(rig.upstream.requests().len(), before + 1, "no upstream was before for another project");
}

#[tokio::test]
async fn a_poll_requires_a_selector_that_still_contains_the_target() {
    let rig = Rig::start().await;
    let operation = rig.begin_gemini().await;
    for (selector, status, code) in [
        ("vertex/veo", 404, "operation_not_found"),
        ("gemini/other", 404, "operation_not_found"),
        ("nothing", 404, "model_not_found"),
    ] {
        let answer = rig.poll(selector, &operation).await;
        assert_eq!((answer.status, answer.error_code().as_str()), (status, code), "{selector}");
    }
    // The last target of the line works like the first.
    let last = rig.begin(&rig.client(), "openai/veo", json!({"id": "video_1"})).await;
    let answer = rig.poll_with("line", &last, json!({"id": "video_1", "status": "queued"})).await;
    assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("openai")));
    let mut settings = config(&rig.upstream, &json!({"retry_max_attempts": 1}));
    settings["endpoints"]["line"]["failover"] = json!([{"provider": "gemini", "model": "veo"}]);
    rig.gateway.write_config(settings.to_string());
    wait::eventually("the new configuration", async || {
        let answer = rig.poll("line", &last).await;
        (answer.status == 404 && answer.error_code() == "operation_not_found").then_some(())
    })
    .await;
    let answer = rig.poll_with("openai/veo", &last, json!({"id": "video_1", "status": "queued"})).await;
    assert_eq!(answer.status, 200, "it is still there by its own name: {:?}", answer.body);
}

#[tokio::test]
async fn a_poll_works_after_a_restart_and_with_an_open_circuit() {
    let mut rig = Rig::with(&json!({"retry_max_attempts": 1, "circuit_failure_threshold": 1})).await;
    let operation = rig.begin_gemini().await;
    rig.gateway = rig.gateway.restart().await;
    let answer = rig.poll_with("line", &operation, json!({"name": GEMINI_NAME})).await;
    assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("running")));
    rig.upstream.then(Answer::error(500));
    let start = json!({"model": "line", "prompt": "a cat"});
    assert_eq!(post(&rig.client(), start.clone()).await.status, 500);
    assert_eq!(post(&rig.client(), start).await.error_code(), "no_eligible_target", "it rests");
    let answer = rig.poll_with("line", &operation, json!({"name": GEMINI_NAME})).await;
    assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("running")));
    assert_eq!(rig.upstream.requests().len(), 4);

    // Another database has other keys.
    let other = Setup::new(&Yaml::new()).yaml(config(&rig.upstream, &json!({})).to_string()).start().await;
    let answer = post(&other.client(), json!({"model": "line", "operation": operation})).await;
    assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("operation")));
}

#[tokio::test]
async fn a_video_is_fetched_only_from_the_provider() {
    let (rig, other) = (Rig::start().await, Upstream::start().await);
    other.always(mp4(&film()));
    let operation = rig.begin_gemini().await;
    let poll = async |uri: &str| rig.poll_with("line", &operation, done_at(uri)).await;
    let url = "https://storage.example/film.mp4?signature=1";
    let answer = poll(url).await;
    assert_eq!((answer.status, &answer.json()["video"]["url"]), (200, &json!(url)));
    let root = rig.upstream.base_url().trim_end_matches("/v1").to_owned();
    for uri in [
        format!("{}/film.mp4", other.base_url()),
        "https://storage.example/film.mp4?key=AIza-gemini".to_owned(),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        root.replace("http://", "http://a@"),
        "file:///etc/passwd".to_owned(),
    ] {
        let answer = poll(&uri).await;
        assert_eq!(
            (answer.status, answer.error_code().as_str()),
            (502, "upstream_invalid_response"),
            "{uri}"
        );
        assert!(!answer.json()["error"].to_string().contains(&uri), "{uri}");
    }
    let own = format!("{root}/v1beta/files/1:download");
    for (location, status) in [(format!("{}/film.mp4", other.base_url()), 502), (url.to_owned(), 200)] {
        rig.upstream.then(Answer::json(200, done_at(&own).to_string())).then(redirect(&location));
        let answer = rig.poll("line", &operation).await;
        assert_eq!(answer.status, status, "{location}: {:?}", answer.body);
    }
    rig.upstream.then(Answer::json(200, done_at(&own).to_string()));
    for _ in 0..4 {
        rig.upstream.then(redirect("/v1beta/again"));
    }
    let answer = rig.poll("line", &operation).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (502, "upstream_invalid_response"));
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn provider_errors_of_a_poll_reach_the_client() {
    let rig = Rig::start().await;
    let operation = rig.begin(&rig.client(), "openai/veo", json!({"id": "video_1"})).await;
    let poll = async || rig.poll("openai/veo", &operation).await;
    for (status, want, code) in [
        (404, 404, "operation_not_found"),
        (410, 404, "operation_not_found"),
        (401, 401, "scripted"),
        (429, 429, "scripted"),
        (500, 500, "scripted"),
        (302, 502, "upstream_invalid_response"),
    ] {
        rig.upstream.then(Answer::error(status));
        let answer = poll().await;
        assert_eq!((answer.status, answer.error_code().as_str()), (want, code), "{status}");
    }
    rig.upstream.then(Answer::json(200, "<html>"));
    assert_eq!(poll().await.error_code(), "upstream_invalid_response");
    let completed = || Answer::json(200, r#"{"id":"video_1","status":"completed"}"#);
    for (content, want, code) in [
        (Answer::error(404), 404, "operation_not_found"),
        (Answer::error(403), 403, "scripted"),
        (Answer::json(200, "{}"), 502, "upstream_invalid_response"),
        (mp4(b""), 502, "upstream_invalid_response"),
        (Answer::whole(200, &[("content-encoding", "gzip")], "x"), 502, "upstream_invalid_response"),
        (
            Answer::new().send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n").close(),
            502,
            "upstream_invalid_response",
        ),
    ] {
        rig.upstream.then(completed()).then(content);
        let answer = poll().await;
        assert_eq!((answer.status, answer.error_code().as_str()), (want, code));
    }
    // A video that is cut off is cut off for the client too, so that it cannot be mistaken for the whole.
    rig.upstream.then(completed()).then(mp4(&film()).cut_after(200_000));
    let body = json!({"model": "openai/veo", "operation": operation}).to_string();
    let cut = rig.client().with("content-type", "application/json").send("POST", PATH, body.into()).await;
    assert!(cut.is_err(), "{cut:?}");
    assert_eq!(rig.gateway.records(1).await.len(), 1);
}

#[tokio::test]
async fn a_video_is_streamed_and_stops_at_a_client_disconnect() {
    let rig = Rig::start().await;
    let operation = rig.begin(&rig.client(), "openai/veo", json!({"id": "video_1"})).await;
    let gate = Gate::new();
    let completed = || Answer::json(200, r#"{"id":"video_1","status":"completed"}"#);
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: video/webm; codecs=vp9\r\ntransfer-encoding: chunked\r\n\r\n";
    let pieces = Answer::new().send(head).chunk("a").chunk("bc").wait(&gate).chunk("defg").chunk("h").end();
    rig.upstream.then(completed()).then(pieces);
    let body = json!({"model": "openai/veo", "operation": operation}).to_string();
    let request = raw::post(ADMIN_KEY, "", &body).replace("/v1/chat/completions", PATH);
    let mut client = Raw::open(rig.gateway.address()).await;
    client.send(request.clone()).await;
    client.read_until("YWJj").await;
    gate.open(1);
    let rest = client.read_until("Z2g=").await;
    assert!(rest.contains("ZGVm"), "{rest}");
    drop(client);

    let flood = Answer::new().send(head).chunk("abc").hang();
    rig.upstream.then(completed()).then(flood);
    let mut client = Raw::open(rig.gateway.address()).await;
    client.send(request).await;
    client.read_until("YWJj").await;
    drop(client);
    rig.upstream.closed(4).await;
}

#[tokio::test]
async fn an_inline_video_counts_as_buffered_memory() {
    let upstream = Upstream::start().await;
    let settings = config(&upstream, &json!({"retry_max_attempts": 1}));
    let setup = Setup::new(&Yaml::new()).yaml(settings.to_string());
    let gateway =
        setup.env("LLMGW_MAX_BODY_MEMORY_BYTES", "1048576").env("LLMGW_MAX_REQUEST_BODY_BYTES", "65536");
    let rig = Rig { gateway: gateway.start().await, upstream };
    let operation = rig.begin(&rig.client(), "vertex/veo", json!({"name": VERTEX_NAME})).await;
    let done = |bytes: usize| {
        let video = json!({"bytesBase64Encoded": "AAAA".repeat(bytes / 4), "mimeType": "video/mp4"});
        json!({"name": VERTEX_NAME, "done": true, "response": {"videos": [video]}})
    };
    for _ in 0..3 {
        let answer = rig.poll_with("vertex/veo", &operation, done(900_000)).await;
        assert_eq!((answer.status, decoded(&answer).len()), (200, 675_000), "given back each time");
        let answer = rig.poll_with("vertex/veo", &operation, done(1_100_000)).await;
        assert_eq!((answer.status, answer.error_code().as_str()), (503, "overloaded"));
        assert!(answer.header("retry-after").is_some());
    }
}
