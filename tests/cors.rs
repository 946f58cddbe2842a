//! Pages of configured origins: what a browser lets them do (ROUTE-3).

use bytes::Bytes;

use crate::support::client::Whole;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml};

const PAGE: &str = "https://app.example";

async fn gateway() -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let yaml = format!("{}cors: {{origins: ['{PAGE}']}}\n", Yaml::one(upstream.base_url()).text());
    (Setup::new(&Yaml::new()).yaml(yaml).start().await, upstream)
}

async fn preflight(gateway: &Gateway, origin: &str, path: &str, asked: &str) -> Whole {
    let page = Client::new(gateway.address(), None)
        .with("origin", origin)
        .with("access-control-request-method", "POST")
        .with("access-control-request-headers", asked);
    page.send("OPTIONS", path, Bytes::new()).await.unwrap()
}

#[tokio::test]
async fn pages_of_configured_origins_reach_the_data_plane_alone() {
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
