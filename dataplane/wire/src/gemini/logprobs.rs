//! Log probabilities in Gemini's form: the chosen tokens, and beside them the likeliest tokens of each step.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::chat::{ChosenToken, TokenLogprob};
use crate::json::{JsonWriter, parse_raw};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogprobsResult {
    chosen_candidates: Option<Vec<LogprobsCandidate>>,
    top_candidates: Option<Vec<TopCandidates>>,
}

#[derive(Deserialize)]
struct TopCandidates {
    candidates: Option<Vec<LogprobsCandidate>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogprobsCandidate {
    #[serde(default)]
    token: String,
    #[serde(default)]
    log_probability: f64,
}

impl From<LogprobsCandidate> for TokenLogprob {
    fn from(read: LogprobsCandidate) -> Self {
        Self { token: read.token, logprob: read.log_probability, bytes: None }
    }
}

/// Reads the tokens of a candidate's `logprobsResult`.
pub(crate) fn read_logprobs(result: Option<&RawValue>) -> Vec<ChosenToken> {
    let Some(read) = parse_raw::<LogprobsResult>(result) else { return Vec::new() };
    let mut tops = read.top_candidates.unwrap_or_default().into_iter();
    let chosen = read.chosen_candidates.into_iter().flatten();
    let with_top = chosen.map(|token| {
        let top = tops.next().and_then(|step| step.candidates);
        let top = top.map(|tokens| tokens.into_iter().map(TokenLogprob::from).collect());
        ChosenToken { token: token.into(), top }
    });
    with_top.collect()
}

/// Writes the member `logprobsResult` with these tokens.
pub(crate) fn write_logprobs(tokens: &[ChosenToken], json: &mut JsonWriter) {
    json.name("logprobsResult").object();
    if tokens.iter().any(|chosen| !chosen.top().is_empty()) {
        json.name("topCandidates").list();
        for chosen in tokens {
            json.object().name("candidates").list();
            chosen.top().iter().for_each(|token| write_candidate(token, json));
            json.end_list().end_object();
        }
        json.end_list();
    }
    json.name("chosenCandidates").list();
    tokens.iter().for_each(|chosen| write_candidate(&chosen.token, json));
    json.end_list().end_object();
}

fn write_candidate(token: &TokenLogprob, json: &mut JsonWriter) {
    json.object().name("token").text(&token.token);
    json.name("logProbability").float(token.logprob).end_object();
}
