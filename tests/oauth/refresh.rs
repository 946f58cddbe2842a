//! Refreshes: ahead of expiry, once however many requests wait, never in a loop, and never with a lost token unnoticed.

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::admin::Admin;
use crate::support::clock;
use crate::support::figure::figure;
use crate::support::upstream::Gate;
use crate::support::vendor::{Connected, Vendor, setup};
use crate::support::{Answer, Gateway, Yaml, chat, skipped, wait};

const REQUESTS: usize = 50;

/// Sends fifty requests at once, opens `gate` when the API has rejected all of them, and returns their statuses.
async fn fifty(connected: &Connected, gate: &Gate) -> Vec<u16> {
    let before = connected.vendor.api.requests().len();
    let mut requests = JoinSet::new();
    for _ in 0..REQUESTS {
        let client = connected.client();
        requests.spawn(async move { client.chat(chat::request("partner/m")).await.status });
    }
    connected.vendor.api.request(before + REQUESTS - 1).await;
    gate.open(1);
    requests.join_all().await
}

/// The state directory survives a restart with another clock, so no test waits for a token to expire.
fn an_hour_later(connected: Connected) -> Option<(Connected, Vec<(&'static str, String)>)> {
    let now_s = i64::try_from(shared::clock::unix_ms() / 1_000).unwrap();
    let Some(clock) = clock::at(now_s + 3_700) else {
        skipped("there is no C compiler to set the gateway's clock with");
        return None;
    };
    Some((connected, clock))
}

#[tokio::test]
async fn fifty_requests_on_a_rejected_token_make_one_refresh_and_none_fails() {
    let connected = Connected::start().await;
    let gate = Gate::new();
    connected.vendor.before_token(Answer::new().wait(&gate));
    connected.vendor.end_access();
    let statuses = fifty(&connected, &gate).await;
    let failed = statuses.iter().filter(|status| **status != 200).count();
    figure(
        "P-oauth",
        format_args!("{} refresh, {failed} of {REQUESTS} requests failed", connected.vendor.refreshes()),
    );
    assert_eq!((connected.vendor.refreshes(), failed), (1, 0), "{statuses:?}");
}

#[tokio::test]
async fn fifty_requests_on_a_token_that_expired_while_the_gateway_was_down_make_one_refresh() {
    let Some((connected, clock)) = an_hour_later(Connected::start().await) else { return };
    let Connected { vendor, gateway, ada, key } = connected;
    vendor.end_access();
    let gate = Gate::new();
    vendor.before_token(Answer::new().wait(&gate));
    let gateway = gateway.kill().await.with_clock(clock).start().await;
    let connected = Connected { vendor, gateway, ada, key };
    let statuses = fifty(&connected, &gate).await;
    assert_eq!(statuses, [200; REQUESTS]);
    assert_eq!(connected.vendor.refreshes(), 1);
    let (state, sign_in) = connected.sign_in().await;
    assert_eq!((state.as_str(), &sign_in["state"]), ("ready", &json!("connected")));
    assert!(sign_in["refreshed_at_ms"].is_u64(), "{sign_in}");
}

#[tokio::test]
async fn a_token_is_refreshed_ahead_of_its_expiry_without_a_request() {
    let vendor = Vendor::start().await;
    vendor.life_s(Some(1));
    let connected = Connected::at(vendor, setup(&Yaml::new()).start().await).await;
    connected.vendor.life_s(Some(3_600));
    wait::eventually("the refresh", async || (connected.vendor.refreshes() == 1).then_some(())).await;
    wait::eventually("its tokens", async || {
        connected.sign_in().await.1["refreshed_at_ms"].is_u64().then_some(())
    })
    .await;
    assert_eq!(connected.client().chat(chat::request("partner/m")).await.status, 200);
    assert_eq!(connected.vendor.api.requests().len(), 1, "no request met an expired token");
    let used: Vec<String> = connected
        .vendor
        .forms("/token")
        .iter()
        .filter_map(|form| form.get("refresh_token").cloned())
        .collect();
    assert_eq!(used, ["planted-refresh-2"]);
}

#[tokio::test]
async fn a_refused_refresh_disconnects_once_and_is_never_repeated() {
    let connected = Connected::start().await;
    connected.vendor.end_access();
    connected.vendor.end_refresh();
    let first = connected.client().chat(chat::request("partner/m")).await;
    assert!(first.status >= 400, "{first:?}");
    wait::eventually("the disconnection", async || {
        (connected.sign_in().await.0 == "not_connected").then_some(())
    })
    .await;
    let (_, sign_in) = connected.sign_in().await;
    assert_eq!(sign_in["state"], "broken");
    assert!(sign_in["last_error"]["message"].as_str().unwrap().contains("invalid_grant"), "{sign_in}");
    for _ in 0..5 {
        let answer = connected.client().chat(chat::request("partner/m")).await;
        assert_eq!((answer.status, answer.error_code().as_str()), (503, "no_eligible_target"));
    }
    let gateway = connected.gateway.restart().await;
    assert_eq!(connected.vendor.refreshes(), 1, "neither requests nor a restart repeat it");
    let audit = Admin(gateway.client()).done("GET", "audit?action=provider.refresh", Value::Null).await;
    assert_eq!(audit["data"][0]["outcome"], "refused");
    assert!(gateway.log().is_empty() || !gateway.log().contains("planted"), "{}", gateway.log());
}

#[tokio::test]
async fn a_token_address_that_is_down_is_asked_again_with_the_same_refresh_token() {
    let connected = Connected::start().await;
    connected.vendor.end_access();
    for answer in [Answer::error(503), Answer::json(200, "<html>"), Answer::new().close()] {
        connected.vendor.script_token(answer);
    }
    let waiting = connected.client().chat(chat::request("partner/m")).await;
    assert!(waiting.status == 200 || waiting.status >= 400);
    wait::eventually("the fourth attempt", async || (connected.vendor.refreshes() == 4).then_some(())).await;
    wait::eventually("the new token", async || {
        (connected.client().chat(chat::request("partner/m")).await.status == 200).then_some(())
    })
    .await;
    let tokens: Vec<_> = connected
        .vendor
        .forms("/token")
        .into_iter()
        .filter_map(|mut form| form.remove("refresh_token"))
        .collect();
    assert_eq!(tokens, ["planted-refresh-2"; 4]);
}

/// kill -9 after the vendor has replaced the refresh token and before the gateway has stored the new one.
#[tokio::test]
async fn a_kill_in_a_refresh_whose_token_is_lost_is_reported() {
    let connected = Connected::start().await;
    let Connected { vendor, gateway, .. } = connected;
    let gate = Gate::new();
    vendor.before_token(Answer::new().wait(&gate));
    vendor.end_access();
    let client = crate::support::Client::new(gateway.address(), Some(&connected.key));
    let asking = tokio::spawn(async move { client.chat_flow(chat::request("partner/m")).await.status });
    wait::eventually("the refresh", async || (vendor.refreshes() == 1).then_some(())).await;
    // The vendor has issued the new tokens; its answer never arrives.
    let setup = gateway.kill().await;
    asking.abort();
    vendor.before_token(Answer::new());
    let gateway = setup.start().await;
    let admin = Admin(gateway.client());
    let shown = wait::eventually("the report", async || {
        let shown = admin.done("GET", "providers/partner", Value::Null).await;
        (shown["state"] == "not_connected").then_some(shown)
    })
    .await;
    let error = shown["sign_in"]["last_error"]["message"].as_str().unwrap_or_default();
    assert!(
        error.contains("invalid_grant") && error.contains("was not stored"),
        "{shown}\n{}",
        gateway.log()
    );
    assert_eq!(vendor.refreshes(), 2);
    gateway.logs("can no longer be used").await;
}

/// An orderly stop after the vendor has replaced the refresh token and before its answer has arrived.
#[tokio::test]
async fn a_stop_in_a_refresh_stores_its_tokens() {
    let vendor = Vendor::start().await;
    vendor.life_s(Some(1));
    let gate = Gate::new();
    vendor.before_token(Answer::new().wait(&gate));
    // The sign-in passes, its refresh does not.
    gate.open(1);
    let Connected { vendor, mut gateway, ada, key } =
        Connected::at(vendor, setup(&Yaml::new()).start().await).await;
    vendor.life_s(Some(3_600));
    wait::eventually("the refresh", async || (vendor.refreshes() == 1).then_some(())).await;
    gateway.signal(Signal::TERM);
    let address = gateway.address();
    wait::eventually("the end of the listener", async || {
        tokio::net::TcpStream::connect(address).await.is_err().then_some(())
    })
    .await;
    // Long enough for a process that waits for nothing to end.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    gate.open(1);
    assert!(gateway.exit().await.success(), "{}", gateway.log());
    vendor.before_token(Answer::new());
    let connected = Connected { gateway: gateway.kill().await.start().await, vendor, ada, key };
    let (state, sign_in) = connected.sign_in().await;
    assert_eq!((state.as_str(), &sign_in["state"]), ("ready", &json!("connected")), "{sign_in}");
    assert_eq!(connected.client().chat(chat::request("partner/m")).await.status, 200);
}

/// kill -9 before the vendor has seen the refresh, or of a vendor that accepts the earlier token once more.
#[tokio::test]
async fn a_kill_in_a_refresh_that_the_vendor_did_not_make_costs_nothing() {
    let Connected { vendor, gateway, ada, key } = Connected::start().await;
    vendor.script_token(Answer::hang_forever());
    vendor.end_access();
    let client = crate::support::Client::new(gateway.address(), Some(&key));
    let asking = tokio::spawn(async move { client.chat_flow(chat::request("partner/m")).await.status });
    wait::eventually("the refresh", async || (vendor.refreshes() == 1).then_some(())).await;
    let setup = gateway.kill().await;
    asking.abort();
    let connected = Connected { gateway: setup.start().await, vendor, ada, key };
    wait::eventually("the refresh after the restart", async || {
        connected.sign_in().await.1["refreshed_at_ms"].is_u64().then_some(())
    })
    .await;
    assert_eq!(connected.client().chat(chat::request("partner/m")).await.status, 200);
    assert_eq!(connected.vendor.refreshes(), 2);
}

/// Two gateways with copies of one state: the vendor accepts each refresh token once, so one of them loses, says so, and
/// does not go on asking.
#[tokio::test]
async fn two_gateways_with_one_refresh_token_do_not_fight() {
    let Connected { vendor, gateway, key, .. } = Connected::start().await;
    let first = gateway.kill().await;
    let second = setup(&Yaml::new());
    copy(&first.state(), &second.state());
    let gateways = [first.start().await, second.start().await];
    vendor.end_access();
    for gateway in &gateways {
        let client = crate::support::Client::new(gateway.address(), Some(&key));
        let _ = client.chat(chat::request("partner/m")).await;
    }
    let state = async |gateway: &Gateway| {
        let shown = Admin(gateway.client()).done("GET", "providers/partner", Value::Null).await;
        shown["state"].as_str().unwrap().to_owned()
    };
    wait::eventually("one winner and one loser", async || {
        let mut states = [state(&gateways[0]).await, state(&gateways[1]).await];
        states.sort();
        (states == ["not_connected", "ready"]).then_some(())
    })
    .await;
    assert_eq!(vendor.refreshes(), 2, "each asked once");
}

/// Clocks that differ by a day from the vendor's change nothing: lifetimes are relative, and rejected tokens are renewed.
#[tokio::test]
async fn a_clock_that_is_wrong_by_a_day_changes_nothing() {
    for days in [-1, 1] {
        let now_s = i64::try_from(shared::clock::unix_ms() / 1_000).unwrap();
        let Some(clock) = clock::at(now_s + days * 86_400) else {
            return skipped("there is no C compiler to set the gateway's clock with");
        };
        let gateway = setup(&Yaml::new()).with_clock(clock).start().await;
        let connected = Connected::at(Vendor::start().await, gateway).await;
        assert_eq!(connected.client().chat(chat::request("partner/m")).await.status, 200);
        connected.vendor.end_access();
        assert_eq!(connected.client().chat(chat::request("partner/m")).await.status, 200, "{days}");
        assert_eq!(connected.vendor.refreshes(), 1);
    }
}

#[tokio::test]
async fn tokens_without_a_stated_lifetime_are_renewed_when_they_are_rejected() {
    let vendor = Vendor::start().await;
    vendor.life_s(None);
    let connected = Connected::at(vendor, setup(&Yaml::new()).start().await).await;
    assert_eq!(connected.sign_in().await.1["expires_at_ms"], Value::Null);
    connected.vendor.end_access();
    assert_eq!(connected.client().chat(chat::request("partner/m")).await.status, 200);
    assert_eq!(connected.vendor.refreshes(), 1);
}

/// Copies the files of a state directory.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}
