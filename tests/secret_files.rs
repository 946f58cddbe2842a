//! Secrets in files: `NAME_FILE` for the gateway's own secrets, and `${FILE:/path}` in the configuration file, as Docker and
//! Kubernetes mount them. Their contents appear in no output.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use crate::support::admin::Admin;
use crate::support::gateway::{ADMIN_KEY, ENCRYPTION_KEY, Setup};
use crate::support::{Answer, Upstream, Yaml, chat, wait};

const FIRST: &str = "planted-first-secret-of-a-file-3c1e";
const SECOND: &str = "planted-second-secret-of-a-file-9b7a";

async fn answering() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    upstream
}

/// Writes `content` into a new volume of a Secret, as the kubelet does: a folder for each version, and a link to it.
fn mount(folder: &Path, version: &str, content: &str) {
    let of_version = folder.join(version);
    std::fs::create_dir(&of_version).unwrap();
    std::fs::write(of_version.join("key"), content).unwrap();
    let link = folder.join("..data.new");
    symlink(version, &link).unwrap();
    std::fs::rename(link, folder.join("..data")).unwrap();
    if !folder.join("key").exists() {
        symlink("..data/key", folder.join("key")).unwrap();
    }
}

#[tokio::test]
async fn a_gateway_takes_its_own_secrets_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let (api_key, encryption) = (folder.path().join("api"), folder.path().join("encryption"));
    std::fs::write(&api_key, format!("{ADMIN_KEY}\n")).unwrap();
    std::fs::write(&encryption, format!("{ENCRYPTION_KEY}\r\n")).unwrap();
    let setup = Setup::new(&Yaml::new())
        .without("LLMGW_API_KEY")
        .without("LLMGW_CREDENTIAL_ENCRYPTION_KEY")
        .env("LLMGW_API_KEY_FILE", api_key.display().to_string())
        .env("LLMGW_CREDENTIAL_ENCRYPTION_KEY_FILE", encryption.display().to_string());
    let shown = setup.output_of(&["config", "show"], 0).await;
    let line = shown.lines().find(|line| line.starts_with("LLMGW_API_KEY ")).unwrap();
    assert!(line.ends_with(&format!("••••  # environment, file {}", api_key.display())), "{line}");
    assert!(!shown.contains(ADMIN_KEY) && !shown.contains(ENCRYPTION_KEY), "{shown}");
    let doctor = setup.output_of(&["doctor"], 0).await;
    assert!(!doctor.contains(ADMIN_KEY) && !doctor.contains(ENCRYPTION_KEY), "{doctor}");
    let gateway = setup.start().await;
    let settings = Admin(gateway.client()).done("GET", "config", Value::Null).await;
    assert!(!settings.to_string().contains(ADMIN_KEY) && !gateway.log().contains(ADMIN_KEY));
    assert!(!gateway.log().contains("has no effect"), "{}", gateway.log());
}

#[tokio::test]
async fn a_secret_file_that_cannot_be_used_is_a_fault_without_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let shown = file.display().to_string();
    let fault = async |content: Option<&[u8]>| {
        std::fs::remove_file(&file).ok();
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let setup = Setup::new(&Yaml::new()).without("LLMGW_API_KEY").env("LLMGW_API_KEY_FILE", &*shown);
        let printed = setup.output_of(&["config", "check"], 78).await;
        let doctor = setup.output_of(&["doctor"], 1).await;
        assert!(!printed.contains(FIRST) && !doctor.contains(FIRST), "{printed}{doctor}");
        assert!(doctor.contains("correct the file that LLMGW_API_KEY_FILE names"), "{doctor}");
        assert!(!printed.contains("LLMGW_API_KEY: is not set"), "one fault only: {printed}");
        printed
    };
    let large = format!("{FIRST}{}", "x".repeat(64 << 10));
    let split = format!("{FIRST}\nand more\n");
    let broken = [FIRST.as_bytes(), b"\xff\xfe"].concat();
    for (content, want) in [
        (None, format!("LLMGW_API_KEY_FILE: cannot read {shown}: No such file or directory")),
        (Some(&b"\n"[..]), format!("LLMGW_API_KEY_FILE: {shown} is empty")),
        (Some(&broken), format!("LLMGW_API_KEY_FILE: {shown} is not UTF-8 text")),
        (
            Some(large.as_bytes()),
            format!("LLMGW_API_KEY_FILE: cannot read {shown}: it is larger than 65536 bytes"),
        ),
        (
            Some(split.as_bytes()),
            format!("LLMGW_API_KEY_FILE: the content of {shown}: must contain only visible ASCII characters"),
        ),
    ] {
        let printed = fault(content).await;
        assert!(printed.contains(&want), "{want}\n{printed}");
    }
}

#[tokio::test]
async fn a_variable_and_its_file_exclude_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, FIRST).unwrap();
    let setup = Setup::new(&Yaml::new()).env("LLMGW_API_KEY_FILE", file.display().to_string());
    let printed = setup.output_of(&["config", "check"], 78).await;
    assert!(
        printed.contains("LLMGW_API_KEY_FILE: LLMGW_API_KEY is set too; unset one of them")
            && !printed.contains(FIRST)
            && !printed.contains(ADMIN_KEY),
        "{printed}"
    );
}

#[tokio::test]
async fn a_rotated_secret_of_kubernetes_is_used_without_a_signal() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), answering().await);
    mount(folder.path(), "..first", &format!("{FIRST}\n"));
    let key = folder.path().join("key");
    let yaml = format!(
        "providers:\n  up:\n    type: openai\n    base_url: {}\n    api_key: ${{FILE:{key}}}\n    headers:\n      X-Team: \
         ${{FILE:{key}}}\n    models: [m]\n",
        upstream.base_url(),
        key = key.display()
    );
    let setup = Setup::new(&Yaml::new()).yaml(yaml).env("LLMGW_LOG", "debug");
    let shown = setup.output_of(&["config", "show"], 0).await;
    assert!(!shown.contains(FIRST), "{shown}");
    let gateway = setup.start().await;
    let sent = async || {
        let answer = gateway.client().chat(chat::request("m")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let request = upstream.requests().pop().unwrap();
        let authorization = request.header("authorization").unwrap().to_owned();
        assert_eq!(authorization, format!("Bearer {}", request.header("x-team").unwrap()));
        authorization
    };
    assert_eq!(sent().await, format!("Bearer {FIRST}"));
    mount(folder.path(), "..second", SECOND);
    wait::eventually("the second secret", async || {
        (sent().await == format!("Bearer {SECOND}")).then_some(())
    })
    .await;

    // A volume that is broken keeps the last good secret and is reported, by the place that names the file.
    mount(folder.path(), "..third", "");
    gateway.logs(&format!("providers.up.api_key: {} is empty", key.display())).await;
    assert_eq!(sent().await, format!("Bearer {SECOND}"));
    let state = Admin(gateway.client()).done("GET", "state", Value::Null).await.to_string();
    assert!(state.contains("is empty"), "{state}");
    mount(folder.path(), "..fourth", FIRST);
    wait::eventually("the first secret again", async || {
        (sent().await == format!("Bearer {FIRST}")).then_some(())
    })
    .await;
    for text in [gateway.log(), state] {
        assert!(!text.contains(FIRST) && !text.contains(SECOND), "{text}");
    }
    for path in ["providers", "config", "audit"] {
        let answer = Admin(gateway.client()).call("GET", path, Value::Null).await;
        let text = String::from_utf8_lossy(&answer.body);
        assert!(!text.contains(FIRST) && !text.contains(SECOND), "{path}: {text}");
    }
}

/// The gateway's own secrets are never sent upstream, even if the configuration file names their file.
#[tokio::test]
async fn the_file_of_an_own_secret_is_never_sent_upstream() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("secret"), folder.path().join("link"));
    std::fs::write(&file, ADMIN_KEY).unwrap();
    symlink(&file, &link).unwrap();
    let yaml =
        format!("providers:\n  up: {{type: openai, api_key: '${{FILE:{}}}', models: [m]}}\n", link.display());
    let setup = Setup::new(&Yaml::new())
        .yaml(yaml)
        .without("LLMGW_API_KEY")
        .env("LLMGW_API_KEY_FILE", file.display().to_string());
    let printed = setup.output_of(&["config", "check"], 78).await;
    assert!(
        printed.contains("contains a secret of the gateway itself, which is never sent upstream"),
        "{printed}"
    );
}
