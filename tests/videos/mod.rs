//! Videos (VID-1): started once, polled by a sealed id, and returned inline at the end, for every vendor.

mod afterwards;
mod starts;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::support::client::Whole;
use crate::support::gateway::Setup;
use crate::support::upstream::Received;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml};

const PATH: &str = "/v1/videos/generations";
/// An operation name of Vertex AI.
const VERTEX_NAME: &str =
    "projects/p-1/locations/europe-west4/publishers/google/models/veo/operations/01234567-89ab";
const GEMINI_NAME: &str = "models/veo/operations/abc123";

/// A gateway with a provider for each vendor, all at one upstream, and the endpoint `line` over all of them.
struct Rig {
    gateway: Gateway,
    upstream: Upstream,
}

impl Rig {
    async fn start() -> Self {
        Self::with(&json!({"retry_max_attempts": 1, "circuit_failure_threshold": 0})).await
    }

    async fn with(policies: &Value) -> Self {
        let upstream = Upstream::start().await;
        let gateway = Setup::new(&Yaml::new()).yaml(config(&upstream, policies).to_string()).start().await;
        Self { gateway, upstream }
    }

    fn client(&self) -> Client {
        self.gateway.client()
    }

    /// Starts a video and returns the id of its operation.
    async fn begin(&self, client: &Client, model: &str, begun: Value) -> String {
        self.upstream.then(Answer::json(200, begun.to_string()));
        let answer = post(client, json!({"model": model, "prompt": "a cat"})).await;
        assert_eq!(answer.status, 202, "{:?}", answer.body);
        answer.json()["operation"].as_str().unwrap().to_owned()
    }

    /// Starts a video at the Gemini API.
    async fn begin_gemini(&self) -> String {
        self.begin(&self.client(), "gemini/veo", json!({"name": GEMINI_NAME})).await
    }

    async fn poll(&self, model: &str, operation: &str) -> Whole {
        post(&self.client(), json!({"model": model, "operation": operation})).await
    }

    /// Polls the operation; the upstream responds with `state`.
    async fn poll_with(&self, model: &str, operation: &str, state: Value) -> Whole {
        self.upstream.then(Answer::json(200, state.to_string()));
        self.poll(model, operation).await
    }
}

fn config(upstream: &Upstream, policies: &Value) -> Value {
    let root = upstream.base_url().trim_end_matches("/v1").to_owned();
    let models = json!(["veo", "other"]);
    json!({
        "providers": {
            "gemini": {"type": "gemini", "base_url": root, "api_key": "AIza-gemini", "models": models},
            "vertex": {
                "type": "vertex", "base_url": root, "api_key": "ya29.vertex", "project": "p-1",
                "location": "europe-west4", "models": models,
            },
            "openai": {"type": "openai", "base_url": upstream.base_url(), "api_key": "sk-openai", "models": models},
        },
        "endpoints": {"line": {"failover": [
            {"provider": "gemini", "model": "veo"},
            {"provider": "vertex", "model": "veo"},
            {"provider": "openai", "model": "veo"},
        ]}},
        "policies": {"defaults": policies},
    })
}

async fn post(client: &Client, body: Value) -> Whole {
    client.post(PATH, body.to_string()).await
}

fn first_line(request: &Received) -> &str {
    request.head.lines().next().unwrap()
}

fn film() -> Vec<u8> {
    (0..500_000_u32).map(|n| (n % 251) as u8).collect()
}

fn mp4(film: &[u8]) -> Answer {
    Answer::whole(200, &[("content-type", "video/mp4")], film)
}

fn redirect(location: &str) -> Answer {
    Answer::whole(302, &[("location", location)], "")
}

/// Returns the Gemini API's response with a video at `uri`.
fn done_at(uri: &str) -> Value {
    let samples = json!([{"video": {"uri": uri}}]);
    json!({"name": GEMINI_NAME, "done": true, "response": {"generateVideoResponse": {"generatedSamples": samples}}})
}

fn decoded(answer: &Whole) -> Vec<u8> {
    BASE64_STANDARD.decode(answer.json()["video"]["b64_json"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_gemini_video_is_returned_inline() {
    let rig = Rig::start().await;
    rig.upstream.then(Answer::json(200, json!({"name": GEMINI_NAME}).to_string()));
    let body = json!({"model": "line", "prompt": "a c\u{e4}t", "seconds": 8, "size": "1280x720"});
    let begun = post(&rig.client(), body).await;
    assert_eq!((begun.status, begun.header("retry-after")), (202, Some("10")));
    assert_eq!(
        (begun.header("x-llmgw-provider"), begun.header("x-llmgw-attempts")),
        (Some("gemini"), Some("1"))
    );
    let started = begun.json();
    let operation = started["operation"].as_str().unwrap();
    assert!(
        operation.starts_with("vop_") && operation.len() <= 512 && started["id"] == operation,
        "{started}"
    );
    assert_eq!((&started["status"], &started["object"]), (&json!("queued"), &json!("video.operation")));
    assert_eq!((&started["provider"], &started["model"]), (&json!("gemini"), &json!("veo")));
    let request = rig.upstream.request(0).await;
    assert_eq!(first_line(&request), "POST /v1beta/models/veo:predictLongRunning HTTP/1.1");
    assert_eq!(
        request.json(),
        json!({
            "instances": [{"prompt": "a c\u{e4}t"}],
            "parameters": {"aspectRatio": "16:9", "resolution": "720p", "durationSeconds": 8},
        })
    );

    let running = rig.poll_with("line", operation, json!({"name": GEMINI_NAME})).await;
    assert_eq!((running.status, running.header("retry-after")), (200, Some("10")));
    assert_eq!(
        (&running.json()["status"], &running.json()["operation"]),
        (&json!("running"), &json!(operation))
    );
    let request = rig.upstream.request(1).await;
    assert_eq!(first_line(&request), "GET /v1beta/models/veo/operations/abc123 HTTP/1.1");
    assert_eq!(
        (request.header("x-goog-api-key"), request.header("content-length")),
        (Some("AIza-gemini"), None)
    );

    // Google redirects to another path of its host.
    let root = rig.upstream.base_url().trim_end_matches("/v1").to_owned();
    rig.upstream
        .then(Answer::json(200, done_at(&format!("{root}/v1beta/files/1:download?alt=media")).to_string()))
        .then(redirect(&format!("{root}/download/v1beta/files/1:download?alt=media")))
        .then(mp4(&film()));
    let done = post(&rig.client(), json!({"model": "line", "operation": operation})).await;
    assert_eq!((done.status, done.header("content-type")), (200, Some("application/json")));
    let finished = done.json();
    assert_eq!(
        (&finished["status"], &finished["video"]["mime_type"]),
        (&json!("completed"), &json!("video/mp4"))
    );
    assert!(decoded(&done) == film(), "{} bytes came", done.body.len());
    for (index, path) in
        [(3, "/v1beta/files/1:download?alt=media"), (4, "/download/v1beta/files/1:download?alt=media")]
    {
        let request = rig.upstream.request(index).await;
        assert_eq!(first_line(&request), format!("GET {path} HTTP/1.1"));
        assert_eq!(request.header("x-goog-api-key"), Some("AIza-gemini"));
    }

    let record = rig.gateway.record_of(begun.header("x-request-id").unwrap()).await;
    assert_eq!((&record["operation"], &record["status"]), (&json!("videos"), &json!(202)));
    assert_eq!((&record["outcome"], &record["cost_micro_usd"]), (&json!("completed"), &json!(null)));
    assert_eq!(rig.gateway.records(1).await.len(), 1, "only the start is recorded");
}

#[tokio::test]
async fn a_vertex_video_is_returned_inline_or_as_a_bucket_url() {
    let rig = Rig::start().await;
    let operation = rig.begin(&rig.client(), "vertex/veo", json!({"name": VERTEX_NAME})).await;
    assert!(operation.len() <= 512, "{} bytes", operation.len());
    let models = "/v1/projects/p-1/locations/europe-west4/publishers/google/models/veo";
    let request = rig.upstream.request(0).await;
    assert_eq!(first_line(&request), format!("POST {models}:predictLongRunning HTTP/1.1"));
    let running = rig.poll_with("vertex/veo", &operation, json!({"name": VERTEX_NAME, "done": false})).await;
    assert_eq!(running.json()["status"], "running");
    let request = rig.upstream.request(1).await;
    assert_eq!(first_line(&request), format!("POST {models}:fetchPredictOperation HTTP/1.1"));
    assert_eq!(request.json(), json!({"operationName": VERTEX_NAME}));
    assert_eq!(request.header("authorization"), Some("Bearer ya29.vertex"));

    let done = |video: Value| json!({"name": VERTEX_NAME, "done": true, "response": {"videos": [video]}});
    let inline = json!({"bytesBase64Encoded": BASE64_STANDARD.encode(film()), "mimeType": "video/mp4"});
    let answer = rig.poll_with("vertex/veo", &operation, done(inline)).await;
    assert_eq!(answer.status, 200);
    assert!(decoded(&answer) == film(), "{} bytes came", answer.body.len());
    let bucket = json!({"gcsUri": "gs://bucket/1/sample_0.mp4", "mimeType": "video/mp4"});
    let answer = rig.poll_with("vertex/veo", &operation, done(bucket)).await;
    let want = json!({"url": "gs://bucket/1/sample_0.mp4", "mime_type": "video/mp4"});
    assert_eq!((answer.status, &answer.json()["video"]), (200, &want));
    let error =
        json!({"name": VERTEX_NAME, "done": true, "error": {"code": 3, "message": "no: ya29.vertex"}});
    let answer = rig.poll_with("vertex/veo", &operation, error).await;
    let failed = answer.json();
    assert_eq!((answer.status, &failed["status"]), (200, &json!("failed")));
    assert_eq!((&failed["error"]["code"], &failed["video"]), (&json!("invalid_argument"), &Value::Null));
    assert!(!failed["error"]["message"].as_str().unwrap().contains("ya29"), "{failed}");
}

#[tokio::test]
async fn the_content_of_a_completed_openai_video_is_fetched() {
    let rig = Rig::start().await;
    rig.upstream
        .then(Answer::json(200, include_str!("../../dataplane/wire/fixtures/videos/openai_video.json")));
    let body = json!({"model": "openai/veo", "prompt": "a cat", "seconds": 4, "aspect_ratio": "9:16"});
    let begun = post(&rig.client(), body).await;
    assert_eq!(begun.status, 202, "{:?}", begun.body);
    let operation = begun.json()["operation"].as_str().unwrap().to_owned();
    let request = rig.upstream.request(0).await;
    assert_eq!(first_line(&request), "POST /v1/videos HTTP/1.1");
    assert_eq!(request.header("authorization"), Some("Bearer sk-openai"));
    let want = json!({"model": "veo", "prompt": "a cat", "seconds": "4", "size": "720x1280"});
    assert_eq!(request.json(), want);

    let job = |status: &str| json!({"id": "video_1", "object": "video", "status": status, "progress": 40});
    let running = rig.poll_with("openai/veo", &operation, job("in_progress")).await;
    assert_eq!((&running.json()["status"], &running.json()["progress"]), (&json!("running"), &json!(40)));
    rig.upstream.then(Answer::json(200, job("completed").to_string())).then(mp4(&film()));
    let done = rig.poll("openai/veo", &operation).await;
    assert!(decoded(&done) == film(), "{} bytes came", done.body.len());
    let paths: Vec<String> = rig.upstream.requests()[1..].iter().map(|r| first_line(r).to_owned()).collect();
    assert_eq!(
        paths,
        [
            "GET /v1/videos/video_1 HTTP/1.1",
            "GET /v1/videos/video_1 HTTP/1.1",
            "GET /v1/videos/video_1/content HTTP/1.1"
        ]
    );
    let failed = json!({"id": "video_1", "status": "failed", "error": {"code": "moderation_blocked", "message": "no"}});
    let answer = rig.poll_with("openai/veo", &operation, failed).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (200, &json!("moderation_blocked")));
}

#[tokio::test]
async fn the_bare_video_path_works_and_kinds_without_video_are_rejected() {
    let rig = Rig::start().await;
    rig.upstream.then(Answer::json(200, json!({"name": GEMINI_NAME}).to_string()));
    let body = json!({"model": "gemini/veo", "prompt": "a cat"}).to_string();
    assert_eq!(rig.client().post("/videos/generations", body).await.status, 202);

    let upstream = Upstream::start().await;
    let url = upstream.base_url().trim_end_matches("/v1").to_owned();
    let provider = |kind: &str| json!({"type": kind, "base_url": url, "api_key": "k", "models": ["m"]});
    let config = json!({"providers": {
        "a": provider("anthropic"), "z": provider("azure_openai"), "c": provider("compatible"),
        "v": {"type": "compatible", "base_url": upstream.base_url(), "models": ["m"], "protocols": ["videos"]},
    }});
    let gateway = Setup::new(&Yaml::new()).yaml(config.to_string()).start().await;
    for selector in ["a/m", "z/m", "c/m"] {
        let answer = post(&gateway.client(), json!({"model": selector, "prompt": "a cat"})).await;
        assert_eq!((answer.status, answer.error_code().as_str()), (400, "unsupported_route"), "{selector}");
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains("videos"), "{selector}");
    }
    assert!(upstream.requests().is_empty());
    upstream.then(Answer::json(200, r#"{"id":"video_1","status":"queued"}"#));
    let answer = post(&gateway.client(), json!({"model": "v/m", "prompt": "a cat"})).await;
    assert_eq!(answer.status, 202, "a compatible server that is configured to have them: {:?}", answer.body);
}
