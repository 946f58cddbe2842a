//! Model lists of well-known vendors and servers, and hostile ones.

use super::*;
use crate::common::bounds::tests::passes;

fn ids(body: &str) -> Vec<String> {
    read(body.as_bytes()).unwrap().models.into_keys().collect()
}

fn only(body: &str) -> ListedModel {
    read(body.as_bytes()).unwrap().models.into_values().next().unwrap()
}

#[test]
fn model_ids_are_read_from_each_list_shape() {
    for (name, body, want) in [
        ("openai", r#"{"object":"list","data":[{"id":"b","object":"model"},{"id":"a"}]}"#, &["a", "b"][..]),
        ("together", r#"[{"id":"x/y","type":"chat"}]"#, &["x/y"]),
        ("gemini", r#"{"models":[{"name":"models/gemma"}],"nextPageToken":"t"}"#, &["gemma"]),
        (
            "vertex",
            r#"{"models":[{"name":"publishers/google/models/gemini-x"}],"nextPageToken":"t"}"#,
            &["gemini-x"],
        ),
        (
            "fireworks, whose requests have the whole name",
            r#"{"data":[{"id":"accounts/fireworks/models/llama","created":0}]}"#,
            &["accounts/fireworks/models/llama"],
        ),
        ("both, one empty", r#"{"models":[{"model":"m"}],"data":[]}"#, &["m"]),
        ("plain names", r#"["p"]"#, &["p"]),
        ("nothing installed", r#"{"object":"list","data":null}"#, &[]),
    ] {
        assert_eq!(ids(body), want, "{name}");
    }
}

/// Lists from the vectors of the SDKs: the upstream may be a gateway of the same kind.
#[test]
fn recorded_model_lists_of_each_shape_are_read() {
    const LISTS: [(&str, Option<u64>, Option<&str>); 3] = [
        (
            include_str!("../../../../../dataplane/wire/fixtures/models/list_openai.json"),
            Some(1_795_000_000),
            Some("llmgw"),
        ),
        (
            include_str!("../../../../../dataplane/wire/fixtures/models/list_anthropic.json"),
            Some(1_767_225_600),
            None,
        ),
        (
            include_str!("../../../../../dataplane/wire/fixtures/models/list_both.json"),
            Some(1_795_000_000),
            Some("llmgw"),
        ),
    ];
    for (body, created, owned_by) in LISTS {
        assert_eq!(ids(body), ["fast"]);
        let offer = only(body);
        assert_eq!((offer.created, offer.owned_by.as_deref()), (created, owned_by), "{body}");
        assert_eq!(next_page(body.as_bytes(), Pages::AfterId), None, "there is no more");
    }
}

#[test]
fn a_body_that_is_no_model_list_is_rejected() {
    for body in [
        "",
        "<html>",
        "{}",
        r#"{"error":{"message":"no"}}"#,
        r#"{"data":{"id":"a"}}"#,
        "7",
        r#"{"data":[{"id":"a"}"#,
    ] {
        assert!(read(body.as_bytes()).is_err(), "{body}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(read(deep.as_bytes()).is_err(), "depth is bounded");
}

#[test]
fn the_context_window_is_read_from_each_model_server() {
    for (name, body, want) in [
        (
            "vllm",
            r#"[{"id":"m","created":1700000000,"owned_by":"vllm","max_model_len":32768}]"#,
            Some(32_768),
        ),
        ("llama.cpp", r#"{"data":[{"id":"m","meta":{"n_vocab":1,"n_ctx_train":131072}}]}"#, Some(131_072)),
        ("groq", r#"{"data":[{"id":"m","context_window":8192}]}"#, Some(8_192)),
        ("openai", r#"{"data":[{"id":"m"}]}"#, None),
        ("nonsense", r#"{"data":[{"id":"m","context_length":"many"}]}"#, None),
        ("zero", r#"{"data":[{"id":"m","context_length":0}]}"#, None),
    ] {
        assert_eq!(only(body).facts.context_window, want, "{name}");
    }
    let vllm = only(r#"[{"id":"m","created":1700000000.0,"owned_by":"vllm"}]"#);
    assert_eq!((vllm.created, vllm.owned_by.as_deref()), (Some(1_700_000_000), Some("vllm")));
}

#[test]
fn an_openrouter_list_has_prices_and_capabilities() {
    let offer = only(
        r#"{"data":[{"id":"anthropic/claude","name":"Anthropic: Claude","created":1,"context_length":200000,
        "architecture":{"input_modalities":["text","image"],"output_modalities":["text"]},
        "pricing":{"prompt":"0.000003","completion":"0.000015","request":"0","image":"0.0048","internal_reasoning":"0",
        "input_cache_read":"0.0000003","input_cache_write":"0.00000375"},
        "supported_parameters":["max_tokens","tools"]}]}"#,
    );
    let facts = offer.facts;
    assert_eq!(facts.display_name.as_deref(), Some("Anthropic: Claude"));
    assert_eq!((facts.vision, facts.audio), (Some(true), Some(false)));
    assert_eq!((facts.tools, facts.reasoning), (Some(true), Some(false)));
    let rates = Rates::default()
        .with(Class::Input, 3_000_000_000)
        .with(Class::CacheRead, 300_000_000)
        .with(Class::CacheWrite, 3_750_000_000)
        .with(Class::Output, 15_000_000_000);
    assert_eq!(facts.prices, Some(Prices::flat(rates)));
}

#[test]
fn incomplete_or_unusable_prices_are_unknown() {
    for (name, pricing, want) in [
        ("of the router itself", r#"{"prompt":"-1","completion":"-1"}"#, None),
        ("one of two", r#"{"prompt":"0.000001"}"#, None),
        ("a fee for each request", r#"{"prompt":"0","completion":"0","request":"0.005"}"#, None),
        ("in another unit", r#"{"input":0.2,"output":0.2}"#, None),
        ("no numbers", r#"{"prompt":"free","completion":"NaN"}"#, None),
        ("free", r#"{"prompt":"0","completion":"0"}"#, Some((Some(0), Some(0)))),
    ] {
        let body = format!(r#"[{{"id":"m","pricing":{pricing}}}]"#);
        let rates = only(&body).facts.prices.map(|prices| prices.base.rates);
        let got = rates.map(|rates| (rates.get(Class::Input), rates.get(Class::Output)));
        assert_eq!(got, want, "{name}");
    }
}

#[test]
fn a_mistral_list_has_capability_flags() {
    let facts =
        only(r#"{"data":[{"id":"m","max_context_length":32000,"capabilities":{"vision":false,"function_calling":true}}]}"#)
            .facts;
    assert_eq!((facts.vision, facts.tools, facts.context_window), (Some(false), Some(true), Some(32_000)));
}

#[test]
fn unusable_entries_are_skipped_and_counted() {
    let long = "x".repeat(300);
    let body = format!(
        r#"{{"data":[{{"id":"good"}},{{"id":"with blank"}},{{"id":"new\nline"}},{{"id":""}},{{"id":"{long}"}},{{"id":7}},null,
        {{"id":"good","owned_by":"again"}},[],{{"id":"\u0000"}}]}}"#
    );
    let listing = read(body.as_bytes()).unwrap();
    assert_eq!(listing.models.keys().collect::<Vec<_>>(), ["good"]);
    assert_eq!(
        listing.skipped,
        SkippedEntries { without_usable_id: 8, repeated: 1, over_limit: 0, unread_lists: 0 }
    );
}

#[test]
fn a_model_over_the_limit_is_counted_and_dropped() {
    let many: Vec<_> =
        (0..=LISTED_MODELS.max()).map(|n| serde_json::json!({"id": format!("m{n}")})).collect();
    let listing = passes(&LISTED_MODELS, || read(&serde_json::to_vec(&many).unwrap()).unwrap());
    assert_eq!((listing.models.len(), listing.skipped.over_limit), (LISTED_MODELS.max(), 1));
}

#[test]
fn model_lists_of_gemini_anthropic_azure_and_bedrock_are_read() {
    let gemini = only(
        r#"{"models":[{"name":"models/gemini-x","displayName":"Gemini X","inputTokenLimit":1048576,"outputTokenLimit":65536,
        "supportedGenerationMethods":["generateContent"],"thinking":true}]}"#,
    );
    assert_eq!(gemini.facts.display_name.as_deref(), Some("Gemini X"));
    assert_eq!(
        (gemini.facts.context_window, gemini.facts.max_output_tokens, gemini.facts.reasoning),
        (Some(1_048_576), Some(65_536), Some(true))
    );
    let anthropic = only(
        r#"{"data":[{"type":"model","id":"claude-x","display_name":"Claude X","created_at":"2026-01-01T00:00:00Z",
        "max_input_tokens":200000,"max_tokens":64000,"capabilities":{"image_input":{"supported":true},
        "thinking":{"supported":false}}}],"has_more":false}"#,
    );
    assert_eq!((anthropic.created, anthropic.facts.max_output_tokens), (Some(1_767_225_600), Some(64_000)));
    assert_eq!((anthropic.facts.vision, anthropic.facts.reasoning), (Some(true), Some(false)));
    let azure = only(
        r#"{"data":[{"id":"my-deployment","model":"gpt-x","status":"succeeded","object":"deployment"}]}"#,
    );
    assert_eq!(azure.facts, Facts::default());
    assert_eq!(
        ids(
            r#"{"modelSummaries":[{"modelId":"a.b-v1:0","modelName":"B","inferenceTypesSupported":["ON_DEMAND","PROVISIONED"]},
            {"modelId":"c","inferenceTypesSupported":["INFERENCE_PROFILE"]},{"modelId":"d"}]}"#
        ),
        ["a.b-v1:0", "d"]
    );
    assert_eq!(
        ids(
            r#"{"inferenceProfileSummaries":[{"inferenceProfileId":"eu.a.b","inferenceProfileName":"B"}],"nextToken":null}"#
        ),
        ["eu.a.b"]
    );
}

#[test]
fn the_next_page_parameter_matches_the_vendors_paging_style() {
    for (pages, body, want) in [
        (Pages::One, r#"{"has_more":true,"last_id":"a","nextPageToken":"t"}"#, None),
        (Pages::AfterId, r#"{"data":[],"has_more":true,"last_id":"a"}"#, Some(("after_id", "a"))),
        (Pages::AfterId, r#"{"data":[],"has_more":false,"last_id":"a"}"#, None),
        (Pages::AfterId, r#"{"has_more":true,"last_id":null}"#, None),
        (Pages::PageToken, r#"{"models":[],"nextPageToken":"t"}"#, Some(("pageToken", "t"))),
        (Pages::PageToken, r#"{"nextPageToken":""}"#, None),
        (Pages::NextToken, r#"{"nextToken":"n"}"#, Some(("nextToken", "n"))),
        (Pages::NextToken, r#"[{"id":"m"}]"#, None),
        (Pages::NextToken, "{", None),
    ] {
        let want = want.map(|(name, value)| (name, value.to_owned()));
        assert_eq!(next_page(body.as_bytes(), pages), want, "{body}");
    }
}

#[test]
fn pages_are_joined_up_to_the_model_limit() {
    let page = |from: usize, count: usize| {
        let ids: Vec<_> = (from..from + count).map(|n| serde_json::json!({"id": format!("m{n}")})).collect();
        read(&serde_json::to_vec(&ids).unwrap()).unwrap()
    };
    let mut all = page(0, LISTED_MODELS.max() - 1);
    all.join(page(LISTED_MODELS.max() - 2, 3));
    assert_eq!((all.models.len(), all.skipped.repeated, all.skipped.over_limit), (LISTED_MODELS.max(), 1, 1));
}
