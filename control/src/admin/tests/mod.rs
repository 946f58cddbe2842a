//! The admin API over a real state: authentication, responses, and correct figures.

mod audit;
mod console;
mod gate;
mod humans;
mod hygiene;
mod lists;
mod permissions;
mod principals;
mod privacy;
mod process;
mod queries;
mod reconcile;
mod reference;
mod report;
mod requests;
mod series;
mod session;
mod shares;
mod single_sign_on;
mod usage;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use shared::alarm::Alarm;
use shared::build::BuildIdentity;
use shared::port::{Body, BoxError, BoxFuture, Exchanges, Handler, HttpClient, HttpLimits, KeptTables, full};
use shared::running::RunningExchanges;
use shared::snapshot::{self, SnapshotPublisher, SnapshotReader};
use shared::usage::UsageLog;
use tempfile::TempDir;

use crate::Asset;
use crate::Control;
use crate::OpenParams;
use crate::Params;
use crate::State;
use crate::routing::config::{self, Environment};
use crate::start;
use crate::state::log_lines::{self, LogLines};

const ADMIN: &str = "administrator-key-of-the-tests";
const PROJECT: &str = "llmgw_project-key-of-the-tests";

/// A data plane and an HTTP client that must not be called.
#[derive(Debug)]
struct Nowhere;

impl Handler for Nowhere {
    fn handle(&self, _: Request<Body>, _: SocketAddr) -> BoxFuture<Response<Body>> {
        panic!("nothing calls the data plane")
    }
}

impl HttpClient for Nowhere {
    fn send(&self, _: Request<Bytes>, _: HttpLimits) -> BoxFuture<Result<Response<Bytes>, BoxError>> {
        panic!("nothing calls out")
    }
}

impl Exchanges for Nowhere {
    fn running(&self) -> BoxFuture<RunningExchanges> {
        Box::pin(async { RunningExchanges::default() })
    }

    fn cancel(&self, _: &str) -> BoxFuture<bool> {
        Box::pin(async { false })
    }
}

impl KeptTables for Nowhere {
    fn changes(&self) -> u64 {
        0
    }

    fn content(&self) -> Vec<u8> {
        Vec::new()
    }

    fn restore(&self, _: &[u8]) -> bool {
        false
    }
}

struct Gateway {
    control: Control,
    handler: Arc<dyn Handler>,
    log: Box<dyn UsageLog>,
    publisher: SnapshotPublisher,
    reader: SnapshotReader,
    home: TempDir,
}

impl Gateway {
    fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a gateway with further environment variables.
    fn start_with(further: &[(&str, &str)]) -> Self {
        Self::start_beside(Arc::new(Nowhere), further)
    }

    /// Starts a gateway whose data plane runs `exchanges`.
    fn start_beside(exchanges: Arc<dyn Exchanges>, further: &[(&str, &str)]) -> Self {
        let home = TempDir::new().unwrap();
        let dir = home.path().join("state");
        let key = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [3; 32]);
        let variables = [
            ("LLMGW_API_KEY", ADMIN),
            ("LLMGW_CREDENTIAL_ENCRYPTION_KEY", key.as_str()),
            ("LLMGW_STATE_DIR", dir.to_str().unwrap()),
            ("LLMGW_ALLOW_UNAUTHENTICATED_API", "true"),
            // The exchanges of the tests are old.
            ("LLMGW_RETENTION_USAGE_DAYS", "36500"),
        ];
        let variables = variables.iter().chain(further);
        let environment = Environment::read(variables.map(|(name, value)| (name.into(), value.into())));
        let config = config::load(&Arc::new(environment)).unwrap().config;
        let state = State::open(OpenParams {
            dir: &dir,
            encryption_key: &config.credential_encryption_key,
            usage_db: false,
            node: None,
        })
        .unwrap();
        let log = state.usage_log().unwrap();
        let (publisher, reader) = snapshot::channel();
        let affinity = Arc::new(state.keep_affinity(&dir, Arc::new(Nowhere)));
        let control = start(Params {
            state,
            config: Arc::new(config),
            alarm: Alarm::default(),
            warnings: vec!["a warning".into()],
            log_lines: LogLines::new(log_lines::to_stderr().unwrap(), None).unwrap(),
            publisher: publisher.clone(),
            reader: reader.clone(),
            plane: Arc::new(Nowhere),
            http: Arc::new(Nowhere),
            traces: None,
            exchanges,
            adaptations: Vec::new(),
            bounds: &[],
            activity: Arc::default(),
            affinity,
            asset,
            build: BuildIdentity { version: "1.2.3", commit: "abc", built_at: "today", target: "here" },
        })
        .unwrap();
        Self { handler: control.handler(), control, log, publisher, reader, home }
    }

    fn send(&self, request: Request<Body>) -> Response<Body> {
        self.send_from(IpAddr::from([127, 0, 0, 1]), request)
    }

    fn send_from(&self, address: IpAddr, request: Request<Body>) -> Response<Body> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answer = runtime.block_on(self.handler.handle(request, (address, 1).into()));
        reference::expect_described(&method, &path, answer.status().as_u16());
        answer
    }

    fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (StatusCode, Value, Response<()>) {
        let mut request = Request::builder().method(method).uri(path).header("x-request-id", "id-of-this");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.send(request.body(full("")).unwrap());
        let (parts, body) = response.into_parts();
        let bytes = text(body);
        let value = serde_json::from_str(&bytes).unwrap_or(Value::String(bytes));
        (parts.status, value, Response::from_parts(parts, ()))
    }

    /// Sends an administrator's request with a body to a path below `/admin/api/`.
    fn send_json(
        &self,
        method: Method,
        path: &str,
        body: &str,
        headers: &[(&str, &str)],
    ) -> (StatusCode, Value, Response<()>) {
        let uri = format!("/admin/api/{path}");
        let mut request = Request::builder().method(method).uri(uri).header("x-api-key", ADMIN);
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, body) = self.send(request.body(full(body.to_owned())).unwrap()).into_parts();
        let bytes = text(body);
        let value = serde_json::from_str(&bytes).unwrap_or(Value::String(bytes));
        (parts.status, value, Response::from_parts(parts, ()))
    }

    /// Returns the successful response to an administrator.
    fn get(&self, path: &str) -> Value {
        let (status, value, _) = self.call(Method::GET, path, &[("x-api-key", ADMIN)]);
        assert_eq!(status, 200, "{path}: {value}");
        value
    }

    /// Waits until `count` exchanges are stored, up to 60 s for each further exchange. Sleeps between polls so that
    /// the writer gets the processor.
    fn wait_stored(&self, count: u64) {
        let (mut stored, mut since) = (0, Instant::now());
        while stored < count {
            let now = self.get("/admin/api/state")["usage"]["stored"].as_u64().unwrap_or(0);
            if now > stored {
                (stored, since) = (now, Instant::now());
                continue;
            }
            assert!(since.elapsed() < Duration::from_secs(60), "{stored} of {count} are stored");
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// Returns the status, code and parameter of an error, and checks that its envelope is complete.
    fn refusal(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> (u16, String, Value) {
        let (status, value, response) = self.call(method, path, headers);
        let error = &value["error"];
        assert_eq!(error["request_id"], "id-of-this", "{path}: {value}");
        assert!(error["message"].as_str().unwrap().len() > 5 && error["type"].is_string(), "{value}");
        assert_eq!(response.headers()["content-type"], "application/json");
        (status.as_u16(), error["code"].as_str().unwrap().to_owned(), error["param"].clone())
    }

    fn stop(self) {
        drop(self.log);
        self.control.stop();
        assert_eq!(std::fs::read_dir(self.home.path().join("state/journal")).unwrap().count(), 0);
    }
}

/// A console of a page, a script in three forms and a font.
fn asset(path: &str) -> Option<Asset> {
    let (bytes, content_type): (&'static [u8], _) = match path {
        "index.html" => (b"<p>the page</p>", "text/html; charset=utf-8"),
        "assets/a.js" => (b"plain", "text/javascript; charset=utf-8"),
        "assets/a.js.br" => (b"brotli", "text/javascript; charset=utf-8"),
        "assets/a.js.gz" => (b"gzip", "text/javascript; charset=utf-8"),
        "assets/a.woff2" => (b"font", "font/woff2"),
        _ => return None,
    };
    Some(Asset { bytes: bytes.into(), content_type, etag: Some("\"7\"".to_owned()) })
}

fn text(body: Body) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let bytes = runtime.block_on(body.collect()).unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}
