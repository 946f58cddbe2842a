//! Writes a complete chat answer as a Messages answer.

use std::fmt::Write as _;

use shared::usage::TokenCounts;

use super::{Ending, MessagesForm};
use crate::adapt::call_id::call_id;
use crate::adapt::{BadAnswer, TranslatedAnswer, signature_in_call_id};
use crate::chat::{AnswerText, ChatCall, ChatChoice, ChatCompletion};
use crate::finish_word::{self, is_cut};
use crate::json::{self, JsonWriter};

/// Writes the first choice of a completion.
pub(super) fn whole(
    form: &MessagesForm,
    completion: &ChatCompletion<'_>,
) -> Result<TranslatedAnswer, BadAnswer> {
    let choice = completion.choices.first().ok_or(BadAnswer::Invalid("it has no choices"))?;
    let finish = finish_word::finish(choice.finish_reason.as_bytes());
    let mut json = JsonWriter::default();
    json.object().name("id").text(&form.id).name("type").text("message").name("role").text("assistant");
    json.name("model").raw(form.model.as_bytes()).name("content").list();
    write_texts(form, choice, &mut json);
    let cut = is_cut(finish);
    let mut written = 0_usize;
    for call in &choice.calls {
        match write_call(call, form, written, &mut json) {
            Ok(()) => written = written.saturating_add(1),
            // The arguments were cut off; the stop reason reports the limit.
            Err(_) if cut => break,
            Err(bad) => return Err(bad),
        }
    }
    let ending = Ending {
        finish,
        stop: choice.stop.as_deref(),
        has_calls: written > 0,
        call_is_cut: written < choice.calls.len(),
        has_refusal: !choice.refusal.is_empty(),
    };
    let mut reason = Vec::new();
    ending.write(&form.stops, &mut reason);
    json.end_list().raw(&reason).name("usage").raw(usage(completion.counts).as_bytes()).end_object();
    Ok(TranslatedAnswer {
        body: json.finish().into(),
        usage: completion.counts,
        extras: completion.extras.clone(),
        finish,
        output_bytes: choice.output_bytes(),
        dropped: choice.lost_media(|_| true),
    })
}

/// Writes the blocks of thoughts, text and refusal.
fn write_texts(form: &MessagesForm, choice: &ChatChoice<'_>, json: &mut JsonWriter) {
    choice.thinking_blocks.iter().for_each(|block| block.write(json));
    if form.thinking && choice.thinking_blocks.is_empty() && !choice.reasoning.is_empty() {
        json.object().name("type").text("thinking").name("thinking").escaped(&choice.reasoning);
        json.name("signature").text("").end_object();
    }
    for text in [&choice.content, &choice.refusal].into_iter().filter(|text| !text.is_empty()) {
        json.object().name("type").text("text").name("text").escaped(text).end_object();
    }
    for media in &choice.media {
        json.object().name("type").text("text").name("text").text(&media.mark()).end_object();
    }
}

/// Writes a call, or nothing if its arguments are no JSON object.
fn write_call(
    call: &ChatCall<'_>,
    form: &MessagesForm,
    position: usize,
    json: &mut JsonWriter,
) -> Result<(), BadAnswer> {
    if call.name.is_empty() || call.custom {
        return Err(BadAnswer::Invalid("a tool call has no function name"));
    }
    let input = json::unescape_mended(&call.input);
    let input = input.map(|input| if input.trim().is_empty() { "{}".to_owned() } else { input });
    let is_object = |input: &String| json::parse(&mut input.as_bytes().to_vec()).is_ok();
    let input = input.map(|input| json::without_surrogates(&input).into_owned()).filter(is_object);
    let input = input.ok_or(BadAnswer::Invalid("the arguments of a tool call are not a JSON object"))?;
    let id = AnswerText::Escaped(&call.id).plain();
    let id = match &*id {
        "" => format!("toolu_{}_{position}", form.seed).into(),
        id => call_id(id, "toolu_"),
    };
    let name = AnswerText::Escaped(&call.name).plain();
    json.object().name("type").text("tool_use");
    json.name("id").text(&signature_in_call_id::join(id, call.signature.as_deref()));
    json.name("name").text(form.names.restore(&name)).name("input").raw(input.as_bytes()).end_object();
    Ok(())
}

/// Returns a `usage` object. Counts that the upstream did not report are zero.
pub(super) fn usage(counts: Option<TokenCounts>) -> String {
    let counts = counts.unwrap_or_default();
    let (written, input) = (counts.cache_write.saturating_add(counts.cache_write_1h), counts.input_total());
    let mut usage = format!(
        "{{\"input_tokens\":{},\"cache_creation_input_tokens\":{written},\"cache_read_input_tokens\":{},\"output_tokens\":{}",
        input.saturating_sub(counts.cache_read).saturating_sub(written),
        counts.cache_read,
        counts.output_total(),
    );
    if counts.cache_write_1h > 0 {
        let _ = write!(
            usage,
            ",\"cache_creation\":{{\"ephemeral_5m_input_tokens\":{},\"ephemeral_1h_input_tokens\":{}}}",
            counts.cache_write, counts.cache_write_1h
        );
    }
    if counts.reasoning > 0 {
        let _ = write!(usage, ",\"output_tokens_details\":{{\"thinking_tokens\":{}}}", counts.reasoning);
    }
    usage.push('}');
    usage
}
