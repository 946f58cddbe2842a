//! The encryption key of a database is changed while its nodes run.

use serde_json::json;

use super::{database, node};
use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

const KEY: &str = "LLMGW_CREDENTIAL_ENCRYPTION_KEY";
const NEW_KEY: &str = "LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY";
const NEW: &str = "bmV3IGtleSBmb3IgdGhlIHRlc3RzIG9mIG5vZGVzISE=";

async fn restarted_with_new_key(gateway: Gateway) -> Gateway {
    gateway.kill().await.env(KEY, NEW).start().await
}

#[tokio::test]
async fn nodes_change_the_encryption_key_one_after_the_other() {
    let Some(database) = database() else { return };
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let yaml = Yaml::one(upstream.base_url());
    let one = node(&yaml, &database.url()).env("LLMGW_NODE_NAME", "n1").start().await;
    let two = node(&yaml, &database.url()).env("LLMGW_NODE_NAME", "n2").start().await;
    let admin = Admin(one.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let serves = async |gateway: &Gateway| {
        Client::new(gateway.address(), Some(&key.key)).chat(chat::request("up/m")).await.status == 200
    };
    let operator = node(&yaml, &database.url()).env(NEW_KEY, NEW);
    let rekey = async |operator: &Setup, arguments: &[&str], code: i32| {
        operator.output_of(&[&["credentials", "rekey"], arguments].concat(), code).await
    };
    let text = rekey(&operator, &["--finish"], 78).await;
    assert!(text.contains("does not open the database yet"), "{text}");
    let text = rekey(&operator, &[], 0).await;
    assert!(text.contains("the old and the new key open") && text.contains("restart each node"), "{text}");
    assert!(rekey(&operator, &[], 0).await.contains("already"));
    let text = rekey(&operator, &["--finish"], 78).await;
    assert!(text.contains("n1, n2"), "{text}");
    // A node with the new key beside one with the old.
    let one = restarted_with_new_key(one).await;
    assert!(serves(&one).await && serves(&two).await);
    let text = rekey(&operator, &["--finish"], 78).await;
    assert!(text.contains("old key: n2;"), "{text}");
    let another = node(&yaml, &database.url()).env(NEW_KEY, "YW5vdGhlciBrZXkgZm9yIHRlc3RzIG9mIG5vZGVzISE=");
    let text = rekey(&another, &[], 78).await;
    assert!(text.contains("another new key is in progress") && text.contains("n1"), "{text}");
    let text = another.output_of(&["state", "copy", "--from"], 78).await;
    assert!(text.contains("is being changed"), "{text}");
    let two = restarted_with_new_key(two).await;
    assert!(serves(&two).await);
    let text = rekey(&operator, &["--finish"], 0).await;
    assert!(text.contains("only the new key opens"), "{text}");
    assert!(serves(&one).await && serves(&two).await);
    let text = operator.output_of(&["serve"], 78).await;
    assert!(text.contains("is not the key that"), "{text}");
    let operator = operator.without(NEW_KEY).env(KEY, NEW);
    assert!(rekey(&operator, &["--finish"], 0).await.contains("already"));
    assert!(operator.output_of(&["credentials", "verify"], 0).await.contains("secrets open"));
}
