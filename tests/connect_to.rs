//! `connect_to`: connections of a provider go to another address, and everything that names the upstream stays as in `base_url`.

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::proxy::{HttpProxy, Manner};
use crate::support::tls::Authority;
use crate::support::tls_upstream::TlsUpstream;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat};

async fn answering() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    upstream
}

async fn serves(gateway: &Gateway, model: &str) {
    let answer = gateway.client().chat(chat::request(model)).await;
    assert_eq!(answer.status, 200, "{answer:?}\n{}", gateway.log());
}

#[tokio::test]
async fn tls_names_and_verifies_the_host_of_the_base_url() {
    for protocols in [&[b"http/1.1".as_slice()][..], &[b"h2"]] {
        let authority = Authority::new(protocols);
        let upstream = TlsUpstream::start(authority.acceptor()).await;
        let members = format!("connect_to: {}", upstream.address());
        let yaml = Yaml::new().provider_with("up", "https://models.example/v1", &members).provider_with(
            "other",
            "https://another.example:8443/v1",
            &members,
        );
        let setup = Setup::new(&yaml).env("LLMGW_EXTRA_CA_FILE", authority.ca_file().display().to_string());
        let gateway = setup.start().await;
        serves(&gateway, "up/m").await;
        let seen = upstream.take();
        assert_eq!(seen[0].server_name.as_deref(), Some("models.example"));
        assert_eq!(seen[0].host, "models.example");
        let answer = gateway.client().chat(chat::request("other/m")).await;
        let text = "The provider 'other' cannot be reached: its certificate is for another name.";
        assert_eq!((answer.status, &answer.json()["error"]["message"]), (502, &json!(text)));
    }
}

/// Both providers have one base URL: a connection of one never serves the other.
#[tokio::test]
async fn requests_without_tls_go_to_each_address() {
    let (first, second) = (answering().await, answering().await);
    let to = |upstream: &Upstream| format!("connect_to: {}", upstream.address());
    let yaml = Yaml::new().provider_with("p0", "http://models.example:8000/v1", &to(&first)).provider_with(
        "p1",
        "http://models.example:8000/v1",
        &to(&second),
    );
    let gateway = Setup::new(&yaml).env("LLMGW_WORKERS", "1").start().await;
    for _ in 0..2 {
        serves(&gateway, "p0/m").await;
        serves(&gateway, "p1/m").await;
    }
    for upstream in [first, second] {
        let requests = upstream.requests();
        assert_eq!((requests.len(), upstream.connections()), (2, 1), "the connection is kept");
        assert_eq!(requests[0].header("host"), Some("models.example:8000"));
    }
}

#[tokio::test]
async fn a_proxy_leads_to_the_address_by_a_tunnel() {
    let authority = Authority::new(&[b"http/1.1"]);
    let (plain, tls) = (answering().await, TlsUpstream::start(authority.acceptor()).await);
    let by_name = HttpProxy::start(Manner::Lead(plain.address())).await;
    let by_tls = HttpProxy::start(Manner::Lead(tls.address())).await;
    let members = |proxy: &HttpProxy| format!("proxy: '{}'\nconnect_to: inside.example:8443", proxy.url(""));
    let yaml = Yaml::new()
        .provider_with("plain", "http://models.example/v1", &members(&by_name))
        .provider_with("tls", "https://models.example/v1", &members(&by_tls));
    let setup = Setup::new(&yaml).env("LLMGW_EXTRA_CA_FILE", authority.ca_file().display().to_string());
    let gateway = setup.start().await;
    serves(&gateway, "plain/m").await;
    serves(&gateway, "tls/m").await;
    for proxy in [by_name, by_tls] {
        assert_eq!(proxy.lines(), ["CONNECT inside.example:8443 HTTP/1.1"]);
    }
    assert_eq!(plain.request(0).await.header("host"), Some("models.example"));
    assert_eq!(tls.take()[0].server_name.as_deref(), Some("models.example"));
}

/// The proxies of the variables lead to no address of this machine: the proxy's own would be meant.
#[tokio::test]
async fn the_variables_judge_the_address_of_connections() {
    let upstream = answering().await;
    let proxy = HttpProxy::start(Manner::Lead(upstream.address())).await;
    let yaml = Yaml::new()
        .provider_with("here", "http://models.example/v1", &format!("connect_to: {}", upstream.address()))
        .provider_with("far", "http://localhost/v1", "connect_to: inside.example:8000")
        .provider_with("named", "http://models.example/v1", "connect_to: near.invalid:8000");
    let setup = Setup::new(&yaml).env("HTTP_PROXY", proxy.url("")).env("NO_PROXY", "near.invalid");
    let gateway = setup.start().await;
    serves(&gateway, "here/m").await;
    assert_eq!(proxy.lines(), [""; 0]);
    serves(&gateway, "far/m").await;
    assert_eq!(proxy.lines(), ["CONNECT inside.example:8000 HTTP/1.1"]);
    let answer = gateway.client().chat(chat::request("named/m")).await;
    assert_eq!((answer.status, proxy.lines().len()), (502, 1), "{answer:?}");
}

#[tokio::test]
async fn the_list_of_models_is_read_at_the_address() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::json(200, r#"{"object":"list","data":[{"id":"listed","object":"model"}]}"#));
    let members = format!("connect_to: {}\nmodels: []", upstream.address());
    let yaml = Yaml::new().provider_with("up", "http://models.example/v1", &members);
    let gateway = Gateway::start(&yaml).await;
    let read = Admin(gateway.client()).done("POST", "providers/up/sync", Value::Null).await;
    assert_eq!((&read["ok"], &read["models"]), (&json!(true), &json!(1)), "{read}");
    assert_eq!(upstream.request(0).await.header("host"), Some("models.example"));
}

#[tokio::test]
async fn an_address_that_is_never_connected_to_is_refused() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let admin = Admin(gateway.client());
    let provider = |kind: &str, to: &str| {
        let url = (kind != "echo").then_some("https://models.example/v1");
        json!({"id": "up", "type": kind, "base_url": url, "connect_to": to, "models": ["m"]})
    };
    for (kind, to, want) in [
        ("compatible", "169.254.169.254:80", "link-local, multicast and metadata addresses are not allowed"),
        ("compatible", "[fe80::1]:80", "link-local, multicast and metadata addresses are not allowed"),
        ("compatible", "metadata.google.internal", "metadata services are not allowed"),
        ("compatible", "models.example:443", "is the address of base_url already; omit it"),
        ("compatible", "https://a.example", "must be host:port"),
        ("echo", "a.example:1", "makes no connections to an address; omit it"),
    ] {
        let refused = admin.call("POST", "providers", provider(kind, to)).await;
        let text = refused.json().to_string();
        assert!(
            refused.status == 400 && text.contains(want) && text.contains("connect_to"),
            "{to}: {refused:?}"
        );
    }
    let upstream = answering().await;
    let mut good = provider("compatible", &upstream.address().to_string());
    good["base_url"] = json!("http://models.example/v1");
    let made = admin.done("POST", "providers", good).await;
    assert_eq!(made["connect_to"], upstream.address().to_string());
    serves(&gateway, "m").await;
    let exported = gateway.setup().output_of(&["export"], 0).await;
    assert!(exported.contains(&upstream.address().to_string()), "{exported}");
    let patched = admin.done("PATCH", "providers/up", json!({"connect_to": null})).await;
    assert_eq!(patched["connect_to"], Value::Null);
}
