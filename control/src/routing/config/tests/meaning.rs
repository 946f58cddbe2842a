//! The meaning of a valid file.

use std::time::Duration;

use shared::id::ProviderId;
use shared::operation::Dialect;
use shared::provider::path::UpstreamCall;
use shared::routing::HttpVersion;
use shared::usage::Class;

use super::*;

fn provider(config: &Config, id: &str) -> Arc<Provider> {
    let found = config.routing.providers.iter().find(|provider| provider.id.as_str() == id);
    Arc::clone(found.expect(id))
}

const FULL: &str = r#"
providers:
  groq:
    registry_id: groq
    api_key: ${ENV:GROQ_KEY}
    timeout: 12.5
    http_version: "2"
    region: eu
    project: p1
    location: here
    default_voice: nova
    force_api_support: true
    protocols: [chat, embeddings, chat]
    headers: {X-Team: "${ENV:TEAM}"}
    models:
      - llama-3.3-70b
      - {id: vision/one, display_name: One, vision: true, tools: false, reasoning: true, protocols: [chat],
         context_window: 131072, prices: {input: 0.59, cached_input: 0, output: 0.79}}
  local: {type: local_server, base_url: "http://127.0.0.1:9/v1/"}
  off: {type: openai, api_key: "${ENV:UNSET}", disabled: true}
  lab:
    type: echo
    echo: {delay_ms: 5, chunk_delay_ms: 6, status: 503, retry_after: 7, cut_after_chunks: 8,
           error_after_chunks: 9, fail_every: 10, hang: true, hang_after_head: true, hang_after_chunks: 11}
endpoints:
  fast:
    preamble: Be brief.
    failover:
      - {provider: local, model: qwen3}
      - {provider: groq, model: llama-3.3-70b}
      - {provider: off, model: gpt}
policies:
  defaults: {retry_max_attempts: 0, circuit_cooldown_seconds: 1.5, rate_limit_rest_max_seconds: 7}
  overrides:
    groq: {retry_max_attempts: 4, circuit_failure_threshold: 0}
"#;

fn full() -> Config {
    Place::with(FULL).config(&[("GROQ_KEY", " gsk-1 \n"), ("TEAM", "blue")])
}

fn chat_path(provider: &Provider) -> String {
    let paths = &provider.origin.as_ref().unwrap().paths;
    paths.of(Dialect::Chat, UpstreamCall::Whole, "m").unwrap().as_str().to_owned()
}

#[test]
fn every_configured_field_of_a_provider_is_read() {
    let config = full();
    let groq = provider(&config, "groq");
    assert_eq!(groq.base_url.as_deref(), Some("https://api.groq.com/openai/v1"), "from the registry");
    assert_eq!(chat_path(&groq), "/openai/v1/chat/completions");
    assert_eq!(groq.origin.as_ref().unwrap().http, HttpVersion::Http2);
    assert_eq!(groq.api_key.as_ref().unwrap().expose(), "gsk-1");
    assert_eq!(groq.timeout, Duration::from_millis(12_500));
    assert_eq!(groq.stream_idle_timeout, Duration::from_secs(300));
    assert_eq!(groq.dialects, [Dialect::Chat, Dialect::Embeddings]);
    assert_eq!(groq.headers[0].0.as_str(), "x-team");
    assert!(groq.headers[0].1 == "blue" && groq.headers[0].1.is_sensitive());
    let names =
        [&groq.region, &groq.project, &groq.location, &groq.default_voice].map(|text| text.as_deref());
    assert_eq!(names, [Some("eu"), Some("p1"), Some("here"), Some("nova")]);
    assert!(groq.force_api_support && !groq.disabled);

    let model = &groq.models[1];
    assert_eq!((model.id.as_str(), model.display_name.as_deref()), ("vision/one", Some("One")));
    assert_eq!((model.vision, model.tools, model.reasoning), (Some(true), Some(false), Some(true)));
    assert_eq!(
        (model.context_window, model.dialects.as_deref()),
        (Some(131_072), Some(&[Dialect::Chat][..]))
    );
    let rates = model.prices.as_ref().unwrap().base.rates;
    let [input, cached, output, reasoning] =
        [Class::Input, Class::CacheRead, Class::Output, Class::Reasoning].map(|class| rates.get(class));
    assert_eq!((input, cached, output), (Some(590_000_000), Some(0), Some(790_000_000)));
    assert_eq!(reasoning, None, "unknown, not free");
}

#[test]
fn kinds_have_their_own_defaults() {
    let config = full();
    assert_eq!(provider(&config, "local").timeout, Duration::from_secs(30));
    assert_eq!(chat_path(&provider(&config, "local")), "/v1/chat/completions");
    let off = provider(&config, "off");
    assert!(off.disabled && off.api_key.is_none(), "a disabled instance needs no credential");
    let lab = provider(&config, "lab");
    assert!(lab.origin.is_none());
    assert_eq!((lab.echo.delay, lab.echo.chunk_delay), (Duration::from_millis(5), Duration::from_millis(6)));
    assert_eq!((lab.echo.status, lab.echo.retry_after, lab.echo.hang), (Some(503), Some(7), true));
    assert_eq!((lab.echo.hang_after_head, lab.echo.hang_after_chunks), (true, Some(11)));
    let counts = (lab.echo.cut_after_chunks, lab.echo.error_after_chunks, lab.echo.fail_every);
    assert_eq!(counts, (Some(8), Some(9), Some(10)));
}

#[test]
fn an_endpoint_keeps_its_order_and_declares_its_models() {
    let config = full();
    let fast = &config.routing.endpoints[0];
    let members: Vec<_> =
        fast.failover.iter().map(|member| format!("{}/{}", member.provider, member.model)).collect();
    assert_eq!(members, ["local/qwen3", "groq/llama-3.3-70b", "off/gpt"]);
    assert_eq!(fast.preamble.as_deref(), Some("Be brief."));
    assert_eq!(provider(&config, "local").models[0].id.as_str(), "qwen3");
    assert_eq!(provider(&config, "groq").models.len(), 2, "known already");
}

#[test]
fn policies_inherit_field_by_field() {
    let config = full();
    let (retry, circuit) = config.policies.of(&ProviderId::new("local"));
    assert_eq!((retry.attempts_max, circuit.failure_threshold), (1, 4), "0 attempts means no retry");
    assert_eq!((circuit.cooldown, circuit.rest_max), (Duration::from_millis(1_500), Duration::from_secs(7)));
    let (retry, circuit) = config.policies.of(&ProviderId::new("groq"));
    assert_eq!((retry.attempts_max, retry.multiplier), (4, 2.0));
    assert_eq!((circuit.failure_threshold, circuit.cooldown), (0, Duration::from_millis(1_500)));
}

#[test]
fn categories_are_read_only_without_endpoints() {
    let providers = "providers: {a: {type: echo}}\n";
    let old = "categories: {old: {failover: [{provider: a, model: m}]}}\n";
    let new = "endpoints: {new: {failover: [{provider: a, model: m}]}}\n";
    let cases = [
        (format!("{providers}{old}"), vec!["old"], Some("rename it to endpoints")),
        (format!("{providers}{new}"), vec!["new"], None),
        (format!("{providers}{old}{new}"), vec!["new"], Some("deprecated and ignored")),
        (format!("{providers}{old}endpoints: {{}}\n"), vec![], Some("deprecated and ignored")),
    ];
    for (yaml, want, warning) in cases {
        let loaded = Place::with(&yaml).load(&[]).unwrap();
        let names: Vec<_> = loaded.config.routing.endpoints.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, want, "{yaml}");
        let warnings = loaded.warnings.join("\n");
        assert_eq!(warnings.contains("categories"), warning.is_some(), "{yaml}: {warnings}");
        assert!(warnings.contains(warning.unwrap_or_default()), "{yaml}: {warnings}");
    }
}

#[test]
fn an_empty_file_is_a_valid_configuration() {
    for yaml in ["", "# only a comment\n", "providers:\nendpoints:\n", "---\n"] {
        let config = Place::with(yaml).config(&[]);
        assert!(config.routing.providers.is_empty() && config.routing.endpoints.is_empty(), "{yaml:?}");
    }
    assert!(Place::empty().load(&[]).unwrap().warnings.is_empty());
}

#[test]
fn a_configuration_may_hold_ten_thousand_endpoints() {
    let mut yaml = "providers: {a: {type: echo}}\nendpoints:\n".to_owned();
    for n in 0..10_000 {
        yaml.push_str(&format!(
            "  endpoint-{n:05}:\n    failover:\n      - {{provider: a, model: model-{n:05}}}\n"
        ));
    }
    let config = Place::with(&yaml).config(&[]);
    assert_eq!(config.routing.endpoints.len(), 10_000);
    assert_eq!(provider(&config, "a").models.len(), 10_000 + 1, "and its own model");
}

#[test]
fn yaml_anchors_are_supported() {
    let yaml = "providers:\n  a: &p {type: echo, models: [m]}\n  b: *p\n";
    assert_eq!(provider(&Place::with(yaml).config(&[]), "b").models.len(), 1);
}

#[test]
fn an_api_key_of_a_provider_without_credential_is_a_warning() {
    let loaded = Place::with("providers: {a: {registry_id: ollama, api_key: x}}\n").load(&[]).unwrap();
    assert!(loaded.warnings[0].contains("providers.a: type local_server sends no credential"));
    assert!(provider(&loaded.config, "a").api_key.is_none());
}

#[test]
fn a_policy_override_may_name_a_provider_of_the_api() {
    let yaml = "providers: {a: {type: echo}}\npolicies: {overrides: {aa: {retry_max_attempts: 5}}}\n";
    let loaded = Place::with(yaml).load(&[]).unwrap();
    let policies = loaded.config.policies;
    assert_eq!(policies.of(&ProviderId::new("aa")).0.attempts_max, 5);
    let warning = "policies.overrides.aa: the file has no provider 'aa'; did you mean a? It applies to a \
                   provider created with the API.";
    assert_eq!(loaded.warnings, [warning]);
}

#[test]
fn an_endpoint_that_cannot_fail_over_is_a_warning() {
    let yaml = "providers: {a: {type: echo}}\nendpoints: {line: {failover: [{provider: a, model: echo}, \
                {provider: a, model: other}]}}\n";
    let warning =
        "endpoints.line: all targets are models of the provider 'a': while it fails, no target is left";
    assert_eq!(Place::with(yaml).load(&[]).unwrap().warnings, [warning]);
}

#[test]
fn a_missing_api_key_is_read_from_secrets_json_or_reported() {
    let yaml = "providers:\n  a: {registry_id: groq}\n  b: {type: compatible, base_url: 'http://127.0.0.1:1/v1'}\n  \
                c: {type: openai, api_key: of-the-file}\n  d: {type: openai, disabled: true}\n  \
                e: {type: openai, headers: {Authorization: Basic x}}\n";
    let place = Place::with(yaml);
    let config = place.config(&[]);
    assert_eq!(
        missing_keys(&config.routing),
        [
            "providers.a: api_key is missing; write it as ${ENV:GROQ_API_KEY} in the configuration file. Unless 'llmgw \
          credentials import' has stored one, it is not used."
        ]
    );
    let file = place.folder.path().join("secrets.json");
    let keys =
        r#"{"a": "plain-a", "b": "plain-b", "c": "plain-c", "d": "plain-d", "e": "plain-e", "f": "plain-f"}"#;
    std::fs::write(&file, keys).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    let Loaded { config, warnings } = place.load(&[]).unwrap();
    let key = |id| provider(&config, id).api_key.as_ref().map(|key| key.expose().clone());
    let found = ["a", "b", "c", "d", "e"].map(|id| key(id).unwrap_or_default());
    assert_eq!(found, ["plain-a", "plain-b", "of-the-file", "", ""]);
    assert!(missing_keys(&config.routing).is_empty());
    let text = warnings.join("\n").replace(&file.display().to_string(), "FILE");
    for want in [
        "FILE contains keys in plain text; stop the gateway and run 'llmgw credentials import'",
        "other users can read FILE (mode 0640); run chmod 600 on it",
        "FILE: 'c' has no effect: the configuration file has its credential",
        "FILE: 'd' has no effect",
        "FILE: 'e' has no effect",
        "FILE: 'f' has no effect: the configuration file has no such provider",
    ] {
        assert!(text.contains(want), "{want}: {text}");
    }
    assert_eq!(warnings.len(), 6, "{text}");
    for text in [text, show(&config), format!("{config:?}")] {
        assert!(!text.contains("plain-"), "{text}");
    }
    let again = config.read_again(config.version).result.unwrap().0;
    assert_eq!(again.providers[0].api_key.as_ref().unwrap().expose(), "plain-a", "read at a reload too");

    std::fs::write(&file, "{").unwrap();
    let loaded = place.load(&[]).unwrap();
    assert!(loaded.warnings.iter().any(|warning| warning.contains("is not JSON")), "{:?}", loaded.warnings);
    assert!(provider(&loaded.config, "a").lacks_key());
}

#[test]
fn aliases_of_provider_types_are_read_with_a_hint() {
    let place = Place::with(
        "providers:
  a: {type: openai_compatible, base_url: 'https://a.example/v1'}
  b: {type: ollama, base_url: 'http://127.0.0.1:11434/v1'}
  c: {type: google_ai_studio, api_key: k}
  d: {type: compatible, base_url: 'https://d.example/v1'}
",
    );
    let loaded = place.load(&[]).unwrap();
    let kinds: Vec<_> = loaded.config.routing.providers.iter().map(|provider| provider.kind.name).collect();
    assert_eq!(kinds, ["compatible", "local_server", "gemini", "compatible"]);
    let hints: Vec<_> = loaded.warnings.iter().filter(|warning| warning.contains("; write ")).collect();
    assert_eq!(
        hints,
        [
            "providers.a: type openai_compatible means compatible; write compatible",
            "providers.b: type ollama means local_server; write local_server",
            "providers.c: type google_ai_studio means gemini; write gemini",
        ]
    );
}

#[test]
fn an_order_over_models_without_conversations_is_warned_of() {
    let yaml = |order: &str| {
        format!(
            "providers:\n  a: {{type: compatible, base_url: 'http://127.0.0.1:1/v1', models: [m, {{id: e, protocols: \
             [embeddings]}}]}}\n  b: {{type: compatible, base_url: 'http://127.0.0.1:2/v1', models: [m]}}\nendpoints:\n  \
             x: {{order: {order}, failover: [{{provider: a, model: e}}, {{provider: b, model: m}}]}}\n"
        )
    };
    for (order, is_warned) in [("listed", false), ("weighted", true)] {
        let warnings = Place::with(&yaml(order)).load(&[]).unwrap().warnings;
        let is_it = |warning: &String| {
            warning.starts_with("endpoints.x: order has no effect on the requests that a/e can serve:")
        };
        assert_eq!(warnings.iter().any(is_it), is_warned, "{warnings:?}");
    }
}
