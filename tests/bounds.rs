//! The usage bound of requests for any kind of input and any client bound: 50 concurrent clients against hard limits
//! that two requests exhaust (ADM-4).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
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
    /// Starts a gateway over an upstream with these additional members that always returns `answer`.
    async fn over(members: &str, answer: Answer) -> Self {
        let upstream = Upstream::start().await;
        upstream.always(answer);
        let yaml = Yaml::new().provider_with("up", upstream.base_url(), members);
        // Only OpenAI's own API generates videos.
        let kind = if members == PRICED { "type: openai" } else { "type: compatible" };
        let text = yaml.text().replace("type: compatible", kind);
        let gateway = Setup::new(&yaml).yaml(text).at_noon().start().await;
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

    /// Waits until nothing is reserved and returns the used amount.
    async fn used(&self, quota: &str) -> u64 {
        let admin = Admin(self.gateway.client());
        wait::eventually(&format!("{quota} settled"), async || {
            let shown = admin.done("GET", &format!("quotas/{quota}"), Value::Null).await;
            (shown["reserved"] == 0).then(|| shown["used"].as_u64().unwrap())
        })
        .await
    }

    /// Sends the same request 50 times concurrently and returns the number of answers with status 200.
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
async fn the_largest_possible_output_limit_is_reserved() {
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

/// The first two requests that run exhaust the limit, in any order of the others' arrival before they settle.
#[tokio::test]
async fn a_limit_filled_by_two_requests_admits_no_third_of_any_input_kind() {
    let picture = json!({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}});
    let inline = |media_type: &str, bytes: &[u8]| {
        let url = format!("data:{media_type};base64,{}", BASE64_STANDARD.encode(bytes));
        json!({"type": "image_url", "image_url": {"url": url}})
    };
    // Read as 2,048 by 2,048 pixels by what decodes them: another chunk precedes the header, or a frame exceeds the screen.
    let small = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    let large = [&b"\0\0\0\rIHDR"[..], &[0, 0, 8, 0, 0, 0, 8, 0, 8, 6, 0, 0, 0, 0, 0, 0, 0]].concat();
    let png = [&b"\x89PNG\r\n\x1a\n\0\0\0\x08tEXt"[..], &small, &large, b"\0\0\0\x01IDAT7...."].concat();
    let gif = [&b"GIF89a\x01\0\x01\0\0\0\0,\0\0\0\0"[..], b"\0\x08\0\x08\0\x02\x01D\0;"].concat();
    let pdf = json!({"type": "file", "file": {"file_data":
        format!("data:application/pdf;base64,JVBERi0{}", "A".repeat(40_000))}});
    let elsewhere = json!({"type": "file", "file": {"file_id": "file_1"}});
    let sound = json!({"type": "input_audio", "input_audio": {"data": "A".repeat(40_000), "format": "mp3"}});
    let tokens: Vec<u32> = (0..3_000).collect();
    let chat = |part: &Value| json!({"model": "up/m", "max_tokens": 1, "messages": [{"role": "user", "content": [part]}]});
    for (name, path, body, input) in [
        ("a picture", "/v1/chat/completions", chat(&picture), 1_400),
        ("a PNG with a chunk first", "/v1/chat/completions", chat(&inline("image/png", &png)), 5_400),
        ("a GIF with a small screen", "/v1/chat/completions", chat(&inline("image/gif", &gif)), 5_400),
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
async fn tokens_that_no_upstream_counts_are_estimated_from_the_decoded_input() {
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

/// Models with a price for each operation's billing unit.
const PRICED: &str = "models:
  - id: chat
    prices: { input: 1.0, cached_input: 0.1, cache_write_1h: 2.0, image_input: 4.0, audio_input: 10.0, output: 10.0, tiers: { priority: { input: 2.0, output: 20.0 } } }
  - id: embed
    prices: { input: 1.0 }
  - id: picture
    prices: { pictures: { low/1024x1024: 0.01, high/1024x1024: 0.2 } }
  - id: voice
    prices: { characters: 15.0 }
  - id: ear
    prices: { audio_second: 0.0001 }
  - id: film
    prices: { video_second: 0.1 }";

#[tokio::test]
async fn cost_is_reserved_for_every_kind_of_input_and_output() {
    let tokens: Vec<u32> = (0..3_000).collect();
    let chat = |members: Value| {
        let mut body = json!({"model": "up/chat", "max_tokens": 1_000,
            "messages": [{"role": "user", "content": "Say hello."}]});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        body
    };
    // Limits in micro-dollars that the reservation of one request exhausts and two exceed.
    for (name, path, body, limit) in [
        ("output", "/v1/chat/completions", chat(json!({})), 10_100),
        ("several answers", "/v1/chat/completions", chat(json!({"n": 3})), 30_100),
        ("a service tier", "/v1/chat/completions", chat(json!({"service_tier": "priority"})), 20_100),
        ("a list of tokens", "/v1/embeddings", json!({"model": "up/embed", "input": tokens}), 3_000),
        (
            "pictures of any sort",
            "/v1/images/generations",
            json!({"model": "up/picture", "prompt": "x", "n": 2}),
            400_000,
        ),
        (
            "pictures of one sort",
            "/v1/images/generations",
            json!({"model": "up/picture", "prompt": "x", "n": 2, "quality": "low", "size": "1024x1024"}),
            20_000,
        ),
        (
            "characters",
            "/v1/audio/speech",
            json!({"model": "up/voice", "input": "你好".repeat(50), "voice": "v"}),
            1_500,
        ),
        (
            "a video",
            "/v1/videos/generations",
            json!({"model": "up/film", "prompt": "x", "seconds": 8}),
            800_000,
        ),
        (
            "a video of any length",
            "/v1/videos/generations",
            json!({"model": "up/film", "prompt": "x"}),
            1_200_000,
        ),
    ] {
        one_fills(name, path, "application/json", body.to_string(), limit).await;
    }
    // This number of bytes may be almost 30 seconds.
    let form = format!(
        "--cut\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nup/ear\r\n--cut\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"a.mp3\"\r\n\r\n{}\r\n--cut--\r\n",
        "x".repeat(59_000)
    );
    let media_type = "multipart/form-data; boundary=cut";
    one_fills("sound", "/v1/audio/transcriptions", media_type, form, 3_000).await;
}

/// Checks that of 50 concurrent requests one is admitted under the limit, in micro-dollars, and none under half of it.
async fn one_fills(name: &str, path: &str, media_type: &str, body: String, limit: u64) {
    let rig = Rig::over(PRICED, Answer::hang_forever()).await;
    rig.limit("cost_micro_usd", limit).await;
    let client = |rig: &Rig| {
        let client = Client::new(rig.gateway.address(), Some(&rig.key.key));
        client.with("content-type", media_type)
    };
    let mut clients = JoinSet::new();
    for _ in 0..50 {
        let (client, sent, to) = (client(&rig), body.clone(), path.to_owned());
        clients.spawn(async move { client.send("POST", &to, sent.into()).await });
    }
    for _ in 0..49 {
        let refused = clients.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!((refused.status, refused.error_code().as_str()), (429, "quota_exceeded"), "{name}");
    }
    rig.upstream.request(0).await;
    assert_eq!(rig.upstream.requests().len(), 1, "{name}");
    drop(clients);
    let rig = Rig::over(PRICED, Answer::hang_forever()).await;
    rig.limit("cost_micro_usd", limit / 2).await;
    let refused = client(&rig).send("POST", path, body.into()).await.unwrap();
    assert_eq!((refused.status, refused.error_code().as_str()), (429, "quota_exceeded"), "{name}");
}

/// What is billed by a unit cannot be reserved by the price of the prompt's few tokens.
#[tokio::test]
async fn media_without_a_price_are_refused_under_a_limit_on_cost() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::hang_forever());
    let model = |id: &str, prices: Value| json!({"id": id, "prices": prices});
    let tokens = json!({"input": 1, "output": 2});
    let of_a_size = json!({"input": 1, "output": 2, "pictures": {"1280x720": 0.1}});
    let models = [model("tokens", tokens), model("input", json!({"input": 1})), model("size", of_a_size)];
    let provider =
        json!({"type": "openai", "base_url": upstream.base_url(), "api_key": "k", "models": models});
    let gateway =
        Setup::new(&Yaml::new()).yaml(json!({"providers": {"up": provider}}).to_string()).start().await;
    let admin = Admin(gateway.client());
    let key = admin.key(json!({"project": admin.project("blue").await})).await;
    let quota = json!({"subject": {"kind": "key", "id": key.id}, "metric": "cost_micro_usd", "window": "day",
        "limit": 100_000});
    admin.create("quotas", quota).await;
    let client = Client::new(gateway.address(), Some(&key.key)).with("content-type", "application/json");
    let film = |model: &str| json!({"model": model, "prompt": "x", "seconds": 8, "size": "1792x1024"});
    for (path, body) in [
        ("/v1/videos/generations", film("up/tokens")),
        ("/v1/videos/generations", film("up/input")),
        ("/v1/videos/generations", film("up/size")),
        ("/v1/images/generations", json!({"model": "up/input", "prompt": "x"})),
        ("/v1/audio/speech", json!({"model": "up/input", "input": "hello", "voice": "v"})),
    ] {
        let refused = client.post(path, body.to_string()).await;
        assert_eq!((refused.status, refused.error_code().as_str()), (403, "not_allowed"), "{body}");
        let record = gateway.record_of(refused.header("x-request-id").unwrap()).await;
        assert_eq!(record["trace"][0]["result"], "no_price", "{record}");
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn a_partly_unknown_cost_still_counts_against_its_limit() {
    let answer = json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 20_000, "total_tokens": 20_020,
            "prompt_tokens_details": {"audio_tokens": 10}}});
    let prices = "models:\n  - id: m\n    prices: { input: 1.0, output: 2.0 }";
    let rig = Rig::over(prices, Answer::json(200, answer.to_string())).await;
    let quota = rig.limit("cost_micro_usd", 10_000).await;
    let body = json!({"model": "up/m", "max_tokens": 4_000,
        "messages": [{"role": "user", "content": "Say hello."}]});
    // Ten tokens of audio have no price; the rest of one answer costs 40,010 micro-dollars.
    assert_eq!(rig.fifty("/v1/chat/completions", &body).await, 1);
    assert_eq!(rig.used(&quota).await, 40_010);
}

#[tokio::test]
async fn a_continued_response_reserves_the_usage_of_its_predecessor() {
    let answer = |id: &str, input: u64| {
        let usage = json!({"input_tokens": input, "output_tokens": 10, "total_tokens": input + 10,
            "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}});
        let text = json!({"type": "output_text", "text": "ok", "annotations": []});
        let body = json!({"id": id, "object": "response", "created_at": 1, "status": "completed", "model": "m",
            "output": [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                "content": [text]}],
            "usage": usage});
        Answer::json(200, body.to_string())
    };
    let rig = Rig::over("protocols: [responses]", answer("resp_first", 30_000)).await;
    let first = json!({"model": "up/m", "input": "Say hello.", "max_output_tokens": 10});
    assert_eq!(rig.client().post("/v1/responses", first.to_string()).await.status, 200);
    rig.gateway.records(1).await;
    let quota = rig.limit("input_tokens", 100_000).await;
    let used = rig.used(&quota).await;
    rig.upstream.always(answer("resp_second", 30_020));
    let next = json!({"model": "up/m", "input": "Go on.", "max_output_tokens": 10,
        "previous_response_id": "resp_first"});
    let passed = rig.fifty("/v1/responses", &next).await as u64;
    assert!((1..=3).contains(&passed), "{passed}");
    assert_eq!(rig.used(&quota).await, used + passed * 30_020);
    assert!(used + passed * 30_020 <= 100_000 + 30_020, "no more than one passes the limit");
}

#[tokio::test]
async fn a_wav_upload_is_reserved_and_billed_by_its_header_length() {
    let rig = Rig::over(PRICED, Answer::json(200, json!({"text": "ok"}).to_string())).await;
    rig.limit("cost_micro_usd", 300).await;
    // 8 bits and 8,000 samples per second: 44 bytes of header and two seconds.
    let format = "\x01\0\x01\0@\x1f\0\0@\x1f\0\0\x01\0\x08\0";
    let file = format!("RIFF\0\0\0\0WAVEfmt \x10\0\0\0{format}data\0\0\0\0{}", "\0".repeat(16_000));
    let form = format!(
        "--cut\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nup/ear\r\n--cut\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n{file}\r\n--cut--\r\n"
    );
    let client = Client::new(rig.gateway.address(), Some(&rig.key.key));
    let client = client.with("content-type", "multipart/form-data; boundary=cut");
    let ask = async || client.send("POST", "/v1/audio/transcriptions", form.clone().into()).await.unwrap();
    let answer = ask().await;
    assert_eq!(answer.status, 200, "the bytes alone could be eight seconds: {:?}", answer.body);
    let record = rig.gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!((&record["units"]["audio_ms"], &record["cost_micro_usd"]), (&json!(2_005), &json!(200.5)));
    assert_eq!(ask().await.status, 429, "two do not fit");
    // The upstream's own count takes precedence.
    let own = json!({"text": "ok", "usage": {"type": "duration", "seconds": 1}});
    rig.upstream.then(Answer::json(200, own.to_string()));
    let administrator = rig.gateway.client().with("content-type", "multipart/form-data; boundary=cut");
    let answer = administrator.send("POST", "/v1/audio/transcriptions", form.into()).await.unwrap();
    let record = rig.gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!(record["units"]["audio_ms"], 1_000);
}
