//! OpenAI Responses over targets that support only chat, where a request keeps no state (RESP-1 to RESP-4).

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, wait};

async fn start() -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    (Gateway::start(&Yaml::one(upstream.base_url())).await, upstream)
}

fn ask(members: &Value) -> String {
    let mut body = json!({"model": "up/m", "instructions": "Be brief.", "input": "Say hello."});
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string()
}

#[tokio::test]
async fn a_whole_chat_completion_becomes_a_response() {
    let (gateway, upstream) = start().await;
    upstream.always(Answer::completion("hello"));
    for path in ["/v1/responses", "/responses"] {
        let answer = gateway.client().post(path, ask(&json!({"store": false, "metadata": {"a": "b"}}))).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        let response = answer.json();
        assert_eq!((&response["object"], &response["status"]), (&json!("response"), &json!("completed")));
        assert_eq!(response["output"][0]["content"][0]["text"], "hello");
        assert_eq!(
            (&response["usage"]["input_tokens"], &response["usage"]["output_tokens"]),
            (&json!(11), &json!(7))
        );
        assert_eq!(answer.header("x-llmgw-adapted"), Some("chat"));
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        assert_eq!((&record["operation"], &record["tokens"]["input"]), (&json!("responses"), &json!(11)));
    }
    let sent = upstream.request(0).await.json();
    assert_eq!(sent["messages"][0]["content"], "Be brief.");
    assert_eq!((&sent["model"], sent.get("store")), (&json!("m"), None));
}

#[tokio::test]
async fn a_responses_stream_is_complete_and_ends_with_the_whole_response() {
    let (gateway, upstream) = start().await;
    upstream.always(Answer::events(&chat::events(&["hel", "lo"])));
    let answer = gateway.client().post("/v1/responses", ask(&json!({"stream": true}))).await;
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events[0]["type"], "response.created");
    let last = &events[events.len() - 1];
    assert_eq!(last["type"], "response.completed");
    assert_eq!(last["response"]["output"][0]["content"][0]["text"], "hello");
    let deltas: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(deltas, "hello");
}

#[tokio::test]
async fn stateful_members_are_rejected_for_adapted_targets_before_a_call() {
    let (gateway, upstream) = start().await;
    for (members, param) in [
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"conversation": "conv_1"}), "conversation"),
        (json!({"store": true}), "store"),
        (json!({"include": ["reasoning.encrypted_content"]}), "include"),
        (json!({"tools": [{"type": "web_search"}]}), "tools.0.type"),
        (
            json!({"input": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}]}),
            "input.0",
        ),
        (json!({"background": true}), "background"),
    ] {
        let answer = gateway.client().post("/v1/responses", ask(&members)).await;
        assert_eq!(answer.status, 400, "{param}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], "unsupported_parameter", "{param}");
        assert!(error["param"].as_str().unwrap().starts_with(param), "{param}: {error}");
    }
    // A malformed request is malformed for every other target too.
    let body = ask(&json!({"tools": [{"type": "function"}]}));
    let answer = gateway.client().post("/v1/responses", body).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (400, "invalid_request"));
    assert_eq!(answer.json()["error"]["param"], "tools.0.name");
    assert!(upstream.requests().is_empty());
}

/// Starts two targets behind `line` that support Responses natively.
async fn natives() -> (Gateway, Upstream, Upstream) {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let members = "protocols: [responses]";
    let yaml = Yaml::new()
        .provider_with("p0", first.base_url(), members)
        .provider_with("p1", second.base_url(), members)
        .endpoint("line", &[("p0", "m"), ("p1", "m")]);
    (Gateway::start(&yaml).await, first, second)
}

fn made(id: &str, secret: &str) -> String {
    json!({
        "id": id, "object": "response", "created_at": 1, "status": "completed", "error": null, "model": "m",
        "output": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": secret}],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    })
    .to_string()
}

#[tokio::test]
async fn stateful_items_return_only_to_the_target_that_created_them() {
    let (gateway, first, second) = natives().await;
    let secret = "gAAAAABh".repeat(20);
    first.then(Answer::json(503, chat::error("busy", "overloaded")));
    second.always(Answer::json(200, made("resp_2", &secret)));
    let answer = gateway.client().post("/v1/responses", ask(&json!({"model": "line"}))).await;
    assert_eq!(answer.header("x-llmgw-provider"), Some("p1"));
    let item = json!([{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": secret}]);
    for members in [
        json!({"model": "line", "previous_response_id": "resp_2"}),
        json!({"model": "line", "input": item}),
        json!({"model": "line", "input": item, "stream": true}),
    ] {
        let answer = gateway.client().post("/v1/responses", ask(&members)).await;
        assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("p1")), "{members}");
    }
    assert_eq!(first.requests().len(), 1, "the one that was busy is not asked again");
    let other = json!({"model": "p0/m", "previous_response_id": "resp_2"});
    let answer = gateway.client().post("/v1/responses", ask(&other)).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (400, "previous_response_not_found"));
    let error = &answer.json()["error"];
    assert_eq!(error["param"], "previous_response_id");
    let words = "Previous response with id 'resp_2' not found.";
    assert!(error["message"].as_str().unwrap().starts_with(words), "{error}");
    let answer = gateway.client().post("/v1/responses", ask(&json!({"model": "p0/m", "input": item}))).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (400, "invalid_encrypted_content"));
    assert_eq!(first.requests().len(), 1, "it never sees what belongs to another");
}

/// The vendor binds stored responses and encrypted reasoning to an account: every model and key of it reads them.
#[tokio::test]
async fn another_model_a_new_key_and_a_changed_header_continue_a_conversation() {
    let upstream = Upstream::start().await;
    let secret = "gCCCCCCh".repeat(20);
    let config = |key: &str, header: &str| {
        json!({
            "providers": {"p": {"type": "openai", "protocols": ["responses"], "base_url": upstream.base_url(),
                "api_key": key, "headers": {"x-team": header}, "models": ["one", "two"]}},
            "endpoints": {"b": {"failover": [{"provider": "p", "model": "two"}]}},
        })
        .to_string()
    };
    let gateway = Setup::new(&Yaml::new()).yaml(config("key-number-one", "red")).start().await;
    upstream.always(Answer::json(200, made("resp_1", &secret)));
    assert_eq!(gateway.client().post("/v1/responses", ask(&json!({"model": "p/one"}))).await.status, 200);
    let item = json!([{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": secret}]);
    let go_on = async || {
        for model in ["p/one", "p/two", "b"] {
            for members in [
                json!({"model": model, "previous_response_id": "resp_1"}),
                json!({"model": model, "input": item}),
            ] {
                let answer = gateway.client().post("/v1/responses", ask(&members)).await;
                assert_eq!(answer.status, 200, "{members}: {:?}", answer.body);
            }
        }
    };
    go_on().await;
    for (key, header) in [("key-number-two", "red"), ("key-number-two", "blue")] {
        gateway.write_config(config(key, header));
        gateway.signal(Signal::HUP);
        wait::eventually("the new key and header", async || {
            gateway.client().post("/v1/responses", ask(&json!({"model": "p/one"}))).await;
            let last = upstream.requests().pop().unwrap();
            let is_sent = last.header("authorization") == Some(&format!("Bearer {key}"));
            (is_sent && last.header("x-team") == Some(header)).then_some(())
        })
        .await;
        go_on().await;
    }
}

/// Codex sends it back with the other requests of a turn, which its upstream routes by it.
#[tokio::test]
async fn the_turn_state_of_an_answer_reaches_the_client() {
    let upstream = Upstream::start().await;
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), "protocols: [responses]").provider_with(
        "chat",
        upstream.base_url(),
        "protocols: [chat]",
    );
    let gateway = Gateway::start(&yaml).await;
    let long = "s".repeat(5_000);
    for (state, want) in [
        ("sticky~1=%2F", Some("sticky~1=%2F")),
        ("with upstream-secret-of-up inside", None),
        (long.as_str(), None),
    ] {
        let head = [("content-type", "application/json"), ("x-codex-turn-state", state)];
        upstream.then(Answer::whole(200, &head, made("resp_1", "secret")));
        let answer = gateway.client().post("/v1/responses", ask(&json!({}))).await;
        assert_eq!((answer.status, answer.header("x-codex-turn-state")), (200, want));
    }
    let event = json!({"type": "response.completed", "sequence_number": 0,
        "response": {"id": "resp_2", "object": "response", "status": "completed", "output": []}});
    let stream = format!("event: response.completed\ndata: {event}\n\n");
    let head = [("content-type", "text/event-stream"), ("x-codex-turn-state", "of-a-stream")];
    upstream.then(Answer::whole(200, &head, stream));
    let answer = gateway.client().post("/v1/responses", ask(&json!({"stream": true}))).await;
    assert_eq!((answer.status, answer.header("x-codex-turn-state")), (200, Some("of-a-stream")));
    let head = [("content-type", "application/json"), ("x-codex-turn-state", "of-another-protocol")];
    upstream.then(Answer::whole(200, &head, chat::completion("hello")));
    let answer = gateway.client().post("/v1/responses", ask(&json!({"model": "chat/m"}))).await;
    assert_eq!((answer.status, answer.header("x-codex-turn-state")), (200, None));
}

#[tokio::test]
async fn responses_and_items_of_a_stream_are_remembered() {
    let (gateway, first, second) = natives().await;
    let secret = "gBBBBBBh".repeat(20);
    let event = |name: &str, data: Value| format!("event: {name}\ndata: {data}\n\n");
    let response =
        |status: &str| json!({"id": "resp_9", "object": "response", "status": status, "output": []});
    let events = [
        event(
            "response.created",
            json!({"type": "response.created", "sequence_number": 0, "response": response("in_progress")}),
        ),
        event(
            "response.output_text.delta",
            json!({"type": "response.output_text.delta", "sequence_number": 1,
            "item_id": "m", "output_index": 0, "content_index": 0, "delta": "hi"}),
        ),
        event(
            "response.output_item.done",
            json!({"type": "response.output_item.done", "sequence_number": 2,
            "output_index": 1, "item": {"type": "reasoning", "id": "rs", "encrypted_content": secret}}),
        ),
        event(
            "response.completed",
            json!({"type": "response.completed", "sequence_number": 3, "response": response("completed")}),
        ),
    ];
    first.then(Answer::json(503, chat::error("busy", "overloaded")));
    second.then(Answer::events(&events));
    let answer = gateway.client().post("/v1/responses", ask(&json!({"model": "line", "stream": true}))).await;
    assert_eq!(answer.body, events.concat(), "bytes pass unchanged");
    second.always(Answer::json(200, made("resp_10", &secret)));
    for members in [
        json!({"model": "line", "previous_response_id": "resp_9"}),
        json!({"model": "line", "input": [{"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": secret}]}),
    ] {
        let answer = gateway.client().post("/v1/responses", ask(&members)).await;
        assert_eq!(answer.header("x-llmgw-provider"), Some("p1"), "{members}");
    }
    assert_eq!(first.requests().len(), 1);
}

/// A provider's account serves every project: the upstream would continue any response that the account has created.
#[tokio::test]
async fn a_response_can_be_continued_only_by_its_project() {
    let upstream = Upstream::start().await;
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), "protocols: [responses]");
    let gateway = Gateway::start(&yaml).await;
    let admin = Admin(gateway.client());
    let (ours, theirs) = (admin.project("ours").await, admin.project("theirs").await);
    let mut clients = Vec::new();
    for project in [&ours, &ours, &theirs] {
        let key = admin.key(json!({"project": project})).await;
        clients.push(Client::new(gateway.address(), Some(&key.key)));
    }
    let [maker, colleague, stranger] = &clients[..] else { unreachable!() };
    // An id that fits no vendor's pattern, and another project that has the upstream repeat it in a response.
    let uuid = "ad5663da-63e6-86c6-e0be-ff15effa8357";
    upstream.then(Answer::json(200, made(uuid, "secret")));
    assert_eq!(maker.post("/v1/responses", ask(&json!({}))).await.status, 200);
    let echo =
        made("resp_own", "x").replacen('{', &format!(r#"{{"metadata":{{"id":"{uuid}","k":"resp_2"}},"#), 1);
    upstream.always(Answer::json(200, echo));
    assert_eq!(stranger.post("/v1/responses", ask(&json!({}))).await.status, 200);
    let before = upstream.requests().len();
    for (client, id, want) in [
        (maker, "resp_own", 400),
        (maker, uuid, 200),
        (colleague, uuid, 200),
        (stranger, uuid, 400),
        (stranger, "resp_2", 400),
        (stranger, "resp_own", 200),
        (&gateway.client(), uuid, 400),
        (maker, "resp_unknown", 400),
    ] {
        for stream in [false, true] {
            let members = json!({"previous_response_id": id, "stream": stream});
            let answer = client.post("/v1/responses", ask(&members)).await;
            assert_eq!(answer.status, want, "{id}: {:?}", answer.body);
            if want == 400 {
                let error = &answer.json()["error"];
                assert_eq!(
                    (&error["code"], &error["param"]),
                    (&json!("previous_response_not_found"), &json!("previous_response_id"))
                );
            }
        }
    }
    assert_eq!(upstream.requests().len(), before + 6, "what is refused is not sent");
}

#[tokio::test]
async fn a_conversation_belongs_to_the_project_that_uses_it_first() {
    let upstream = Upstream::start().await;
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), "protocols: [responses]");
    let gateway = Gateway::start(&yaml).await;
    let admin = Admin(gateway.client());
    upstream.always(Answer::json(200, made("resp_1", "secret")));
    let mut clients = vec![gateway.client()];
    for name in ["first", "second"] {
        let key = admin.key(json!({"project": admin.project(name).await})).await;
        clients.insert(0, Client::new(gateway.address(), Some(&key.key)));
    }
    let mut statuses = Vec::new();
    for client in &clients {
        for conversation in [json!("conv_1"), json!({"id": "conv_1"})] {
            let answer = client.post("/v1/responses", ask(&json!({"conversation": conversation}))).await;
            statuses.push(answer.status);
        }
    }
    assert_eq!(statuses, [200, 200, 404, 404, 404, 404], "the administrator is another owner");
}

#[tokio::test]
async fn an_error_names_the_member_that_the_client_sent() {
    let upstream = Upstream::start().await;
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), "models: [{ id: m, vision: false }]");
    let gateway = Gateway::start(&yaml).await;
    for (param, want) in [
        ("messages[0].content", json!("input")),
        ("max_tokens", json!("max_output_tokens")),
        ("stop", Value::Null),
    ] {
        let error = json!({"error": {"message": "wrong", "type": "invalid_request_error", "param": param, "code": null}});
        upstream.then(Answer::json(400, error.to_string()));
        let answer = gateway.client().post("/v1/responses", ask(&json!({}))).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &want), "{param}");
    }
    let image = json!([{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}]);
    let answer = gateway.client().post("/v1/responses", ask(&json!({"input": image}))).await;
    assert_eq!(
        (answer.status, &answer.json()["error"]["param"]),
        (400, &json!("input")),
        "no model takes images"
    );
}

/// M-169 to M-172: a native target known to lack a feature is skipped with a message that names it, and the request is
/// rejected if there is no other target.
#[tokio::test]
async fn a_native_target_that_lacks_a_feature_is_skipped_or_rejected_by_name() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let lacking = format!(
        "registry_id: groq\nprotocols: [responses]\nmodels: [{}, {}]",
        "m", "{id: blind, lacks: [tools]}"
    );
    let yaml = Yaml::new()
        .provider_with("p0", first.base_url(), &lacking)
        .provider_with("p1", second.base_url(), "protocols: [responses]")
        .endpoint("line", &[("p0", "m"), ("p1", "m")])
        .endpoint("tools", &[("p0", "blind"), ("p1", "m")]);
    let gateway = Gateway::start(&yaml).await;
    let whole = json!({"id": "resp_1", "object": "response", "status": "completed", "output": [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello"}]}]});
    for upstream in [&first, &second] {
        upstream.always(Answer::json(200, whole.to_string()));
    }
    let ask = async |model: &str, members: &Value| {
        let mut body = members.clone();
        (body["model"], body["input"]) = (json!(model), json!("Hi."));
        gateway.client().post("/v1/responses", body.to_string()).await
    };
    let rows = [
        ("line", "p0/m", json!({"conversation": {"id": "conv_1"}}), "conversation"),
        ("line", "p0/m", json!({"store": true}), "store"),
        ("line", "p0/m", json!({"prompt": {"id": "pmpt_1"}}), "prompt"),
        ("line", "p0/m", json!({"include": ["message.output_text.logprobs"]}), "include.0"),
        (
            "tools",
            "p0/blind",
            json!({"tools": [{"type": "function", "name": "f"}, {"type": "mcp"}]}),
            "tools.1.type",
        ),
    ];
    for (endpoint, alone, members, param) in rows {
        let answer = ask(endpoint, &members).await;
        assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("p1")), "{param}");
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        assert_eq!(record["trace"][0]["result"], "unsupported", "{record}");
        let refused = ask(alone, &members).await;
        let error = &refused.json()["error"];
        assert_eq!((refused.status, &error["param"]), (400, &json!(param)), "{error}");
        assert_eq!(error["code"], "unsupported_parameter");
    }
    assert!(first.requests().is_empty());
    // Features that it supports pass as before.
    let had = json!({"store": false, "include": [], "tools": [{"type": "browser_search"}]});
    assert_eq!(ask("line", &had).await.header("x-llmgw-provider"), Some("p0"));
}

/// Codex describes its turns in headers, which native targets accept.
#[tokio::test]
async fn codexs_headers_reach_a_native_target_and_others_do_not() {
    let (gateway, first, _second) = natives().await;
    first.always(Answer::json(
        200,
        json!({"id": "resp_1", "object": "response", "status": "completed", "output": []}).to_string(),
    ));
    let names = [
        "openai-beta",
        "originator",
        "session-id",
        "thread-id",
        "version",
        "x-codex-beta-features",
        "x-codex-turn-metadata",
        "x-codex-window-id",
        "x-openai-internal-codex-responses-lite",
        "x-openai-subagent",
    ];
    let strangers =
        ["cookie", "x-forwarded-for", "openai-organization", "x-codex-installation-id", "x-user-id"];
    let client =
        names.iter().chain(&strangers).fold(gateway.client(), |client, name| client.with(name, "value-1"));
    client.post("/v1/responses", json!({"model": "p0/m", "input": "Hi."}).to_string()).await;
    let sent = first.request(0).await;
    for name in names {
        assert_eq!(sent.header(name), Some("value-1"), "{name}");
    }
    for name in strangers {
        assert_eq!(sent.header(name), None, "{name}");
    }
}

/// M-172: Codex always asks for its encrypted reasoning back, and the endpoint of quickstart has `echo` as its only target.
#[tokio::test]
async fn echo_speaks_responses_natively_and_accepts_include() {
    let yaml = "providers:\n  talk: {type: echo}\n";
    let gateway = Setup::new(&Yaml::new()).yaml(yaml).start().await;
    let members = json!({"model": "talk/echo", "store": false, "include": ["reasoning.encrypted_content"]});
    let whole = gateway.client().post("/v1/responses", ask(&members)).await;
    assert_eq!((whole.status, whole.header("x-llmgw-adapted")), (200, None), "{:?}", whole.body);
    let whole = whole.json();
    assert_eq!(whole["output"][0]["content"][0]["text"], "Say hello.");
    assert_eq!((&whole["usage"]["input_tokens"], &whole["usage"]["output_tokens"]), (&json!(4), &json!(2)));

    let mut members = members;
    members["stream"] = json!(true);
    let streamed = gateway.client().post("/v1/responses", ask(&members)).await;
    let text = String::from_utf8(streamed.body.to_vec()).unwrap();
    for part in
        ["event: response.created", r#""delta":"Say ""#, r#""delta":"hello.""#, "event: response.completed"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}
