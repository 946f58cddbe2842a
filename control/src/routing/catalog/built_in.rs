//! The built-in list of what vendors document about their models: how they think, what they refuse, how much they write.
//! The names of models are matched when the models of a snapshot are built, never for a request.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::common::model_facts::Facts;
use crate::routing::config::Provider;

/// The list. Its file also contains the sources of each entry.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BuiltInList {
    /// The day on which its sources were read.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers of the file"))]
    as_of: String,
    /// The well-known providers and kinds of which no facts of their own are known.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers of the file"))]
    unknown: Vec<String>,
    entries: Vec<BuiltInEntry>,
}

/// Facts about models with similar names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BuiltInEntry {
    /// Well-known providers (`registry_id`) and kinds to which it applies; empty for all.
    #[serde(default)]
    providers: Vec<String>,
    /// Patterns of names, as in [`matches`]; empty for all models of its providers.
    #[serde(default)]
    models: Vec<String>,
    /// True if the facts hold for a whole family of models, also beside an entry for one of them.
    #[serde(default)]
    family: bool,
    facts: Facts,
    /// The pages and reports that state the facts.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers of the file"))]
    sources: Vec<String>,
}

/// Returns the facts about a model of `provider`: those of the first entry that names it, then those of its families, then
/// those of its provider.
pub(super) fn facts_of(provider: &Provider, model: &str) -> Option<Facts> {
    let vendor = provider.registry_id.as_deref().unwrap_or(provider.kind.name);
    facts_at(vendor, provider.kind.name, model)
}

fn facts_at(vendor: &str, kind: &str, model: &str) -> Option<Facts> {
    let entries = || {
        LIST.entries.iter().filter(|entry| {
            entry.providers.is_empty() || entry.providers.iter().any(|name| name == vendor || name == kind)
        })
    };
    let words = words_of(model);
    let names_it = |entry: &&BuiltInEntry| entry.models.iter().any(|pattern| matches(pattern, &words));
    let named = entries().find(|entry| !entry.family && names_it(entry));
    let families = entries().filter(|entry| entry.family && names_it(entry));
    let vendor_wide = entries().filter(|entry| entry.models.is_empty());
    let found = named.into_iter().chain(families).chain(vendor_wide);
    found.map(|entry| &entry.facts).fold(None, |known: Option<Facts>, facts| {
        Some(known.map_or_else(|| facts.clone(), |known| known.or(facts)))
    })
}

/// Returns the words of a name, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect()
}

/// Returns true if the words of `pattern`, joined by `-`, occur in the name one after the other; `*` is any word. A number at
/// the end of the pattern is a whole version: `gpt-5` does not match `gpt-5.1`, but `gpt-5-2025-08-07`.
fn matches(pattern: &str, name: &[String]) -> bool {
    let pattern: Vec<&str> = pattern.split('-').collect();
    let number = |word: &str| word.parse::<u32>().ok();
    let is_version = pattern.last().is_some_and(|word| number(word).is_some());
    name.windows(pattern.len()).enumerate().any(|(start, words)| {
        let after = name.get(start.saturating_add(pattern.len()));
        let goes_on = after.and_then(|word| number(word)).is_some_and(|number| number < DATES_FROM);
        words.iter().zip(&pattern).all(|(word, wanted)| *wanted == "*" || word == wanted)
            && !(is_version && goes_on)
    })
}

/// Numbers from this one on are dates or sizes, not parts of a version.
const DATES_FROM: u32 = 100;

static LIST: LazyLock<BuiltInList> = LazyLock::new(|| serde_json::from_str(EMBEDDED).unwrap_or_default());

const EMBEDDED: &str = include_str!("built_in.json");

#[cfg(test)]
mod tests {
    use shared::model_rules::{
        CallSignatures, ConverseFields, Effort, ImageFamily, ModelRules, ReasoningBack, Sampling, Thinking,
        ThinkingOff,
    };

    use super::*;

    #[test]
    fn every_registry_entry_and_kind_has_facts_or_is_listed_as_unknown() {
        let list: BuiltInList = serde_json::from_str(EMBEDDED).unwrap();
        assert!(list.as_of.parse::<jiff::civil::Date>().is_ok(), "{}", list.as_of);
        let entries = crate::routing::config::registry_entries().iter().map(|entry| entry.id.as_str());
        let kinds = shared::provider::KINDS.iter().map(|kind| kind.name);
        let known: Vec<&str> = entries.chain(kinds).collect();
        let has_facts =
            |name: &str| list.entries.iter().any(|entry| entry.providers.iter().any(|p| p == name));
        for name in &known {
            let is_unknown = list.unknown.iter().any(|unknown| unknown == name);
            assert!(has_facts(name) != is_unknown, "{name}: has facts, or is listed as unknown");
        }
        for name in list.unknown.iter().chain(list.entries.iter().flat_map(|entry| &entry.providers)) {
            assert!(known.contains(&name.as_str()), "{name} is a provider");
        }
    }

    #[test]
    fn every_entry_has_sources_facts_and_patterns_in_lower_case() {
        for entry in &LIST.entries {
            let name = format!("{:?} {:?}", entry.providers, entry.models);
            assert!(!entry.sources.is_empty() && entry.facts.fault().is_none(), "{name}");
            assert!(entry.sources.iter().all(|url| url.starts_with("https://")), "{name}");
            assert!(!entry.providers.is_empty() || !entry.models.is_empty(), "{name}");
            for pattern in &entry.models {
                let words: Vec<&str> = pattern.split('-').filter(|word| *word != "*").collect();
                assert_eq!(words_of(pattern), words, "{name}");
            }
        }
        let patterns: usize = LIST.entries.iter().map(|entry| entry.models.len()).sum();
        assert!(patterns > 40, "{patterns} patterns");
    }

    #[test]
    fn a_pattern_matches_whole_words_and_whole_versions() {
        for (pattern, name, want) in [
            ("claude-opus-4-7", "us.anthropic.claude-opus-4-7-v1", true),
            ("claude-opus-4-7", "anthropic/claude-opus-4.7", true),
            ("claude-opus-4-7", "claude-opus-4-7-20260416", true),
            ("claude-opus-4", "claude-opus-4-20250514", true),
            ("claude-opus-4", "claude-opus-4-7", false),
            ("claude-haiku-4-5", "claude-haiku-4-5@20251001", true),
            ("claude-opus-5", "claude-opus-5-5", false),
            ("gpt-5", "gpt-5-2025-08-07", true),
            ("gpt-5", "gpt-5.6-terra", false),
            ("gpt-5-6", "gpt-5.6-terra", true),
            ("gpt-5", "gpt-5-mini", true),
            ("o1", "o1-pro", true),
            ("o1", "solo1", false),
            ("kimi-k2-5", "kimi-k2.5", true),
            ("gpt-oss", "openai/gpt-oss-120b", true),
            ("gemini-3-*-pro", "gemini-3.1-pro-preview", true),
            ("gemini-3-*-pro", "gemini-3-pro-preview", false),
            ("gemini-2-*", "models/gemini-2.5-flash", true),
            ("gemini-2-*", "gemini-20-flash", false),
        ] {
            assert_eq!(matches(pattern, &words_of(name)), want, "{pattern} and {name}");
        }
    }

    fn rules(vendor: &str, kind: &str, model: &str) -> ModelRules {
        facts_at(vendor, kind, model).map_or(ModelRules::UNKNOWN, |facts| facts.rules)
    }

    #[test]
    fn models_have_the_rules_that_their_vendors_document() {
        for (model, thinking, sampling) in [
            ("claude-3-5-sonnet-20241022", Thinking::Never, Sampling::Any),
            ("claude-opus-4-1", Thinking::Budget, Sampling::One),
            ("claude-sonnet-4-5", Thinking::Budget, Sampling::One),
            ("claude-opus-4-6", Thinking::Either, Sampling::One),
            ("claude-opus-4-7", Thinking::Adaptive, Sampling::None),
            ("us.anthropic.claude-opus-4-8-v1", Thinking::Adaptive, Sampling::None),
            ("claude-sonnet-5", Thinking::Adaptive, Sampling::None),
            ("claude-opus-5-5", Thinking::Always, Sampling::None),
        ] {
            let rules = rules("anthropic", "anthropic", model);
            assert_eq!((rules.thinking, rules.sampling), (Some(thinking), Some(sampling)), "{model}");
            assert_eq!(rules.signed_thinking, Some(true), "{model}");
        }
        let terra = rules("openai", "openai", "gpt-5.6-terra");
        assert_eq!((terra.tools_with_effort, terra.thinks_by_default), (Some(false), Some(true)));
        assert_eq!(terra.nearest_effort(Effort::Max), Some(Effort::Xhigh));
        let pro = rules("deepseek", "compatible", "deepseek-v4-pro");
        assert_eq!(
            (pro.reasoning_back, pro.reasoning_absent.as_deref()),
            (Some(ReasoningBack::All), Some(""))
        );
        assert_eq!(pro.thinking_off, Some(ThinkingOff::Thinking));
        let kimi = rules("moonshot", "compatible", "kimi-k2.5");
        assert_eq!(kimi.reasoning_back, Some(ReasoningBack::ToolCalls));
        let older = rules("deepseek", "compatible", "deepseek-chat");
        assert_eq!(older.reasoning_back, Some(ReasoningBack::ToolLoop), "of its vendor");
        assert_eq!(facts_at("vllm", "local_server", "my-model"), None);
        assert_eq!(facts_at("anthropic", "anthropic", "kimi-k2.5"), None, "a server of the same API");
    }

    #[test]
    fn models_have_the_rules_of_their_family_at_every_provider() {
        let claude = rules("bedrock", "bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0");
        assert_eq!((claude.thinking, claude.sampling), (Some(Thinking::Budget), Some(Sampling::One)));
        assert_eq!(claude.converse_fields, Some(ConverseFields::Messages), "of its family");
        let elsewhere = rules("compatible", "compatible", "anthropic/claude-sonnet-5");
        assert_eq!((elsewhere.root_unions, elsewhere.mid_system), (Some(false), Some(true)));
        assert_eq!(elsewhere.sampling, None, "other servers may change the members");
        assert_eq!(rules("bedrock", "bedrock", "amazon.nova-pro-v1:0").media_in_tool_results, Some(true));
        assert!(rules("bedrock", "bedrock", "meta.llama4-scout").is_unknown());
        for (model, thinking, signatures, minimal) in [
            ("gemini-2.0-flash", Thinking::Never, CallSignatures::Accepted, Effort::Minimal),
            ("gemini-2.5-flash", Thinking::Budget, CallSignatures::Accepted, Effort::Minimal),
            ("gemini-3-flash-preview", Thinking::Always, CallSignatures::Required, Effort::Minimal),
            ("gemini-3.8-flash", Thinking::Always, CallSignatures::Required, Effort::Low),
            ("gemini-3.1-pro-preview", Thinking::Always, CallSignatures::Required, Effort::Low),
        ] {
            let rules = rules("gemini", "gemini", model);
            assert_eq!(
                (rules.thinking, rules.call_signatures, rules.least_effort(Effort::Minimal)),
                (Some(thinking), Some(signatures), Some(minimal)),
                "{model}"
            );
        }
        assert_eq!(rules("perplexity", "compatible", "sonar-pro").searches, Some(true));
    }

    #[test]
    fn names_in_any_spelling_belong_to_their_family() {
        for (model, by_effort, mid_system) in [
            ("claude-3-7-sonnet-latest", false, None),
            ("claude-haiku-4-5@20251001", false, None),
            ("claude-opus-4-6", true, None),
            ("anthropic/claude-sonnet-5", true, Some(true)),
            ("claude", true, None),
            ("gpt-5", true, None),
        ] {
            let rules = rules("compatible", "compatible", model);
            let knows_words = !matches!(rules.thinking, Some(Thinking::Never | Thinking::Budget));
            assert_eq!((knows_words, rules.mid_system), (by_effort, mid_system), "{model}");
        }
        for (model, family) in [
            ("gemini-3-pro-image", None),
            ("gemini-2.5-flash-image", Some(ImageFamily::Gemini2)),
            ("gemini-2.0-flash-preview-image-generation", Some(ImageFamily::Gemini2)),
            ("imagen-4.0-generate-001", Some(ImageFamily::Imagen)),
            ("imagen-3.0-generate-002", Some(ImageFamily::Imagen3)),
        ] {
            assert_eq!(rules("gemini", "gemini", model).image_family, family, "{model}");
        }
        let computer = rules("gemini", "gemini", "gemini-2.5-computer-use-preview-10-2025");
        assert_eq!(computer.thinking, Some(Thinking::Budget), "of its family");
    }
}
