//! The way out: the proxy of a provider instance, the proxies of the variables, and proxies that misbehave.
//!
//! Upstreams of this machine are never sent to a proxy of the variables, so the upstreams of such tests have a name that only
//! the scripted proxy finds.

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::client::Whole;
use crate::support::gateway::Setup;
use crate::support::proxy::{HttpProxy, Manner};
use crate::support::tls::Authority;
use crate::support::upstream::refusing_url;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, wait};

const PASSWORD: &str = "planted-password-of-a-proxy-51c0";
/// `user:planted-password-of-a-proxy-51c0` in base64.
const CREDENTIALS: &str = "Basic dXNlcjpwbGFudGVkLXBhc3N3b3JkLW9mLWEtcHJveHktNTFjMA==";
/// An address of the upstream that only a proxy finds.
const ELSEWHERE: &str = "models.example";

async fn answering() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    upstream
}

async fn answering_by_tls(authority: &Authority) -> Upstream {
    let upstream = Upstream::start_tls(authority.acceptor()).await;
    upstream.always(Answer::completion("hello"));
    upstream
}

async fn leading_to(upstream: &Upstream) -> HttpProxy {
    HttpProxy::start(Manner::Lead(upstream.address())).await
}

async fn ask(gateway: &Gateway) -> Whole {
    gateway.client().chat(chat::request("m")).await
}

async fn serves(gateway: &Gateway) {
    let answer = ask(gateway).await;
    assert_eq!(answer.status, 200, "{answer:?}\n{}", gateway.log());
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then_some(value)
    })
}

#[tokio::test]
async fn the_proxy_of_a_provider_opens_a_tunnel_for_tls() {
    for protocols in [&[b"http/1.1".as_slice()][..], &[]] {
        let authority = Authority::new(protocols);
        let upstream = answering_by_tls(&authority).await;
        let proxy = leading_to(&upstream).await;
        let members = format!("proxy: '{}'", proxy.url("user:${ENV:PROXY_PASSWORD}"));
        let gateway = Setup::new(&Yaml::new().provider_with("up", upstream.base_url(), &members))
            .env("PROXY_PASSWORD", PASSWORD)
            .env("LLMGW_WORKERS", "1")
            .env("LLMGW_EXTRA_CA_FILE", authority.ca_file().display().to_string())
            .start()
            .await;
        serves(&gateway).await;
        serves(&gateway).await;
        let port = upstream.address().port();
        let heads = proxy.heads();
        assert_eq!(heads.len(), 1, "the connection is kept: {heads:?}");
        let want = format!(
            "CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\nProxy-Authorization: {CREDENTIALS}\r\n\r\n"
        );
        assert_eq!(heads[0], want);
        let sent = upstream.request(0).await;
        assert_eq!(sent.header("proxy-authorization"), None);
        assert_eq!(sent.header("authorization"), Some("Bearer upstream-secret-of-up"));
    }
}

#[tokio::test]
async fn the_proxy_of_a_provider_passes_requests_without_tls_on() {
    let upstream = answering().await;
    let (proxy, other) = (leading_to(&upstream).await, leading_to(&upstream).await);
    let by = |proxy: &HttpProxy| format!("proxy: '{}'", proxy.url(&format!("user:{PASSWORD}")));
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), &by(&proxy)).provider_with(
        "other",
        upstream.base_url(),
        &by(&other),
    );
    let gateway = Gateway::start(&yaml).await;
    assert_eq!(gateway.client().chat(chat::request("up/m")).await.status, 200);
    let line = format!("POST http://{}/v1/chat/completions HTTP/1.1", upstream.address());
    assert_eq!((proxy.lines(), other.lines()), (vec![line.clone()], vec![]));
    let heads = proxy.heads();
    assert_eq!(header(&heads[0], "proxy-authorization"), Some(CREDENTIALS));
    assert_eq!(header(&heads[0], "host"), Some(&*upstream.address().to_string()));
    let answer = gateway.client().chat(chat::request("other/m")).await;
    assert_eq!((answer.status, proxy.lines().len(), other.lines()), (200, 1, vec![line]));
}

async fn refusing_proxy() -> String {
    refusing_url().await.trim_end_matches("/v1").to_owned()
}

#[tokio::test]
async fn upstreams_with_tls_are_reached_by_a_tunnel_of_the_variable() {
    let authority = Authority::new(&[b"http/1.1"]);
    let upstream = answering_by_tls(&authority).await;
    let (proxy, unused) = (leading_to(&upstream).await, leading_to(&upstream).await);
    let gateway = Setup::new(&Yaml::one(format!("https://{ELSEWHERE}/v1")))
        .env("HTTPS_PROXY", proxy.url(&format!("user:{PASSWORD}")))
        .env("HTTP_PROXY", unused.url(""))
        .env("ALL_PROXY", unused.url(""))
        .env("LLMGW_EXTRA_CA_FILE", authority.ca_file().display().to_string())
        .start()
        .await;
    serves(&gateway).await;
    assert_eq!(proxy.lines(), [format!("CONNECT {ELSEWHERE}:443 HTTP/1.1")]);
    assert_eq!(header(&proxy.heads()[0], "proxy-authorization"), Some(CREDENTIALS));
    assert_eq!(unused.lines(), [""; 0]);
}

#[tokio::test]
async fn upstreams_without_tls_are_reached_by_their_absolute_addresses() {
    let upstream = answering().await;
    let (proxy, unused) = (leading_to(&upstream).await, leading_to(&upstream).await);
    let gateway = Setup::new(&Yaml::one(format!("http://{ELSEWHERE}:8000/v1")))
        .env("HTTP_PROXY", proxy.url(""))
        .env("HTTPS_PROXY", unused.url(""))
        .start()
        .await;
    serves(&gateway).await;
    let line = format!("POST http://{ELSEWHERE}:8000/v1/chat/completions HTTP/1.1");
    assert_eq!(proxy.lines(), [line]);
    assert_eq!(header(&proxy.heads()[0], "proxy-authorization"), None);
    assert_eq!(unused.lines(), [""; 0]);
}

#[tokio::test]
async fn one_variable_names_the_proxy_of_all_upstreams() {
    let upstream = answering().await;
    let proxy = leading_to(&upstream).await;
    let gateway = Setup::new(&Yaml::one(format!("http://{ELSEWHERE}/v1")))
        .env("ALL_PROXY", proxy.url(""))
        .start()
        .await;
    serves(&gateway).await;
    assert_eq!(proxy.lines(), [format!("POST http://{ELSEWHERE}/v1/chat/completions HTTP/1.1")]);
}

#[tokio::test]
async fn the_lower_case_name_of_a_variable_takes_precedence() {
    let upstream = answering().await;
    let (proxy, unused) = (leading_to(&upstream).await, leading_to(&upstream).await);
    let gateway = Setup::new(&Yaml::one(format!("http://{ELSEWHERE}/v1")))
        .env("HTTP_PROXY", unused.url(""))
        .env("http_proxy", proxy.url(""))
        .start()
        .await;
    serves(&gateway).await;
    assert_eq!((proxy.lines().len(), unused.lines().len()), (1, 0));
}

/// No name server knows the names of these upstreams: what is not sent to the proxy fails.
#[tokio::test]
async fn upstreams_of_the_exceptions_are_reached_directly() {
    let upstream = answering().await;
    let proxy = leading_to(&upstream).await;
    let yaml = Yaml::new()
        .provider("up", "http://api.near.invalid:8000/v1")
        .provider("port", "http://api.near.invalid/v1")
        .provider_with("direct", "http://far.invalid/v1", "proxy: direct")
        .provider("far", "http://far.invalid/v1");
    let gateway = Setup::new(&yaml)
        .env("HTTP_PROXY", proxy.url(""))
        .env("NO_PROXY", "other.invalid, near.invalid:8000")
        .start()
        .await;
    for (model, want) in [("up/m", 502), ("port/m", 200), ("direct/m", 502), ("far/m", 200)] {
        let answer = gateway.client().chat(chat::request(model)).await;
        assert_eq!(answer.status, want, "{model}: {answer:?}");
    }
    let line = |host| format!("POST http://{host}/v1/chat/completions HTTP/1.1");
    assert_eq!(proxy.lines(), [line("api.near.invalid"), line("far.invalid")]);
}

#[tokio::test]
async fn upstreams_of_this_machine_are_never_sent_to_a_proxy_of_the_variables() {
    let upstream = answering().await;
    let proxy = leading_to(&upstream).await;
    let port = upstream.address().port();
    let yaml = Yaml::one(upstream.base_url()).provider("named", format!("http://localhost:{port}/v1"));
    let gateway = Setup::new(&yaml).env("ALL_PROXY", proxy.url("")).start().await;
    for model in ["up/m", "named/m"] {
        assert_eq!(gateway.client().chat(chat::request(model)).await.status, 200, "{model}");
    }
    assert_eq!((proxy.lines().len(), upstream.requests().len()), (0, 2));
}

#[tokio::test]
async fn a_proxy_that_fails_is_named_and_the_next_target_serves() {
    let authority = Authority::new(&[]);
    let (first, second) = (answering_by_tls(&authority).await, answering().await);
    for (manner, want) in [
        (
            Some(Manner::Answer(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")),
            "its proxy rejected the credentials or requires some (407)",
        ),
        (
            Some(Manner::Answer(b"HTTP/1.1 403 Filtered\r\n\r\n")),
            "its proxy does not permit the connection (403)",
        ),
        (Some(Manner::Answer(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")), "its proxy cannot reach it"),
        (Some(Manner::Answer(b"220 mail.example ESMTP\r\n")), "its proxy did not answer with HTTP"),
        (Some(Manner::Answer(b"HTTP/1.1 200 OK\r\nVia")), "its proxy closed the connection"),
        (Some(Manner::Close), "its proxy closed the connection"),
        (Some(Manner::Hang), "there was no connection by its proxy within 10 s"),
        (None, "the connection to its proxy was refused"),
    ] {
        let proxy = match manner {
            Some(manner) => Some(HttpProxy::start(manner).await),
            None => None,
        };
        let url = match &proxy {
            Some(proxy) => proxy.url(&format!("user:{PASSWORD}")),
            None => refusing_proxy().await,
        };
        let members = format!("proxy: '{url}'\nmodels: [m, alone]");
        let yaml = Yaml::new()
            .provider_with("p0", first.base_url(), &members)
            .provider("p1", second.base_url())
            .endpoint("line", &[("p0", "m"), ("p1", "m")]);
        let gateway = Gateway::start(&yaml).await;
        let client = gateway.client();
        let (alone, line) =
            tokio::join!(client.chat(chat::request("alone")), client.chat(chat::request("line")));
        assert_eq!(alone.status, 502, "{want}: {alone:?}");
        let text = format!("The provider 'p0' cannot be reached: {want}.");
        assert_eq!(alone.json()["error"]["message"], text, "{want}");
        assert_eq!(alone.error_code(), "upstream_unreachable", "{want}");
        assert_eq!((line.status, line.header("x-llmgw-provider")), (200, Some("p1")), "{want}");
        let record = gateway.record_of(line.header("x-request-id").unwrap()).await;
        assert_eq!(record["trace"][0]["result"], "unreachable", "{want}: {record}");
        gateway.logs(want).await;
        assert!(!gateway.log().contains(PASSWORD), "{}", gateway.log());
    }
    assert_eq!(first.connections(), 0);
}

/// Of a request without TLS the status of the proxy is that of the answer, and only 407 is certainly the proxy's.
#[tokio::test]
async fn a_proxy_that_rejects_the_credentials_of_a_request_without_tls_is_named() {
    let manner = Manner::Answer(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n");
    let (proxy, second) = (HttpProxy::start(manner).await, answering().await);
    let members = format!("proxy: '{}'", proxy.url(""));
    let yaml = Yaml::new()
        .provider_with("p0", format!("http://{ELSEWHERE}/v1"), &members)
        .provider("p1", second.base_url())
        .endpoint("line", &[("p0", "m"), ("p1", "m")]);
    let gateway = Gateway::start(&yaml).await;
    let answer = gateway.client().chat(chat::request("p0/m")).await;
    let text =
        "The provider 'p0' cannot be reached: its proxy rejected the credentials or requires some (407).";
    assert_eq!((answer.status, &answer.json()["error"]["message"]), (502, &json!(text)));
    let answer = gateway.client().chat(chat::request("line")).await;
    assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("p1")));
}

#[tokio::test]
async fn a_changed_proxy_moves_a_provider_to_new_connections() {
    let upstream = answering().await;
    let (first, second) = (leading_to(&upstream).await, leading_to(&upstream).await);
    let yaml = |url: &str| {
        let members = format!("proxy: '{url}'");
        Yaml::new().provider_with("up", upstream.base_url(), &members).text()
    };
    let gateway = Setup::new(&Yaml::new()).yaml(yaml(&first.url(""))).env("LLMGW_WORKERS", "1").start().await;
    serves(&gateway).await;
    assert_eq!((first.lines().len(), second.lines().len()), (1, 0));
    for (url, want) in [(second.url(""), 1), (second.url("user:other"), 2)] {
        gateway.write_config(yaml(&url));
        wait::eventually(&format!("a connection by {url}"), async || {
            serves(&gateway).await;
            (second.lines().len() == want).then_some(())
        })
        .await;
        assert_eq!(first.lines().len(), 1);
    }
}

#[tokio::test]
async fn a_provider_of_the_api_has_a_proxy_whose_password_is_a_reference() {
    let upstream = answering().await;
    let proxy = leading_to(&upstream).await;
    let gateway = Setup::new(&Yaml::new()).env("PROXY_PASSWORD", PASSWORD).start().await;
    let admin = Admin(gateway.client());
    let provider = |proxy: Value| {
        json!({"id": "made", "type": "compatible", "base_url": format!("http://{ELSEWHERE}/v1"), "api_key": "k",
            "models": ["m"], "proxy": proxy})
    };
    let refused =
        admin.call("POST", "providers", provider(json!(proxy.url("user:literal-password-9")))).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    let text = String::from_utf8_lossy(&refused.body);
    assert!(text.contains("must not contain a password") && !text.contains("literal-password-9"), "{text}");
    let refused = admin.call("POST", "providers", provider(json!("${FILE:/etc/passwd}"))).await;
    let text = String::from_utf8_lossy(&refused.body);
    assert!(refused.status == 400 && text.contains("for the configuration file only"), "{text}");

    let url = proxy.url("user:${ENV:PROXY_PASSWORD}");
    admin.done("POST", "providers", provider(json!(url))).await;
    serves(&gateway).await;
    assert!(!proxy.heads().is_empty());
    assert!(proxy.heads().iter().all(|head| header(head, "proxy-authorization") == Some(CREDENTIALS)));
    let shown = admin.done("GET", "providers/made", Value::Null).await;
    assert_eq!(shown["proxy"], json!(url), "{shown}");
    let audit = admin.done("GET", "audit", Value::Null).await;
    assert!(audit.to_string().contains("${ENV:PROXY_PASSWORD}"), "{audit}");
    assert!(!audit.to_string().contains("literal-password-9"), "{audit}");

    let exported = gateway.setup().output_of(&["export"], 0).await;
    assert!(exported.contains(&url) && !exported.contains(PASSWORD), "{exported}");
    let client = gateway.client().with("if-match", "\"1\"");
    let patched = Admin(client).done("PATCH", "providers/made", json!({"proxy": null})).await;
    assert_eq!(patched["proxy"], Value::Null, "{patched}");
}

#[tokio::test]
async fn the_password_of_a_proxy_is_shown_nowhere() {
    let upstream = answering().await;
    let proxy = leading_to(&upstream).await;
    let url = proxy.url(&format!("user:{PASSWORD}"));
    let members = format!("proxy: '{url}'");
    let setup = Setup::new(&Yaml::new().provider_with("up", upstream.base_url(), &members))
        .env("HTTPS_PROXY", &*url)
        .env("LLMGW_LOG", "trace");
    let masked = proxy.url("••••");
    for arguments in [&["config", "show"][..], &["config", "check"], &["doctor"], &["doctor", "--json"]] {
        let output = setup.run(arguments).await;
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        assert!(!printed.contains(PASSWORD), "{arguments:?}: {printed}");
        if arguments.contains(&"show") {
            assert!(printed.contains(&format!("proxy: {masked}")), "{printed}");
            let variable = printed.lines().find(|line| line.starts_with("HTTPS_PROXY ")).unwrap();
            assert!(variable.contains(&masked), "{variable}");
        }
    }
    let gateway = setup.start().await;
    serves(&gateway).await;
    let admin = Admin(gateway.client());
    for path in ["providers", "providers/up", "state", "config", "audit", "requests"] {
        let answer = admin.call("GET", path, Value::Null).await;
        assert!(!String::from_utf8_lossy(&answer.body).contains(PASSWORD), "{path}");
    }
    let shown = admin.done("GET", "providers/up", Value::Null).await;
    assert_eq!(shown["proxy"], json!(masked), "{shown}");
    assert!(!gateway.log().contains(PASSWORD) && !gateway.log().contains(CREDENTIALS), "{}", gateway.log());
}

/// The gateway's own requests take the way of the variables, and lists of models that of their provider.
#[tokio::test]
async fn lists_of_models_and_telemetry_take_the_way_out_too() {
    let upstream = Upstream::start().await;
    upstream.answering(|request| {
        if request.head.starts_with("GET /v1/models ") {
            Answer::json(200, r#"{"object": "list", "data": [{"id": "listed", "object": "model"}]}"#)
        } else {
            Answer::completion("hello")
        }
    });
    let (own, usual) = (leading_to(&upstream).await, leading_to(&upstream).await);
    let members = format!("proxy: '{}'\nmodels: []", own.url(""));
    let gateway = Setup::new(&Yaml::new().provider_with("up", format!("http://{ELSEWHERE}/v1"), &members))
        .env("HTTP_PROXY", usual.url(""))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example:4318")
        .env("OTEL_METRICS_EXPORTER", "none")
        .env("OTEL_BSP_SCHEDULE_DELAY", "100")
        .start()
        .await;
    let admin = Admin(gateway.client());
    admin.done("POST", "catalog/sync", Value::Null).await;
    assert!(own.lines().contains(&format!("GET http://{ELSEWHERE}/v1/models HTTP/1.1")), "{:?}", own.lines());
    assert_eq!(gateway.client().chat(chat::request("up/listed")).await.status, 200);
    wait::eventually("an export by the proxy", async || {
        let line = "POST http://collector.example:4318/v1/traces HTTP/1.1";
        usual.lines().iter().any(|sent| sent == line).then_some(())
    })
    .await;
    assert!(!usual.lines().iter().any(|line| line.contains(ELSEWHERE)), "{:?}", usual.lines());
}

#[tokio::test]
async fn a_proxy_that_is_not_supported_prevents_the_start() {
    let yaml = Yaml::new().provider_with("up", "https://models.example/v1", "proxy: socks5://127.0.0.1:1080");
    let printed = Setup::new(&yaml)
        .env("https_proxy", "https://proxy.example:3128")
        .output_of(&["config", "check"], 78)
        .await;
    for want in [
        "HTTPS_PROXY: must begin with http://: proxies that are reached by https or socks are not supported",
        "providers.up.proxy: must begin with http://",
    ] {
        assert!(printed.contains(want), "{printed}");
    }
}

/// LIM-5: a proxy resolves names, so what can be judged without resolving is judged before it is asked.
#[tokio::test]
async fn forbidden_addresses_and_names_are_refused_behind_a_proxy_too() {
    let upstream = answering().await;
    let proxy = leading_to(&upstream).await;
    let yaml = Yaml::new().provider_with("up", "http://169.254.169.254/v1", "proxy: http://127.0.0.1:1");
    let printed = Setup::new(&yaml).output_of(&["config", "check"], 78).await;
    assert!(printed.contains("link-local, multicast and metadata addresses are not allowed"), "{printed}");
    for host in [
        "169.254.169.254",
        "[::ffff:169.254.169.254]",
        "metadata.google.internal",
        "2852039166",
        "0xa9fea9fe",
    ] {
        let collector = format!("http://{host}:4318");
        let gateway = Setup::new(&Yaml::one(upstream.base_url()))
            .env("HTTP_PROXY", proxy.url(""))
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector)
            .env("OTEL_METRICS_EXPORTER", "none")
            .env("OTEL_BSP_SCHEDULE_DELAY", "100")
            .start()
            .await;
        serves(&gateway).await;
        wait::eventually(&format!("the refusal of {host}"), async || {
            let log = gateway.log();
            ["metadata address", "a metadata service"].iter().any(|text| log.contains(text)).then_some(())
        })
        .await;
    }
    assert_eq!(proxy.lines(), [""; 0]);
}
