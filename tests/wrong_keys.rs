//! Wrong keys, on the data plane and the admin API, which take the same administrator keys (AUTH-2).

use serde_json::Value;

use crate::support::admin::Admin;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, wait};

/// The wrong keys of an address that are looked at before it has to wait.
const BURST: usize = 20;

#[tokio::test]
async fn wrong_keys_are_slowed_and_audited_on_the_data_plane_as_on_the_admin_api() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(serde_json::json!({"project": project})).await;
    let wrong = |n: usize| Client::new(gateway.address(), Some(&format!("guessed-{n}-0123456789abcdef")));
    for n in 0..BURST {
        let path = ["/v1/models", "/v1/key", "/admin/api/state", "/v1/responses/resp_1"][n % 4];
        assert_eq!(wrong(n).get(path).await.unwrap().status, 401, "{n} {path}");
    }
    for path in ["/v1/models", "/v1/key", "/admin/api/state", "/v1/responses/resp_1"] {
        let refused = wrong(BURST).get(path).await.unwrap();
        assert_eq!((refused.status, refused.error_code().as_str()), (429, "too_many_sign_ins"), "{path}");
        let wait_s: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=6).contains(&wait_s), "{wait_s}");
        assert_eq!(refused.header("x-should-retry"), None, "{path}: worth waiting for");
    }
    let refused = wrong(BURST).chat(chat::request("m")).await;
    assert_eq!(refused.status, 429);
    assert_eq!(upstream.requests().len(), 0);

    let holder = Client::new(gateway.address(), Some(&key.key));
    assert_eq!(holder.chat(chat::request("m")).await.status, 200, "a right key is never slowed");
    assert_eq!(gateway.client().get("/v1/models").await.unwrap().status, 200);
    // A key that was revoked is told so, however often it comes.
    admin.done("PATCH", &format!("keys/{}", key.id), serde_json::json!({"state": "revoked"})).await;
    for _ in 0..=BURST {
        let refused = holder.chat(chat::request("m")).await;
        assert_eq!((refused.status, refused.header("x-should-retry")), (401, Some("false")));
    }
    let rows = wait::eventually("the refusals in the audit", async || {
        let found = admin.done("GET", "audit?action=access.refuse", Value::Null).await;
        let rows = found["data"].as_array().unwrap().clone();
        (!rows.is_empty()).then_some(rows)
    })
    .await;
    assert!(
        rows.iter().any(|row| row["object_id"] == "GET of the data plane" && row["request_id"].is_string()),
        "{rows:?}"
    );
}
