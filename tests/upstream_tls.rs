//! TLS of single providers: client certificates, which upstreams demand, and authorities of their own.

use std::path::Path;

use rustls::version::{TLS12, TLS13};
use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::client::Whole;
use crate::support::gateway::Setup;
use crate::support::proxy::{HttpProxy, Manner};
use crate::support::tls::Authority;
use crate::support::tls_upstream::{ClientAuthority, ClientCertificate, TlsUpstream};
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, wait};

/// An upstream that demands certificates of `clients`, a certificate that it accepts, and a folder for files.
struct Rig {
    server: Authority,
    clients: ClientAuthority,
    folder: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        Self {
            server: Authority::new(&[]),
            clients: ClientAuthority::new(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    async fn upstream(&self, protocols: &[&[u8]]) -> TlsUpstream {
        TlsUpstream::start(self.server.demanding(self.clients.roots(), protocols, &[&TLS13, &TLS12])).await
    }

    /// Returns the members of a provider that shows `certificate` and trusts the upstream only.
    fn members(&self, certificate: &ClientCertificate, name: &str) -> String {
        let ca = self.server.ca_file();
        format!("tls:\n  ca: ${{FILE:{}}}\n{}", ca.display(), certificate.write(self.folder.path(), name))
    }

    fn setup(&self, yaml: &Yaml) -> Setup {
        Setup::new(yaml).env("LLMGW_WORKERS", "1")
    }
}

async fn ask(gateway: &Gateway, model: &str) -> Whole {
    gateway.client().chat(chat::request(model)).await
}

async fn serves(gateway: &Gateway, model: &str) {
    let answer = ask(gateway, model).await;
    assert_eq!(answer.status, 200, "{answer:?}\n{}", gateway.log());
}

/// Both providers have the same address: neither a connection nor a session of one may serve the other.
#[tokio::test]
async fn each_provider_identifies_the_gateway_by_its_own_certificate() {
    for (protocols, is_http2) in [(&[b"h2".as_slice(), b"http/1.1"][..], true), (&[b"http/1.1"], false)] {
        let rig = Rig::new();
        let upstream = rig.upstream(protocols).await;
        let certificates = [rig.clients.issue("first.test"), rig.clients.issue("second.test")];
        let yaml = Yaml::new()
            .provider_with("p0", upstream.base_url(), &rig.members(&certificates[0], "first"))
            .provider_with("p1", upstream.base_url(), &rig.members(&certificates[1], "second"));
        let gateway = rig.setup(&yaml).start().await;
        for round in 0..3 {
            for (place, certificate) in certificates.iter().enumerate() {
                serves(&gateway, &format!("p{place}/m")).await;
                let seen = upstream.take();
                assert!(seen.len() == 1 && seen[0].is_of(certificate), "{round}, p{place}: {seen:?}");
                assert_eq!(seen[0].is_http2, is_http2, "ALPN is negotiated as without a certificate");
                assert_eq!(seen[0].server_name.as_deref(), Some("localhost"));
                assert_eq!(seen[0].is_resumed, round > 0 && !is_http2, "{round}: sessions are resumed");
            }
        }
    }
}

#[tokio::test]
async fn an_upstream_that_rejects_the_certificate_is_named_and_the_next_target_serves() {
    let next = Upstream::start().await;
    next.always(Answer::completion("hello"));
    let protocols: [&[&[u8]]; 3] = [&[], &[b"http/1.1"], &[b"h2"]];
    let versions = [&[&TLS13][..], &[&TLS12]];
    for (protocols, versions) in protocols.into_iter().flat_map(|one| versions.map(|other| (one, other))) {
        let rig = Rig::new();
        let foreign = ClientAuthority::named("another authority").issue("a.test");
        let (forged, late) =
            (ClientAuthority::new().issue("a.test"), rig.clients.issue_until("a.test", 2_020));
        let acceptor = rig.server.demanding(rig.clients.roots(), protocols, versions);
        let upstream = Upstream::start_tls(acceptor).await;
        let trusting = format!("tls:\n  ca: ${{FILE:{}}}", rig.server.ca_file().display());
        for (members, want) in [
            (trusting, "it requires a client certificate"),
            (rig.members(&foreign, "foreign"), "it rejected the client certificate"),
            (rig.members(&forged, "forged"), "it rejected the client certificate"),
            (rig.members(&late, "late"), "it rejected the client certificate"),
        ] {
            let yaml = Yaml::new()
                .provider_with("p0", upstream.base_url(), &members)
                .provider("p1", next.base_url())
                .endpoint("line", &[("p0", "m"), ("p1", "m")]);
            let gateway = rig.setup(&yaml).start().await;
            let alone = ask(&gateway, "p0/m").await;
            let text = format!("The provider 'p0' cannot be reached: {want}.");
            let shown = &alone.json()["error"]["message"];
            assert_eq!(shown, &text, "{protocols:?} {versions:?}\n{}", gateway.log());
            assert_eq!((alone.status, alone.error_code().as_str()), (502, "upstream_unreachable"));
            let line = ask(&gateway, "line").await;
            assert_eq!((line.status, line.header("x-llmgw-provider")), (200, Some("p1")), "{want}");
            let record = gateway.record_of(line.header("x-request-id").unwrap()).await;
            let step = &record["trace"][0];
            assert_eq!(
                (&step["result"], &step["message"]),
                (&json!("unreachable"), &json!(text)),
                "{record}"
            );
        }
        assert_eq!(upstream.requests().len(), 0);
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_from_the_next_request_on() {
    let rig = Rig::new();
    for protocols in [&[b"http/1.1".as_slice()][..], &[b"h2"]] {
        let upstream = rig.upstream(protocols).await;
        let (first, second) = (rig.clients.issue("first.test"), rig.clients.issue("second.test"));
        let yaml = Yaml::new().provider_with("up", upstream.base_url(), &rig.members(&first, "own"));
        let gateway = rig.setup(&yaml).start().await;
        serves(&gateway, "m").await;
        assert!(upstream.take()[0].is_of(&first));
        // A key without its certificate is not used, but reported; the former pair stays.
        std::fs::write(rig.folder.path().join("own.key"), &second.key).unwrap();
        gateway.logs("providers.up.tls.key: is not the key of the first certificate in certificate").await;
        serves(&gateway, "m").await;
        assert!(upstream.take()[0].is_of(&first));
        std::fs::write(rig.folder.path().join("own.pem"), &second.certificate).unwrap();
        wait::eventually("the second certificate", async || {
            serves(&gateway, "m").await;
            upstream.take()[0].is_of(&second).then_some(())
        })
        .await;
        assert!(!gateway.log().contains("PRIVATE KEY"));
    }
}

#[tokio::test]
async fn a_provider_with_authorities_of_its_own_trusts_no_others() {
    let (server, other) = (Authority::new(&[]), Authority::new(&[]));
    let upstream = Upstream::start_tls(server.acceptor()).await;
    upstream.always(Answer::completion("hello"));
    let trusting =
        |authority: &Authority| format!("tls: {{ca: '${{FILE:{}}}'}}", authority.ca_file().display());
    let yaml = Yaml::new()
        .provider_with("own", upstream.base_url(), &trusting(&server))
        .provider_with("other", upstream.base_url(), &trusting(&other))
        .provider("usual", upstream.base_url());
    let extra = |authority: &Authority| authority.ca_file().display().to_string();
    let gateway = Setup::new(&yaml).env("LLMGW_EXTRA_CA_FILE", extra(&server)).start().await;
    for (model, want) in [("own/m", 200), ("other/m", 502), ("usual/m", 200)] {
        let answer = ask(&gateway, model).await;
        assert_eq!(answer.status, want, "{model}: {answer:?}");
    }
    let gateway = Setup::new(&yaml).env("LLMGW_EXTRA_CA_FILE", extra(&other)).start().await;
    for (model, want) in [("own/m", 200), ("other/m", 502), ("usual/m", 502)] {
        let answer = ask(&gateway, model).await;
        assert_eq!(answer.status, want, "{model}: {answer:?}");
    }
}

#[tokio::test]
async fn a_client_certificate_is_shown_through_a_proxy() {
    let rig = Rig::new();
    let upstream = rig.upstream(&[b"http/1.1"]).await;
    let proxy = HttpProxy::start(Manner::Lead(upstream.address())).await;
    let certificate = rig.clients.issue("a.test");
    let members = rig.members(&certificate, "own");
    let elsewhere = "https://models.example/v1";
    let yaml = Yaml::new()
        .provider_with("own", elsewhere, &format!("proxy: '{}'\n{members}", proxy.url("")))
        .provider_with("variable", elsewhere, &members);
    let gateway = rig.setup(&yaml).env("HTTPS_PROXY", proxy.url("")).start().await;
    for model in ["own/m", "variable/m"] {
        serves(&gateway, model).await;
        let seen = upstream.take();
        assert!(seen.len() == 1 && seen[0].is_of(&certificate), "{model}: {seen:?}");
        assert_eq!(seen[0].server_name.as_deref(), Some("models.example"), "{model}");
    }
    assert_eq!(proxy.lines(), ["CONNECT models.example:443 HTTP/1.1"; 2]);
}

fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    format!("'${{FILE:{}}}'", path.display())
}

#[tokio::test]
async fn what_is_wrong_with_a_certificate_is_found_before_the_start() {
    let (folder, clients) = (tempfile::tempdir().unwrap(), ClientAuthority::new());
    let (one, other) = (clients.issue("a.test"), clients.issue("b.test"));
    let file = |name: &str, text: &str| written(folder.path(), name, text);
    let (certificate, key) = (file("one.pem", &one.certificate), file("one.key", &one.key));
    let broken = one.certificate.replace("MII", "MI!");
    let key_lines: Vec<&str> = one.key.lines().filter(|line| !line.starts_with("-----")).collect();
    let check = async |url: &str, tls: String, code: i32| {
        let yaml = format!(
            "providers:\n  up:\n    type: compatible\n    base_url: {url}\n    api_key: k\n    tls: {tls}\n    models: [m]\n"
        );
        let printed = Setup::new(&Yaml::new()).yaml(yaml).output_of(&["config", "check"], code).await;
        let is_clean = key_lines.iter().all(|line| !printed.contains(line));
        assert!(is_clean, "{printed}");
        printed
    };
    let faults = [
        ("{}".to_owned(), "tls: sets nothing; set ca, or certificate and key"),
        (format!("{{certificate: {certificate}}}"), "tls: has a certificate without its key; set key"),
        (format!("{{key: {key}}}"), "tls: has a key without its certificate; set certificate"),
        (format!("{{ca: {key}}}"), "tls.ca: contains no PEM certificate; write certificates in PEM"),
        (format!("{{ca: {}}}", file("broken", &broken)), "tls.ca: cannot be read"),
        (
            format!("{{certificate: {certificate}, key: {certificate}}}"),
            "tls.key: contains no private key that can be read; write an unencrypted one in PEM",
        ),
        (
            format!("{{certificate: {certificate}, key: {}}}", file("other.key", &other.key)),
            "tls.key: is not the key of the first certificate in certificate",
        ),
        (
            format!("{{certificate: {}, key: {key}}}", file("none", "nothing")),
            "tls.certificate: contains no PEM certificate",
        ),
        (
            format!("{{certificate: {certificate}, key: '${{FILE:/gone.key}}'}}"),
            "tls.key: cannot read /gone.key",
        ),
        (format!("{{certificate: {certificate}, key: {key}, name: x}}"), "tls"),
    ];
    for (tls, want) in faults {
        let printed = check("https://localhost/v1", tls, 78).await;
        assert!(printed.contains(&format!("providers.up.{want}")), "{want}\n{printed}");
    }
    let good = format!("{{certificate: {certificate}, key: {key}}}");
    let printed = check("http://localhost/v1", good.clone(), 78).await;
    assert!(printed.contains("tls: has no effect without TLS; begin base_url with https://"), "{printed}");
    let printed = check("https://localhost/v1", good, 0).await;
    assert!(!printed.contains("warning: providers.up.tls"), "{printed}");
    let late = clients.issue_until("late.test", 2_020);
    let (certificate, key) = (file("late.pem", &late.certificate), file("late.key", &late.key));
    let printed =
        check("https://localhost/v1", format!("{{certificate: {certificate}, key: {key}}}"), 0).await;
    let want = "providers.up: tls.certificate: certificate 1 expired at 2020-01-01T00:00:00Z; renew it";
    assert!(printed.contains(want), "{printed}");
    for (days, is_soon) in [(13, true), (15, false)] {
        let ca = file("ending", &clients.issue_for_days("a.test", days).certificate);
        let printed = check("https://localhost/v1", format!("{{ca: {ca}}}"), 0).await;
        let warned = printed.contains("warning: providers.up: tls.ca: certificate 1 expires at ");
        assert_eq!(warned, is_soon, "{days} days: {printed}");
    }
}

/// Whoever manages providers must not be able to read the tokens of the machine's account.
#[tokio::test]
async fn the_account_of_the_machine_trusts_no_authorities_of_a_provider() {
    let authority = Authority::new(&[]);
    let yaml = |key: &str| {
        let ca = authority.ca_file();
        format!(
            "providers:\n  up: {{type: vertex, project: p, {key}tls: {{ca: '${{FILE:{}}}'}}, models: [gemini-x]}}\n",
            ca.display()
        )
    };
    let of_machine = Setup::new(&Yaml::new()).yaml(yaml("")).output_of(&["config", "check"], 78).await;
    assert!(
        of_machine.contains("providers.up.tls.ca: without api_key the machine's own account"),
        "{of_machine}"
    );
    Setup::new(&Yaml::new()).yaml(yaml("api_key: a-token, ")).output_of(&["config", "check"], 0).await;
}

#[tokio::test]
async fn the_api_stores_a_certificate_and_a_reference_to_its_key() {
    let rig = Rig::new();
    let upstream = rig.upstream(&[b"http/1.1"]).await;
    let (first, second) = (rig.clients.issue("first.test"), rig.clients.issue("second.test"));
    let ca = std::fs::read_to_string(rig.server.ca_file()).unwrap();
    let setup = rig.setup(&Yaml::new()).env("FIRST_KEY", &first.key).env("SECOND_KEY", &second.key);
    let gateway = setup.start().await;
    let admin = Admin(gateway.client());
    let provider = |tls: Value| {
        let url = upstream.base_url();
        json!({"id": "up", "type": "compatible", "base_url": url, "api_key": "k", "models": ["m"], "tls": tls})
    };
    for (tls, field, want) in [
        (json!({"certificate": first.certificate, "key": first.key}), "tls.key", "must be ${ENV:NAME}"),
        (
            json!({"certificate": first.certificate, "key": "${FILE:/run/key}"}),
            "tls.key",
            "must be ${ENV:NAME}",
        ),
        (json!({"certificate": first.certificate, "key": "••••"}), "tls.key", "is the placeholder"),
        (json!({"certificate": first.certificate, "key": "${ENV:SECOND_KEY}"}), "tls.key", "is not the key"),
        (json!({"ca": "${FILE:/run/ca.pem}"}), "tls.ca", "is for the configuration file only"),
    ] {
        let refused = admin.call("POST", "providers", provider(tls)).await;
        let text = refused.json().to_string();
        assert!(refused.status == 400 && text.contains(field) && text.contains(want), "{want}: {refused:?}");
        assert!(!text.contains("PRIVATE"), "{text}");
    }
    let tls = json!({"ca": ca, "certificate": first.certificate, "key": "${ENV:FIRST_KEY}"});
    let made = admin.done("POST", "providers", provider(tls.clone())).await;
    assert_eq!(made["tls"], tls);
    serves(&gateway, "m").await;
    assert!(upstream.take().iter().all(|seen| seen.is_of(&first)));
    let patch = json!({"tls": {"certificate": second.certificate, "key": "${ENV:SECOND_KEY}"}});
    let changed = admin.done("PATCH", "providers/up", patch).await;
    assert_eq!(changed["tls"]["ca"], ca, "what a patch leaves out stays");
    serves(&gateway, "m").await;
    assert!(upstream.take().iter().any(|seen| seen.is_of(&second)));

    let exported = gateway.setup().output_of(&["export"], 0).await;
    assert!(exported.contains("${ENV:SECOND_KEY}") && !exported.contains("PRIVATE"), "{exported}");
    let again = rig.setup(&Yaml::new()).yaml(exported).env("SECOND_KEY", &second.key).env("UP_API_KEY", "k");
    let again = again.start().await;
    serves(&again, "m").await;
    let shown = Admin(again.client()).done("GET", "providers/up", Value::Null).await;
    assert_eq!(shown["tls"]["key"], "${ENV:SECOND_KEY}");
    assert!(upstream.take().iter().any(|seen| seen.is_of(&second)));
}
