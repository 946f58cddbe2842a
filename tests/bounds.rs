//! What a request may come to use, whatever its input is and however it is bounded: 50 clients at once against hard
//! limits that two requests fill (ADM-4).

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::admin::{Admin, NewKey};
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, wait};

/// A gateway with a project key over one upstream.
struct Rig {
    gateway: Gateway,
    upstream: Upstream,
    key: NewKey,
}

impl Rig {
    /// Over an upstream with these further members, which always says `answer`.
    async fn over(members: &str, answer: Answer) -> Self {
        let upstream = Upstream::start().await;
        upstream.always(answer);
        let yaml = Yaml::new().provider_with("up", upstream.base_url(), members);
        let gateway = Setup::new(&yaml).start().await;
        let admin = Admin(gateway.client());
        let project = admin.project("blue").await;
        let key = admin.key(json!({"project": project})).await;
        Self { gateway, upstream, key }
    }

    async fn limit(&self, metric: &str, limit: u64) -> String {
        let quota = json!({"subject": {"kind": "key", "id": self.key.id},
            "metric": metric, "window": "day", "limit": limit});
        Admin(self.gateway.client()).create("quotas", quota).await
    }

    fn client(&self) -> Client {
        Client::new(self.gateway.address(), Some(&self.key.key)).with("content-type", "application/json")
    }

    /// As soon as nothing is reserved: what is used.
    async fn used(&self, quota: &str) -> u64 {
        let admin = Admin(self.gateway.client());
        wait::eventually(&format!("{quota} settled"), async || {
            let shown = admin.done("GET", &format!("quotas/{quota}"), Value::Null).await;
            (shown["reserved"] == 0).then(|| shown["used"].as_u64().unwrap())
        })
        .await
    }

    /// Sends the same request 50 times at once; returns how many were answered with 200.
    async fn fifty(&self, path: &str, body: &Value) -> usize {
        let mut clients = JoinSet::new();
        for _ in 0..50 {
            let (client, path, body) = (self.client(), path.to_owned(), body.to_string());
            clients.spawn(async move { client.post(&path, body).await });
        }
        let answers = clients.join_all().await;
        for answer in answers.iter().filter(|answer| answer.status != 200) {
            assert_eq!((answer.status, answer.error_code().as_str()), (429, "quota_exceeded"), "{answer:?}");
        }
        answers.iter().filter(|answer| answer.status == 200).count()
    }
}

/// A chat completion with this usage.
fn completion(input: u64, output: u64) -> Answer {
    let answer = json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output}});
    Answer::json(200, answer.to_string())
}

#[tokio::test]
async fn the_largest_bound_that_an_upstream_could_read_is_reserved() {
    let rig = Rig::over("", completion(1, 2_500)).await;
    let quota = rig.limit("output_tokens", 5_000).await;
    for members in [
        r#""max_completion_tokens":1,"max_tokens":100000"#,
        r#""max_tokens":1,"max_tokens":100000,"max_tokens":2"#,
        r#""max_tokens":1e5"#,
        r#""max_tokens":100000.0"#,
        r#""max_tokens":100,"\u006e":100"#,
        r#""max_tokens":100,"n":1e2"#,
        r#""max_tokens":100,"best_of":100.0"#,
        r#""max_tokens":100000,"max_completion_tokens":0"#,
        r#""max_tokens":99999999999999999999,"n":99999999999999999999"#,
    ] {
        let answer = rig.client().chat(format!(r#"{{"model":"up/m","messages":[],{members}}}"#)).await;
        assert_eq!((answer.status, answer.error_code().as_str()), (429, "quota_exceeded"), "{members}");
    }
    for members in [r#""n":"100""#, r#""max_tokens":"5""#, r#""max_tokens":1.5"#, r#""n":-3"#] {
        let answer = rig.client().chat(format!(r#"{{"model":"up/m","messages":[],{members}}}"#)).await;
        assert_eq!((answer.status, answer.error_code().as_str()), (400, "invalid_request"), "{members}");
    }
    assert_eq!((rig.upstream.requests().len(), rig.used(&quota).await), (0, 0));
    let two_fill = json!({"model": "up/m", "messages": [], "max_tokens": 1, "max_completion_tokens": 2_500});
    assert_eq!(rig.fifty("/v1/chat/completions", &two_fill).await, 2);
    assert_eq!(rig.used(&quota).await, 5_000);
}

/// The first two that run fill the limit; which of the others come before they have settled does not matter.
#[tokio::test]
async fn two_that_fill_a_limit_are_all_that_pass_whatever_their_input_is() {
    let picture = json!({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}});
    let pdf = json!({"type": "file", "file": {"file_data":
        format!("data:application/pdf;base64,JVBERi0{}", "A".repeat(40_000))}});
    let elsewhere = json!({"type": "file", "file": {"file_id": "file_1"}});
    let sound = json!({"type": "input_audio", "input_audio": {"data": "A".repeat(40_000), "format": "mp3"}});
    let tokens: Vec<u32> = (0..3_000).collect();
    let chat = |part: &Value| json!({"model": "up/m", "max_tokens": 1, "messages": [{"role": "user", "content": [part]}]});
    for (name, path, body, input) in [
        ("a picture", "/v1/chat/completions", chat(&picture), 1_400),
        ("a document", "/v1/chat/completions", chat(&pdf), 20_000),
        ("a file elsewhere", "/v1/chat/completions", chat(&elsewhere), 60_000),
        ("sound", "/v1/chat/completions", chat(&sound), 400),
        ("a list of tokens", "/v1/embeddings", json!({"model": "up/m", "input": tokens}), 3_000),
    ] {
        let answer = if path.ends_with("embeddings") { embedding(Some(input)) } else { completion(input, 1) };
        let rig = Rig::over("", answer).await;
        let quota = rig.limit("input_tokens", 2 * input).await;
        let passed = rig.fifty(path, &body).await;
        let used = rig.used(&quota).await;
        assert!(
            (1..=2).contains(&passed) && used == input * passed as u64,
            "{name}: {passed} passed, {used}"
        );
    }
}

/// An embedding, with this usage if any.
fn embedding(tokens: Option<u64>) -> Answer {
    let mut answer = json!({"object": "list", "model": "m",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}]});
    if let Some(tokens) = tokens {
        answer["usage"] = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    }
    Answer::json(200, answer.to_string())
}

#[tokio::test]
async fn what_no_upstream_counts_is_estimated_by_what_it_means() {
    let rig = Rig::over("", embedding(None)).await;
    for (input, tokens) in [
        ("[1,22,333]", 3),
        ("[[1,2],[3,4]]", 4),
        (r#""\u4f60\u597d\u4e16\u754c""#, 3),
        (r#""你好世界""#, 3),
        (r#"["four","more"]"#, 2),
    ] {
        let answer =
            rig.client().post("/v1/embeddings", format!(r#"{{"model":"up/m","input":{input}}}"#)).await;
        let record = rig.gateway.record_of(answer.header("x-request-id").unwrap()).await;
        assert_eq!(record["tokens"]["input"], tokens, "{input}: {record}");
        assert_eq!(record["provenance"], "estimated");
    }
}
