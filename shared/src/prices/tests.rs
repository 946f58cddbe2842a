//! Tests of the pricing function against bills computed by hand, and of the round trip of the written form.

use super::*;

fn prices(json: serde_json::Value) -> Prices {
    serde_json::from_value(json).unwrap()
}

fn tokens([input, cache_read, cache_write, output, reasoning]: [u64; 5]) -> TokenCounts {
    TokenCounts { input, cache_read, cache_write, output, reasoning, ..TokenCounts::default() }
}

fn chat<'a>(tokens: &'a TokenCounts, units: &'a Units, tier: Option<&'a str>) -> Billed<'a> {
    let (operation, provenance) = (Operation::ChatCompletions, Provenance::Reported);
    Billed { operation, provenance, tokens, units, tier, picture: None, vendor_cost: None }
}

fn cost(counts: TokenCounts, written: &serde_json::Value) -> Option<u64> {
    price(&chat(&counts, &Units::default(), None), Some(&prices(written.clone()))).cost
}

#[test]
fn bills_are_those_of_public_price_lists() {
    let mini = serde_json::json!({"input": 0.15, "cached_input": 0.075, "output": 0.6});
    let sonnet = serde_json::json!({"input": 3, "cached_input": 0.3, "cache_write": 3.75, "output": 15});
    let flash = serde_json::json!({"input": 0.3, "cached_input": 0.075, "output": 2.5});
    let tiny = serde_json::json!({"input": 0.0375});
    let cases = [
        // 1000 * 0.15 + 500 * 0.60 = 450 micro-dollars
        ("input and output", &mini, [1_000, 0, 0, 500, 0], 450_000),
        // 1024 * 0.15 + 1024 * 0.075 + 200 * 0.60, each token in one class
        ("half of the input cached", &mini, [1_024, 1_024, 0, 200, 0], 350_400),
        // 12 * 3 + 2_000 * 0.30 + 10_000 * 3.75 + 800 * 15
        ("a cache written and read", &sonnet, [12, 2_000, 10_000, 800, 0], 50_136_000),
        // 100 * 0.30 + (50 + 900) * 2.50
        ("reasoning is output without a price of its own", &flash, [100, 0, 0, 50, 900], 2_405_000),
        ("nothing used costs nothing", &mini, [0; 5], 0),
        ("37.5 nano-dollars are rounded once, half up", &tiny, [1, 0, 0, 0, 0], 38),
        ("and not for each token", &tiny, [4, 0, 0, 0, 0], 150),
    ];
    for (name, written, counts, nano) in cases {
        assert_eq!(cost(tokens(counts), written), Some(nano), "{name}");
    }
    let free = serde_json::json!({"input": 0, "output": 0});
    assert_eq!(cost(tokens([7, 0, 0, 7, 0]), &free), Some(0), "a free class is free");
    let own = serde_json::json!({"output": 2.5, "reasoning": 1});
    assert_eq!(cost(tokens([0, 0, 0, 0, 9]), &own), Some(9_000), "reasoning by its own price");
}

#[test]
fn a_used_class_without_a_price_leaves_the_cost_partly_known() {
    let names = ["input", "cached_input", "cache_write", "cache_write_1h", "output", "audio_input", "search"];
    let all: serde_json::Map<_, _> = names.iter().map(|name| ((*name).to_owned(), 1.0.into())).collect();
    let counts = TokenCounts {
        input: 5,
        cache_read: 5,
        cache_write: 5,
        cache_write_1h: 5,
        output: 5,
        audio_input: 5,
        ..TokenCounts::default()
    };
    let units = Units { searches: 2, ..Units::default() };
    let whole = price(&chat(&counts, &units, None), Some(&prices(all.clone().into())));
    assert_eq!(whole, Bill::of(2_000_030_000));
    for name in names {
        let mut some = all.clone();
        some.remove(name);
        let bill = price(&chat(&counts, &units, None), Some(&prices(some.into())));
        let missing = if name == "search" { 2_000_000_000 } else { 5_000 };
        assert_eq!((bill.cost, bill.known), (None, whole.known - missing), "{name}");
        assert_eq!(bill.unpriced.members(None), [name]);
    }
    assert_eq!(price(&chat(&counts, &units, None), None), Bill::UNKNOWN);
}

#[test]
fn cached_input_without_a_price_costs_as_much_as_input_at_an_operators_prices() {
    let units = Units::ZERO;
    let of = |counts, written: serde_json::Value| {
        let prices = prices(written);
        let bill = |prices: &Prices| price(&chat(&tokens(counts), &units, None), Some(prices));
        (bill(&prices).cost, bill(&prices.clone().by_operator()))
    };
    let plain = serde_json::json!({"input": 2, "output": 4, "above": [{"input_tokens": 1000, "input": 3, "output": 6}]});
    let stepped =
        serde_json::json!({"input": 2, "output": 4, "above": [{"input_tokens": 1000, "output": 6}]});
    for (name, counts, written, want) in [
        ("cached and not", [100, 200, 0, 10, 0], plain.clone(), Some(640_000)),
        ("all of it cached", [0, 300, 0, 0, 0], plain.clone(), Some(600_000)),
        ("at the price of its length", [100, 1_000, 0, 0, 0], plain, Some(3_300_000)),
        ("a step inherits nothing", [100, 1_000, 0, 0, 0], stepped, None),
    ] {
        let (listed, own) = of(counts, written);
        assert_eq!((listed, own.cost), (None, want), "{name}");
    }
    let (_, bill) = of([100, 200, 300, 10, 0], serde_json::json!({"input": 2, "output": 4}));
    assert_eq!((bill.cost, bill.known), (None, 640_000), "a write may cost more than input");
    assert_eq!(bill.unpriced.members(None), ["cache_write"]);
    let own = prices(serde_json::json!({"input": 2, "cached_input": 0.5, "output": 4})).by_operator();
    let counts = tokens([100, 200, 0, 10, 0]);
    let billed = chat(&counts, &units, None);
    assert_eq!(price(&billed, Some(&own)).cost, Some(340_000), "its own price");
    let without = prices(serde_json::json!({"input": 2, "output": 4})).by_operator();
    let reported = Billed { vendor_cost: Some(9), ..billed };
    assert_eq!(price(&reported, Some(&without)), Bill::of_vendor(9), "the vendor knows better");
}

#[test]
fn the_missing_prices_of_a_model_are_named_by_its_protocols() {
    use crate::operation::Dialect::{Chat, Embeddings, Images, Messages};
    let cases = [
        (serde_json::json!({"input": 1, "output": 2}), vec![Chat], false, "", "cached_input"),
        (
            serde_json::json!({"input": 1, "output": 2}),
            vec![Chat],
            true,
            "audio_input",
            "cached_input audio_input",
        ),
        (
            serde_json::json!({"input": 1, "cached_input": 1, "cache_write": 1, "output": 2}),
            vec![Chat, Messages],
            false,
            "cache_write_1h",
            "cache_write_1h",
        ),
        (serde_json::json!({"input": 1}), vec![Embeddings], false, "", ""),
        (serde_json::json!({"input": 1}), vec![Chat, Embeddings], false, "output", ""),
        (serde_json::json!({"image": 1}), vec![Images], false, "", ""),
        (
            serde_json::json!({"input": 1, "output": 2, "tiers": {"flex": {"input": 1}}}),
            vec![Chat],
            false,
            "output",
            "cached_input output",
        ),
    ];
    for (written, dialects, hears, own, listed) in cases {
        let listed_prices = prices(written.clone());
        let gaps = |prices: &Prices| prices.gaps(&dialects, hears).members(None).join(" ");
        assert_eq!(gaps(&listed_prices.clone().by_operator()), own, "{written}");
        assert_eq!(gaps(&listed_prices), listed, "{written}");
    }
}

#[test]
fn the_tokens_of_a_prompt_are_no_price_of_a_video() {
    let counts = TokenCounts { input: 15, ..TokenCounts::ZERO };
    let units = Units { video_ms: 8_000, ..Units::ZERO };
    let by_tokens = prices(serde_json::json!({"input": 1, "output": 2}));
    let billed = Billed { operation: Operation::Videos, ..chat(&counts, &units, None) };
    let bill = price(&billed, Some(&by_tokens));
    assert_eq!((bill.cost, bill.known), (None, 15_000));
    assert_eq!(bill.unpriced.members(None), ["video_second"]);
    let made = TokenCounts { output: 1_000, ..counts };
    assert_eq!(price(&Billed { tokens: &made, ..billed }, Some(&by_tokens)).cost, Some(2_015_000));
}

#[test]
fn longer_prompts_have_the_prices_of_their_step() {
    let stepped = prices(serde_json::json!({
        "input": 1, "cached_input": 1, "output": 1, "input_tokens_max": 300,
        "above": [{"input_tokens": 1000, "input": 4, "output": 4}, {"input_tokens": 300, "input": 2, "output": 2}],
    }));
    let bill = |counts| price(&chat(&tokens(counts), &Units::default(), None), Some(&stepped)).cost;
    assert_eq!(bill([200, 100, 0, 9, 0]), Some(309_000));
    assert_eq!(bill([301, 0, 0, 9, 0]), Some(620_000));
    assert_eq!(bill([1_001, 0, 0, 9, 0]), Some(4_040_000));
    assert_eq!(bill([301, 1, 0, 9, 0]), None, "the step has no price for cached input");
    let bounded = prices(serde_json::json!({"input": 1, "input_tokens_max": 300}));
    let over = tokens([301, 0, 0, 0, 0]);
    assert_eq!(
        price(&chat(&over, &Units::default(), None), Some(&bounded)),
        Bill { known: 301_000, unpriced: Unpriced::LENGTH, ..Bill::UNKNOWN }
    );
}

#[test]
fn service_tiers_have_their_own_prices_and_unknown_tiers_are_unpriced() {
    let tiered = prices(serde_json::json!({
        "input": 2, "output": 4, "search": 0.01,
        "tiers": {"flex": {"input": 1, "output": 2}, "fast": {"input": 12, "output": 24}, "geo:us": {"times": 1.1}},
    }));
    let counts = tokens([1_000, 0, 0, 100, 0]);
    let search = Units { searches: 1, ..Units::default() };
    for (tier, units, want) in [
        (None, Units::default(), Some(2_400_000)),
        (Some("flex"), Units::default(), Some(1_200_000)),
        (Some("geo:us"), Units::default(), Some(2_640_000)),
        (Some("fast+geo:us"), Units::default(), Some(15_840_000)),
        (Some("priority"), Units::default(), None),
        (Some("geo:us"), search, Some(12_640_000)),
        (Some("flex"), search, None),
    ] {
        let bill = price(&chat(&counts, &units, tier), Some(&tiered));
        assert_eq!(bill.cost, want, "{tier:?}");
        assert!(bill.known > 0, "{tier:?}");
        let missing = match tier {
            Some("priority") => vec!["tiers.priority"],
            Some("flex") if want.is_none() => vec!["search"],
            _ => vec![],
        };
        assert_eq!(bill.unpriced.members(tier), missing, "{tier:?}");
    }
}

#[test]
fn media_are_billed_by_the_unit_or_by_reported_tokens() {
    let of = |operation, provenance, tokens: [u64; 5], units: Units, written: serde_json::Value| {
        let counts = self::tokens(tokens);
        let picture = Some("hd/1024x1024");
        let billed = Billed {
            operation,
            provenance,
            tokens: &counts,
            units: &units,
            tier: None,
            picture,
            vendor_cost: None,
        };
        price(&billed, Some(&prices(written))).cost
    };
    let (estimated, reported) = (Provenance::Estimated, Provenance::Reported);
    let spoken = Units { characters: 1_000, ..Units::default() };
    let speech = Operation::Speech;
    let by_characters = serde_json::json!({"characters": 15});
    assert_eq!(of(speech, estimated, [250, 0, 0, 0, 0], spoken, by_characters), Some(15_000_000));
    let by_tokens = serde_json::json!({"input": 0.6, "output": 12});
    assert_eq!(
        of(speech, estimated, [250, 0, 0, 0, 0], spoken, by_tokens.clone()),
        None,
        "tokens were not counted"
    );
    assert_eq!(of(speech, reported, [10, 0, 0, 100, 0], spoken, by_tokens), Some(1_206_000));
    let heard = Units { audio_ms: 60_000, ..Units::default() };
    let by_seconds = serde_json::json!({"audio_second": 0.0001});
    assert_eq!(of(Operation::Transcription, estimated, [0; 5], heard, by_seconds), Some(6_000_000));
    let drawn = Units { images: 2, ..Units::default() };
    let sorts = serde_json::json!({"image": 0.04, "pictures": {"1024x1024": 0.05, "hd/1024x1024": 0.08}});
    assert_eq!(of(Operation::Images, estimated, [9, 0, 0, 0, 0], drawn, sorts), Some(160_000_000));
    assert_eq!(
        of(Operation::Images, estimated, [0; 5], Units::default(), serde_json::json!({"input": 1})),
        None
    );
    let filmed = Units { video_ms: 8_000, ..Units::default() };
    let film = serde_json::json!({"video_second": 0.4});
    assert_eq!(of(Operation::Videos, estimated, [0; 5], filmed, film), Some(3_200_000_000));
    let by_size = serde_json::json!({"video_second": 0.3, "pictures": {"1024x1024": 0.5, "1280x720": 0.3}});
    assert_eq!(of(Operation::Videos, estimated, [0; 5], filmed, by_size), Some(4_000_000_000), "by its size");
    let other = serde_json::json!({"pictures": {"1280x720": 0.3}});
    assert_eq!(of(Operation::Videos, estimated, [0; 5], filmed, other), None, "of a size without a price");
    assert_eq!(of(speech, Provenance::None, [0; 5], Units::default(), serde_json::json!({})), Some(0));
}

#[test]
fn the_vendors_reported_cost_is_used_without_a_price() {
    let counts = tokens([1_000, 0, 0, 0, 5]);
    let (none, units) = (TokenCounts::ZERO, Units::ZERO);
    let billed = Billed { vendor_cost: Some(77), ..chat(&counts, &units, None) };
    let by_vendor = Bill::of_vendor(77);
    assert_eq!(price(&billed, None), by_vendor);
    assert_eq!(price(&billed, Some(&prices(serde_json::json!({"input": 1})))), by_vendor);
    let own = price(&billed, Some(&prices(serde_json::json!({"input": 1, "output": 1}))));
    assert_eq!(own, Bill::of(1_005_000));
    assert_eq!(price(&Billed { tokens: &none, ..billed }, None), Bill::FREE, "nothing was used");
}

#[test]
fn absurd_counts_and_prices_saturate() {
    let dear = serde_json::json!({"input": 1e6, "output": 1e6});
    assert_eq!(cost(tokens([u64::MAX, 0, 0, u64::MAX, 0]), &dear), Some(u64::MAX));
}

#[test]
fn prices_are_written_in_dollars_and_kept_exactly() {
    for text in [
        r#"{"input":0.15,"cached_input":0.075,"output":0.6}"#,
        r#"{"input":0.000000001,"output":0.0}"#,
        r#"{"input":1000000.0}"#,
        r#"{"audio_second":0.0001,"image":0.04,"search":0.01,"pictures":{"1024x1792":0.08}}"#,
        r#"{"input":3.0,"input_tokens_max":200000,"above":[{"input_tokens":200000,"input":6.0}],"tiers":{"fast":{"input":18.0},"geo:us":{"times":1.1}}}"#,
    ] {
        let read: Prices = serde_json::from_str(text).unwrap();
        let written = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<Prices>(&written).unwrap(), read);
        assert_eq!(written.replace("1e-9", "0.000000001"), text);
    }
}

#[test]
fn faulty_prices_are_refused_by_name() {
    for (text, want) in [
        (r#"{"output":-1}"#, "`output` must be dollars per million, from 0 to 1000000"),
        (r#"{"input":1e7}"#, "`input` must be"),
        (r#"{"image":1e5}"#, "`image` must be dollars, from 0 to 10000"),
        (r#"{"input":"1"}"#, "invalid type: string"),
        (r#"{"inputs":1}"#, "unknown field `inputs`"),
        (r#"{"times":1}"#, "`times` is only valid"),
        (r#"{"above":[{"input":1}]}"#, "missing field `input_tokens`"),
        (r#"{"tiers":{"flex":{"times":2,"input":1}}}"#, "cannot be combined"),
        (r#"{"tiers":{"flex":{"tiers":{}}}}"#, "unknown field `tiers`"),
        (r#"{"pictures":{"1x1":-1}}"#, "`pictures.1x1` must be"),
    ] {
        let error = serde_json::from_str::<Prices>(text).unwrap_err().to_string();
        assert!(error.contains(want), "{text}: {error}");
    }
}

#[test]
fn a_price_label_names_the_known_prices() {
    let label = |written, source: &str| prices(written).label(source).to_string();
    let groq = serde_json::json!({"input": 0.59, "cached_input": 0, "output": 0.000001});
    assert_eq!(label(groq, "config"), "config in 0.59 cached 0 out 0.000001");
    let bounded = serde_json::json!({"input": 15, "reasoning": 15, "audio_second": 0.0001, "input_tokens_max": 272_000});
    assert_eq!(
        label(bounded, "list 2026-11-01"),
        "list 2026-11-01 in 15 reasoning 15 audio_second 0.0001 up to 272000"
    );
    assert_eq!(label(serde_json::json!({}), "config"), "config");
    let flex = label(serde_json::json!({"input": 1, "tiers": {"flex": {"input": 0.5}}}), "config");
    let other = label(serde_json::json!({"input": 1, "tiers": {"flex": {"input": 0.6}}}), "config");
    assert!(flex.starts_with("config in 1 more ") && flex != other, "{flex}");
}
