//! `config show`: the effective values, each with the layer that it came from; secrets are masked.

use std::fmt::{self, Write as _};

use shared::body_members::BodyMember;
use shared::policy::{CircuitPolicy, RetryPolicy};

use super::layer::SettingSource;
use super::model::{Config, Member, Provider};
use super::order::WrittenOrder;

/// Returns the whole effective configuration as readable text.
pub fn show(config: &Config) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = write(config, &mut text);
    text
}

fn write(config: &Config, out: &mut String) -> fmt::Result {
    let width = config.settings.iter().map(|setting| setting.name.len()).max().unwrap_or_default();
    for setting in &config.settings {
        let value = if setting.value.is_empty() { "-" } else { &setting.value };
        let source = match setting.source {
            SettingSource::File => format!("file {}", config.file.display()),
            SettingSource::Environment if let Some(file) = config.environment.file_of(&setting.name) => {
                format!("environment, file {}", file.display())
            }
            other => other.name().to_owned(),
        };
        writeln!(out, "{:width$}  {}  # {source}", setting.name, one_line(value))?;
    }
    writeln!(out, "\npolicies:  # the defaults, then file {}", config.file.display())?;
    write_policy("defaults", config.policies.retry, config.policies.circuit, out)?;
    let mut overrides: Vec<_> = config.policies.overrides.iter().collect();
    overrides.sort_by_key(|(id, _)| *id);
    for (id, (retry, circuit)) in overrides {
        write_policy(id.as_str(), *retry, *circuit, out)?;
    }
    writeln!(out, "\nclaude_code:  # file {}\n  {}", config.file.display(), config.claude_code_line())?;
    writeln!(out, "\nproviders:  # file {}", config.file.display())?;
    for provider in &config.routing.providers {
        write_provider(provider, out)?;
    }
    writeln!(out, "\nendpoints:  # file {}", config.file.display())?;
    for endpoint in &config.routing.endpoints {
        let members: Vec<_> = endpoint.failover.iter().map(member).collect();
        write!(out, "  {}: {}", endpoint.name, members.join(", "))?;
        let order = WrittenOrder { order: endpoint.order, sticky: endpoint.sticky };
        if let Some((order, sticky)) = order.balanced() {
            write!(out, "; order {}, sticky {sticky}", order.name())?;
        }
        if endpoint.cursor_bodies {
            write!(out, "; cursor_bodies")?;
        }
        match endpoint.also.is_empty() {
            true => writeln!(out)?,
            false => writeln!(out, "; also {}", endpoint.also.join(", "))?,
        }
    }
    Ok(())
}

fn member(member: &Member) -> String {
    let mut text = format!("{}/{}", member.provider, member.model);
    let settings = [
        member.weight.map(|weight| format!("weight {weight}")),
        member.tier.map(|tier| format!("tier {tier}")),
        member.first_content_timeout.map(|limit| format!("first_content_timeout {} s", limit.as_secs_f64())),
    ];
    let settings: Vec<String> = settings.into_iter().flatten().collect();
    if !settings.is_empty() {
        text.push_str(&format!(" ({})", settings.join(", ")));
    }
    text
}

fn write_policy(name: &str, retry: RetryPolicy, circuit: CircuitPolicy, out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "  {name}: retry_max_attempts {}, retry_initial_backoff_seconds {}, retry_max_backoff_seconds {}, \
         retry_backoff_multiplier {}, circuit_failure_threshold {}, circuit_cooldown_seconds {}, \
         rate_limit_rest_max_seconds {}",
        retry.attempts_max,
        retry.initial_backoff.as_secs_f64(),
        retry.backoff_max.as_secs_f64(),
        retry.multiplier,
        circuit.failure_threshold,
        circuit.cooldown.as_secs_f64(),
        circuit.rest_max.as_secs_f64(),
    )
}

fn write_way(provider: &Provider, out: &mut String) -> fmt::Result {
    if let Some(proxy) = &provider.proxy {
        writeln!(out, "    proxy: {proxy}")?;
    }
    if let Some(place) = &provider.connect_to {
        writeln!(out, "    connect_to: {place}")?;
    }
    if let Some(tls) = &provider.tls {
        for (name, text) in [("ca", &tls.ca), ("certificate", &tls.certificate), ("key", &tls.key)] {
            if let Some(text) = text {
                writeln!(out, "    tls.{name}: {}", if text.starts_with("-----") { "PEM" } else { text })?;
            }
        }
    }
    Ok(())
}

fn write_provider(provider: &Provider, out: &mut String) -> fmt::Result {
    writeln!(out, "  {}:", provider.id)?;
    writeln!(out, "    type: {}", provider.kind.name)?;
    if let Some(url) = &provider.base_url {
        writeln!(out, "    base_url: {url}")?;
    }
    write_way(provider, out)?;
    if let Some(link) = &provider.extension {
        writeln!(out, "    extension: {}", link.name)?;
        writeln!(out, "    extension_provider: {}", link.provider)?;
    }
    let place = [
        ("region", &provider.region),
        ("project", &provider.project),
        ("location", &provider.location),
        ("api_version", &provider.api_version),
        ("default_voice", &provider.default_voice),
    ];
    for (name, text) in place {
        if let Some(text) = text {
            writeln!(out, "    {name}: {text}")?;
        }
    }
    if provider.api_key.is_some() {
        writeln!(out, "    api_key: ••••")?;
    }
    for key in &provider.api_keys {
        writeln!(out, "    api_keys {}: ••••", key.number)?;
    }
    for (name, _) in &provider.headers {
        writeln!(out, "    header {name}: ••••")?;
    }
    let protocols: Vec<_> = provider.dialects.iter().map(|dialect| dialect.name()).collect();
    writeln!(out, "    protocols: {}", protocols.join(", "))?;
    writeln!(out, "    timeout: {} s", provider.timeout.as_secs_f64())?;
    writeln!(out, "    stream_idle_timeout: {} s", provider.stream_idle_timeout.as_secs_f64())?;
    if let Some(lifetime) = provider.prompt_cache {
        writeln!(out, "    prompt_cache: {}", lifetime.name())?;
    }
    if let Some(limit) = provider.first_content_timeout {
        writeln!(out, "    first_content_timeout: {} s", limit.as_secs_f64())?;
    }
    for (at, member) in all_members(provider) {
        let value = member.change.value().map(|value| format!(" {}", value.shown)).unwrap_or_default();
        writeln!(out, "    {at}body {}: {}{value}", member.name, member.change.name())?;
    }
    for model in &provider.models {
        for (name, _) in &model.headers {
            writeln!(out, "    models.{}.header {name}: ••••", model.id)?;
        }
    }
    for (place, rule) in provider.error_rules.iter().enumerate() {
        let status = rule.status.map(|status| format!(" status {status}")).unwrap_or_default();
        let text = rule.contains.as_deref().map(|text| format!(" contains {text:?}")).unwrap_or_default();
        writeln!(out, "    errors[{place}]:{status}{text} then {}", rule.then.name())?;
    }
    if provider.disabled {
        writeln!(out, "    disabled: true")?;
    }
    let models: Vec<_> = provider.models.iter().map(|model| model.id.as_str()).collect();
    writeln!(out, "    models: {}", models.join(", "))
}

/// Returns the changes of members with the prefix of their setting.
fn all_members(provider: &Provider) -> Vec<(String, &BodyMember)> {
    let own = provider.body.iter().flat_map(|body| body.all().iter().map(|member| (String::new(), member)));
    let of_models = provider.models.iter().filter_map(|model| Some((&model.id, model.body.as_ref()?)));
    let of_models = of_models
        .flat_map(|(id, body)| body.all().iter().map(move |member| (format!("models.{id}."), member)));
    own.chain(of_models).collect()
}

/// Replaces control characters, so that the text stays on one line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
