//! Planted secrets, searched for in all stored and sent bytes (P18, M-125, M-126, M-210): plain, in base64 at each alignment,
//! in hex, in UTF-16, percent-encoded and escaped in JSON. One gateway exercises all its features at the highest log level,
//! and ends by kill -9.

mod people;
mod shown;

pub(crate) use self::shown::Watchers;
use self::shown::shown_by;

use std::path::Path;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use rustls::version::TLS13;
use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::figure::figure;
use crate::support::gateway::{ADMIN_KEY, ENCRYPTION_KEY, Setup};
use crate::support::proxy::{HttpProxy, Manner};
use crate::support::tls::Authority;
use crate::support::tls_upstream::{ClientAuthority, ClientCertificate, TlsUpstream};
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

/// The key of the file's provider, as [`Yaml`] writes it.
const FILE_KEY: &str = "upstream-secret-of-up";
const API_KEY: &str = "planted-key-of-the-made-provider-7f3a";
const LISTED_KEYS: [&str; 2] =
    ["planted-key-one-of-the-provider-with-several-2b", "planted-key-two-of-the-provider-with-several-9e"];
const HEADER: &str = "planted-header-of-the-made-provider-91";
const MODEL_HEADER: &str = "planted-header-of-a-model-c2f7";
const FILED: &str = "planted-secret-of-a-file-d41b-and-of-a-header";
const PROXY_PASSWORD: &str = "planted-password-of-a-proxy-88e2";
const PROMPT: &str = "planted prompt canary: seven violet herons";
const COMPLETION: &str = "planted answer canary: nine amber foxes";

/// Returns the secret in all encodings in which it might appear.
fn forms(secret: &[u8]) -> Vec<Vec<u8>> {
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![secret.to_vec(), hex.to_uppercase().into_bytes(), hex.into_bytes()];
    for alignment in 0..3 {
        let padded = [&vec![0; alignment], secret].concat();
        // Only the characters that depend on nothing but the secret.
        let (from, to) = ((alignment * 8).div_ceil(6), padded.len() * 8 / 6);
        for encoded in [BASE64_STANDARD_NO_PAD.encode(&padded), BASE64_URL_SAFE_NO_PAD.encode(&padded)] {
            forms.push(encoded.as_bytes()[from..to].to_vec());
        }
    }
    if let Ok(text) = std::str::from_utf8(secret) {
        forms.push(percent(text, |byte| format!("%{byte:02x}")).into_bytes());
        forms.push(percent(text, |byte| format!("%{byte:02X}")).into_bytes());
        let escaped = serde_json::to_string(text).unwrap().trim_matches('"').to_owned();
        forms.push(escaped.replace('/', "\\/").into_bytes());
        forms.push(escaped.into_bytes());
        forms.push(text.encode_utf16().flat_map(u16::to_le_bytes).collect());
        forms.push(text.encode_utf16().flat_map(u16::to_be_bytes).collect());
    }
    forms.sort();
    forms.dedup();
    forms
}

/// Encodes all characters but the unreserved ones of URLs.
fn percent(text: &str, encode: impl Fn(u8) -> String) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { encode(byte) })
        .collect()
}

/// Names and encodings of every secret.
#[derive(Default)]
pub(crate) struct Planted(Vec<(String, Vec<Vec<u8>>)>);

impl Planted {
    pub(crate) fn add(&mut self, name: &str, secret: impl AsRef<[u8]>) {
        let forms = forms(secret.as_ref());
        if !self.0.iter().any(|(_, known)| *known == forms) {
            self.0.push((name.to_owned(), forms));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn expect_none(&self, place: &str, bytes: &[u8]) {
        for (name, forms) in &self.0 {
            for form in forms {
                let at = memchr::memmem::find(bytes, form);
                assert_eq!(at, None, "{name} is in {place}, as {:?}", String::from_utf8_lossy(form));
            }
        }
    }

    /// Checks every file below `dir`, and the content of archives. Returns the number of files.
    pub(crate) fn expect_none_below(&self, dir: &Path) -> usize {
        let mut count = 0;
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                count += self.expect_none_below(&path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            self.expect_none(&path.display().to_string(), &bytes);
            if path.extension().is_some_and(|extension| extension == "zst") {
                let plain = zstd::decode_all(bytes.as_slice()).unwrap();
                assert!(plain.len() > 50_000, "the archive holds a database");
                self.expect_none(&format!("{}, unpacked", path.display()), &plain);
            }
            count += 1;
        }
        count
    }
}

#[test]
fn the_secret_search_finds_encoded_secrets() {
    let mut planted = Planted(Vec::new());
    planted.add("a secret", API_KEY);
    planted.add("a secret with signs", "a/b++ c");
    for (name, hidden) in [
        ("plain", format!("x{API_KEY}y").into_bytes()),
        ("base64", BASE64_STANDARD_NO_PAD.encode(format!("key={API_KEY}&x")).into_bytes()),
        ("base64 one on", BASE64_STANDARD_NO_PAD.encode(format!("key=={API_KEY}&x")).into_bytes()),
        ("base64 two on", BASE64_URL_SAFE_NO_PAD.encode(format!("key==={API_KEY}&x")).into_bytes()),
        ("utf-16", API_KEY.encode_utf16().flat_map(u16::to_be_bytes).collect()),
        ("percent", b"key=a%2Fb%2B%2B%20c&x".to_vec()),
        ("json", br#"{"key": "a\/b++ c"}"#.to_vec()),
    ] {
        let found = std::panic::catch_unwind(|| planted.expect_none("here", &hidden));
        assert!(found.is_err(), "{name}");
    }
    planted.expect_none("elsewhere", b"nothing of it");
}

async fn provoke(gateway: &Gateway, upstream: &Upstream, clients: &[Client]) -> Vec<(String, Vec<u8>)> {
    let mut answers = Vec::new();
    let body = |stream: bool, model: &str| {
        json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": PROMPT}]})
            .to_string()
    };
    for client in clients {
        // An upstream can quote the request, and what it knows of other providers.
        for (model, message) in [
            ("up/m", format!("Incorrect API key provided: {FILE_KEY}.")),
            ("made/m", format!("Incorrect API key provided: {API_KEY}.")),
            ("made/m", format!("Incorrect API key provided: {HEADER}.")),
            ("made/m", format!("It was {MODEL_HEADER} that came")),
            ("no/thing", format!("Incorrect API key provided: {API_KEY}.")),
            ("several/m", format!("Incorrect API key provided: {}.", LISTED_KEYS[0])),
            ("several/m", format!("Incorrect API key provided: {}.", LISTED_KEYS[1])),
            ("up/m", format!("It was {} that came before", LISTED_KEYS[1])),
            ("up/m", format!("It was {API_KEY} that came before, and {HEADER}")),
            (
                "made/m",
                format!("It was {FILE_KEY} that came before, or {}", BASE64_STANDARD_NO_PAD.encode(FILE_KEY)),
            ),
        ] {
            for path in ["whole", "stream"] {
                let (error, secret) = (chat::error(&message, "invalid_api_key"), message.as_str());
                upstream.always(match path {
                    "whole" => Answer::whole(
                        401,
                        &[("content-type", "application/json"), ("x-debug", secret)],
                        error,
                    ),
                    _ => Answer::stream().chunk(chat::content("a")).chunk(chat::event(&error)).end(),
                });
                let seen = match path {
                    "whole" => {
                        let answer = client.chat(body(false, model)).await;
                        [format!("{:?}", answer.headers).as_bytes(), &answer.body].concat()
                    }
                    _ => {
                        let mut flow = client.chat_flow(body(true, model)).await;
                        let mut received = format!("{:?}", flow.headers).into_bytes();
                        // A stream that fails is broken off; only the events before that matter.
                        let (events, _) = flow.rest().await;
                        received.extend(events.iter().flat_map(|event| event.bytes.to_vec()));
                        received
                    }
                };
                answers.push((format!("an error of {model}"), seen));
            }
        }
    }
    let wrong = Client::new(gateway.address(), Some("planted-wrong-key-that-nobody-has"));
    for path in [format!("/admin/api/keys/{API_KEY}"), format!("/v1/models/{API_KEY}")] {
        answers.push(("a refusal".to_owned(), wrong.get(&path).await.unwrap().body.to_vec()));
    }
    answers
}

/// An upstream that demands client certificates, with one for a provider of the file and one for a provider of the API.
struct Mutual {
    upstream: TlsUpstream,
    server: Authority,
    filed: ClientCertificate,
    stored: ClientCertificate,
}

impl Mutual {
    async fn start() -> Self {
        let (server, clients) = (Authority::new(&[]), ClientAuthority::new());
        let acceptor = server.demanding(clients.roots(), &[], &[&TLS13]);
        let upstream = TlsUpstream::start(acceptor).await;
        Self { upstream, server, filed: clients.issue("filed.test"), stored: clients.issue("stored.test") }
    }

    /// Returns the members of the file's provider, whose files are in `folder`.
    fn members(&self, folder: &Path) -> String {
        let ca = self.server.ca_file();
        format!("tls:\n  ca: ${{FILE:{}}}\n{}", ca.display(), self.filed.write(folder, "mutual"))
    }

    /// Returns the provider of the API, whose key is in the environment.
    fn provider(&self) -> Value {
        let ca = std::fs::read_to_string(self.server.ca_file()).unwrap();
        let tls = json!({"ca": ca, "certificate": self.stored.certificate, "key": "${ENV:PLANTED_TLS_KEY}"});
        json!({"id": "stored", "type": "compatible", "base_url": self.upstream.base_url(), "api_key": "a-key-that-is-not-planted",
            "models": ["m"], "tls": tls})
    }

    /// Adds the private keys: the texts, a line of each, and the bytes that they encode.
    fn plant(&self, planted: &mut Planted) {
        for (name, certificate) in
            [("a filed private key", &self.filed), ("a stored private key", &self.stored)]
        {
            let lines: Vec<&str> =
                certificate.key.lines().filter(|line| !line.starts_with("-----")).collect();
            let der = BASE64_STANDARD_NO_PAD.decode(lines.concat().trim_end_matches('=')).unwrap();
            planted.add(name, &certificate.key);
            planted.add(name, lines[1]);
            // The secret number of a key for ECDSA P-256 (RFC 5915) in its PKCS #8 form.
            planted.add(name, &der[36..68]);
        }
    }
}

/// Returns all planted secrets, and the project key that was created.
fn planted(key: &str) -> Planted {
    let mut planted = Planted(Vec::new());
    planted.add("the file's upstream key", FILE_KEY);
    planted.add("the made provider's key", API_KEY);
    planted.add("the made provider's header", HEADER);
    planted.add("a header of its model", MODEL_HEADER);
    LISTED_KEYS.iter().for_each(|key| planted.add("one of several keys", key));
    planted.add("the secret of a file", FILED);
    planted.add("the password of a proxy", PROXY_PASSWORD);
    planted.add("the administrator's key", ADMIN_KEY);
    planted.add("a wrong key", "planted-wrong-key-that-nobody-has");
    planted.add("the project key", key);
    planted.add("the prompt", PROMPT);
    planted.add("the answer", COMPLETION);
    planted.add(
        "the encryption key",
        BASE64_STANDARD_NO_PAD.decode(ENCRYPTION_KEY.trim_end_matches('=')).unwrap(),
    );
    planted.add("the encryption key's text", ENCRYPTION_KEY);
    planted
}

/// Files with secrets, as a container mounts them.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, secret) in [("administrator", ADMIN_KEY), ("filed", FILED), ("proxy", PROXY_PASSWORD)] {
            std::fs::write(folder.path().join(name), format!("{secret}\n")).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

/// Creates the providers of the API. Returns the answer that refuses to store a private key.
async fn create_providers(admin: &Admin, upstream: &Upstream, mutual: &Mutual) -> Vec<u8> {
    let made = json!({
        "id": "made", "type": "compatible", "base_url": upstream.base_url(), "api_key": API_KEY,
        "models": [{"id": "m", "headers": {"X-Class": MODEL_HEADER}}], "headers": {"X-Team": HEADER},
    });
    admin.done("POST", "providers", made).await;
    let several = json!({
        "id": "several", "type": "compatible", "base_url": upstream.base_url(), "models": ["m"],
        "api_keys": [{"key": LISTED_KEYS[0]}, LISTED_KEYS[1]],
    });
    admin.done("POST", "providers", several).await;
    admin.done("POST", "providers", mutual.provider()).await;
    let mut stolen = mutual.provider();
    stolen["id"] = json!("stolen");
    stolen["tls"]["key"] = json!(mutual.filed.key);
    let refused = admin.call("POST", "providers", stolen).await;
    assert_eq!(refused.status, 400, "a private key is not stored");
    refused.body.to_vec()
}

/// Sends a request to each provider.
async fn ask_all(client: &Client, mutual: &Mutual) {
    for model in ["up/m", "made/m", "several/m", "filed/m"] {
        let message = json!([{"role": "user", "content": PROMPT}]);
        let answer = client.chat(json!({"model": model, "messages": message}).to_string()).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        assert!(String::from_utf8_lossy(&answer.body).contains(COMPLETION));
    }
    for (model, certificate) in [("mutual/m", &mutual.filed), ("stored/m", &mutual.stored)] {
        let answer = client.chat(chat::request(model)).await;
        let seen = mutual.upstream.take();
        assert!(
            answer.status == 200 && seen.iter().all(|seen| seen.is_of(certificate)),
            "{model}: {answer:?}"
        );
    }
}

/// Searches what commands print, and what the backup restores.
async fn expect_none_printed(planted: &Planted, setup: &Setup) {
    let restored = setup.state().join("restored");
    let archive = std::fs::read_dir(setup.state().join("backups"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "zst"))
        .unwrap();
    let run = setup.run(&["backup", "restore", archive.to_str().unwrap(), restored.to_str().unwrap()]).await;
    assert!(run.status.success());
    planted.expect_none_below(&restored);
    planted.expect_none("the output of the commands", &[run.stdout, run.stderr].concat());
    for arguments in [&["export"][..], &["config", "show"], &["config", "check"], &["doctor"]] {
        let run = setup.run(arguments).await;
        planted.expect_none(&arguments.join(" "), &[run.stdout, run.stderr].concat());
    }
}

#[tokio::test]
async fn no_planted_secret_is_stored_logged_or_returned() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion(COMPLETION));
    let proxy = HttpProxy::start(Manner::Lead(upstream.address())).await;
    let files = Files::new();
    let filed = format!(
        "headers: {{X-Filed: '${{FILE:{}}}'}}\nproxy: '{}'",
        files.path("filed"),
        proxy.url(&format!("user:${{FILE:{}}}", files.path("proxy")))
    );
    let mutual = Mutual::start().await;
    let yaml = Yaml::one(upstream.base_url()).provider_with("filed", upstream.base_url(), &filed);
    let yaml = yaml.provider_with("mutual", mutual.upstream.base_url(), &mutual.members(files.0.path()));
    let setup = Setup::new(&yaml)
        .env("LLMGW_LOG", "trace")
        .without("LLMGW_API_KEY")
        .env("LLMGW_API_KEY_FILE", files.path("administrator"))
        .env("PLANTED_TLS_KEY", &mutual.stored.key);
    let gateway = setup.start().await;
    let admin = Admin(gateway.client());
    let refused = create_providers(&admin, &upstream, &mutual).await;
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let with_key = Client::new(gateway.address(), Some(&key.key));
    for client in [gateway.client(), with_key.clone()] {
        ask_all(&client, &mutual).await;
    }
    let mut answers = provoke(&gateway, &upstream, &[gateway.client(), with_key]).await;
    admin.done("POST", &format!("keys/{}/reveal", key.id), Value::Null).await;
    answers.extend(shown_by(&gateway).await);

    answers.push(("a refusal".to_owned(), refused));
    let mut planted = planted(&key.key);
    mutual.plant(&mut planted);
    for (place, bytes) in &answers {
        planted.expect_none(place, bytes);
    }
    assert!(!proxy.lines().is_empty(), "the provider has used its proxy");
    planted.expect_none("the log", gateway.log().as_bytes());
    gateway.logs("listening on").await;
    let setup = gateway.kill().await;
    let files = planted.expect_none_below(&setup.state());
    assert!(files >= 4, "database, write-ahead log, journal and backup: {files}");
    expect_private_below(&setup.state());
    expect_none_printed(&planted, &setup).await;
    figure(
        "P18",
        format!(
            "{} secrets in {} forms each: 0 found in {} answers, the log, {files} files, a backup and what it restores",
            planted.0.len(),
            planted.0[0].1.len(),
            answers.len()
        ),
    );
}

/// Checks that all files are accessible to their owner only.
fn expect_private_below(dir: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} can be read by others", path.display());
        if path.is_dir() {
            expect_private_below(&path);
        }
    }
}
