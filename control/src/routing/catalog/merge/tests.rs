//! The precedence of sources for each fact, and the times from which facts apply.

use shared::key_hash::KeyHasher;
use shared::prices::{Prices, Rates};
use shared::routing::ProviderInstance;
use shared::secret::Secret;
use shared::usage::Class;
use std::sync::OnceLock;

use super::*;
use crate::db::testing::migrated;
use crate::routing::catalog::cache::{models_url, url_of};
use crate::routing::catalog::history::History;
use crate::routing::config::{Environment, load};

const YAML: &str = "
providers:
  main: {registry_id: openai, api_key: k, models: [gpt-4o-mini, {id: own, vision: true, prices: {input: 7}}]}
  eu: {type: openai, base_url: 'https://eu.api.openai.com/v1', api_key: k, models: [gpt-5.5, gpt-4o-mini]}
  us: {type: vertex, project: p, location: us-east5, models: [claude-opus-4-6, gemini-2.5-pro]}
  global: {type: vertex, project: p, location: global, models: [claude-opus-4-6]}
  copy: {type: compatible, base_url: 'https://copy.example/v1', models: [gpt-4o-mini]}
";

struct Setting {
    cache: Arc<CatalogCache>,
    db: Db,
    providers: Vec<Arc<Provider>>,
}

impl Setting {
    fn new() -> Self {
        Self::of(YAML)
    }

    fn of(yaml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.yaml"), yaml).unwrap();
        let pairs = [
            ("LLMGW_API_KEY", "admin-key-0123456789"),
            ("LLMGW_CREDENTIAL_ENCRYPTION_KEY", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="),
            ("LLMGW_STATE_DIR", folder.path().to_str().unwrap()),
        ];
        let variables = pairs.map(|(name, value)| (name.into(), value.into()));
        let config = load(&Arc::new(Environment::read(variables))).unwrap().config;
        let db = migrated();
        Self { cache: Arc::default(), db, providers: config.routing.providers }
    }

    fn say(&self, id: &str, model: &str, effective_from_ms: u64, facts: Facts) {
        let entry = Override {
            id: id.into(),
            provider: "main".into(),
            model: model.into(),
            effective_from_ms,
            facts,
            created_at_ms: 0,
        };
        overrides::put(&self.db, &entry).unwrap();
    }

    /// Sets the models that the upstream of `main` lists.
    fn offer(&self, offers: &[(&str, Facts)]) {
        let provider = self.providers.iter().find(|provider| provider.id.as_str() == "main").unwrap();
        let instance = instance(provider);
        self.cache.change(&instance, &KeyHasher::new(&Secret::new([0; 32])), |entry| {
            entry.evidence.catalog.synced_at_ms = Some(1_795_000_000_000);
            let offer = |facts: &Facts| ListedModel { facts: facts.clone(), ..ListedModel::default() };
            entry.models = offers.iter().map(|(id, facts)| ((*id).to_owned(), offer(facts))).collect();
        });
        assert_eq!(models_url(&instance), "https://api.openai.com/v1/models");
    }

    /// Returns every model at `now_ms`, and the time of the next change.
    fn at(&self, now_ms: u64) -> (BTreeMap<String, KnownModel>, Option<u64>) {
        let mut merger = Merger::new(&self.cache, &self.db, now_ms).unwrap();
        for provider in &self.providers {
            let models = merger.models_of(provider);
            assert!(models.is_sorted_by(|a, b| a.id < b.id), "routing searches them");
        }
        let next = merger.finish();
        let known = self.cache.known();
        let all = known.iter().map(|known| (format!("{}/{}", known.provider, known.model.id), known.clone()));
        (all.collect(), next)
    }
}

fn instance(provider: &Provider) -> ProviderInstance {
    ProviderInstance {
        id: provider.id.clone(),
        kind: provider.kind,
        genai_name: provider.kind.genai_name,
        reach: shared::routing::InstanceReach::Network(provider.origin.clone().unwrap()),
        headers: Vec::new(),
        request_head: OnceLock::new(),
        lane: None,
        lanes: Vec::new(),
        credential: None,
        renew: None,
        signer: None,
        identity: [0; 32],
        lacks: Vec::new(),
        quirks: provider.quirks,
        force_api_support: false,
        responses_fallback: Default::default(),
        trace_context: false,
        default_voice: None,
        models_known: Arc::default(),
        dialects: Vec::new(),
        timeout: provider.timeout,
        stream_idle_timeout: provider.stream_idle_timeout,
        first_content_timeout: None,
        error_rules: Vec::new(),
        body: None,
        prompt_cache: None,
        retry: Default::default(),
        circuit_policy: Default::default(),
        circuits: Default::default(),
        unready: None,
        models: Vec::new(),
        owner: None,
        is_anonymous: false,
        shared_with: Vec::new(),
    }
}

/// Returns facts with a price of input in micro-dollars per million tokens.
fn priced(input: u64) -> Facts {
    let rates = Rates::default().with(Class::Input, input * 1_000);
    Facts { prices: Some(Prices::flat(rates)), ..Facts::default() }
}

fn input_of(prices: &Prices) -> Option<u64> {
    prices.base.rates.get(Class::Input).map(|femto| femto / 1_000)
}

fn input(known: &KnownModel) -> Option<u64> {
    known.model.prices.as_ref().and_then(input_of)
}

fn label(known: &KnownModel) -> &str {
    known.model.price_label.as_deref().unwrap_or_default()
}

/// Returns the start of the label of gpt-4o-mini by the price list.
fn of_list(setting: &Setting) -> String {
    format!("list {} in 0.15 cached 0.075 out 0.6", setting.cache.list().as_of)
}

#[test]
fn vendor_prices_apply_only_to_providers_of_that_vendor() {
    let setting = Setting::new();
    let (known, next) = setting.at(1);
    assert_eq!(next, None);
    let main = &known["main/gpt-4o-mini"];
    assert_eq!((input(main), main.model.context_window), (Some(150_000), Some(128_000)));
    assert!(label(main).starts_with(&of_list(&setting)), "{}", label(main));
    assert_eq!(main.sources, [FactSource::Config, FactSource::List, FactSource::BuiltIn]);
    assert_eq!(known["copy/gpt-4o-mini"].model.prices, None, "anybody's server may ask anything");
    assert_eq!(label(&known["main/own"]), "config in 7");
}

#[test]
fn listed_models_are_known_and_declared_facts_take_precedence() {
    let setting = Setting::new();
    let vision = Facts { vision: Some(false), tools: Some(true), ..priced(3) };
    setting.offer(&[("own", vision.clone()), ("listed", vision)]);
    let (known, _) = setting.at(1);
    let own = &known["main/own"];
    assert_eq!((own.model.vision, own.model.tools), (Some(true), Some(true)), "declared first, then listed");
    assert_eq!(label(own), "config in 7");
    let listed = &known["main/listed"];
    assert_eq!((listed.model.vision, input(listed)), (Some(false), Some(3)));
    assert_eq!(label(listed), "upstream 2026-11-18 in 0.000003");
    assert!(known.contains_key("main/gpt-4o-mini"), "declared, though not listed");
    assert!(!known.contains_key("copy/listed"));
}

#[test]
fn an_override_applies_from_its_start_time() {
    let setting = Setting::new();
    setting.say("c", "gpt-4o-mini", 300, priced(3));
    setting.say("a", "gpt-4o-mini", 100, Facts { vision: Some(false), ..priced(1) });
    setting.say("b", "gpt-4o-mini", 200, Facts { tools: Some(false), ..Facts::default() });
    setting.say("d", "unknown", 1, priced(9));
    for (now_ms, want, next) in [
        (99, (Some(150_000), Some(true), Some(true)), Some(100)),
        (100, (Some(1), Some(false), Some(true)), Some(200)),
        (299, (Some(1), Some(false), Some(false)), Some(300)),
        (300, (Some(3), Some(false), Some(false)), None),
    ] {
        let (known, found) = setting.at(now_ms);
        let mini = &known["main/gpt-4o-mini"];
        assert_eq!((input(mini), mini.model.vision, mini.model.tools), want, "at {now_ms}");
        assert_eq!(found, next, "at {now_ms}");
        assert!(!known.contains_key("main/unknown"), "saying something of a model does not make it");
    }
    let (known, _) = setting.at(300);
    assert_eq!(label(&known["main/gpt-4o-mini"]), "override 1970-01-01 in 0.000003", "and no other price");
}

#[test]
fn an_endpoint_keeps_its_models_until_a_catalog_omits_them() {
    let setting = Setting::new();
    let member = |model| crate::routing::config::Member {
        provider: ProviderId::new("main"),
        model: ModelId::new(model),
        weight: None,
        tier: None,
        first_content_timeout: None,
    };
    let endpoint = Endpoint {
        name: shared::id::EndpointName::new("line"),
        failover: vec![member("once-listed")],
        also: Vec::new(),
        order: Default::default(),
        sticky: None,
        cursor_bodies: false,
        preamble: None,
    };
    let ids = |setting: &Setting| {
        let merger = Merger::new(&setting.cache, &setting.db, 1).unwrap();
        let mut merger = merger.with_endpoints(std::slice::from_ref(&endpoint));
        let main = setting.providers.iter().find(|provider| provider.id.as_str() == "main").unwrap();
        merger.models_of(main).iter().any(|model| model.id.as_str() == "once-listed")
    };
    assert!(ids(&setting), "a lost file breaks no route");
    setting.offer(&[("another", Facts::default())]);
    assert!(!ids(&setting), "the provider has it no more");
}

#[test]
fn a_provider_with_a_new_address_has_no_catalog() {
    let setting = Setting::new();
    setting.offer(&[("listed", Facts::default())]);
    let moved = shared::routing::Origin {
        host: "elsewhere.example".into(),
        authority: "elsewhere.example".parse().unwrap(),
        lists: Vec::new(),
        ..setting.providers.iter().find(|p| p.id.as_str() == "main").unwrap().origin.clone().unwrap()
    };
    assert!(setting.cache.entry("main", "https://api.openai.com/v1/models").is_some());
    assert!(setting.cache.entry("main", &url_of(&moved)).is_none());
}

#[test]
fn regional_addresses_have_the_vendors_surcharge() {
    let setting = Setting::new();
    let (known, _) = setting.at(1);
    for (model, want) in [
        // $5 plus 10 %.
        ("eu/gpt-5.5", 5_500_000),
        ("eu/gpt-4o-mini", 150_000),
        ("us/claude-opus-4-6", 5_500_000),
        ("us/gemini-2.5-pro", 1_250_000),
        ("global/claude-opus-4-6", 5_000_000),
    ] {
        assert_eq!(input(&known[model]), Some(want), "{model}");
    }
    let long = known["eu/gpt-5.5"].model.prices.as_ref().unwrap().base.above[0];
    assert_eq!(long.1.get(Class::Output), Some(49_500_000_000), "$45 and 10 %, past 272,000 tokens");
    assert_eq!(long.1.get(Class::Searches), Some(10_000_000_000_000), "a search costs the same");
    assert_eq!(known["eu/gpt-5.5"].model.context_window, Some(1_050_000), "other facts stay");
}

#[test]
fn hourly_prices_change_on_the_hour_and_apply_to_repricing() {
    let setting = Setting::of("
providers:
  main: {registry_id: deepseek, api_key: k, models: [deepseek-v4-pro, {id: deepseek-flash, prices: {input: 7}}]}
");
    // Friday, 2026-11-20, from 00:30 UTC; peak hours begin at 01:00 and end at 04:00.
    let (half_past_midnight, hour) = (1_795_134_600_000, 3_600_000);
    let (off_peak, one) = (half_past_midnight, half_past_midnight + hour / 2);
    for (now_ms, want, next) in [(off_peak, 660_000, one), (one, 1_320_000, one + 3 * hour)] {
        let (known, next_ms) = setting.at(now_ms);
        assert_eq!((input(&known["main/deepseek-v4-pro"]), next_ms), (Some(want), Some(next)));
        assert_eq!(input(&known["main/deepseek-flash"]), Some(7_000_000), "the configuration knows no hours");
        let history = History::new(&setting.cache.known(), Vec::new());
        let at = |at_ms| {
            let (prices, label) = history.at("main", "deepseek-v4-pro", at_ms).unwrap();
            (input_of(prices).unwrap(), label.contains("in 1.32"))
        };
        assert_eq!(
            (at(off_peak), at(one)),
            ((660_000, false), (1_320_000, true)),
            "whatever the time is now"
        );
    }
    setting.say("o1", "deepseek-v4-pro", one - 1, priced(1));
    let (known, next) = setting.at(off_peak);
    assert_eq!((input(&known["main/deepseek-v4-pro"]), next), (Some(660_000), Some(one - 1)));
    assert_eq!(input(&setting.at(one).0["main/deepseek-v4-pro"]), Some(1), "an override holds at all hours");
}

#[test]
fn price_history_returns_the_prices_in_force_at_a_time() {
    let setting = Setting::new();
    setting.say("o1", "own", 1_000, priced(1));
    setting.say("o2", "own", 2_000, Facts { vision: Some(false), ..Facts::default() });
    setting.say("o3", "own", 3_000, priced(3));
    setting.say("o4", "own", 9_000, priced(9));
    setting.say("o5", "gone", 1_000, priced(5));
    setting.say("o6", "gpt-4o-mini", 1_000, Facts { vision: Some(false), ..Facts::default() });
    let (known, _) = setting.at(5_000);
    let history = History::new(&setting.cache.known(), overrides::all(&setting.db).unwrap());
    let at = |model: &str, at_ms| {
        history.at("main", model, at_ms).map(|(prices, label)| (input_of(prices).unwrap(), label))
    };
    for (at_ms, input, label) in [
        (0, 7, "config in 7"),
        (999, 7, "config in 7"),
        (1_000, 1, "override 1970-01-01 in 0.000001"),
        (2_999, 1, "override 1970-01-01 in 0.000001"),
        (3_000, 3, "override 1970-01-01 in 0.000003"),
        (u64::MAX, 9, "override 1970-01-01 in 0.000009"),
    ] {
        let (got, got_label) = at("own", at_ms).unwrap();
        // Prices of the configuration are in dollars, those of this test in micro-dollars.
        assert_eq!((if got > 9 { got / 1_000_000 } else { got }, got_label), (input, label), "{at_ms}");
    }
    let own = &known["main/own"];
    assert_eq!(history.at("main", "own", 5_000).map(|p| p.1), own.model.price_label.as_deref());
    assert_eq!((at("gone", 999), at("gone", 1_000).map(|(input, _)| input)), (None, Some(5)));
    let mini = at("gpt-4o-mini", 5_000).unwrap().1;
    assert!(mini.starts_with(&of_list(&setting)), "{mini}");
    assert_eq!((history.at("copy", "gpt-4o-mini", 5_000), history.at("none", "own", 5_000)), (None, None));
}
