//! What becomes of a file of LiteLLM.

use serde_json::{Value, json};

use super::*;

fn imported(text: &str) -> (Value, Vec<ImportFinding>) {
    let import = convert(text.to_owned()).unwrap();
    (crate::routing::config::yaml::parse(&import.configuration).unwrap().tree, import.findings)
}

/// Returns `line: path` of each finding.
fn places(findings: &[ImportFinding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{}: {}", finding.line.unwrap(), finding.path)).collect()
}

/// Returns the file of a deployment called `m` with these parameters.
fn deployment(params: &Value) -> String {
    json!({"model_list": [{"model_name": "m", "litellm_params": params}]}).to_string()
}

#[test]
fn a_deployment_becomes_a_provider_and_a_target() {
    for (params, provider) in [
        (
            json!({"model": "gpt-5-mini"}),
            json!({"registry_id": "openai", "api_key": "${ENV:OPENAI_API_KEY}"}),
        ),
        (
            json!({"model": "anthropic/claude-x", "api_key": "os.environ/KEY_A"}),
            json!({"registry_id": "anthropic", "api_key": "${ENV:KEY_A}"}),
        ),
        (
            json!({"model": "openai/m", "api_base": "https://api.openai.com/v1/"}),
            json!({"registry_id": "openai", "api_key": "${ENV:OPENAI_API_KEY}"}),
        ),
        (
            json!({"model": "openai/m", "api_base": "http://gpu-1:8000/v1"}),
            json!({"type": "local_server", "base_url": "http://gpu-1:8000/v1"}),
        ),
        (
            json!({"model": "openai/m", "api_base": "http://gpu-1:8000/v1", "api_key": "os.environ/K"}),
            json!({"type": "compatible", "base_url": "http://gpu-1:8000/v1", "api_key": "${ENV:K}"}),
        ),
        (json!({"model": "ollama/m"}), json!({"registry_id": "ollama"})),
        (
            json!({"model": "ollama_chat/m", "api_base": "http://host:11434"}),
            json!({"registry_id": "ollama", "base_url": "http://host:11434/v1"}),
        ),
        (
            json!({"model": "hosted_vllm/m", "api_base": "http://host:8000/v1", "api_key": "os.environ/K"}),
            json!({"type": "compatible", "base_url": "http://host:8000/v1", "api_key": "${ENV:K}"}),
        ),
        (
            json!({
                "model": "azure/gpt", "api_base": "https://r.openai.azure.com/", "api_version": "2024-10-21",
                "api_key": "os.environ/AZ",
            }),
            json!({
                "type": "azure_openai", "base_url": "https://r.openai.azure.com", "api_version": "2024-10-21",
                "api_key": "${ENV:AZ}",
            }),
        ),
        (
            json!({
                "model": "bedrock/converse/us.x-v1:0", "aws_region_name": "eu-west-1",
                "aws_access_key_id": "os.environ/A", "aws_secret_access_key": "os.environ/B",
            }),
            json!({"registry_id": "bedrock", "region": "eu-west-1", "api_key": "${ENV:A}:${ENV:B}"}),
        ),
        (
            json!({"model": "vertex_ai/gemini-2.5-pro", "vertex_project": "p", "vertex_location": "global"}),
            json!({"registry_id": "vertex", "project": "p", "location": "global"}),
        ),
        (
            json!({
                "model": "openai/m", "organization": "org-1",
                "extra_headers": {"X-Team": "blue", "X-Api-Token": "os.environ/T"},
            }),
            json!({
                "registry_id": "openai", "api_key": "${ENV:OPENAI_API_KEY}",
                "headers": {"OpenAI-Organization": "org-1", "X-Team": "blue", "X-Api-Token": "${ENV:T}"},
            }),
        ),
    ] {
        let (tree, findings) = imported(&deployment(&params));
        assert!(findings.is_empty(), "{params}: {findings:?}");
        let providers: Vec<&Value> = tree["providers"].as_object().unwrap().values().collect();
        assert_eq!(providers, [&provider], "{params}");
        assert_eq!(tree["endpoints"]["m"]["failover"].as_array().unwrap().len(), 1, "{params}");
    }
}

#[test]
fn models_lose_what_only_litellm_needs() {
    for (model, want) in [
        ("bedrock/invoke/anthropic.c", "anthropic.c"),
        ("bedrock/us-west-2/anthropic.c", "anthropic.c"),
        ("fireworks_ai/llama", "accounts/fireworks/models/llama"),
        ("fireworks_ai/accounts/x/models/y", "accounts/x/models/y"),
        ("openrouter/a/b", "a/b"),
    ] {
        let (tree, _) = imported(&deployment(&json!({"model": model})));
        assert_eq!(tree["endpoints"]["m"]["failover"][0]["model"], want, "{model}");
    }
}

#[test]
fn what_llmgw_cannot_do_as_written_is_disabled_or_left_out_and_named() {
    for (params, want, is_left) in [
        (json!({"model": "openai/m", "api_base": "os.environ/BASE"}), "the value of BASE as base_url", true),
        (json!({"model": "azure/m"}), "the value of AZURE_API_BASE", true),
        (
            json!({"model": "vertex_ai/gemini-x", "vertex_project": "os.environ/P", "vertex_location": "us"}),
            "the value of P as project",
            true,
        ),
        (json!({"model": "openai/m", "api_base": "http://0.0.0.0:1/v1"}), "0.0.0.0 is not an address", false),
        (
            json!({"model": "openai/m", "api_key": "os.environ/LLMGW_API_KEY"}),
            "is a setting of the gateway itself",
            false,
        ),
        (json!({"model": "unheard/m"}), "does not know this prefix", false),
        (json!({"model": "bedrock/agent/x"}), "by Converse only", false),
        (json!({"model": "vertex_ai/meta/llama"}), "only Gemini and Claude", false),
        (json!({"model": "openai/with space"}), "white space", false),
        (json!({"model": 5}), "model: 5", false),
        (json!({}), "model is missing", false),
    ] {
        let text = deployment(&params);
        let import = convert(text).unwrap();
        let shown = import.findings_text(Path::new("f"));
        if params["model"] != 5 {
            assert!(shown.contains(want), "{params}: {shown}");
        }
        assert!(!import.findings.is_empty(), "{params}");
        assert_eq!(
            import.configuration.contains("disabled: true"),
            is_left,
            "{params}: {}",
            import.configuration
        );
        assert_eq!(import.configuration.contains("failover"), is_left, "{params}: {}", import.configuration);
    }
}

#[test]
fn deployments_share_a_provider_by_address_and_credential() {
    let (tree, findings) = imported(
        "
model_list:
- {model_name: a, litellm_params: {model: openai/x, api_key: os.environ/K1}}
- {model_name: b, litellm_params: {model: openai/y, api_key: os.environ/K1}}
- {model_name: c, litellm_params: {model: openai/x, api_key: os.environ/K2}}
- {model_name: openai-3, litellm_params: {model: openai/x, api_base: os.environ/B1}}
- {model_name: e, litellm_params: {model: openai/x, api_base: os.environ/B2}}
",
    );
    let ids: Vec<&String> = tree["providers"].as_object().unwrap().keys().collect();
    assert_eq!(ids, ["openai", "openai-2", "openai-4", "openai-5"], "an endpoint has the name openai-3");
    assert_eq!(tree["endpoints"]["b"]["failover"], json!([{"provider": "openai", "model": "y"}]));
    assert_eq!(
        places(&findings),
        ["6: model_list[3].litellm_params.api_base", "7: model_list[4].litellm_params.api_base"]
    );
}

#[test]
fn groups_become_endpoints_with_their_fallbacks_and_aliases() {
    let (tree, findings) = imported(
        "
model_list:
- {model_name: fast, litellm_params: {model: groq/a, order: 2}}
- {model_name: fast, litellm_params: {model: openai/b, order: 1}}
- {model_name: big, litellm_params: {model: anthropic/c}}
- {model_name: anthropic/c, litellm_params: {model: anthropic/c}}
- {model_name: spread, litellm_params: {model: openai/b}}
- {model_name: spread, litellm_params: {model: groq/a}}
- {model_name: spread, litellm_params: {model: groq/a}}
- {model_name: 'groq/*', litellm_params: {model: 'groq/*'}}
- {model_name: '*', litellm_params: {model: 'openai/*'}}
- {model_name: team/a b, litellm_params: {model: openai/b}}
router_settings:
  model_group_alias: {gpt-4: fast, hidden: {model: big, hidden: true}}
  fallbacks: [{fast: [big]}, {big: [nobody]}]
litellm_settings:
  context_window_fallbacks: [{fast: [big]}]
",
    );
    let target = |provider: &str, model: &str| json!({"provider": provider, "model": model});
    let (a, b, c) = (target("groq", "a"), target("openai", "b"), target("anthropic", "c"));
    for (name, want) in [
        ("fast", json!([b, a, c])),
        ("gpt-4", json!([b, a, c])),
        ("big", json!([c])),
        ("hidden", json!([c])),
        ("spread", json!([b, a])),
        ("team-a-b", json!([b])),
    ] {
        assert_eq!(tree["endpoints"][name]["failover"], want, "{name}");
    }
    assert_eq!(tree["endpoints"].as_object().unwrap().len(), 6, "anthropic/c is the ID of the model");
    assert_eq!(tree["providers"]["anthropic"]["models"], json!(["c"]));
    assert_eq!(
        places(&findings),
        [
            "8: model_list[5].model_name",
            "9: model_list[6].model_name",
            "10: model_list[7].model_name",
            "11: model_list[8].model_name",
            "12: model_list[9].model_name",
            "14: router_settings.model_group_alias.hidden",
            "15: router_settings.fallbacks[0].fast[0]",
            "15: router_settings.fallbacks[1].big[0]",
            "17: litellm_settings.context_window_fallbacks",
        ]
    );
}

#[test]
fn weights_become_those_of_an_endpoint_whose_order_is_weighted() {
    let (tree, findings) = imported(
        "
model_list:
- {model_name: split, litellm_params: {model: openai/a, weight: 0.9}}
- {model_name: split, litellm_params: {model: groq/b, weight: 0.1}}
- {model_name: split, litellm_params: {model: groq/c}}
- {model_name: split, litellm_params: {model: groq/d, order: 1}}
- {model_name: one, litellm_params: {model: openai/a, weight: 7}}
- {model_name: listed, litellm_params: {model: anthropic/e}}
- {model_name: odd, litellm_params: {model: openai/a, weight: heavy}}
router_settings:
  model_group_alias: {also: split}
  fallbacks: [{split: [listed]}, {listed: [split]}]
",
    );
    let target = |provider: &str, model: &str| json!({"provider": provider, "model": model});
    let with = |mut target: Value, members: Value| {
        target.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        target
    };
    let (a, b) = (target("openai", "a"), target("groq", "b"));
    let (c, d, e) = (target("groq", "c"), target("groq", "d"), target("anthropic", "e"));
    let split = json!([
        d,
        with(a.clone(), json!({"weight": 9, "tier": 2})),
        with(b.clone(), json!({"weight": 1, "tier": 2})),
        with(c.clone(), json!({"weight": 0, "tier": 2})),
        with(e.clone(), json!({"tier": 3})),
    ]);
    let listed = json!([
        e,
        with(d, json!({"tier": 2})),
        with(a.clone(), json!({"weight": 9, "tier": 3})),
        with(b, json!({"weight": 1, "tier": 3})),
        with(c, json!({"weight": 0, "tier": 3})),
    ]);
    for (name, order, failover) in [
        ("split", json!("weighted"), split.clone()),
        ("also", json!("weighted"), split),
        ("listed", json!("weighted"), listed),
        ("one", Value::Null, json!([a])),
    ] {
        let endpoint = &tree["endpoints"][name];
        assert_eq!((&endpoint["order"], &endpoint["failover"]), (&order, &failover), "{name}");
    }
    assert_eq!(
        places(&findings),
        [
            "3: model_list[0].litellm_params.weight",
            "7: model_list[4].litellm_params.weight",
            "9: model_list[6].litellm_params.weight",
            "12: router_settings.fallbacks[0].split[0]",
            "12: router_settings.fallbacks[1].listed[0]",
        ]
    );
}

#[test]
fn deployments_that_differ_in_their_key_alone_are_one_provider() {
    let (tree, findings) = imported(
        "
model_list:
- {model_name: m, litellm_params: {model: openai/x, api_base: 'https://a.example/v1', api_key: os.environ/K1, rpm: 5}}
- {model_name: m, litellm_params: {model: openai/x, api_base: 'https://a.example/v1', api_key: sk-planted}}
- {model_name: m, litellm_params: {model: openai/x, api_base: 'https://b.example/v1', api_key: os.environ/K3}}
- {model_name: m, litellm_params: {model: openai/x, api_base: 'https://a.example/v1', api_key: os.environ/K1}}
- {model_name: n, litellm_params: {model: openai/y, api_base: 'https://a.example/v1', api_key: os.environ/K1}}
- {model_name: o, litellm_params: {model: openai/y, api_key: os.environ/K1, weight: 1}}
- {model_name: o, litellm_params: {model: openai/y, api_key: os.environ/K2, weight: 1}}
- {model_name: o, litellm_params: {model: openai/y, api_key: os.environ/K3, weight: 4}}
- {model_name: p, litellm_params: {model: groq/y, api_key: os.environ/K1, order: 1}}
- {model_name: p, litellm_params: {model: groq/y, api_key: os.environ/K2, order: 2}}
- {model_name: v, litellm_params: {model: vertex_ai/gemini-x, vertex_project: p, vertex_location: l, vertex_credentials: os.environ/K1}}
- {model_name: v, litellm_params: {model: vertex_ai/gemini-x, vertex_project: p, vertex_location: l, vertex_credentials: os.environ/K2}}
",
    );
    let provider = |id: &Value| &tree["providers"][id.as_str().unwrap()];
    let targets = |name: &str| tree["endpoints"][name]["failover"].as_array().unwrap().clone();
    let m = targets("m");
    assert_eq!(m.len(), 2);
    let keys = json!(["${ENV:K1}", "${ENV:IMPORTED_OPENAI_KEY}"]);
    assert_eq!((&provider(&m[0]["provider"])["api_keys"], &m[0]["provider"]), (&keys, &json!("openai")));
    assert_eq!(provider(&m[0]["provider"])["api_key"], Value::Null);
    assert_eq!(provider(&m[1]["provider"])["api_key"], "${ENV:K3}");
    // Another name has only one of the keys, so it has a provider of its own.
    assert_eq!(provider(&targets("n")[0]["provider"])["api_key"], "${ENV:K1}");
    let o = targets("o");
    assert_eq!(provider(&o[0]["provider"])["api_keys"], json!(["${ENV:K1}", "${ENV:K2}"]));
    assert_eq!((o.len(), &o[0]["weight"], &o[1]["weight"]), (2, &json!(2), &json!(4)));
    assert_eq!((targets("p").len(), targets("v").len()), (2, 2));
    let of = |path: &str| {
        findings.iter().find(|finding| finding.path == path).map(|finding| finding.message.as_str())
    };
    let joined = of("model_list[1].model_name").unwrap();
    assert!(joined.starts_with("3 deployments of this name differ in their key alone"), "{joined}");
    assert!(
        of("model_list[0].litellm_params.rpm")
            .unwrap()
            .ends_with("write the sum of the limits of all of them")
    );
    assert!(of("model_list[5].litellm_params.weight").unwrap().starts_with("imported as order: weighted"));
}

#[test]
fn prices_and_abilities_describe_the_model_and_limits_name_their_quota() {
    let (tree, findings) = imported(
        "
model_list:
- model_name: m
  litellm_params:
    model: openai/x
    input_cost_per_token: 0.00000015
    output_cost_per_token: 0.0000006
    tpm: 20_000
  model_info: {max_input_tokens: 1000, supports_vision: true, id: one}
  rpm: 3
- {model_name: n, litellm_params: {model: openai/y, input_cost_per_token: 0.1}}
",
    );
    let described = json!([{
        "id": "x", "context_window": 1000, "vision": true, "prices": {"input": 0.15, "output": 0.6},
    }]);
    assert_eq!(tree["providers"]["openai"]["models"], described);
    assert_eq!(
        places(&findings),
        [
            "8: model_list[0].litellm_params.tpm",
            "9: model_list[0].model_info.id",
            "10: model_list[0].rpm",
            "11: model_list[1].litellm_params.input_cost_per_token",
        ]
    );
    let quota = r#""limit":20000,"metric":"total_tokens","model":"openai/x""#;
    assert!(findings[0].message.contains(quota), "{}", findings[0].message);
}

#[test]
fn a_literal_secret_becomes_a_variable_and_is_never_printed() {
    let text = "
credential_list:
- credential_name: shared
  credential_values: {api_key: sk-planted-1, api_base: 'https://one.example/v1'}
  credential_info: {description: x}
model_list:
- {model_name: a, litellm_params: {model: openai/x, litellm_credential_name: shared}}
- {model_name: b, litellm_params: {model: openai/y, litellm_credential_name: shared}}
- {model_name: c, litellm_params: {model: openai/y, api_key: sk-planted-2}}
- {model_name: d, litellm_params: {model: groq/y, api_key: os.environ/IMPORTED_GROQ_KEY}}
- {model_name: e, litellm_params: {model: groq/z, api_key: sk-planted-3}}
- {model_name: f, litellm_params: {model: groq/z, extra_headers: {Authorization: sk-planted-4}}}
- {model_name: g, litellm_params: {model: openai/z, api_base: 'https://user:sk-planted-5@host/v1'}}
- {model_name: h, litellm_params: {model: openai/z, litellm_credential_name: other}}
environment_variables: {REDIS_PASSWORD: sk-planted-6}
general_settings: {master_key: sk-planted-7, database_url: 'postgresql://u:sk-planted-8@h/db'}
";
    let import = convert(text.to_owned()).unwrap();
    let printed = [
        import.configuration.clone(),
        import.findings_text(Path::new("f")),
        import.findings_json(Path::new("f")),
    ];
    assert!(!printed.concat().contains("planted"), "{}", printed.concat());
    for name in ["IMPORTED_OPENAI_KEY", "IMPORTED_OPENAI_KEY_2", "IMPORTED_GROQ_KEY_2"] {
        assert!(
            import.configuration.contains(&format!("api_key: ${{ENV:{name}}}")),
            "{}",
            import.configuration
        );
    }
    let (tree, findings) = imported(text);
    assert_eq!(
        tree["endpoints"]["a"]["failover"][0]["provider"],
        tree["endpoints"]["b"]["failover"][0]["provider"]
    );
    for path in [
        "environment_variables.REDIS_PASSWORD",
        "general_settings.master_key",
        "general_settings.database_url",
    ] {
        assert!(findings.iter().any(|finding| finding.path == path), "{path}");
    }
}

/// A value that a finding does not cover must matter: without it, or with another one, the result differs.
#[test]
fn every_key_is_mapped_or_named() {
    let tree = crate::routing::config::yaml::parse(include_str!("every_key.yaml")).unwrap().tree;
    let import = convert(tree.to_string()).unwrap();
    let is_named = |path: &str| {
        let covers = |finding: &ImportFinding| {
            // Without its model, a deployment is left out as a whole.
            let whole = finding.path.strip_suffix(".litellm_params.model");
            let whole = whole.filter(|_| finding.message.starts_with("not imported"));
            path.strip_prefix(whole.unwrap_or(&finding.path))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        import.findings.iter().any(covers)
    };
    let mut pointers = Vec::new();
    leaves(&tree, &mut (String::new(), String::new()), &mut pointers);
    assert!(pointers.len() > 100, "{}", pointers.len());
    for (pointer, path) in pointers {
        let matters = [Value::Null, json!(0), json!("other")].into_iter().any(|value| {
            let mut changed = tree.clone();
            *changed.pointer_mut(&pointer).unwrap() = value;
            convert(changed.to_string()).unwrap().configuration != import.configuration
        });
        assert!(matters || is_named(&path), "{path} is lost");
    }
    let (tree, _) = imported(&tree.to_string());
    assert_eq!(tree["endpoints"].as_object().unwrap().len(), 4, "{tree}");
}

/// Adds the JSON pointer and the path of each value below `node`, which stands at `at`.
fn leaves(node: &Value, at: &mut (String, String), found: &mut Vec<(String, String)>) {
    let children: Vec<(String, String, &Value)> = match node {
        Value::Object(map) => map
            .iter()
            .map(|(key, child)| {
                let dot = if at.1.is_empty() { "" } else { "." };
                (format!("{}/{}", at.0, key.replace('/', "~1")), format!("{}{dot}{key}", at.1), child)
            })
            .collect(),
        Value::Array(list) => {
            let child = |(index, child)| (format!("{}/{index}", at.0), format!("{}[{index}]", at.1), child);
            list.iter().enumerate().map(child).collect()
        }
        _ => return found.push(at.clone()),
    };
    for (pointer, path, child) in children {
        leaves(child, &mut (pointer, path), found);
    }
}

#[test]
fn retries_and_cooldowns_become_policies() {
    let one = "model_list: [{model_name: m, litellm_params: {model: gpt-5-mini}}]\n";
    for (settings, want, found) in [
        ("router_settings: {num_retries: 2}", json!({"retry_max_attempts": 3}), 1),
        (
            "litellm_settings: {num_retries: 0, cooldown_time: 45}",
            json!({"retry_max_attempts": 1, "circuit_cooldown_seconds": 45}),
            2,
        ),
        (
            "router_settings: {num_retries: 1}\nlitellm_settings: {num_retries: 5}",
            json!({"retry_max_attempts": 2}),
            2,
        ),
        (
            "router_settings: {disable_cooldowns: true}",
            json!({"circuit_failure_threshold": 0, "rate_limit_rest_max_seconds": 0}),
            0,
        ),
        (
            "router_settings: {num_retries: 9, cooldown_time: 3600}",
            json!({"retry_max_attempts": 10, "circuit_cooldown_seconds": 3600}),
            2,
        ),
        ("router_settings: {num_retries: 1000000, cooldown_time: 0}", Value::Null, 2),
    ] {
        let (tree, findings) = imported(&format!("{one}{settings}"));
        assert_eq!(tree["policies"]["defaults"], want, "{settings}");
        assert_eq!(findings.len(), found, "{settings}: {findings:?}");
    }
}

#[test]
fn an_unknown_prefix_with_an_address_is_a_compatible_provider() {
    for (params, provider, model, found) in [
        (
            json!({"model": "litellm_proxy/gpt-x", "api_base": "https://other.example/v1", "api_key": "os.environ/K"}),
            json!({"type": "compatible", "base_url": "https://other.example/v1", "api_key": "${ENV:K}"}),
            "gpt-x",
            1,
        ),
        (
            json!({"model": "org/m", "custom_llm_provider": "unheard", "base_url": "http://gpu-1:8000/v1"}),
            json!({"type": "local_server", "base_url": "http://gpu-1:8000/v1"}),
            "org/m",
            1,
        ),
        (
            json!({"model": "plain", "api_base": "https://other.example/v1"}),
            json!({"type": "compatible", "base_url": "https://other.example/v1"}),
            "plain",
            2,
        ),
    ] {
        let (tree, findings) = imported(&deployment(&params));
        assert_eq!(tree["providers"], json!({"compatible": provider}), "{params}");
        assert_eq!(tree["endpoints"]["m"]["failover"][0]["model"], model, "{params}");
        assert_eq!(findings.len(), found, "{params}: {findings:?}");
        assert!(!format!("{findings:?}").contains("OPENAI_API_KEY"), "{findings:?}");
    }
}

#[test]
fn what_is_no_configuration_of_litellm_is_refused_with_its_fault() {
    let brackets = "[".repeat(1000);
    let many = format!("model_list: [{}]", "1,".repeat(2_100_000));
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nmodel_list: [*e,*e,*e,*e]\n";
    for (text, want) in [
        ("", "has no model_list"),
        ("- a\n- b\n", "must be a map"),
        ("just text", "must be a map"),
        ("providers: {}\n", "has no model_list"),
        ("model_list: {a: 1}\n", "model_list must be a list"),
        ("model_list:\n\t- a\n", "line 2: line 2 is indented with a tab"),
        ("model_list: [\n", "cannot be read as YAML"),
        (&brackets, "nested deeper"),
        (&many, "more than 200000 values"),
        (bomb, "repetition limit exceeded"),
    ] {
        let error = convert(text.to_owned()).unwrap_err();
        assert_eq!(error.exit_code(), 78);
        assert!(error.to_string().contains(want), "{want}: {error}");
    }
    for odd in
        ["model_list: []", "model_list:", "model_list: [1, null, {a: 1}, {model_name: x}, {model_name: [y]}]"]
    {
        convert(odd.to_owned()).unwrap();
    }
}

#[test]
fn anchors_are_followed_and_repeated_keys_are_named() {
    let (tree, findings) = imported(
        "
x-shared: &key {api_key: os.environ/K}
model_list:
- {model_name: m, litellm_params: {<<: *key, model: openai/x}}
- {model_name: n, model_name: o, litellm_params: {model: groq/x}}
",
    );
    assert_eq!(tree["endpoints"].as_object().unwrap().len(), 2, "{tree}");
    assert!(places(&findings).contains(&"5: model_list[1].model_name".to_owned()), "{findings:?}");
}
