//! The catalog as an operator uses it: sync, connection tests, evidence, prices, overrides, explain (ADM-3, ADM-6,
//! ADM-8, FAIL-8; M-049 to M-052, M-120, M-224).

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::gateway::Setup;
use crate::support::upstream::refusing_url;
use crate::support::{Answer, Client, Gate, Gateway, Upstream, Yaml, chat, wait};

async fn post(client: &Client, path: &str, body: Value) -> (u16, Value) {
    let answer = client.post(&format!("/admin/api/{path}"), body.to_string()).await;
    (answer.status, answer.json())
}

async fn get(client: &Client, path: &str) -> Value {
    let answer = client.get(&format!("/admin/api/{path}")).await.unwrap();
    assert_eq!(answer.status, 200, "{path}: {:?}", answer.body);
    answer.json()
}

/// Returns the ids in the catalog.
async fn catalog(client: &Client, query: &str) -> Vec<String> {
    let list = get(client, &format!("catalog?{query}")).await;
    list["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

fn list(ids: &[&str]) -> Answer {
    let data: Vec<Value> = ids.iter().map(|id| json!({"id": id, "object": "model"})).collect();
    Answer::json(200, json!({"object": "list", "data": data}).to_string())
}

async fn with_upstream() -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    (Gateway::start(&Yaml::one(upstream.base_url())).await, upstream)
}

#[tokio::test]
async fn a_synced_model_is_listed_and_served_at_once() {
    let (gateway, upstream) = with_upstream().await;
    let client = gateway.client();
    assert_eq!(client.chat(chat::request("up/new")).await.status, 404);
    upstream.then(list(&["new", "also/new"]));
    let (status, synced) = post(&client, "providers/up/sync", json!({})).await;
    assert_eq!(
        (status, &synced["ok"], &synced["models"], &synced["added"]),
        (200, &json!(true), &json!(2), &json!(2))
    );
    let request = upstream.request(0).await;
    assert!(request.head.starts_with("GET /v1/models HTTP/1.1"), "{}", request.head);
    assert_eq!(request.header("authorization"), Some("Bearer upstream-secret-of-up"));
    assert_eq!(catalog(&client, "").await, ["up/also/new", "up/m", "up/new"]);

    upstream.then(Answer::completion("hello"));
    assert_eq!(client.chat(chat::request("up/new")).await.status, 200);
    let models = client.get("/v1/models").await.unwrap().json();
    assert!(models["data"].as_array().unwrap().iter().any(|model| model["id"] == "up/also/new"));

    upstream.then(list(&["new"]));
    let (_, synced) = post(&client, "catalog/sync", json!({})).await;
    assert_eq!((&synced["data"][0]["removed"], &synced["not_reached"]), (&json!(1), &json!([])));
    assert_eq!(catalog(&client, "").await, ["up/m", "up/new"], "what is declared stays");
}

#[tokio::test]
async fn the_catalog_survives_a_restart_and_may_be_damaged() {
    let (gateway, upstream) = with_upstream().await;
    upstream.then(list(&["kept"]));
    post(&gateway.client(), "providers/up/sync", json!({})).await;
    let file = gateway.state().join("catalog.json");
    let gateway = gateway.restart().await;
    assert_eq!(catalog(&gateway.client(), "").await, ["up/kept", "up/m"]);
    assert_eq!(upstream.requests().len(), 1, "no upstream is asked for it");

    // The database has it; the file is a copy that a start writes again.
    let copy = std::fs::read(&file).unwrap();
    let mut gateway = gateway;
    for content in [None, Some("{\"version\": 1, \"providers\": {"), Some("{\"version\":1,\"providers\":{}}")]
    {
        let setup = gateway.kill().await;
        match content {
            Some(content) => std::fs::write(&file, content).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        gateway = setup.start().await;
        assert_eq!(catalog(&gateway.client(), "").await, ["up/kept", "up/m"], "{content:?}");
        assert_eq!(std::fs::read(&file).unwrap(), copy, "{content:?}");
    }
    assert_eq!(upstream.requests().len(), 1, "still not asked");

    for content in ["{\"version\": 1, \"providers\": {", ""] {
        let setup = gateway_killed(&file, content).await;
        assert_eq!(catalog(&setup.client(), "").await, ["up/m"], "{content}");
        setup.logs("catalog.json cannot be used").await;
    }

    async fn gateway_killed(file: &std::path::Path, content: &str) -> Gateway {
        let upstream = refusing_url().await;
        let setup = Setup::new(&Yaml::one(upstream));
        std::fs::create_dir_all(setup.state()).unwrap();
        std::fs::write(setup.state().join(file.file_name().unwrap()), content).unwrap();
        setup.start().await
    }
}

#[tokio::test]
async fn a_test_completion_proves_inference_and_a_catalog_sync_does_not() {
    let (gateway, upstream) = with_upstream().await;
    let client = gateway.client();
    upstream.then(list(&["m"]));
    post(&client, "providers/up/sync", json!({})).await;
    // An answer of the last minute does not outlive a kill.
    let evidence = |mut provider: Value| {
        provider["evidence"]["inference"]["last_answered_at_ms"].take();
        provider["evidence"].take()
    };
    let before = evidence(get(&client, "providers/up").await);
    assert!(before["catalog"]["synced_at_ms"].is_u64() && before["reachable"]["at_ms"].is_u64(), "{before}");
    assert_eq!(
        before["inference"]["proven_at_ms"],
        Value::Null,
        "a list proves nothing of the models (M-051)"
    );

    upstream.then(Answer::events(&chat::events(&["po", "ng"])));
    let (status, report) = post(&client, "providers/up/test", json!({"model": "m"})).await;
    assert_eq!(status, 200, "{report}");
    assert_eq!(
        (&report["ok"], &report["status"], &report["answer"]),
        (&json!(true), &json!(200), &json!("pong"))
    );
    assert_eq!((&report["usage"]["prompt_tokens"], &report["served_model"]), (&json!(11), &json!("m")));
    assert!(report["first_content_ms"].as_u64().unwrap() <= report["latency_ms"].as_u64().unwrap());
    assert_eq!(report["billable"], true, "hosted tests may be billed (M-052)");
    assert_eq!(report["record"]["trace"][0]["result"], "served");
    assert_eq!(
        (&report["record"]["key"], &report["record"]["tokens"]["input"]),
        (&json!("admin"), &json!(11))
    );
    let request = upstream.request(1).await.json();
    assert_eq!(request["model"], "m");
    assert!(request["max_tokens"].as_u64().unwrap() <= 256, "a small request: {request}");

    let after = evidence(get(&client, "providers/up").await);
    assert_eq!(after["inference"]["model"], "m");
    assert_eq!(after["inference"]["request_id"], report["request_id"]);
    let gateway = gateway.restart().await;
    assert_eq!(evidence(get(&gateway.client(), "providers/up").await), after, "evidence is kept");
}

/// ADM-8: proving a second model leaves the proof of the first, and a failure belongs to the model that failed.
#[tokio::test]
async fn each_model_has_its_own_evidence() {
    let (gateway, upstream) = with_upstream().await;
    let client = gateway.client();
    upstream.then(Answer::json(200, json!({"data": [{"id": "a"}, {"id": "b"}, {"id": "c"}]}).to_string()));
    post(&client, "providers/up/sync", json!({})).await;
    for model in ["a", "b"] {
        upstream.then(
            Answer::stream().chunk(chat::content("pong")).chunk(chat::finish()).chunk(chat::done()).end(),
        );
        assert_eq!(post(&client, "providers/up/test", json!({"model": model})).await.1["ok"], true);
    }
    upstream.then(Answer::error(404));
    assert_eq!(post(&client, "providers/up/test", json!({"model": "c"})).await.1["ok"], false);
    assert_eq!(catalog(&client, "proven=true").await, ["up/a", "up/b"]);
    let row = async |client: &Client, id: &str| {
        let page = get(client, "catalog?provider=up").await;
        page["data"].as_array().unwrap().iter().find(|row| row["id"] == id).cloned().unwrap()
    };
    let first = row(&client, "up/a").await;
    assert!(first["tested"]["request_id"].is_string() && first["tested"]["last_error"].is_null(), "{first}");
    let failed = row(&client, "up/c").await;
    assert_eq!(
        (&failed["proven_at_ms"], &failed["tested"]["last_error"]["status"]),
        (&Value::Null, &json!(404))
    );
    assert_eq!(row(&client, "up/m").await["tested"], Value::Null, "never tested");
    let gateway = gateway.restart().await;
    assert_eq!(row(&gateway.client(), "up/a").await["tested"], first["tested"], "it survives a restart");
}

#[tokio::test]
async fn an_answer_to_a_client_is_evidence_and_outlives_a_restart() {
    let (gateway, upstream) = with_upstream().await;
    upstream.always(Answer::completion("hi"));
    let began_ms = shared::clock::unix_ms();
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    let answered = async |gateway: &Gateway| {
        let client = gateway.client();
        wait::eventually("the last answer", async || {
            let provider = get(&client, "providers/up").await;
            let model = get(&client, "catalog?provider=up&q=m").await["data"][0].clone();
            assert_eq!((&model["proven_at_ms"], &model["id"]), (&Value::Null, &json!("up/m")));
            let at_ms = model["last_answered_at_ms"].as_u64()?;
            (provider["evidence"]["inference"]["last_answered_at_ms"] == at_ms).then_some(at_ms)
        })
        .await
    };
    let at_ms = answered(&gateway).await;
    assert!((began_ms..=shared::clock::unix_ms()).contains(&at_ms), "{at_ms}");
    assert_eq!(catalog(&gateway.client(), "proven=true").await, ["up/m"]);
    let gateway = gateway.restart_in_order().await;
    let recalled_ms = answered(&gateway).await;
    assert_eq!(recalled_ms, at_ms / 60_000 * 60_000, "to the minute");
}

#[tokio::test]
async fn a_failed_test_has_a_hint_and_evidence() {
    let (gateway, upstream) = with_upstream().await;
    let client = gateway.client();
    for (status, hint) in [
        (404, "model, deployment or region"),
        (401, "credential"),
        (403, "scope"),
        (429, "quota and billing"),
        (500, "The provider failed"),
    ] {
        upstream.then(Answer::json(status, chat::error("secret upstream-secret-of-up", "why")));
        let (_, report) = post(&client, "providers/up/test", json!({"model": "anything"})).await;
        assert_eq!(report["ok"], false, "{status}");
        assert!(report["hint"].as_str().unwrap().contains(hint), "{status}: {report}");
        assert!(!report.to_string().contains("upstream-secret-of-up"), "{report}");
        assert_eq!(report["record"]["trace"].as_array().unwrap().len(), 1, "no failover, no retry");
        let evidence = &get(&client, "providers/up").await["evidence"];
        assert_eq!(evidence["inference"]["last_error"]["status"], status);
        assert!(evidence["reachable"]["at_ms"].is_u64() && evidence["inference"]["proven_at_ms"].is_null());
    }
    for (answer, word) in [
        (Answer::events(&[chat::role(), chat::event(&chat::error("overloaded", "x"))]), "overloaded"),
        (Answer::events(&[chat::role(), chat::content("a")]).cut_after(600), ""),
    ] {
        upstream.then(answer);
        let (_, report) = post(&client, "providers/up/test", json!({"model": "m"})).await;
        assert!(report["ok"] == false && report["error"].as_str().unwrap().contains(word), "{report}");
    }
}

#[tokio::test]
async fn an_unreachable_provider_is_recorded_as_evidence() {
    let gateway = Gateway::start(&Yaml::one(refusing_url().await)).await;
    let client = gateway.client();
    let (status, synced) = post(&client, "providers/up/sync", json!({})).await;
    assert_eq!((status, &synced["ok"]), (200, &json!(false)), "{synced}");
    assert!(synced["error"]["hint"].as_str().unwrap().contains("base URL"), "{synced}");
    assert!(synced["error"]["message"].as_str().unwrap().contains("the connection was refused"), "{synced}");
    let (status, report) = post(&client, "providers/up/test", json!({"model": "m"})).await;
    assert_eq!((status, &report["ok"]), (200, &json!(false)), "{report}");
    assert!(report["hint"].as_str().unwrap().contains("base URL"), "{report}");
    assert!(report.to_string().contains("cannot be reached: the connection was refused."), "{report}");
    let evidence = &get(&client, "providers/up").await["evidence"];
    assert!(evidence["reachable"]["at_ms"].is_null() && evidence["reachable"]["last_error"].is_object());
}

#[tokio::test]
async fn a_malformed_model_list_changes_nothing_and_a_long_one_is_cut() {
    let (gateway, upstream) = with_upstream().await;
    let client = gateway.client();
    upstream.then(list(&["good"]));
    post(&client, "providers/up/sync", json!({})).await;
    let huge = Answer::whole(200, &[("content-length", "900000000")], "");
    for (name, answer, word) in [
        ("a page", Answer::whole(200, &[("content-type", "text/html")], "<html>hello</html>"), "not a list"),
        ("cut", list(&["a", "b"]).cut_after(120), ""),
        ("an error", Answer::json(403, chat::error("no list for you", "x")), "no list for you"),
        ("a redirect", Answer::whole(302, &[("location", "http://127.0.0.1:1/")], ""), "302"),
        ("two lengths", huge, ""),
        ("endless", Answer::stream().repeat_chunk(vec![b' '; 1 << 16]), "larger than"),
        ("deep", Answer::json(200, "[".repeat(1 << 20)), "not a list"),
    ] {
        upstream.then(answer);
        let (status, synced) = post(&client, "providers/up/sync", json!({})).await;
        assert_eq!((status, &synced["ok"]), (200, &json!(false)), "{name}: {synced}");
        assert!(synced["error"]["message"].as_str().unwrap().contains(word), "{name}: {synced}");
        assert_eq!(catalog(&client, "").await, ["up/good", "up/m"], "{name}: the list of before stays");
    }

    let mut many: Vec<Value> = (0..10_000).map(|n| json!({"id": format!("m{n:05}")})).collect();
    many.extend([json!({"id": "with blank"}), json!({"id": 7}), json!({"id": "m00000"}), json!(null)]);
    upstream.then(Answer::json(200, json!({"data": many}).to_string()));
    let (_, synced) = post(&client, "providers/up/sync", json!({})).await;
    assert_eq!(synced["models"], 5_000);
    let skipped = json!({"without_usable_id": 3, "repeated": 1, "over_limit": 5_000, "unread_lists": 0});
    assert_eq!(synced["skipped"], skipped);
    upstream.then(Answer::completion("ok"));
    assert_eq!(client.chat(chat::request("up/m04999")).await.status, 200);
}

#[tokio::test]
async fn a_slow_catalog_does_not_delay_the_others() {
    let (slow, quick) = (Upstream::start().await, Upstream::start().await);
    slow.always(Answer::hang_forever());
    quick.always(list(&["q"]));
    let yaml = Yaml::new().provider("quick", quick.base_url()).provider("slow", slow.base_url());
    let gateway = Gateway::start(&yaml).await;
    let client = gateway.client();
    let began = std::time::Instant::now();
    let answer = client.clone().with("content-type", "application/json");
    let answer = wait::within(
        Duration::from_secs(60),
        "the end of syncing",
        answer.send("POST", "/admin/api/catalog/sync", Bytes::from("{}")),
    );
    let synced = answer.await.unwrap().json();
    assert!(began.elapsed() < Duration::from_secs(40));
    assert_eq!((&synced["data"][0]["provider"], &synced["data"][0]["ok"]), (&json!("quick"), &json!(true)));
    assert!(synced["data"][1]["error"]["hint"].as_str().unwrap().contains("too slow"), "{synced}");
}

#[tokio::test]
async fn the_catalog_is_paged_and_filtered() {
    let (gateway, upstream) = with_upstream().await;
    let client = gateway.client();
    let data = json!({"data": [
        {"id": "a", "name": "Alpha", "context_length": 1000, "architecture": {"input_modalities": ["text", "image"]},
         "pricing": {"prompt": "0.000001", "completion": "0.000002"}},
        {"id": "b/c", "supported_parameters": ["tools"]},
    ]});
    let speech = json!({"id": "voice", "type": "builtin_speech", "models": ["pico"]});
    assert_eq!(post(&client, "providers", speech).await.0, 201);
    upstream.then(Answer::json(200, data.to_string()));
    post(&client, "providers/up/sync", json!({})).await;
    for (query, want) in [
        ("capability=vision", &["up/a"][..]),
        ("capability=tools", &["up/b/c"]),
        ("q=ALPHA", &["up/a"]),
        ("q=b/C", &["up/b/c"]),
        ("provider=none", &[]),
        ("priced=true", &["up/a"]),
        ("priced=false&provider=up", &["up/b/c", "up/m"]),
        ("capability=tools,vision", &[]),
        ("context_min=1000", &["up/a"]),
        ("context_min=1001", &[]),
        ("price_max=2", &["up/a"]),
        ("price_max=1.999", &[]),
        ("operation=speech&provider=voice", &["voice/pico"]),
        ("operation=messages&q=a", &["up/a"]),
        ("proven=true", &[]),
    ] {
        assert_eq!(catalog(&client, query).await, want, "{query}");
    }
    upstream
        .then(Answer::stream().chunk(chat::content("pong")).chunk(chat::finish()).chunk(chat::done()).end());
    assert_eq!(post(&client, "providers/up/test", json!({"model": "a"})).await.1["ok"], true);
    assert_eq!(catalog(&client, "proven=true").await, ["up/a"]);
    assert_eq!(catalog(&client, "proven=false&provider=up").await, ["up/b/c", "up/m"]);
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(&client, &format!("catalog?provider=up&limit=1&cursor={cursor}")).await;
        found.push(page["data"][0]["id"].as_str().unwrap().to_owned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(found, ["up/a", "up/b/c", "up/m"]);
    let row = &get(&client, "catalog?q=alpha").await["data"][0];
    assert_eq!((&row["prices"]["output"], &row["prices_from"]["source"]), (&json!(2.0), &json!("upstream")));
    assert_eq!((&row["tools"], &row["context_window"]), (&Value::Null, &json!(1_000)), "null is not known");
    assert!(row["operations"].as_array().unwrap().contains(&json!("responses")), "by adaptation: {row}");
    for query in
        ["capability=flight", "capability=tools,flight", "price_max=-1", "price_max=NaN", "operation=health"]
    {
        let path = format!("/admin/api/catalog?{query}");
        assert_eq!(client.get(&path).await.unwrap().status, 400, "{query}");
    }
}

#[tokio::test]
async fn an_override_prices_requests_from_its_start_time() {
    let (gateway, upstream) = with_upstream().await;
    let client = gateway.client();
    upstream.always(Answer::completion("ok"));
    let cost = async |number: usize| {
        client.chat(chat::request("up/m")).await;
        gateway.records(number).await[0]["cost_micro_usd"].clone()
    };
    assert_eq!(cost(1).await, Value::Null, "unknown is not free");
    let facts = json!({"prices": {"input": 1.0, "output": 10.0}, "vision": false});
    let (status, made) =
        post(&client, "catalog/overrides", json!({"provider": "up", "model": "m", "facts": facts})).await;
    assert_eq!(status, 201, "{made}");
    // 11 input tokens at one dollar per million, 7 output tokens at ten.
    assert_eq!(cost(2).await, json!(81.0));
    let row = &get(&client, "catalog?provider=up").await["data"][0];
    assert_eq!((&row["vision"], &row["prices_from"]["source"]), (&json!(false), &json!("override")));

    // A future override is published automatically when its time comes.
    let facts = json!({"prices": {"input": 0, "output": 0}});
    let at = shared::clock::unix_ms() + 1_500;
    let later = json!({"provider": "up", "model": "m", "effective_from": at, "facts": facts});
    let (status, coming) = post(&client, "catalog/overrides", later.clone()).await;
    assert_eq!(status, 201, "{coming}");
    assert_eq!(post(&client, "catalog/overrides", later).await.0, 409, "one for a moment");
    let free = async || {
        let row = get(&client, "catalog?provider=up").await["data"][0].clone();
        (row["prices"]["output"] == 0.0).then_some(row["vision"].clone())
    };
    assert_eq!(
        wait::eventually("the next prices", free).await,
        false,
        "fields that it does not contain stay"
    );
    assert_eq!(cost(3).await, json!(0.0));

    for id in [&coming["id"], &made["id"]] {
        let path = format!("/admin/api/catalog/overrides/{}", id.as_str().unwrap());
        assert_eq!(client.send("DELETE", &path, Bytes::new()).await.unwrap().status, 204);
        assert_eq!(client.get(&path).await.unwrap().status, 404);
    }
    assert_eq!(get(&client, "catalog?provider=up").await["data"][0]["prices"], Value::Null);
}

#[tokio::test]
async fn an_override_of_a_model_that_no_provider_has_warns() {
    let (gateway, upstream) = with_upstream().await;
    let client = gateway.client();
    upstream.then(list(&["known-model"]));
    post(&client, "providers/up/sync", json!({})).await;
    for (model, want) in [
        ("m", json!([])),
        ("known-model", json!([])),
        (
            "known-modle",
            json!([
                "Provider 'up' has no model 'known-modle'; did you mean known-model? The override has no effect \
                 until the provider lists or declares that model."
            ]),
        ),
    ] {
        let body = json!({"provider": "up", "model": model, "facts": {"vision": true}});
        let (status, made) = post(&client, "catalog/overrides", body).await;
        assert_eq!((status, &made["warnings"], &made["model"]), (201, &want, &json!(model)));
    }
}

#[tokio::test]
async fn an_invalid_override_is_rejected_by_field() {
    let (gateway, _upstream) = with_upstream().await;
    let client = gateway.client();
    let facts = json!({"vision": true});
    for (body, param) in [
        (json!({"provider": "up", "model": "m", "facts": {"prices": {"input": -1}}}), "facts.prices"),
        (json!({"provider": "up", "model": "m", "facts": {"wings": true}}), "facts.wings"),
        (json!({"provider": "up", "model": "m", "facts": {}}), "facts"),
        (json!({"provider": "up", "model": "a b", "facts": facts}), "model"),
        (json!({"provider": "a/b", "model": "m", "facts": facts}), "provider"),
        (json!({"provider": "nobody", "model": "m", "facts": facts}), "provider"),
        (json!({"provider": "up", "model": "m", "facts": facts, "effective_from": "soon"}), "effective_from"),
        (json!({"provider": "up", "facts": facts}), "model"),
    ] {
        let (status, error) = post(&client, "catalog/overrides", body).await;
        assert_eq!((status, &error["error"]["param"]), (400, &json!(param)), "{error}");
    }
}

#[tokio::test]
async fn a_test_repeated_with_its_idempotency_key_runs_once() {
    let (gateway, upstream) = with_upstream().await;
    let client = gateway.client().with("idempotency-key", "once");
    upstream.always(Answer::events(&chat::events(&["pong"])));
    let (_, first) = post(&client, "providers/up/test", json!({"model": "m"})).await;
    let (_, second) = post(&client, "providers/up/test", json!({"model": "m"})).await;
    assert_eq!((&first, upstream.requests().len()), (&second, 1));
    assert_eq!(post(&client, "providers/up/test", json!({"model": "n"})).await.0, 409);
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn an_endpoint_is_tested_with_its_failover() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Answer::error(503));
    second.always(Answer::events(&chat::events(&["bonjour"])));
    let gateway = Gateway::start(&Yaml::line(&[first.base_url(), second.base_url()])).await;
    let client = gateway.client();
    let (status, report) = post(&client, "endpoints/line/test", json!({"prompt": "Greet me."})).await;
    assert_eq!(
        (status, &report["ok"], &report["answer"]),
        (200, &json!(true), &json!("bonjour")),
        "{report}"
    );
    let trace = report["record"]["trace"].as_array().unwrap();
    let steps: Vec<(&str, &str)> = trace
        .iter()
        .map(|step| (step["provider"].as_str().unwrap(), step["result"].as_str().unwrap()))
        .collect();
    assert_eq!((steps.len(), steps[0].0, steps[1]), (2, "p0", ("p1", "served")));
    assert_eq!(second.request(0).await.json()["messages"][0]["content"], "Greet me.");
    assert_eq!(post(&client, "endpoints/none/test", json!({})).await.0, 404);
    let both = json!({"prompt": "a", "messages": []});
    assert_eq!(post(&client, "endpoints/line/test", both).await.0, 400);
}

#[tokio::test]
async fn explain_calls_no_upstream() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let gateway = Gateway::start(&Yaml::line(&[first.base_url(), second.base_url()])).await;
    let client = gateway.client();
    let body = json!({"model": "line", "messages": [{"role": "user", "content": "hello"}]});
    let question = json!({"path": "/v1/chat/completions", "body": body});
    let (status, plan) = post(&client, "explain", question).await;
    assert_eq!(status, 200, "{plan}");
    assert!(plan.to_string().contains("p0") && plan.to_string().contains("p1"), "{plan}");
    for (question, param) in [
        (json!({"path": "/admin/api/keys", "body": body}), "path"),
        (json!({"path": "/v1/chat/completions", "body": body, "key_id": "none"}), "key_id"),
        (json!({"path": "/v1/chat/completions", "body": body, "principal_id": "none"}), "principal_id"),
        (json!({"path": "/v1/chat/completions", "body": body, "key": "x"}), "key"),
    ] {
        let (status, error) = post(&client, "explain", question).await;
        assert_eq!((status, &error["error"]["param"]), (400, &json!(param)), "{error}");
    }
    assert_eq!(first.connections() + second.connections(), 0);
    assert_eq!(get(&client, "requests").await["data"], json!([]), "no record either");
}

#[tokio::test]
async fn unknown_providers_and_invalid_members_are_rejected() {
    let (gateway, upstream) = with_upstream().await;
    let client = gateway.client();
    assert_eq!(post(&client, "providers/none/sync", json!({})).await.0, 404);
    assert_eq!(post(&client, "providers/none/test", json!({"model": "m"})).await.0, 404);
    assert_eq!(post(&client, "providers/up/test", json!({})).await.0, 400);
    assert_eq!(post(&client, "providers/up/test", json!({"model": "a b"})).await.0, 400);
    assert_eq!(post(&client, "providers/up/sync", json!({"now": true})).await.0, 400);
    assert_eq!(upstream.connections(), 0);
}

/// A hosted provider bills each test.
#[tokio::test]
async fn a_test_repeated_while_it_runs_is_not_sent_twice() {
    let (gateway, upstream) = with_upstream().await;
    let gate = Gate::new();
    upstream.then(Answer::gated_events(&chat::events(&["pong"]), &gate));
    let client = gateway.client().with("idempotency-key", "once");
    let asking = client.clone();
    let first = tokio::spawn(async move { post(&asking, "providers/up/test", json!({"model": "m"})).await });
    upstream.request(0).await;
    let body = json!({"model": "m"}).to_string();
    let second = client.post("/admin/api/providers/up/test", body.clone()).await;
    assert_eq!((second.status, second.error_code()), (409, "conflict".to_owned()));
    assert!(second.header("retry-after").is_some());
    gate.open(100);
    let (status, answer) = first.await.unwrap();
    assert_eq!((status, &answer["ok"]), (200, &json!(true)), "{answer}");
    let third = client.post("/admin/api/providers/up/test", body).await;
    assert_eq!((third.status, third.json()), (200, answer));
    assert_eq!(third.header("idempotency-replayed"), Some("true"));
    assert_eq!(upstream.requests().len(), 1);
}
