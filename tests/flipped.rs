//! A database with flipped bits is rejected by name, or its contents are unchanged (P20).

use std::net::SocketAddr;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::admin::Admin;
use crate::support::figure::{figure, is_full};
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::{Answer, Client, Upstream, Yaml, chat, wait};

/// The parts of the state that an administrator reads.
const READ: [&str; 9] = [
    "usage?group_by=model",
    "usage?bucket=day",
    "requests?limit=500",
    "keys",
    "projects",
    "principals",
    "quotas",
    "providers",
    "audit?limit=500",
];

/// The number of bits that are flipped, one at a time.
fn flips() -> u64 {
    if is_full() { 1_000 } else { 40 }
}

/// The result of starting a gateway on a damaged database.
enum Begun {
    Refused(String),
    /// The gateway serves, with this state.
    Serving(Vec<Value>),
}

async fn begun(setup: &Setup) -> Begun {
    let mut child = setup.command(&["serve"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut log = String::new();
    let listening = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some((_, address)) = line.split_once("listening on ") {
                let address = address.trim_start_matches("http://").split_whitespace().next().unwrap();
                return Some(address.parse::<SocketAddr>().unwrap());
            }
            log.push_str(&line);
            log.push('\n');
        }
        None
    };
    let Some(address) = wait::within(wait::PATIENCE, "its end or its beginning", listening).await else {
        let code = child.wait().await.unwrap().code();
        assert!(matches!(code, Some(74 | 78)), "{code:?}: {log}");
        return Begun::Refused(log);
    };
    let admin = Admin(Client::new(address, Some(ADMIN_KEY)));
    let mut state = Vec::new();
    for path in READ {
        let answer = admin.call("GET", path, Value::Null).await;
        let mut body = answer.json();
        // The end of the queried period is the current time.
        body.as_object_mut().map(|body| body.remove("to_ms"));
        state.push(json!([path, answer.status, body]));
    }
    child.kill().await.unwrap();
    Begun::Serving(state)
}

/// Creates a state with data in most tables, in one file.
async fn filled() -> (Setup, Upstream) {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let mut gateway = Setup::new(&Yaml::one(upstream.base_url())).start().await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let limit = json!({"subject": {"kind": "project", "id": project}, "metric": "requests", "window": "total",
        "limit": 1_000});
    admin.done("POST", "quotas", limit).await;
    for _ in 0..4 {
        let key = admin.key(json!({"project": project})).await;
        let client = Client::new(gateway.address(), Some(&key.key));
        for _ in 0..5 {
            assert_eq!(client.chat(chat::request("m")).await.status, 200);
        }
    }
    gateway.records(20).await;
    gateway.signal(Signal::TERM);
    gateway.exit().await;
    (gateway.kill().await, upstream)
}

#[tokio::test]
async fn a_flipped_bit_in_the_database_is_detected_or_has_no_effect() {
    let (setup, _upstream) = filled().await;
    let database = setup.state().join("gateway.db");
    let whole = std::fs::read(&database).unwrap();
    let Begun::Serving(before) = begun(&setup).await else { panic!("the whole database is refused") };
    let bits = u64::try_from(whole.len()).unwrap() * 8;
    let (mut refused, mut seed) = (0, 0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..flips() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bit = (seed >> 16) % bits;
        let (at, mask) = (usize::try_from(bit / 8).unwrap(), 1_u8 << (bit % 8));
        let mut damaged = whole.clone();
        damaged[at] ^= mask;
        for left in ["gateway.db-wal", "gateway.db-shm"] {
            let _ = std::fs::remove_file(setup.state().join(left));
        }
        std::fs::write(&database, &damaged).unwrap();
        match begun(&setup).await {
            Begun::Refused(log) => {
                assert!(log.contains("gateway.db"), "byte {at}, mask {mask}: {log}");
                refused += 1;
            }
            Begun::Serving(after) => {
                for (before, after) in before.iter().zip(&after) {
                    assert_eq!(before, after, "byte {at} of page {}, mask {mask}", at / 4_096 + 1);
                }
            }
        }
    }
    assert!(refused > 0);
    figure("P20", format!("{} flipped bits: {refused} refused by name, the others changed nothing", flips()));
}
