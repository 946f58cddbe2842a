//! Stored secrets and their encryption key, through the command line (STATE-4, M-094, M-098 to M-100).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support::figure::figure;
use crate::support::gateway::{ENCRYPTION_KEY, Setup};
use crate::support::{Gateway, Yaml};

/// Base64 of 32 other bytes.
const OTHER_KEY: &str = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=";
const KEY: &str = "LLMGW_CREDENTIAL_ENCRYPTION_KEY";
const NEW_KEY: &str = "LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY";

/// Returns a state with sealed values whose gateway has ended.
async fn stopped() -> Setup {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    for number in 0..5 {
        let client = gateway.client().with("idempotency-key", &format!("request-{number}"));
        let created = client.post("/admin/api/principals", format!(r#"{{"name": "p{number}"}}"#)).await;
        assert_eq!(created.status, 201, "{:?}", created.body);
    }
    gateway.kill().await
}

/// Runs a command that must end with `code`, and returns its output.
async fn output_of(setup: &Setup, arguments: &[&str], code: i32) -> String {
    let output = setup.output_of(arguments, code).await;
    for secret in [ENCRYPTION_KEY, OTHER_KEY] {
        assert!(!output.contains(secret), "{output}");
    }
    output
}

fn sealed_data_key(setup: &Setup) -> Vec<u8> {
    let db = rusqlite::Connection::open(setup.state().join("gateway.db")).unwrap();
    db.query_row("SELECT sealed FROM vault WHERE name = 'data_key'", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_rekey_replaces_the_key_and_the_old_one_opens_nothing() {
    let setup = stopped().await.env(NEW_KEY, OTHER_KEY);
    let old_seal = sealed_data_key(&setup);
    assert!(output_of(&setup, &["credentials", "verify"], 0).await.contains("all "));
    assert!(output_of(&setup, &["credentials", "rekey"], 0).await.contains("opens with the new key"));
    assert!(output_of(&setup, &["credentials", "rekey"], 0).await.contains("already"), "it can be run again");
    assert!(output_of(&setup, &["serve"], 78).await.contains(KEY));
    output_of(&setup, &["credentials", "verify"], 78).await;
    for entry in std::fs::read_dir(setup.state()).unwrap() {
        let path = entry.unwrap().path();
        let content = std::fs::read(&path).unwrap_or_default();
        let left = content.windows(old_seal.len()).any(|window| window == old_seal);
        assert!(!left, "{} still holds the data key as the old key sealed it", path.display());
    }
    let setup = setup.env(KEY, OTHER_KEY).without(NEW_KEY);
    assert!(output_of(&setup, &["credentials", "verify"], 0).await.contains("all "));
    let gateway = setup.start().await;
    let list = gateway.client().get("/admin/api/principals").await.unwrap().json();
    assert_eq!(list["data"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn a_rekey_with_a_missing_or_wrong_key_changes_nothing() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let setup = gateway.kill().await;
    let before = sealed_data_key(&setup);
    assert!(output_of(&setup, &["credentials", "rekey"], 78).await.contains(NEW_KEY));
    let setup = setup.env(NEW_KEY, "c2hvcnQ=");
    assert!(output_of(&setup, &["credentials", "rekey"], 78).await.contains("exactly 32 bytes"));
    let setup = setup.env(NEW_KEY, OTHER_KEY).without(KEY);
    assert!(output_of(&setup, &["credentials", "rekey"], 78).await.contains(KEY));
    let setup = setup.env(KEY, "enp6enp6enp6enp6enp6enp6enp6enp6enp6enp6eno=");
    assert!(output_of(&setup, &["credentials", "rekey"], 78).await.contains(KEY));
    assert_eq!(sealed_data_key(&setup), before);
    let nowhere = Setup::new(&Yaml::new()).env(NEW_KEY, OTHER_KEY);
    assert!(output_of(&nowhere, &["credentials", "rekey"], 74).await.contains("gateway.db"));
    assert!(!nowhere.state().exists(), "nothing is made");
    // A gateway ignores the new key, and locks the state.
    let gateway = setup.env(KEY, ENCRYPTION_KEY).start().await;
    assert!(output_of(gateway.setup(), &["credentials", "rekey"], 75).await.contains("another process"));
    assert!(output_of(gateway.setup(), &["credentials", "verify"], 0).await.contains("all "));
}

#[tokio::test]
async fn verify_and_rekey_name_a_value_that_does_not_open() {
    let setup = stopped().await.env(NEW_KEY, OTHER_KEY);
    let db = rusqlite::Connection::open(setup.state().join("gateway.db")).unwrap();
    let damage = "UPDATE idempotency SET body = CAST(substr(body, 1, length(body) - 1) AS BLOB) \
                  WHERE key = 'request-3'";
    assert_eq!(db.execute(damage, []).unwrap(), 1);
    drop(db);
    let output = output_of(&setup, &["credentials", "verify"], 1).await;
    assert!(output.contains("idempotency.body of request-3") && output.contains("1 of "), "{output}");
    assert!(output_of(&setup, &["credentials", "rekey"], 1).await.contains("nothing was changed"));
}

/// M-100: after a kill at any time, exactly one of the two keys opens the state, and the run can be repeated.
#[tokio::test]
async fn a_rekey_killed_at_any_moment_leaves_exactly_one_key() {
    const KILLS: u32 = 50;
    let mut setup = stopped().await;
    let (mut old, mut new) = (ENCRYPTION_KEY, OTHER_KEY);
    let mut outcomes = BTreeSet::new();
    let mut whole = Duration::ZERO;
    let (mut killed, mut run, mut taken_over) = (0, 0, 0);
    while killed < KILLS {
        setup = setup.env(KEY, old).env(NEW_KEY, new);
        let mut child =
            setup.command(&["credentials", "rekey"]).stdout(std::process::Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        // The first run measures the duration; the others are killed at random times within it.
        let moment = if run == 0 { Duration::from_secs(60) } else { whole.mul_f64(random_part()) };
        run += 1;
        match tokio::time::timeout(moment, child.wait()).await {
            Ok(status) => {
                assert!(status.unwrap().success());
                whole = began.elapsed();
            }
            Err(_) => {
                child.kill().await.unwrap();
                killed += 1;
            }
        }
        let opens = async |setup: Setup, key: &str| {
            let setup = setup.env(KEY, key).without(NEW_KEY);
            let code = setup.run(&["credentials", "verify"]).await.status.code();
            assert!(matches!(code, Some(0 | 78)), "{code:?}");
            (setup, code == Some(0))
        };
        let (with_old, old_opens) = opens(setup, old).await;
        let (with_new, new_opens) = opens(with_old, new).await;
        setup = with_new;
        assert!(old_opens != new_opens, "run {run}: old {old_opens}, new {new_opens}");
        outcomes.insert(new_opens);
        if new_opens {
            (old, new) = (new, old);
            taken_over += 1;
        }
    }
    figure(
        "P17",
        format!(
            "{killed} kills in {run} runs of rekey, each left one key that opens: {taken_over} times the new one"
        ),
    );
    assert_eq!(outcomes.len(), 2, "kills fell before and after the commit");
    let gateway = setup.env(KEY, old).start().await;
    assert_eq!(gateway.client().get("/admin/api/principals").await.unwrap().status, 200);
}

fn random_part() -> f64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let bits = std::hash::RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(bits >> 32).unwrap()) / f64::from(u32::MAX)
}
