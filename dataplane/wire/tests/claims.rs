//! Checks that a test runs every file in `fixtures/` through the product. The table `RUNNERS` maps cases to tests. A
//! case without a row fails, and so does a row whose test or cases do not exist.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A test and the cases that it runs.
struct Runner {
    folder: &'static str,
    cases: Cases,
    /// Path of the test's source file, relative to the root of the repository.
    file: &'static str,
    test: &'static str,
}

/// Selects cases of one folder.
enum Cases {
    Kind(&'static str),
    KindBut(&'static str, &'static [&'static str]),
    Ids(&'static [&'static str]),
}

use Cases::{Ids, Kind, KindBut};

const fn runner(folder: &'static str, cases: Cases, file: &'static str, test: &'static str) -> Runner {
    Runner { folder, cases, file, test }
}

const GOLDEN: &str = "dataplane/wire/tests/golden.rs";
const NATIVE: &str = "dataplane/wire/tests/native.rs";
const MEDIA: &str = "dataplane/wire/tests/media.rs";
const TOKENS: &str = "dataplane/wire/tests/tokens.rs";
const RECORDED: &str = "dataplane/wire/tests/adapt/recorded.rs";
const VECTORS: &str = "dataplane/wire/tests/adapt/vectors.rs";
const GEMINI: &str = "dataplane/wire/tests/adapt/chat_over_gemini.rs";
const IMAGES: &str = "dataplane/wire/src/media/images/tests.rs";
const VIDEOS: &str = "dataplane/wire/src/media/videos/tests.rs";
const IMAGES_OVER_GEMINI: &str = "dataplane/wire/tests/adapt/images_over_gemini.rs";
const GATEWAY: &str = "tests/recorded.rs";

const RUNNERS: &[Runner] = &[
    runner("audio", Kind("request"), GATEWAY, "recorded_sound_subtitles_and_embeddings_pass_unchanged"),
    runner("audio", Kind("response"), GATEWAY, "recorded_sound_subtitles_and_embeddings_pass_unchanged"),
    runner(
        "audio",
        Ids(&["speech_request"]),
        MEDIA,
        "requests_reach_the_upstream_unchanged_except_the_model",
    ),
    runner("audio", Ids(&["multipart"]), MEDIA, "a_form_reaches_the_upstream_unchanged_except_its_model"),
    runner(
        "audio",
        Ids(&["transcription_json", "transcription_verbose"]),
        MEDIA,
        "whole_responses_report_their_usage",
    ),
    runner("audio", Kind("stream"), MEDIA, "audio_events_pass_and_report_their_usage_at_any_split"),
    runner(
        "audio",
        Ids(&["transcription_srt", "transcription_vtt"]),
        MEDIA,
        "sound_and_subtitles_pass_at_any_split",
    ),
    runner("audio", Kind("stream"), MEDIA, "recorded_audio_and_text_streams_match_their_vectors"),
    runner(
        "auth",
        Ids(&["sigv4_bedrock_0", "sigv4_bedrock_1"]),
        "shared/src/provider/sigv4.rs",
        "an_encoded_model_id_is_signed_as_botocore_does",
    ),
    runner(
        "auth",
        Ids(&["key_checksum"]),
        "shared/src/key_format.rs",
        "the_key_checksum_matches_a_foreign_implementation",
    ),
    runner("bedrock", Kind("eventstream"), GOLDEN, "binary_frames_are_decoded_at_any_split"),
    runner("chat", Kind("request"), GOLDEN, "requests_reach_the_upstream_unchanged_except_model_and_usage"),
    runner("chat", Kind("request"), GOLDEN, "request_heads_are_read_at_any_split"),
    runner("chat", Kind("response"), GOLDEN, "whole_responses_are_read_at_any_split"),
    runner("chat", Kind("error"), GOLDEN, "upstream_errors_keep_their_message_and_type"),
    runner("chat", Kind("stream"), GOLDEN, "streams_are_read_the_same_at_any_split"),
    runner("chat", KindBut("stream", &["stream_n2"]), RECORDED, "recorded_chat_streams_match_their_vectors"),
    runner("chat", Ids(&["stream_n2"]), RECORDED, "both_choices_of_a_native_chat_stream_pass"),
    runner("conv", Kind("conversion"), VECTORS, "requests_become_what_the_target_expects"),
    runner("conv", Kind("conversion"), VECTORS, "whole_answers_become_what_the_client_expects"),
    runner("conv", Kind("rejection"), VECTORS, "unsupported_members_are_rejected_by_path"),
    runner("conv", Kind("stream_conversion"), VECTORS, "streams_become_what_the_client_expects_at_any_split"),
    runner("embeddings", Kind("request"), MEDIA, "requests_reach_the_upstream_unchanged_except_the_model"),
    runner("embeddings", Kind("response"), MEDIA, "whole_responses_report_their_usage"),
    runner("embeddings", Ids(&["response_base64"]), MEDIA, "base64_embeddings_equal_the_float_embeddings"),
    runner(
        "gemini",
        Ids(&["response", "stream"]),
        GEMINI,
        "the_recorded_response_and_stream_have_the_same_meaning",
    ),
    runner("gemini", Ids(&["response_blocked"]), GEMINI, "a_blocked_prompt_finishes_with_content_filter"),
    runner("gemini", Kind("error"), GEMINI, "an_error_body_with_status_200_is_an_error"),
    runner("gemini", Kind("stream"), GEMINI, "a_recorded_stream_gives_the_same_result_at_any_split"),
    runner("images", Ids(&["request"]), IMAGES, "b64_json_is_requested_from_targets_that_need_it"),
    runner("images", Ids(&["response"]), IMAGES, "an_answer_passes_with_its_usage"),
    runner("images", Kind("stream"), IMAGES, "an_image_stream_passes_unchanged_at_any_split"),
    runner(
        "images",
        Ids(&["gemini_request", "imagen_request"]),
        IMAGES_OVER_GEMINI,
        "the_recorded_request_is_translated_for_gemini_and_imagen",
    ),
    runner(
        "images",
        Ids(&["gemini_response"]),
        IMAGES_OVER_GEMINI,
        "the_recorded_gemini_response_becomes_the_recorded_openai_response",
    ),
    runner(
        "images",
        Ids(&["imagen_response"]),
        IMAGES_OVER_GEMINI,
        "imagen_images_keep_their_order_without_filtered_ones",
    ),
    runner("loss", Kind(""), "dataplane/wire/tests/adapt/losses.rs", "every_loss_row_has_a_case"),
    runner(
        "messages",
        KindBut("request", &["count_request"]),
        NATIVE,
        "requests_reach_the_upstream_unchanged_except_model_and_preamble",
    ),
    runner(
        "messages",
        Ids(&["count_request", "count_response"]),
        GATEWAY,
        "a_recorded_token_count_reaches_the_client_unchanged",
    ),
    runner(
        "messages",
        KindBut("response", &["count_response"]),
        NATIVE,
        "whole_responses_are_read_at_any_split",
    ),
    runner("messages", Kind("error"), NATIVE, "upstream_errors_keep_their_message_and_type"),
    runner("messages", Kind("stream"), NATIVE, "streams_are_read_the_same_at_any_split"),
    runner("messages", Kind("stream"), RECORDED, "recorded_messages_streams_match_their_vectors"),
    runner(
        "models",
        Kind("response"),
        "control/src/routing/catalog/listing/tests.rs",
        "recorded_model_lists_of_each_shape_are_read",
    ),
    runner(
        "models",
        Ids(&["list_openai", "list_anthropic"]),
        GATEWAY,
        "model_lists_have_the_members_the_vendor_sdks_need",
    ),
    runner(
        "responses",
        Kind("request"),
        NATIVE,
        "requests_reach_the_upstream_unchanged_except_model_and_preamble",
    ),
    runner(
        "responses",
        KindBut("response", &["input_tokens_response"]),
        NATIVE,
        "whole_responses_are_read_at_any_split",
    ),
    runner("responses", Kind("stream"), NATIVE, "streams_are_read_the_same_at_any_split"),
    runner("responses", Kind("stream"), RECORDED, "recorded_responses_streams_match_their_vectors"),
    runner("sse", Kind("sse"), GOLDEN, "sse_grammar_is_decoded_at_any_split"),
    runner("tokens", Ids(&["estimate_text"]), TOKENS, "token_estimates_of_texts_match_the_reference"),
    runner("tokens", Ids(&["estimate_images"]), TOKENS, "token_estimates_of_images_match_the_reference"),
    runner(
        "videos",
        Ids(&["poll_request"]),
        VIDEOS,
        "a_poll_is_distinguished_from_a_start_and_has_no_other_members",
    ),
    runner(
        "videos",
        Ids(&["start_request", "open_ai_start", "google_start"]),
        VIDEOS,
        "recorded_starts_are_translated_for_each_vendor",
    ),
    runner(
        "videos",
        Ids(&[
            "start_response",
            "poll_running",
            "poll_done",
            "poll_failed",
            "poll_url",
            "gemini_filtered",
            "vertex_done",
        ]),
        VIDEOS,
        "video_responses_match_their_vectors",
    ),
    runner(
        "videos",
        Ids(&["openai_video", "gemini_running", "gemini_done", "vertex_bucket", "vertex_failed"]),
        VIDEOS,
        "every_video_state_of_each_vendor_is_read",
    ),
];

/// Cases that no code of the gateway handles: folder, case id, reason.
const IDLE: &[(&str, &str, &str)] = &[
    ("auth", "pkce", "no provider is connected by an authorization code yet"),
    ("responses", "input_tokens_response", "POST /v1/responses/input_tokens is not served"),
];

/// A recorded case of `fixtures/`.
struct Case {
    folder: String,
    kind: String,
    id: String,
}

impl Runner {
    fn runs(&self, case: &Case) -> bool {
        self.folder == case.folder
            && match self.cases {
                Kind(kind) => case.kind == kind,
                KindBut(kind, but) => case.kind == kind && !but.contains(&&*case.id),
                Ids(ids) => ids.contains(&&*case.id),
            }
    }
}

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// Returns every case of every `index.json`. Each table in `loss` is one case. Panics if a file belongs to no case.
fn cases() -> Vec<Case> {
    let (mut cases, mut files, mut named) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for folder in names(&fixtures()) {
        let path = fixtures().join(&folder);
        for name in names(&path) {
            if folder == "loss" {
                cases.push(Case { folder: folder.clone(), kind: String::new(), id: name });
            } else if name != "index.json" {
                files.insert(format!("{folder}/{name}"));
            }
        }
        let Ok(index) = std::fs::read(path.join("index.json")) else {
            assert_eq!(folder, "loss", "{folder} has no index.json");
            continue;
        };
        let index: Value = serde_json::from_slice(&index).unwrap();
        for case in index["cases"].as_array().unwrap() {
            let paths = [&case["file"], &case["input"], &case["output"], &case["args"]["request"]];
            named.extend(paths.into_iter().filter_map(Value::as_str).map(str::to_owned));
            let text = |name: &str| case[name].as_str().unwrap().to_owned();
            cases.push(Case { folder: folder.clone(), kind: text("kind"), id: text("id") });
        }
    }
    let stray: Vec<_> = files.difference(&named).collect();
    assert!(stray.is_empty(), "files that no index.json names: {stray:?}");
    cases
}

#[test]
fn every_recorded_case_is_run_by_a_test() {
    let cases = cases();
    assert!(cases.len() >= 214, "{}", cases.len());
    let mut unclaimed = Vec::new();
    for case in &cases {
        let is_run = RUNNERS.iter().any(|runner| runner.runs(case));
        let is_idle = IDLE.iter().any(|(folder, id, _)| (*folder, *id) == (&*case.folder, &*case.id));
        assert!(!(is_run && is_idle), "{}/{} is run: take it off IDLE", case.folder, case.id);
        if !is_run && !is_idle {
            unclaimed.push(format!("{}/{} ({})", case.folder, case.id, case.kind));
        }
    }
    assert!(unclaimed.is_empty(), "no test runs these; add a row to RUNNERS: {unclaimed:#?}");
    for (folder, id, why) in IDLE {
        assert!(!why.is_empty());
        assert!(
            cases.iter().any(|case| (&*case.folder, &*case.id) == (*folder, *id)),
            "{folder}/{id} is gone"
        );
    }
}

#[test]
fn every_claim_names_an_existing_test_and_existing_cases() {
    let cases = cases();
    for runner in RUNNERS {
        let name = format!("{} in {}", runner.test, runner.file);
        assert!(cases.iter().any(|case| runner.runs(case)), "{name} runs nothing of {}", runner.folder);
        if let Ids(ids) = runner.cases {
            for id in ids {
                assert!(
                    cases.iter().any(|case| case.folder == runner.folder && case.id == *id),
                    "{name}: {id}"
                );
            }
        }
        let path = format!("{}/../../{}", env!("CARGO_MANIFEST_DIR"), runner.file);
        let code = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let at = code.find(&format!("fn {}()", runner.test)).unwrap_or_else(|| panic!("there is no {name}"));
        let before = code[..at].trim_end().trim_end_matches("async").trim_end();
        let is_test = before.ends_with("#[test]") || before.ends_with("#[tokio::test]");
        assert!(is_test, "{name} is not run as a test");
        // The source file must contain the name of the folder or the path of a file in it.
        let says = format!("\"{}\"", runner.folder);
        let path = format!("{}/", runner.folder);
        assert!(code.contains(&says) || code.contains(&path), "{name} names nothing of {}", runner.folder);
    }
}
