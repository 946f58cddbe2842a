//! The built-in voice (AUD-2): speech without a network, in every format, with the same behaviour as other operations.

use serde_json::json;

use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml};

const VOICE: &str =
    "providers:\n  voice:\n    type: builtin_speech\n    default_voice: fable\n    models: [pico]\n";

async fn start() -> Gateway {
    Setup::new(&Yaml::new()).yaml(VOICE).start().await
}

fn ask(members: &serde_json::Value) -> String {
    let mut body = json!({"model": "voice/pico", "input": "The harbour is quiet tonight."});
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string()
}

#[tokio::test]
async fn every_format_begins_as_its_players_expect() {
    let gateway = start().await;
    for (format, content_type, begins) in [
        (None, "audio/mpeg", &[0xff][..]),
        (Some("mp3"), "audio/mpeg", &[0xff]),
        (Some("opus"), "audio/ogg", b"OggS"),
        (Some("wav"), "audio/wav", b"RIFF"),
        (Some("pcm"), "audio/pcm", b""),
    ] {
        let answer =
            gateway.client().post("/v1/audio/speech", ask(&json!({"response_format": format}))).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(content_type)));
        assert!(
            answer.body.starts_with(begins) && answer.body.len() > 5_000,
            "{format:?}: {} bytes",
            answer.body.len()
        );
        assert_eq!(answer.header("x-llmgw-provider"), Some("voice"));
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        assert_eq!((&record["operation"], &record["outcome"]), (&json!("speech"), &json!("completed")));
        assert_eq!(record["cost_micro_usd"], json!(0.0), "{record}");
    }
}

#[tokio::test]
async fn speech_events_carry_the_complete_sound() {
    use base64::Engine as _;
    let gateway = start().await;
    let body = ask(&json!({"stream_format": "sse", "response_format": "wav", "voice": "alloy"}));
    let answer = gateway.client().post("/audio/speech", body).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let events: Vec<serde_json::Value> = text
        .split_terminator("\n\n")
        .map(|event| serde_json::from_str(&event["data: ".len()..]).unwrap())
        .collect();
    let (last, deltas) = events.split_last().unwrap();
    assert_eq!(last["type"], "speech.audio.done");
    let sound: Vec<u8> = deltas
        .iter()
        .flat_map(|event| {
            base64::engine::general_purpose::STANDARD.decode(event["audio"].as_str().unwrap()).unwrap()
        })
        .collect();
    assert!(sound.starts_with(b"RIFF") && sound.len() > 40_000, "{} bytes", sound.len());
}

#[tokio::test]
async fn bad_requests_are_refused_by_name_and_the_voices_are_listed() {
    let gateway = start().await;
    for (members, param, part) in [
        (json!({"voice": "nobody"}), "voice", "de-DE"),
        (json!({"response_format": "aac"}), "response_format", "mp3"),
        (json!({"speed": 9}), "speed", "0.25"),
    ] {
        let answer = gateway.client().post("/v1/audio/speech", ask(&members)).await;
        let error = &answer.json()["error"];
        assert_eq!((answer.status, error["param"].as_str()), (400, Some(param)));
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
    }
    let models = gateway.client().get("/v1/models").await.unwrap().json();
    assert!(models["data"].as_array().unwrap().iter().any(|model| model["id"] == "voice/pico"), "{models}");
    let answer = gateway.client().chat(r#"{"model":"voice/pico","messages":[]}"#).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (400, "unsupported_route"));
}

#[tokio::test]
async fn twenty_concurrent_speech_requests_are_served() {
    let gateway = start().await;
    let asking = (0..20).map(|_| {
        let client = gateway.client();
        tokio::spawn(async move { client.post("/v1/audio/speech", ask(&json!({}))).await })
    });
    for answer in asking.collect::<Vec<_>>() {
        let answer = answer.await.unwrap();
        assert!(answer.status == 200 && answer.body.len() > 5_000, "{} {}", answer.status, answer.body.len());
    }
}

#[tokio::test]
async fn a_speech_client_that_disconnects_is_recorded_as_cancelled() {
    let gateway = start().await;
    let body = ask(&json!({"input": "A long story about the sea. ".repeat(140), "response_format": "wav"}));
    let client = gateway.client().with("content-type", "application/json");
    let flow = client.open("POST", "/v1/audio/speech", body.into()).await.unwrap();
    assert_eq!(flow.status, 200);
    drop(flow);
    let record = &gateway.records(1).await[0];
    assert_eq!(record["outcome"], "cancelled", "{record}");
    let answer = gateway.client().post("/v1/audio/speech", ask(&json!({}))).await;
    assert_eq!(answer.status, 200);
}

/// M-068: for every kind of provider with speech.
#[tokio::test]
async fn a_request_without_a_voice_gets_its_providers_default() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::whole(200, &[("content-type", "audio/mpeg")], b"sound"));
    let (v1, root) = (upstream.base_url(), format!("http://{}", upstream.address()));
    let yaml = format!(
        "providers:
  compatible: {{type: compatible, base_url: '{v1}', default_voice: nova, models: [m]}}
  local_server: {{type: local_server, base_url: '{v1}', default_voice: nova, models: [m]}}
  openai: {{type: openai, base_url: '{v1}', api_key: k, default_voice: nova, models: [m]}}
  azure_openai: {{type: azure_openai, base_url: '{root}', api_key: k, default_voice: nova, models: [m]}}
  plain: {{type: compatible, base_url: '{v1}', models: [m]}}
"
    );
    let gateway = Setup::new(&Yaml::new()).yaml(yaml).start().await;
    let rows = [
        (r#"{"input":"Hi.","model":"MODEL"}"#, r#"{"voice":"nova","input":"Hi.","model":"m"}"#),
        (r#"{"model":"MODEL","voice":null,"input":"Hi."}"#, r#"{"model":"m","voice":"nova","input":"Hi."}"#),
        (
            r#"{"model":"MODEL","voice":"alloy","input":"\"voice\""}"#,
            r#"{"model":"m","voice":"alloy","input":"\"voice\""}"#,
        ),
    ];
    let mut position = 0;
    for kind in ["compatible", "local_server", "openai", "azure_openai", "plain"] {
        for (request, with_default) in rows {
            let request = request.replace("MODEL", &format!("{kind}/m"));
            let answer = gateway.client().post("/v1/audio/speech", request.clone()).await;
            assert_eq!((answer.status, &*answer.body), (200, &b"sound"[..]), "{kind}");
            let own = request.replace("plain/m", "m");
            let want = if kind == "plain" { &own } else { with_default };
            assert_eq!(String::from_utf8_lossy(&upstream.request(position).await.body), want, "{kind}");
            position += 1;
        }
    }
}
