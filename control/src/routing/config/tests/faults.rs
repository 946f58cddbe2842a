//! Each kind of mistake: the reported position, message and suggestion.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::*;

#[test]
fn each_mistake_is_reported_with_its_line_and_path() {
    for (name, yaml, want) in MISTAKES {
        let faults = Place::with(yaml).faults(&[]);
        assert_eq!(faults.len(), 1, "{name}: {faults:#?}");
        assert!(faults[0].contains(want), "{name}:\n  got  {}\n  want {want}", faults[0]);
    }
}

#[test]
fn all_faults_are_reported_in_file_order() {
    let place = Place::with(
        "providers:\n  one:\n    type: echo\n    timeuot: 3\n  two:\n    type: nonsense\n    models: [1, a, a]\n\
         endpoints:\n  e:\n    failover: [{provider: three, model: m}]\n",
    );
    let faults = place.faults(&[("LLMGW_PORT", "none")]);
    let starts: Vec<_> =
        faults.iter().map(|fault| fault.split(": ").take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        starts,
        [
            "LLMGW_PORT must be a whole number from 0 to 65535",
            "4:5 providers.one.timeuot",
            "6:5 providers.two.type",
            "7:14 providers.two.models[0]",
            "10:17 endpoints.e.failover[0].provider",
        ],
        "{faults:#?}"
    );
}

#[test]
fn lines_are_counted_as_an_editor_counts_them() {
    let text = "providers:\r\n  one: {type: echo, models: ['é\u{85}\u{2028}\u{2029}']}\r\n  two:\r\n    type: nonsense\r\n";
    let faults = Place::with(text).faults(&[]);
    assert!(faults.last().is_some_and(|fault| fault.starts_with("4:11: providers.two.type")), "{faults:#?}");
    let faults = Place::with("a: 1\nb\u{2028}c\u{85}d\u{2029}: x: y\n").faults(&[]);
    assert!(faults[0].starts_with("2:") || faults[0].starts_with("3:"), "{faults:#?}");
}

#[test]
fn no_fault_quotes_a_secret() {
    let place = Place::with(
        "providers:\n  a:\n    type: openai\n    api_key: [sekret]\n    headers: {x-token: \"sek\\nret sekret\"}\n  b:\n    \
         type: openai\n    api_key: \"sekret\\u00e9\"\n  c: {type: compatible, base_url: 'https://u:sekret@h/v1'}\n",
    );
    let faults = place.faults(&[("LLMGW_CREDENTIAL_ENCRYPTION_KEY", "sekret")]);
    assert_eq!(faults.len(), 5, "{faults:#?}");
    assert!(!faults.join("\n").contains("sekret"), "{faults:#?}");
}

#[test]
fn hostile_files_are_refused_quickly() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..20 {
        let of = format!("*a{}", n - 1);
        bomb.push_str(&format!("a{n}: &a{n} [{}]\n", vec![of; 9].join(", ")));
    }
    let big_text = format!("a: &a {}\nb: [{}]\n", "x".repeat(400_000), vec!["*a"; 1_000].join(", "));
    let cases: &[(&str, String, &str)] = &[
        ("aliases that multiply", bomb, ""),
        ("aliases of a long text", big_text, "too much text"),
        ("an alias of itself", "a: &a [*a]\n".to_owned(), ""),
        ("flow nesting", format!("a: {}", "[".repeat(500_000)), "nested deeper"),
        ("closed flow nesting", format!("a: {}{}", "[".repeat(200), "]".repeat(200)), "nested deeper"),
        ("block nesting", format!("{}x", "- ".repeat(100_000)), "nested deeper"),
        ("map nesting", format!("{}x", "? ".repeat(50_000)), ""),
        ("indented nesting", (0..1_000).map(|n| format!("{}a:\n", " ".repeat(n))).collect(), "nested deeper"),
        ("a large file", format!("# {}\n", "x".repeat(16 << 20)), "is larger than 16777216 bytes"),
        ("many keys", (0..60_000).map(|n| format!("k{n}: 1\n")).collect(), "unknown key"),
        ("many repeats", "providers: {}\n".repeat(50_000), "twice"),
        ("long flow", format!("a: [{}]", "{},".repeat(4_000_000)), "more than 200000 values"),
        ("long list", format!("a:\n{}", "- x\n".repeat(4_000_000)), "more than 200000 values"),
        ("long block nesting", format!("{}x", "- ".repeat(8_000_000)), "more than 200000 values"),
        ("long key", format!("{}: 1", "x".repeat(15 << 20)), ""),
        ("long quote", format!("a: \"{}\"", "\\u0041".repeat(2_000_000)), "unknown key"),
        (
            "many faults in much text",
            format!("# {}\n{}", "x".repeat(15 << 20), "k: 1\n".repeat(150)),
            "twice",
        ),
    ];
    for (name, yaml, want) in cases {
        let before = worked();
        let faults = Place::with(yaml).faults(&[]);
        assert!(!faults.is_empty() && faults.len() <= 101, "{name}: {}", faults.len());
        assert!(faults[0].contains(want), "{name}: {:.300}", faults[0]);
        assert!(faults[0].len() < 1_000, "{name}: the fault itself is short");
        let spent = worked() - before;
        println!("{name}: {spent:?}: {:.150}", faults[0]);
        assert!(spent < WORK_MAX, "{name} took {spent:?}");
    }
}

/// The most work on one file. A parser that takes time quadratic in one of these files would take minutes.
const WORK_MAX: Duration = Duration::from_secs(15);

/// Returns the time for which this thread has run so far. Time in which other processes have the processor does not count.
fn worked() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(spent.tv_sec).unwrap(), u32::try_from(spent.tv_nsec).unwrap())
}

#[test]
fn an_unreadable_or_binary_file_is_a_fault() {
    let place = Place::empty();
    std::fs::write(place.file(), [0xff, 0xfe, 0x00]).unwrap();
    assert!(place.faults(&[])[0].ends_with("is not UTF-8"));
    let place = Place::empty();
    std::fs::create_dir(place.file()).unwrap();
    assert!(place.faults(&[])[0].contains("cannot be read"), "{:?}", place.faults(&[]));
}

/// A name, a file, and the message of its only fault.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "misspelt key",
        "providers:\n  a:\n    type: echo\n    base_ulr: x\n",
        "4:5: providers.a.base_ulr: unknown key; did you mean base_url?",
    ),
    (
        "tab instead of spaces",
        "providers:\n\ta: {type: echo}\n",
        "2:1: line 2 is indented with a tab; YAML accepts only spaces there",
    ),
    (
        "tab after spaces",
        "providers:\n  a:\n  \ttype: echo\n",
        "3:3: line 3 is indented with a tab; YAML accepts only spaces there",
    ),
    ("unknown section", "endpionts: {}\n", "1:1: endpionts: unknown key; did you mean endpoints?"),
    (
        "wrong type",
        "providers:\n  a:\n    type: echo\n    timeout: soon\n",
        "4:5: providers.a.timeout: expected a number, found text",
    ),
    (
        "number where text belongs",
        "providers:\n  a:\n    type: echo\n    models: [12]\n",
        "4:14: providers.a.models[0]: expected text or a map, found a number (put it in quotes if it is text)",
    ),
    (
        "value out of range",
        "providers:\n  a: {type: echo, timeout: 0}\n",
        "2:19: providers.a.timeout: must be at least 0.001",
    ),
    (
        "unknown type",
        "providers:\n  a:\n    type: compatable\n",
        "3:5: providers.a.type: 'compatable' is not a type of provider; did you mean compatible? (known: \
             compatible, local_server, openai, azure_openai, anthropic, gemini, vertex, bedrock, oauth_partner, \
             builtin_speech, echo, extension)",
    ),
    (
        "extension without a name",
        "providers:\n  a:\n    type: extension\n",
        "2:3: providers.a.extension: type extension needs the name of an extension",
    ),
    (
        "extension with an address",
        "providers:\n  a:\n    type: extension\n    extension: e\n    base_url: http://h\n",
        "5:5: providers.a.base_url: type extension has the address of its extension; omit it",
    ),
    (
        "extension of another type",
        "providers:\n  a:\n    type: echo\n    extension: e\n",
        "4:5: providers.a.extension: type echo has no extension",
    ),
    (
        "header of the signature",
        "providers:\n  a:\n    type: extension\n    extension: e\n    headers: {Webhook-Id: x}\n",
        "providers.a.headers.Webhook-Id: is set by llmgw itself on requests to extensions",
    ),
    (
        "dialect that extensions do not speak",
        "providers:\n  a:\n    type: extension\n    extension: e\n    protocols: [embeddings]\n",
        "providers.a.protocols[0]: type extension has no address for embeddings",
    ),
    (
        "missing type, reported at the provider",
        "providers:\n  groq: {}\n",
        "2:3: providers.groq.type: type is missing: set one of compatible, local_server, openai, \
         azure_openai, anthropic, gemini, vertex, bedrock, oauth_partner, builtin_speech, echo, extension, or write registry_id: \
         groq",
    ),
    (
        "unknown registry entry",
        "providers:\n  a:\n    registry_id: grok\n",
        "3:5: providers.a.registry_id: 'grok' is not in the registry; did you mean groq? (known: anthropic,",
    ),
    (
        "missing address",
        "providers:\n  a: {type: compatible}\n",
        "2:3: providers.a.base_url: type compatible needs base_url, e.g. https://api.example.com/v1",
    ),
    (
        "metadata address",
        "providers:\n  a: {type: compatible, base_url: 'http://169.254.169.254/v1'}\n",
        "2:25: providers.a.base_url: link-local, multicast and metadata addresses are not allowed",
    ),
    (
        "unset variable",
        "providers:\n  a:\n    type: openai\n    api_key: ${ENV:NO_SUCH}\n",
        "4:5: providers.a.api_key: the environment variable NO_SUCH is not set",
    ),
    (
        "reference inside text",
        "providers:\n  a:\n    type: openai\n    api_key: x${ENV:HOME}\n",
        "4:5: providers.a.api_key: a reference must be the whole value: ${ENV:NAME} or ${FILE:/path}",
    ),
    (
        "file that does not exist",
        "providers:\n  a:\n    type: openai\n    api_key: ${FILE:/no/such/key}\n",
        "4:5: providers.a.api_key: cannot read /no/such/key: No such file or directory",
    ),
    (
        "relative path",
        "providers:\n  a:\n    type: openai\n    headers:\n      X-Team: ${FILE:team}\n",
        "5:7: providers.a.headers.X-Team: team is not an absolute path, such as ${FILE:/run/secrets/key}",
    ),
    (
        "directory",
        "providers:\n  a:\n    type: openai\n    api_key: ${FILE:/etc}\n",
        "4:5: providers.a.api_key: cannot read /etc: it is a directory, not a regular file",
    ),
    (
        "device",
        "providers:\n  a:\n    type: openai\n    api_key: ${FILE:/dev/null}\n",
        "4:5: providers.a.api_key: cannot read /dev/null: it is a device, not a regular file",
    ),
    (
        "unknown source of a reference",
        "providers:\n  a:\n    type: openai\n    api_key: ${VAULT:key}\n",
        "4:5: providers.a.api_key: a reference must be the whole value: ${ENV:NAME} or ${FILE:/path}",
    ),
    (
        "framing header",
        "providers:\n  a:\n    type: echo\n    headers:\n      Content-Length: '5'\n",
        "5:7: providers.a.headers.Content-Length: is set by llmgw itself",
    ),
    (
        "repeated key",
        "providers:\n  a: {type: echo}\n  b: {type: echo}\n  a: {type: echo}\n",
        "4:3: providers.a: this key occurs twice; keep one",
    ),
    (
        "repeated section",
        "endpoints: {}\nproviders: {}\nendpoints: {}\n",
        "3:1: endpoints: this key occurs twice; keep one",
    ),
    (
        "repeated model",
        "providers:\n  a: {type: echo, models: [m, {id: m}]}\n",
        "2:31: providers.a.models[1]: the model 'm' occurs twice",
    ),
    (
        "unknown provider in an endpoint",
        "providers:\n  groq: {type: echo}\nendpoints:\n  fast:\n    failover:\n      - {provider: groq, model: m}\n      \
             - {provider: grok, model: m}\n",
        "7:10: endpoints.fast.failover[1].provider: there is no provider 'grok'; did you mean groq?",
    ),
    (
        "empty endpoint",
        "endpoints:\n  fast: {}\n",
        "2:3: endpoints.fast.failover: failover needs at least one {provider, model}",
    ),
    (
        "member without model",
        "providers: {a: {type: echo}}\nendpoints:\n  fast:\n    failover: [{provider: a}]\n",
        "4:16: endpoints.fast.failover[0].model: model is missing",
    ),
    (
        "endpoint named as a provider",
        "providers: {a: {type: echo}}\nendpoints:\n  a: {failover: [{provider: a, model: m}]}\n",
        "3:3: endpoints.a: a provider has this name, so a selector would be ambiguous; rename one",
    ),
    (
        "further name of two endpoints",
        "providers: {p: {type: echo}}\nendpoints:\n  a: {failover: [{provider: p, model: m}], also: ['x*']}\n  \
         b: {failover: [{provider: p, model: m}], also: [y, 'x*']}\n",
        "4:54: endpoints.b.also[1]: the endpoint a has it too; remove one",
    ),
    (
        "further name that is twice in a list",
        "providers: {p: {type: echo}}\nendpoints:\n  a: {failover: [{provider: p, model: m}], also: [x, x]}\n",
        "3:54: endpoints.a.also[1]: the endpoint a has it too; remove one",
    ),
    (
        "further name of an endpoint",
        "providers: {p: {type: echo}}\nendpoints:\n  a: {failover: [{provider: p, model: m}], also: [b]}\n  \
         b: {failover: [{provider: p, model: m}]}\n",
        "3:51: endpoints.a.also[0]: an endpoint has this name and takes precedence; remove one",
    ),
    (
        "own name as a further name",
        "providers: {p: {type: echo}}\nendpoints:\n  a: {failover: [{provider: p, model: m}], also: [a]}\n",
        "3:51: endpoints.a.also[0]: the endpoint has this name already",
    ),
    (
        "further name of a provider",
        "providers: {p: {type: echo}}\nendpoints:\n  a: {failover: [{provider: p, model: m}], also: [p]}\n",
        "3:51: endpoints.a.also[0]: a provider has this name, so a selector would be ambiguous; rename one",
    ),
    (
        "exact ID as a further name",
        "providers: {p: {type: echo}}\nendpoints:\n  a: {failover: [{provider: p, model: m}], also: [p/m]}\n",
        "3:51: endpoints.a.also[0]: it is an exact model ID of the provider p, which takes precedence; remove it",
    ),
    (
        "pattern with * in the middle",
        "providers: {p: {type: echo}}\nendpoints:\n  a: {failover: [{provider: p, model: m}], also: ['a*b']}\n",
        "3:51: endpoints.a.also[0]: may contain '*' only at its end, as in claude-haiku-4-5 or claude-haiku-*",
    ),
    (
        "weight of a list",
        "providers: {p: {type: echo}}\nendpoints:\n  a: {failover: [{provider: p, model: m}, {provider: p, model: n, weight: 1}]}\n",
        "3:67: endpoints.a.failover[1].weight: has no effect with order: listed; set another order, or remove it",
    ),
    (
        "tier of a list",
        "providers: {p: {type: echo}}\nendpoints:\n  a: {failover: [{provider: p, model: m}, {provider: p, model: n, tier: 2}]}\n",
        "3:67: endpoints.a.failover[1].tier: has no effect with order: listed; set another order, or remove it",
    ),
    (
        "weight of the cheapest order",
        "providers: {p: {type: echo}}\nendpoints:\n  a: {order: cheapest, failover: [{provider: p, model: m}, {provider: p, model: n, weight: 2}]}\n",
        "3:84: endpoints.a.failover[1].weight: has no effect with order: cheapest, except 0; remove it",
    ),
    (
        "order of one target",
        "providers: {p: {type: echo}}\nendpoints:\n  a: {order: fastest, failover: [{provider: p, model: m}]}\n",
        "3:7: endpoints.a.order: has no effect with one target; remove it, or add a target",
    ),
    (
        "sessions of one target",
        "providers: {p: {type: echo}}\nendpoints:\n  a: {sticky: true, failover: [{provider: p, model: m}]}\n",
        "3:7: endpoints.a.sticky: has no effect with one target; remove it, or add a target",
    ),
    (
        "unknown order",
        "providers: {p: {type: echo}}\nendpoints:\n  a: {order: random, failover: [{provider: p, model: m}, {provider: p, model: n}]}\n",
        "3:7: endpoints.a.order: must be one of listed, weighted, least_busy, fastest, cheapest",
    ),
    (
        "weight that is too large",
        "providers: {p: {type: echo}}\nendpoints:\n  a: {order: weighted, failover: [{provider: p, model: m}, {provider: p, model: n, weight: 1001}]}\n",
        "3:84: endpoints.a.failover[1].weight: must be",
    ),
    (
        "tier that is too small",
        "providers: {p: {type: echo}}\nendpoints:\n  a: {order: weighted, failover: [{provider: p, model: m}, {provider: p, model: n, tier: 0}]}\n",
        "3:84: endpoints.a.failover[1].tier: must be",
    ),
    (
        "slash in a name",
        "providers:\n  a/b: {type: echo}\n",
        "2:3: providers.a/b: provider IDs must be 1 to 64 letters",
    ),
    (
        "override of what cannot be",
        "providers: {a: {type: echo}}\npolicies:\n  overrides:\n    a/b: {}\n",
        "4:5: policies.overrides.a/b: is not a provider ID",
    ),
    (
        "unknown word",
        "providers: {a: {type: echo, http_version: '1.0'}}\n",
        "1:29: providers.a.http_version: must be one of auto, 1.1, 2",
    ),
    (
        "unquoted version",
        "providers: {a: {type: echo, http_version: 1.1}}\n",
        "1:29: providers.a.http_version: must be one of auto, 1.1, 2; found a number (put it in quotes",
    ),
    (
        "merge key",
        "providers:\n  a:\n    <<: {}\n    type: echo\n",
        "3:5: providers.a.<<: merge keys are not supported",
    ),
    ("broken YAML", "providers:\n  a: [1,\n  b: 2\n", "cannot be read as YAML"),
    ("list at the top", "- a\n- b\n", "1:1: expected a map, found a list"),
    ("tag", "providers: !secret {}\n", "tags such as !name are not supported"),
    ("infinity", "providers: {a: {type: echo, timeout: .inf}}\n", "infinity and .nan are not supported"),
    ("wildcard address", "server: {host: '*'}\n", "1:10: server.host: must be an IP address"),
    ("cors origin", "cors: {origins: ['*', a.example]}\n", "1:23: cors.origins[1]: must be an origin"),
];
