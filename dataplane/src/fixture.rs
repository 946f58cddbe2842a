//! Test data plane over a hand-built snapshot; tests send requests through its public handlers.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::Value;
use shared::access::{Access, Role};
use shared::alarm::Alarm;
use shared::base_path::BasePath;
use shared::build::BuildIdentity;
use shared::freshness::Freshness;
use shared::id::{EndpointName, ModelId, ProviderId};
use shared::key_hash::KeyHasher;
use shared::key_table::AccessTable;
use shared::operation::Dialect;
use shared::operation_id::OperationIds;
use shared::policy::{CircuitPolicy, ClientTimeouts, RetryPolicy};
use shared::port::{
    self, Body, BoxFuture, Insider, LookupRefusal, ShareGrants, StateOrigin, StateOrigins, WantedState,
};
use shared::provider;
use shared::provider::quirks::Quirks;
use shared::reasoning_seal::ReasoningKey;
use shared::routing::{EchoOptions, Endpoint, InstanceReach, Model, ProviderInstance, Target};
use shared::secret::Secret;
use shared::snapshot::{self, Snapshot};
use shared::usage::{EndUsers, Note, UsageEvent, UsageLog};
use tokio::sync::mpsc;

use crate::{AffinityParams, Dataplane, Params, Settings, new};

/// API key of the administrator.
pub(crate) const ADMIN: &str = "administrator-key-of-the-tests";

/// A running data plane with one worker, and the usage events it records.
pub(crate) struct Fixture {
    pub(crate) dataplane: Dataplane,
    pub(crate) events: mpsc::UnboundedReceiver<UsageEvent>,
}

/// Knows no stored state.
#[derive(Debug)]
pub(crate) struct NoOrigins;

impl StateOrigins for NoOrigins {
    fn find(&self, _: WantedState) -> BoxFuture<Result<StateOrigin, LookupRefusal>> {
        Box::pin(std::future::ready(Ok(StateOrigin::Unknown)))
    }
}

struct Log(mpsc::UnboundedSender<UsageEvent>);

impl UsageLog for Log {
    fn append(&mut self, event: &UsageEvent) -> bool {
        self.0.send(event.clone()).ok();
        true
    }

    fn has_room(&self) -> bool {
        true
    }

    fn tend(&mut self) {}

    fn note(&mut self, _running: &UsageEvent) -> Option<Note> {
        Some(Note(0))
    }

    fn strike(&mut self, _note: Note) {}
}

/// Returns a usage log that discards its events.
pub(crate) fn usage_log() -> Box<dyn UsageLog> {
    Box::new(Log(mpsc::unbounded_channel().0))
}

/// Returns an echo provider instance with the models `m` and `only-ID`.
pub(crate) fn echo(id: &str, options: EchoOptions) -> ProviderInstance {
    let own = format!("only-{id}");
    ProviderInstance {
        id: ProviderId::new(id),
        kind: provider::kind("echo").unwrap(),
        genai_name: "llmgw.echo",
        reach: InstanceReach::Echo(options),
        headers: Vec::new(),
        request_head: OnceLock::new(),
        credential: None,
        renew: None,
        signer: None,
        identity: [0; 32],
        lane: None,
        lanes: Vec::new(),
        dialects: vec![Dialect::Chat],
        lacks: Vec::new(),
        quirks: Quirks::PLAIN,
        force_api_support: false,
        responses_fallback: Default::default(),
        trace_context: false,
        default_voice: None,
        timeout: Duration::from_secs(10),
        stream_idle_timeout: Duration::from_secs(10),
        first_content_timeout: None,
        error_rules: Vec::new(),
        body: None,
        prompt_cache: None,
        retry: RetryPolicy { attempts_max: 1, ..RetryPolicy::default() },
        circuit_policy: CircuitPolicy::default(),
        circuits: Arc::default(),
        models: vec![Arc::new(Model::bare(ModelId::new("m"))), Arc::new(Model::bare(ModelId::new(own)))],
        models_known: Arc::default(),
        owner: None,
        is_anonymous: false,
        shared_with: Vec::new(),
        unready: None,
    }
}

/// Returns the target `ID/m` of a provider instance.
pub(crate) fn target(provider: &Arc<ProviderInstance>) -> Target {
    Target { provider: Arc::clone(provider), model: Arc::clone(&provider.models[0]) }
}

impl Fixture {
    /// Starts a data plane with `providers` and the endpoint `line`, which lists the model `m` of each of them in that
    /// order.
    pub(crate) fn start(providers: Vec<ProviderInstance>) -> Self {
        Self::start_with(providers, None)
    }

    /// Like [`Self::start`], with the port to shares of limits.
    pub(crate) fn start_with(providers: Vec<ProviderInstance>, shares: Option<Arc<dyn ShareGrants>>) -> Self {
        rustls::crypto::ring::default_provider().install_default().ok();
        let mut providers: Vec<_> = providers.into_iter().map(Arc::new).collect();
        let targets = providers.iter().map(target).collect();
        let endpoints = vec![Arc::new(Endpoint::new(EndpointName::new("line"), targets))];
        providers.sort_by(|a, b| a.id.cmp(&b.id));
        let key_hasher = KeyHasher::new(&Secret::new([7; 32]));
        let administrator = Arc::new(Access::new("admin", Role::Administrator));
        let keys = [(key_hasher.hash(ADMIN.as_bytes()), administrator)].into_iter().collect();
        let (publisher, snapshots) = snapshot::channel();
        publisher.publish(Snapshot {
            generation: 1,
            created: 1,
            routes: Arc::new(Snapshot::routes_of(&providers, &endpoints)),
            providers: Arc::new(providers),
            endpoints: Arc::new(endpoints),
            access: Arc::new(AccessTable { keys, ..AccessTable::default() }),
            key_hasher,
            operation_ids: OperationIds::new(&Secret::new([8; 32])),
            reasoning_key: ReasoningKey::new(&Secret::new([9; 32])),
            patterns: Arc::default(),
            freshness: Freshness::default(),
        });
        let (log, events) = mpsc::unbounded_channel();
        let dataplane = new(Params {
            settings: settings(),
            build: BuildIdentity { version: "1", commit: "c", built_at: "now", target: "here" },
            snapshots,
            usage_logs: vec![Box::new(Log(log))],
            upstream_tls: crate::tls::client(None, false).unwrap(),
            proxies: shared::proxy::Proxies::default(),
            alarm: Alarm::default(),
            capture: None,
            affinity: AffinityParams {
                table_key: Secret::new([9; 32]),
                state_key: Secret::new([10; 32]),
                origins: Arc::new(NoOrigins),
            },
            shares,
        })
        .unwrap();
        Self { dataplane, events }
    }

    /// Sends a chat completions request from inside the process.
    pub(crate) async fn chat(&self, body: &str, insider: Option<Insider>) -> Response<Body> {
        let mut request = Request::post("/v1/chat/completions").body(port::full(body.to_owned())).unwrap();
        if let Some(insider) = insider {
            request.extensions_mut().insert(insider);
        }
        self.send(request).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Response<Body> {
        let peer: SocketAddr = ([127, 0, 0, 1], 1).into();
        self.dataplane.handler().handle(request, peer).await
    }
}

fn settings() -> Settings {
    Settings {
        body_bytes_max: 1 << 20,
        held_bytes_max: 1 << 24,
        connections_max: 100,
        drain: Duration::from_millis(100),
        drain_delay: Duration::ZERO,
        client_timeouts: ClientTimeouts::default(),
        stream_keepalive: None,
        usage_grace: Duration::from_millis(100),
        cors_origins: Vec::new(),
        base_path: BasePath::default(),
        local_mode: false,
        metrics_public: false,
        claude_code: false,
        quota_output_tokens: 4_096,
        preamble: None,
        voice_folder: None,
        log_requests: false,
        traces: None,
        end_users: EndUsers::Hashed,
        tls: None,
    }
}

/// Returns an insider that acts as `access`, without a forced target and without `explain`.
pub(crate) fn insider(access: Access) -> Insider {
    Insider::new(Arc::new(access))
}

/// Returns the body of a chat completions request for `model`.
pub(crate) fn asks(model: &str, stream: bool) -> String {
    serde_json::json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "one two three"}]})
        .to_string()
}

/// Collects a response; returns its status and its body as JSON, or null if the body is not JSON.
pub(crate) async fn whole(response: Response<Body>) -> (u16, Value) {
    let status = response.status().as_u16();
    let body: Bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}
