//! Estimates of a request's consumption at a target: the probable amounts and the maximum plausible amounts. The
//! pricing function computes the cost (ADM-4, ADM-6).

use shared::operation::{Dialect, Operation};
use shared::prices::Plausible;
use shared::quota::Claim;
use shared::routing::Target;
use shared::usage::Units;
use wire::request::{FILE_TOKENS_UNKNOWN, Head, InputTokens};

/// The consumption of a request, as far as its head determines it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand<'a> {
    pub(crate) head: &'a Head,
    /// The assumed output tokens of one answer if the client sets no limit.
    pub(crate) output_default: u64,
    /// The tokens of the stored response that the request continues, if known.
    pub(crate) stored: Option<u64>,
}

impl<'a> Demand<'a> {
    /// Returns true if every class that the request certainly uses at `target` has a known price.
    pub(crate) fn is_priced(self, target: &Target) -> bool {
        let mut need = self.probable(target);
        need.text = need.text.max(1);
        target.model.prices.as_ref().is_some_and(|prices| need.probable(prices).cost.is_some())
    }

    /// Returns the probable cost at `target` in nano-dollars, as a reservation of it; `None` if a price is unknown.
    pub(crate) fn probable_cost(self, target: &Target) -> Option<u64> {
        let (least, prices) = (self.probable(target), target.model.prices.as_ref()?);
        if least.has_tier { least.at_most(prices).cost } else { least.probable(prices).cost }
    }

    /// Returns true if the probable input, with the client's limit on the output, is longer than the known context window of
    /// `target`.
    pub(crate) fn exceeds_window(self, target: &Target) -> bool {
        let Some(window) = target.model.context_window else { return false };
        let input = self.head.input.likely(target.model.id.as_str()).total();
        let stored = self.stored_or(STORED_TOKENS);
        let output = self.head.max_output_tokens.filter(|_| !self.head.output_is_open).unwrap_or(0);
        input.saturating_add(stored).saturating_add(output) > window
    }

    /// Returns the minimum amounts that a quota must have left, and the amounts to take if available, at the most
    /// expensive of `candidates`.
    pub(super) fn claim(self, candidates: &[&Target]) -> Claim {
        let mut claim = Claim::default();
        for target in candidates {
            let (least, most) = (self.probable(target), self.most(target));
            let prices = target.model.prices.as_ref();
            let cost = prices.map_or(0, |prices| {
                let bill = if least.has_tier { least.at_most(prices) } else { least.probable(prices) };
                bill.known
            });
            let cost_most = prices.map_or(0, |prices| most.at_most(prices).known);
            for (slot, amount) in [
                (&mut claim.input_least, input(&least)),
                (&mut claim.input_wanted, input(&most)),
                (&mut claim.output_least, least.output),
                (&mut claim.output_wanted, most.output),
                (&mut claim.cost_least, cost),
                (&mut claim.cost_wanted, cost_most.max(cost)),
            ] {
                *slot = amount.max(*slot);
            }
        }
        claim
    }

    /// Returns the probable consumption; of unlimited output, the minimum for which a request should start.
    fn probable(self, target: &Target) -> Plausible<'a> {
        let model = target.model.id.as_str();
        let stored = self.stored_or(STORED_TOKENS);
        let mut tokens = self.head.input.likely(model);
        tokens.text = tokens.text.saturating_add(stored);
        let output = self.output(OUTPUT_LEAST, PICTURE_TOKENS_LEAST);
        let is_search = target.model.rules.searches == Some(true);
        let searches = u64::from(is_search && self.head.dialect.is_conversation());
        self.plausible(within_window(tokens, target), output, Units { searches, ..self.units() })
    }

    /// Returns the maximum plausible consumption.
    fn most(self, target: &Target) -> Plausible<'a> {
        let least = self.probable(target);
        let mut tokens = self.head.input.most(target.model.id.as_str());
        let stored = self.stored_or(FILE_TOKENS_UNKNOWN);
        tokens.text = tokens.text.saturating_add(stored);
        tokens = within_window(tokens, target);
        tokens.text = tokens.text.max(least.text);
        let output = self.output(self.output_default, PICTURE_TOKENS).max(least.output);
        let calls = CALLS.saturating_mul(self.head.input.provider_tools);
        let searches = calls.max(least.units.searches);
        self.plausible(tokens, output, Units { searches, tool_calls: calls, ..least.units })
    }

    fn plausible(self, input: InputTokens, output: u64, units: Units) -> Plausible<'a> {
        Plausible {
            operation: operation(self.head.dialect),
            text: input.text,
            pictures: input.pictures,
            audio: input.audio,
            output,
            units,
            picture: self.head.media.as_ref().and_then(|media| match self.head.dialect {
                Dialect::Videos => media.size.as_deref(),
                _ => media.picture.as_deref(),
            }),
            has_tier: self.head.has_tier,
        }
    }

    /// Returns the tokens of the input that the provider stores; `unknown` if they are not known.
    fn stored_or(self, unknown: u64) -> u64 {
        let state = &self.head.state;
        let is_stored = state.previous_response_id.is_some() || state.conversation.is_some() || state.prompt;
        self.stored.unwrap_or(if is_stored { unknown } else { 0 })
    }

    /// Returns the tokens of all answers together. An unlimited answer counts as `open`, and an image as `picture`.
    fn output(self, open: u64, picture: u64) -> u64 {
        let Head { dialect, input, .. } = self.head;
        let one = match dialect {
            Dialect::Chat | Dialect::Responses | Dialect::Messages | Dialect::Gemini | Dialect::Bedrock => {
                output_bound(self.head, self.output_default).unwrap_or_else(|| open.min(self.output_default))
            }
            Dialect::Images => picture,
            Dialect::Speech => SPEECH_TOKENS.saturating_mul(input.characters),
            Dialect::Transcription => input.audio_ms_max().div_ceil(1_000).saturating_mul(SPOKEN_TOKENS),
            Dialect::Embeddings | Dialect::GeminiEmbeddings | Dialect::Videos => 0,
        };
        one.saturating_mul(self.count())
    }

    /// Returns the units by which vendors may bill instead of tokens.
    fn units(self) -> Units {
        let (count, input) = (self.count(), &self.head.input);
        match self.head.dialect {
            Dialect::Images => Units { images: count, ..Units::ZERO },
            Dialect::Speech => Units {
                characters: input.characters,
                audio_ms: input.characters.saturating_mul(CHARACTER_MS),
                ..Units::ZERO
            },
            Dialect::Transcription => Units { audio_ms: input.audio_ms_max(), ..Units::ZERO },
            Dialect::Videos => {
                let seconds = self.head.media.as_ref().and_then(|media| media.seconds);
                let ms = u64::from(seconds.unwrap_or(VIDEO_SECONDS)).saturating_mul(1_000);
                Units { video_ms: ms.saturating_mul(count), ..Units::ZERO }
            }
            Dialect::Chat
            | Dialect::Responses
            | Dialect::Messages
            | Dialect::Embeddings
            | Dialect::GeminiEmbeddings
            | Dialect::Gemini
            | Dialect::Bedrock => Units::ZERO,
        }
    }

    /// Returns the number of answers, images or videos.
    fn count(self) -> u64 {
        self.head.count.unwrap_or(1).max(1).into()
    }
}

fn input(need: &Plausible<'_>) -> u64 {
    need.text.saturating_add(need.pictures).saturating_add(need.audio)
}

fn operation(dialect: Dialect) -> Operation {
    match dialect {
        Dialect::Chat | Dialect::Bedrock => Operation::ChatCompletions,
        Dialect::Gemini => Operation::GenerateContent,
        Dialect::Responses => Operation::Responses,
        Dialect::Messages => Operation::Messages,
        Dialect::Embeddings | Dialect::GeminiEmbeddings => Operation::Embeddings,
        Dialect::Speech => Operation::Speech,
        Dialect::Transcription => Operation::Transcription,
        Dialect::Images => Operation::Images,
        Dialect::Videos => Operation::Videos,
    }
}

/// Limits the input to the model's context window, if known: upstreams reject longer input.
fn within_window(input: InputTokens, target: &Target) -> InputTokens {
    let surplus = input.total().saturating_sub(target.model.context_window.unwrap_or(u64::MAX));
    InputTokens { text: input.text.saturating_sub(surplus), ..input }
}

/// Returns the maximum tokens of one answer according to the client's limits. If one of several choices has no limit,
/// this is at least the default for unlimited answers.
fn output_bound(head: &Head, output_default: u64) -> Option<u64> {
    let bound = head.max_output_tokens?;
    Some(if head.output_is_open { bound.max(output_default) } else { bound })
}

/// The minimum output for which a request should start.
const OUTPUT_LEAST: u64 = 1;
/// The probable tokens of a stored conversation of unknown length.
const STORED_TOKENS: u64 = 2_000;
/// Tokens of a generated image: a small one at low quality, and one of 1,536 by 1,024 at high quality.
const PICTURE_TOKENS_LEAST: u64 = 272;
const PICTURE_TOKENS: u64 = 6_300;
/// The maximum audio tokens per spoken character, and its maximum duration.
const SPEECH_TOKENS: u64 = 3;
const CHARACTER_MS: u64 = 100;
/// The maximum text tokens per second of speech.
const SPOKEN_TOKENS: u64 = 10;
/// The assumed length of a video in seconds if the request specifies none.
const VIDEO_SECONDS: u32 = 12;
/// The assumed maximum number of calls of a tool that the provider runs.
const CALLS: u64 = 10;
