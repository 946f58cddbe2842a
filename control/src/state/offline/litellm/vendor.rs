//! The prefixes of LiteLLM's model names, and what each of them is here.

use crate::routing::config::{RegistryEntry, registry_entries};

/// A prefix of LiteLLM's model names.
#[derive(Debug)]
pub(super) struct Vendor {
    pub(super) prefix: &'static str,
    /// The `registry_id`; the type for `azure_openai`, which has no entry.
    pub(super) registry_id: &'static str,
    /// The variable that LiteLLM reads if a deployment has no key; empty if it sends none.
    pub(super) key_variable: &'static str,
    /// What follows LiteLLM's `api_base` in the base URL of llmgw.
    pub(super) base_suffix: &'static str,
}

impl Vendor {
    pub(super) fn entry(&self) -> Option<&'static RegistryEntry> {
        registry_entries().iter().find(|entry| entry.id == self.registry_id)
    }

    /// Returns the provider kind.
    pub(super) fn kind(&self) -> &'static str {
        self.entry().map_or(self.registry_id, |entry| entry.kind.as_str())
    }
}

/// Returns the vendor and the vendor's own name of `model`. Names without a prefix belong to the vendor that LiteLLM knows
/// them from.
pub(super) fn vendor_of<'a>(model: &'a str, explicit: Option<&str>) -> Option<(&'static Vendor, &'a str)> {
    let by_prefix = |prefix: &str| VENDORS.iter().find(|vendor| vendor.prefix == prefix);
    if let Some(prefix) = explicit {
        let own = model.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')).unwrap_or(model);
        return by_prefix(prefix).map(|vendor| (vendor, own));
    }
    if let Some((prefix, own)) = model.split_once('/') {
        return by_prefix(prefix).map(|vendor| (vendor, own));
    }
    let (_, prefix) = BARE.iter().find(|(start, _)| model.starts_with(start))?;
    by_prefix(prefix).map(|vendor| (vendor, model))
}

const fn vendor(prefix: &'static str, registry_id: &'static str, key_variable: &'static str) -> Vendor {
    Vendor { prefix, registry_id, key_variable, base_suffix: "" }
}

/// A server whose own API LiteLLM speaks; llmgw speaks OpenAI's below `/v1`.
const fn below_v1(prefix: &'static str, registry_id: &'static str) -> Vendor {
    Vendor { prefix, registry_id, key_variable: "", base_suffix: "/v1" }
}

/// Names that LiteLLM accepts without a prefix.
const BARE: &[(&str, &str)] = &[
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("text-embedding-3", "openai"),
    ("text-embedding-ada", "openai"),
    ("dall-e", "openai"),
    ("whisper-", "openai"),
    ("tts-", "openai"),
    ("sora-", "openai"),
    ("claude-", "anthropic"),
    ("gemini-", "vertex_ai"),
    ("command-", "cohere"),
];

/// A prefix that llmgw does not know, of a deployment with an address of its own.
pub(super) static UNKNOWN: Vendor = vendor("compatible", "openai", "");

pub(super) const VENDORS: &[Vendor] = &[
    vendor("openai", "openai", "OPENAI_API_KEY"),
    vendor("custom_openai", "openai", "OPENAI_API_KEY"),
    vendor("azure", "azure_openai", "AZURE_API_KEY"),
    vendor("anthropic", "anthropic", "ANTHROPIC_API_KEY"),
    vendor("bedrock", "bedrock", ""),
    vendor("bedrock_converse", "bedrock", ""),
    vendor("vertex_ai", "vertex", ""),
    vendor("vertex_ai_beta", "vertex", ""),
    vendor("gemini", "gemini", "GEMINI_API_KEY"),
    vendor("groq", "groq", "GROQ_API_KEY"),
    vendor("mistral", "mistral", "MISTRAL_API_KEY"),
    below_v1("ollama", "ollama"),
    below_v1("ollama_chat", "ollama"),
    vendor("openrouter", "openrouter", "OPENROUTER_API_KEY"),
    vendor("together_ai", "together", "TOGETHERAI_API_KEY"),
    vendor("fireworks_ai", "fireworks", "FIREWORKS_API_KEY"),
    vendor("deepseek", "deepseek", "DEEPSEEK_API_KEY"),
    vendor("deepinfra", "deepinfra", "DEEPINFRA_API_KEY"),
    vendor("cerebras", "cerebras", "CEREBRAS_API_KEY"),
    vendor("cohere", "cohere", "COHERE_API_KEY"),
    vendor("cohere_chat", "cohere", "COHERE_API_KEY"),
    vendor("dashscope", "dashscope", "DASHSCOPE_API_KEY"),
    vendor("github", "github", "GITHUB_API_KEY"),
    vendor("huggingface", "huggingface", "HF_TOKEN"),
    vendor("hyperbolic", "hyperbolic", "HYPERBOLIC_API_KEY"),
    vendor("llamafile", "llamacpp", ""),
    vendor("lm_studio", "lmstudio", ""),
    vendor("hosted_vllm", "vllm", ""),
    vendor("minimax", "minimax", "MINIMAX_API_KEY"),
    vendor("moonshot", "moonshot", "MOONSHOT_API_KEY"),
    vendor("nebius", "nebius", "NEBIUS_API_KEY"),
    vendor("novita", "novita", "NOVITA_API_KEY"),
    vendor("nvidia_nim", "nvidia", "NVIDIA_NIM_API_KEY"),
    vendor("perplexity", "perplexity", "PERPLEXITYAI_API_KEY"),
    vendor("sambanova", "sambanova", "SAMBANOVA_API_KEY"),
    vendor("vercel_ai_gateway", "vercel", "VERCEL_AI_GATEWAY_API_KEY"),
    vendor("xai", "xai", "XAI_API_KEY"),
    vendor("zai", "zai", "ZAI_API_KEY"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_leads_to_a_provider_that_exists() {
        for vendor in VENDORS {
            assert!(vendor.entry().is_some() || vendor.registry_id == "azure_openai", "{}", vendor.prefix);
            assert!(shared::provider::kind(vendor.kind()).is_some(), "{}", vendor.prefix);
            assert!(shared::id::is_name(vendor.prefix), "{}", vendor.prefix);
        }
        for (_, prefix) in BARE {
            assert!(VENDORS.iter().any(|vendor| vendor.prefix == *prefix), "{prefix}");
        }
    }

    #[test]
    fn a_model_name_leads_to_its_vendor() {
        for (model, explicit, want) in [
            ("openai/gpt-5", None, Some(("openai", "gpt-5"))),
            ("openai/llava-hf/llava", None, Some(("openai", "llava-hf/llava"))),
            ("gpt-5-mini", None, Some(("openai", "gpt-5-mini"))),
            ("claude-x", None, Some(("anthropic", "claude-x"))),
            ("org/model", Some("openai"), Some(("openai", "org/model"))),
            ("openai/m", Some("openai"), Some(("openai", "m"))),
            ("mistralai/x", None, None),
            ("unknown", None, None),
            ("m", Some("nobody"), None),
        ] {
            let found = vendor_of(model, explicit).map(|(vendor, own)| (vendor.prefix, own));
            assert_eq!(found, want, "{model}");
        }
    }
}
