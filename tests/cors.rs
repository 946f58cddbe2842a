//! Access from web pages of configured origins (ROUTE-3).

use bytes::Bytes;

use crate::support::client::Whole;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

const PAGE: &str = "https://app.example";

async fn gateway() -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let yaml = format!("{}cors: {{origins: ['{PAGE}']}}\n", Yaml::one(upstream.base_url()).text());
    (Setup::new(&Yaml::new()).yaml(yaml).start().await, upstream)
}

async fn preflight(gateway: &Gateway, origin: &str, path: &str, headers: &str) -> Whole {
    let page = Client::new(gateway.address(), None)
        .with("origin", origin)
        .with("access-control-request-method", "POST")
        .with("access-control-request-headers", headers);
    page.send("OPTIONS", path, Bytes::new()).await.unwrap()
}

/// The headers of the openai and anthropic packages in a browser that need permission.
const OPENAI: &str = "authorization,content-type,openai-organization,openai-project,x-stainless-arch,\
    x-stainless-lang,x-stainless-os,x-stainless-package-version,x-stainless-retry-count,x-stainless-runtime,\
    x-stainless-runtime-version,x-stainless-timeout";
const ANTHROPIC: &str = "anthropic-beta,anthropic-dangerous-direct-browser-access,anthropic-version,content-type,\
    x-api-key,x-stainless-arch,x-stainless-helper-method,x-stainless-lang,x-stainless-os,\
    x-stainless-package-version,x-stainless-retry-count,x-stainless-runtime,x-stainless-runtime-version,\
    x-stainless-timeout";

#[tokio::test]
async fn a_preflight_permits_the_headers_of_the_javascript_sdks() {
    let (gateway, _upstream) = gateway().await;
    for (path, headers) in [
        ("/v1/chat/completions", OPENAI),
        ("/v1/responses", OPENAI),
        ("/v1/messages", ANTHROPIC),
        ("/v1/messages/count_tokens", ANTHROPIC),
    ] {
        let answer = preflight(&gateway, PAGE, path, headers).await;
        assert_eq!(answer.status, 204, "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), Some(PAGE), "{path}");
        assert!(answer.header("access-control-allow-methods").unwrap().contains("POST"), "{path}");
        let allowed = answer.header("access-control-allow-headers").unwrap_or_default();
        for name in headers.split(',') {
            assert!(allowed.split(',').any(|allowed| allowed.trim() == name), "{path}: {name} in {allowed}");
        }
        let foreign = preflight(&gateway, "https://evil.example", path, headers).await;
        for name in ["origin", "methods", "headers"] {
            assert_eq!(foreign.header(&format!("access-control-allow-{name}")), None, "{path}: {name}");
        }
    }
}

#[tokio::test]
async fn a_page_reads_the_headers_of_an_answer() {
    let (gateway, _upstream) = gateway().await;
    let answer = gateway.client().with("origin", PAGE).chat(chat::request("m")).await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, Some(PAGE)));
    let exposed = answer.header("access-control-expose-headers").unwrap();
    for name in ["x-request-id", "x-llmgw-adapted", "x-llmgw-dropped", "retry-after"] {
        assert!(exposed.split(", ").any(|exposed| exposed == name), "{name} in {exposed}");
    }
}

#[tokio::test]
async fn configured_origins_are_permitted_on_the_data_plane_only() {
    let (gateway, _upstream) = gateway().await;
    let page = gateway.client().with("origin", PAGE);
    for path in ["/v1/models", "/v1/key", "/health", "/v1/nothing", "/v1/responses/resp_1"] {
        let answer = page.get(path).await.unwrap();
        assert_eq!(answer.header("access-control-allow-origin"), Some(PAGE), "{path}");
    }
    for path in ["/admin/api/state", "/admin/api/nothing", "/console/", "/metrics", "/nothing"] {
        for answer in [page.get(path).await.unwrap(), preflight(&gateway, PAGE, path, "authorization").await]
        {
            let granted = answer.headers.keys().find(|name| name.as_str().starts_with("access-control-"));
            assert_eq!(granted, None, "{path}");
        }
    }
}
