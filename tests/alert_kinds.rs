//! Each kind of alert through the real binary: its condition opens one alert, with its figures; the end of the condition
//! resolves it; a webhook receives both events.

use rustix::fs::statvfs;
use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::small_disk::SmallDisk;
use crate::support::tls_upstream::ClientAuthority;
use crate::support::vendor::{Browser, Connected, Vendor, setup};
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, clock, skipped, wait};

/// A gateway whose alerts of one kind are watched by a webhook.
struct Watched {
    gateway: Gateway,
    receiver: Upstream,
    kind: &'static str,
}

impl Watched {
    /// Creates the webhook, and sets the rule of `kind` to open and resolve alerts without delay.
    async fn of(gateway: Gateway, kind: &'static str) -> Self {
        let receiver = Upstream::start().await;
        receiver.always(Answer::json(200, "{}"));
        let admin = Admin(gateway.client());
        let url = format!("http://{}/hook", receiver.address());
        let webhook = json!({"name": "receiver", "url": url, "kinds": [kind], "send_resolved": true});
        admin.done("POST", "webhooks", webhook).await;
        let watched = Self { gateway, receiver, kind };
        watched.rule(json!({"hold_seconds": 0, "clear_seconds": 0})).await;
        watched
    }

    fn admin(&self) -> Admin {
        Admin(self.gateway.client())
    }

    /// Changes the built-in rule of the kind.
    async fn rule(&self, settings: Value) {
        self.admin().done("PATCH", &format!("alert-rules/rule_{}", self.kind), settings).await;
    }

    /// Waits for the only alert to be open, and for its event. Returns the alert.
    async fn opened(&self) -> Value {
        self.alert("open", 0).await
    }

    /// Waits for the only alert to be resolved, and for its event. Returns the alert.
    async fn resolved(&self) -> Value {
        let alert = self.alert("resolved", 1).await;
        assert_eq!(self.events().len(), 2, "one event for each change");
        alert
    }

    async fn alert(&self, state: &str, event: usize) -> Value {
        let what = format!("one alert {} that is {state}; log: {}", self.kind, self.gateway.log());
        let alert = wait::eventually_within(3 * wait::PATIENCE, &what, async || {
            let page = self.admin().done("GET", &format!("alerts?kind={}", self.kind), Value::Null).await;
            let [alert] = page["data"].as_array().unwrap().as_slice() else { return None };
            (alert["state"] == state).then(|| alert.clone())
        })
        .await;
        let body =
            wait::eventually(&format!("event {event}"), async || self.events().get(event).cloned()).await;
        assert_eq!((&body["type"], &body["data"]["state"]), (&json!(self.kind), &json!(state)));
        assert_eq!((&body["object"], &body["data"]["alert"]), (&alert["object"], &alert["id"]));
        for member in ["figures", "text", "severity"] {
            assert_eq!(body["data"][member], alert[member], "{member}");
        }
        alert
    }

    /// Returns the events that have arrived. One whose outcome a killed gateway had not stored arrives again.
    fn events(&self) -> Vec<Value> {
        let mut events: Vec<Value> = Vec::new();
        for request in self.receiver.requests() {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            if !events.iter().any(|event| event["id"] == body["id"]) {
                events.push(body);
            }
        }
        events
    }

    /// Kills the gateway and starts it again, perhaps with another clock.
    async fn restart(self, clock: Vec<(&str, String)>) -> Self {
        let gateway = self.gateway.kill().await.with_clock(clock).start().await;
        Self { gateway, ..self }
    }
}

fn figure(alert: &Value, name: &str) -> f64 {
    alert["figures"][name].as_f64().unwrap_or_else(|| panic!("{name} is missing: {alert}"))
}

/// M-085, M-086.
#[tokio::test]
async fn little_free_space_raises_an_alert_with_the_space() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let watched = Watched::of(gateway, "disk_low").await;
    let state = watched.gateway.state();
    watched.rule(json!({"threshold": 99})).await;
    let alert = watched.opened().await;
    let disk = statvfs(state.as_path()).unwrap();
    let (free, all) = (disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize);
    // Other tests use the disk meanwhile.
    let differs = (figure(&alert, "free_percent") - 100.0 * free as f64 / all as f64).abs();
    assert!(differs < 5.0 && figure(&alert, "free_mebibytes") > 0.0, "{alert}");
    assert_eq!(alert["object"], Value::Null);
    watched.rule(json!({"threshold": 0.1})).await;
    watched.resolved().await;
}

/// On a file system of 48 MiB and with the default threshold: the alert is raised while there is room for it, answers
/// continue on the full disk, and the alert is resolved when there is room again.
#[tokio::test]
async fn a_disk_that_fills_up_raises_an_alert_and_room_resolves_it() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let setup = Setup::new(&Yaml::one(upstream.base_url()));
    std::fs::create_dir(setup.state()).unwrap();
    let Some(disk) = SmallDisk::mount(&setup.state(), 48) else { return };
    let watched = Watched::of(setup.start().await, "disk_low").await;
    let chats = async |count: usize| {
        for _ in 0..count {
            assert_eq!(watched.gateway.client().chat(chat::request("m")).await.status, 200);
        }
    };
    let alerts = watched.admin().done("GET", "alerts?kind=disk_low", Value::Null).await;
    assert_eq!(alerts["data"], json!([]), "there is room");

    disk.fill(2 << 20);
    let alert = watched.opened().await;
    assert!(figure(&alert, "free_percent") < 5.0 && figure(&alert, "free_mebibytes") <= 2.0, "{alert}");
    chats(20).await;

    disk.fill(0);
    let name = "n".repeat(100);
    let mut status = 0;
    for attempt in 0..2_000 {
        let project = json!({"name": format!("{attempt}-{name}")});
        status = watched.admin().call("POST", "projects", project).await.status;
        if status == 503 {
            break;
        }
    }
    assert_eq!(status, 503, "a change fails when the database has no room");
    chats(20).await;

    disk.clear();
    watched.resolved().await;
    watched.admin().done("POST", "projects", json!({"name": "there is room again"})).await;
    chats(1).await;
    assert_eq!(watched.gateway.records(41).await.len(), 41, "every answer is recorded");
    // Before the gateway's directory is removed.
    drop(disk);
}

/// The alert outlives the process, because the failure does.
#[tokio::test]
async fn a_failed_backup_raises_an_alert_until_one_succeeds() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let watched = Watched::of(gateway, "backup_failed").await;
    let folder = watched.gateway.state().join("backups");
    std::fs::create_dir_all(&folder).unwrap();
    // A file where the backup makes a folder.
    std::fs::write(folder.join(".draft"), "a file").unwrap();
    watched.admin().done("POST", "backups", json!({})).await;
    let alert = watched.opened().await;
    assert!(alert["text"].as_str().unwrap().starts_with("The last backup failed: "), "{alert}");
    let watched = watched.restart(Vec::new()).await;
    std::fs::remove_file(folder.join(".draft")).unwrap();
    watched.opened().await;
    watched.admin().done("POST", "backups", json!({})).await;
    watched.resolved().await;
}

#[tokio::test]
async fn an_archive_that_cannot_be_restored_raises_an_alert_until_one_can() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let watched = Watched::of(gateway, "backup_failed").await;
    let archive = backup(&watched).await;
    let path = watched.gateway.state().join("backups").join(archive);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&path, bytes).unwrap();
    // The newest archive is rehearsed after each start.
    let watched = watched.restart(Vec::new()).await;
    let alert = watched.opened().await;
    assert!(
        alert["text"].as_str().unwrap().starts_with("The last rehearsal of a restore failed: "),
        "{alert}"
    );
    std::fs::remove_file(path).unwrap();
    backup(&watched).await;
    watched.restart(Vec::new()).await.resolved().await;
}

/// Makes a backup and returns its name.
async fn backup(watched: &Watched) -> String {
    watched.admin().done("POST", "backups", json!({})).await;
    wait::eventually("an archive", async || {
        let list = watched.admin().done("GET", "backups", Value::Null).await;
        let is_done = list["is_running"] == false && list["is_checking"] == false;
        let name = list["data"][0]["name"].as_str().filter(|_| is_done)?;
        Some(name.to_owned())
    })
    .await
}

#[tokio::test]
async fn a_model_that_its_vendor_withdraws_raises_an_alert_about_the_endpoint() {
    let upstream = Upstream::start().await;
    let list = |models: &[&str]| {
        let data: Vec<Value> = models.iter().map(|id| json!({"id": id})).collect();
        Answer::json(200, json!({"object": "list", "data": data}).to_string())
    };
    upstream.always(list(&["other"]));
    let yaml = Yaml::one(upstream.base_url()).endpoint("coding", &[("up", "m")]);
    let watched = Watched::of(Gateway::start(&yaml).await, "catalog_drift").await;
    watched.admin().done("POST", "catalog/sync", json!({})).await;
    let alert = watched.opened().await;
    assert_eq!(alert["object"], "coding");
    assert_eq!(alert["text"], "Targets that their provider no longer lists: up/m");
    upstream.always(list(&["m", "other"]));
    watched.admin().done("POST", "catalog/sync", json!({})).await;
    watched.resolved().await;
}

#[tokio::test]
async fn a_token_that_cannot_be_renewed_raises_an_alert_with_the_time_that_is_left() {
    let vendor = Vendor::start().await;
    vendor.life_s(Some(3_000));
    let connected = Connected::at(vendor, setup(&Yaml::new()).start().await).await;
    let client = connected.client();
    let Connected { vendor, gateway, .. } = connected;
    let watched = Watched::of(gateway, "credential_expiring").await;
    vendor.before_token(Answer::new().close());
    vendor.end_access();
    client.chat_flow(chat::request("partner/m")).await;
    let alert = watched.opened().await;
    assert_eq!(alert["object"], "partner");
    assert!((0.5..0.84).contains(&figure(&alert, "left_hours")), "{alert}");
    vendor.before_token(Answer::new());
    watched.resolved().await;
}

#[tokio::test]
async fn a_rejected_credential_raises_an_alert_until_it_is_accepted() {
    let upstream = Upstream::start().await;
    upstream.then(Answer::error(401)).always(Answer::completion("ok"));
    let yaml = Yaml::one(upstream.base_url()).policies("circuit_cooldown_seconds: 1");
    let watched = Watched::of(Gateway::start(&yaml).await, "credential_broken").await;
    let client = watched.gateway.client();
    assert_ne!(client.chat(chat::request("m")).await.status, 200);
    let alert = watched.opened().await;
    assert_eq!(alert["object"], "up");
    assert_eq!(alert["text"], "The upstream rejects its credential with status 401.");
    wait::eventually("an answer", async || {
        (client.chat(chat::request("m")).await.status == 200).then_some(())
    })
    .await;
    watched.resolved().await;
}

/// The client certificate of one provider is replaced by one that ends in 10 days; that of the other ends in 30.
#[tokio::test]
async fn a_client_certificate_that_expires_raises_an_alert_until_a_renewed_one_is_read() {
    let (folder, clients) = (tempfile::tempdir().unwrap(), ClientAuthority::new());
    let tls = |name: &str, days: u64| {
        format!("tls:\n{}", clients.issue_for_days("a.test", days).write(folder.path(), name))
    };
    let yaml = Yaml::new().provider_with("soon", "https://localhost:9/v1", &tls("soon", 40)).provider_with(
        "later",
        "https://localhost:9/v1",
        &tls("later", 30),
    );
    let watched = Watched::of(Gateway::start(&yaml).await, "certificate_expiring").await;
    clients.issue_for_days("a.test", 10).write(folder.path(), "soon");
    let alert = watched.opened().await;
    assert_eq!(alert["object"], "soon");
    assert!((9.9..=10.0).contains(&figure(&alert, "left_days")), "{alert}");
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(10 * 24);
    let text = alert["text"].as_str().unwrap();
    let want = format!("Its client certificate (tls.certificate) expires at {}", end.strftime("%Y-%m-%dT"));
    assert!(text.starts_with(&want) && text.contains("in 10.0 days"), "{text}, not {want}");
    clients.issue_for_days("a.test", 40).write(folder.path(), "soon");
    watched.resolved().await;
}

/// The last authority of a bundle counts, so that a successor beside the former one ends the alert.
#[tokio::test]
async fn an_authority_that_expires_raises_an_alert_until_its_successor_is_trusted() {
    let clients = ClientAuthority::new();
    let [old, new] = [3, 400].map(|days| clients.issue_for_days("authority.test", days).certificate);
    let watched = Watched::of(Gateway::start(&Yaml::new()).await, "certificate_expiring").await;
    let provider = json!({"id": "inside", "type": "compatible", "base_url": "https://localhost:9/v1",
        "api_key": "k", "models": ["m"], "tls": {"ca": old}});
    watched.admin().done("POST", "providers", provider).await;
    let alert = watched.opened().await;
    assert_eq!(alert["object"], "inside");
    let text = alert["text"].as_str().unwrap();
    assert!(text.starts_with("The certificate of its authority (tls.ca) expires at "), "{text}");
    let both = json!({"tls": {"ca": format!("{old}{new}")}});
    watched.admin().done("PATCH", "providers/inside", both).await;
    watched.resolved().await;
}

/// A refused renewal of an OAuth sign-in, until the human signs in again.
#[tokio::test]
async fn a_refused_refresh_raises_an_alert_until_the_human_signs_in_again() {
    let connected = Connected::start().await;
    let client = connected.client();
    let Connected { vendor, gateway, .. } = connected;
    let watched = Watched::of(gateway, "credential_broken").await;
    vendor.end_access();
    vendor.end_refresh();
    client.chat_flow(chat::request("partner/m")).await;
    let alert = watched.opened().await;
    assert_eq!(alert["object"], "partner");
    assert!(alert["text"].as_str().unwrap().contains("invalid_grant"), "{alert}");
    let watched = watched.restart(Vec::new()).await;
    watched.opened().await;
    Browser::sign_in(&watched.gateway).await.connect(&vendor, &json!({})).await;
    watched.resolved().await;
}

/// Four weeks with a request in this hour of the week, then a loop of ten.
#[tokio::test]
async fn a_key_that_spends_unusually_much_raises_an_alert_with_what_is_usual() {
    const HOUR_S: i64 = 3_600;
    const WEEK_S: i64 = 7 * 24 * HOUR_S;
    let now_s = i64::try_from(shared::clock::unix_ms() / 1_000).unwrap();
    let at = |seconds: i64| clock::at(now_s - now_s % HOUR_S + HOUR_S / 2 + seconds);
    let Some(first) = at(-4 * WEEK_S) else {
        return skipped("there is no C compiler to set the gateway's clock with");
    };
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let prices = "models: [{id: m, prices: {input: 1000, output: 1000}}]";
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), prices);
    let mut watched = Watched::of(Setup::new(&yaml).with_clock(first).start().await, "spend_anomaly").await;
    let project = watched.admin().project("blue").await;
    let key = watched.admin().key(json!({"project": project})).await;
    let spend = async |watched: &Watched, requests: u32| {
        let client = Client::new(watched.gateway.address(), Some(&key.key));
        for _ in 0..requests {
            assert_eq!(client.chat(chat::request("up/m")).await.status, 200);
        }
        let record = watched.gateway.records(1).await.remove(0);
        record["cost_micro_usd"].as_f64().unwrap_or_else(|| panic!("{record}"))
    };
    let cost = spend(&watched, 1).await;
    // The loop is above the floor, a usual hour below it.
    watched.rule(json!({"floor_micro_usd": (5.0 * cost) as u64, "objects": [key.id]})).await;
    for week in (1..4).rev() {
        watched = watched.restart(at(-week * WEEK_S).unwrap()).await;
        spend(&watched, 1).await;
    }
    watched = watched.restart(at(0).unwrap()).await;
    spend(&watched, 10).await;
    let alert = watched.opened().await;
    let (spent, requests) = (figure(&alert, "spent_micro_usd"), figure(&alert, "requests"));
    assert!((spent - requests * cost).abs() < 1.0 && (6.0..=10.0).contains(&requests), "{alert}");
    // One of three hours of each week: the hour itself, and those beside it.
    assert!((figure(&alert, "usual_micro_usd") - cost / 3.0).abs() < 1.0, "{alert}");
    assert!(3.0 * figure(&alert, "usual_max_micro_usd") <= spent, "{alert}");
    assert!(alert["text"].as_str().unwrap().starts_with("The key a key has spent $"), "{alert}");
    watched.restart(at(2 * HOUR_S).unwrap()).await.resolved().await;
}
