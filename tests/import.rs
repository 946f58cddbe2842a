//! `llmgw import litellm`: the configuration of another gateway becomes one that serves.

use std::path::Path;

use crate::support::gateway::Setup;
use crate::support::upstream::refusing_url;
use crate::support::{Answer, Upstream, Yaml, chat};

/// Writes `text` to a file in `folder` and returns the output of its import, with `arguments`.
async fn import(folder: &Path, text: &str, arguments: &[&str]) -> std::process::Output {
    let file = folder.join("litellm.yaml");
    std::fs::write(&file, text).unwrap();
    let arguments = [&["import", "litellm", file.to_str().unwrap()], arguments].concat();
    Setup::new(&Yaml::new()).run(&arguments).await
}

#[tokio::test]
async fn an_imported_configuration_is_accepted_and_fails_over() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("second"));
    let text = format!(
        "
model_list:
- model_name: smart
  litellm_params: {{model: openai/first, api_base: '{}', api_key: os.environ/FIRST_KEY}}
- model_name: backup
  litellm_params: {{model: openai/second, api_base: '{}', api_key: sk-planted-secret, rpm: 5}}
litellm_settings:
  fallbacks: [{{smart: [backup]}}]
",
        refusing_url().await,
        upstream.base_url()
    );
    let output = import(folder.path(), &text, &[]).await;
    let (yaml, findings) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1), "{findings}");
    for part in [
        "litellm.yaml:6: model_list[1].litellm_params.api_key: ",
        "litellm.yaml:6: model_list[1].litellm_params.rpm: ",
        "litellm.yaml:8: litellm_settings.fallbacks[0].smart[0]: ",
        "llmgw: 3 findings; valid is not equal",
    ] {
        assert!(findings.contains(part), "{part} in {findings}");
    }
    assert!(!format!("{yaml}{findings}").contains("planted"), "{yaml}{findings}");

    let setup =
        Setup::new(&Yaml::new()).yaml(yaml).env("FIRST_KEY", "key-one").env("IMPORTED_OPENAI_KEY", "key-two");
    setup.output_of(&["config", "check"], 0).await;
    let gateway = setup.start().await;
    let answer = gateway.client().chat(chat::request("smart")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-llmgw-provider"), Some("openai-2"));
    let received = upstream.requests();
    let completion = received.iter().find(|request| request.header("content-type").is_some()).unwrap();
    assert_eq!(completion.json()["model"], "second");
    assert_eq!(completion.header("authorization"), Some("Bearer key-two"));
}

#[tokio::test]
async fn an_exact_import_succeeds_and_findings_have_a_json_form() {
    let folder = tempfile::tempdir().unwrap();
    let exact = "model_list: [{model_name: m, litellm_params: {model: gpt-5-mini}}]\n";
    let output = import(folder.path(), exact, &[]).await;
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));

    let output = import(folder.path(), &format!("{exact}guardrails: []\n"), &["--json"]).await;
    assert_eq!(output.status.code(), Some(1));
    let findings: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(findings["findings"][0]["line"], 2, "{findings}");
    assert_eq!(findings["findings"][0]["path"], "guardrails", "{findings}");
}

#[tokio::test]
async fn a_file_that_cannot_be_imported_is_named_with_its_fault() {
    let folder = tempfile::tempdir().unwrap();
    for (text, want) in [
        ("", "has no model_list"),
        ("[1, 2]", "must be a map with model_list"),
        ("model_list:\n\t- a\n", "is indented with a tab"),
        (&"#".repeat((16 << 20) + 1), "cannot be read: "),
    ] {
        let output = import(folder.path(), text, &[]).await;
        let printed = String::from_utf8(output.stderr).unwrap();
        let code = if want.starts_with("cannot be read") { 74 } else { 78 };
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(printed.contains(want) && printed.lines().count() == 1, "{want}: {printed}");
        assert!(output.stdout.is_empty());
    }
    let absent = Setup::new(&Yaml::new()).output_of(&["import", "litellm", "/nowhere/config.yaml"], 74).await;
    assert!(absent.contains("/nowhere/config.yaml: cannot be read"), "{absent}");
}

#[tokio::test]
async fn weights_and_keys_of_one_upstream_are_imported() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    // The first key is rejected, so the second one of the same provider serves.
    first.answering(|request| match request.header("authorization") {
        Some("Bearer key-two") => Answer::completion("hello"),
        _ => Answer::error(401),
    });
    second.always(Answer::completion("hello"));
    let text = format!(
        "
model_list:
- {{model_name: smart, litellm_params: {{model: openai/m, api_base: '{first}', api_key: os.environ/K1, weight: 0.5}}}}
- {{model_name: smart, litellm_params: {{model: openai/m, api_base: '{first}', api_key: os.environ/K2, weight: 0.5}}}}
- {{model_name: smart, litellm_params: {{model: openai/m, api_base: '{second}', api_key: os.environ/K3, weight: 0}}}}
",
        first = first.base_url(),
        second = second.base_url()
    );
    let output = import(folder.path(), &text, &[]).await;
    let (yaml, findings) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(
        findings.contains("model_list[1].model_name: 2 deployments of this name differ in their key alone")
    );
    assert!(
        findings.contains("model_list[0].litellm_params.weight: imported as order: weighted"),
        "{findings}"
    );
    let keys = [("K1", "key-one"), ("K2", "key-two"), ("K3", "key-three")];
    let setup = Setup::new(&Yaml::new()).yaml(yaml);
    let setup = keys.into_iter().fold(setup, |setup, (name, value)| setup.env(name, value));
    setup.output_of(&["config", "check"], 0).await;
    let gateway = setup.start().await;
    for _ in 0..20 {
        let answer = gateway.client().chat(chat::request("smart")).await;
        assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("openai")), "{answer:?}");
    }
    let sent = |upstream: &Upstream| {
        upstream.requests().iter().filter(|request| request.head.starts_with("POST")).count()
    };
    assert_eq!(sent(&second), 0, "a target without weight comes after all others");
    assert!(sent(&first) >= 20);
}
