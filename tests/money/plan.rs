//! The plan of a sequence: exchanges with every protocol and kind of provider, each with its upstreams' behaviour.

use super::exact::{Counts, Used};
use crate::support::Gate;
use crate::support::random::Random;

/// A provider instance of the test's gateway: its id, its type in the configuration, the protocol of its upstream, and
/// the number of attempts per target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Provider {
    pub(super) id: &'static str,
    pub(super) kind: &'static str,
    pub(super) speaks: Speaks,
    pub(super) attempts: usize,
}

/// The protocol of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    Chat,
    Messages,
    Responses,
    Gemini,
    Bedrock,
    Embeddings,
    Speech,
    Transcription,
    Images,
    Videos,
}

const fn provider(id: &'static str, kind: &'static str, speaks: Speaks, attempts: usize) -> Provider {
    Provider { id, kind, speaks, attempts }
}

pub(super) const ALPHA: Provider = provider("alpha", "compatible", Speaks::Chat, 2);
pub(super) const BETA: Provider = provider("beta", "openai", Speaks::Chat, 1);
/// Its prices lack that of cached input, which costs as much as input.
pub(super) const HAZY: Provider = provider("hazy", "local_server", Speaks::Chat, 3);
const AZURE: Provider = provider("azure", "azure_openai", Speaks::Chat, 1);
const GAMMA: Provider = provider("gamma", "anthropic", Speaks::Messages, 2);
pub(super) const DELTA: Provider = provider("delta", "openai", Speaks::Responses, 2);
const GEMINI: Provider = provider("gem", "gemini", Speaks::Gemini, 2);
const VERTEX: Provider = provider("vert", "vertex", Speaks::Gemini, 1);
const BEDROCK: Provider = provider("rock", "bedrock", Speaks::Bedrock, 2);
const VECTOR: Provider = provider("vector", "compatible", Speaks::Embeddings, 2);
const VOICE: Provider = provider("voice", "compatible", Speaks::Speech, 1);
const EAR: Provider = provider("ear", "compatible", Speaks::Transcription, 1);
const BRUSH: Provider = provider("brush", "compatible", Speaks::Images, 1);
const FILM: Provider = provider("film", "openai", Speaks::Videos, 1);
/// Its model has no price.
pub(super) const DARK: Provider = provider("dark", "compatible", Speaks::Chat, 2);
pub(super) const PROVIDERS: [Provider; 15] =
    [ALPHA, BETA, HAZY, AZURE, GAMMA, DELTA, GEMINI, VERTEX, BEDROCK, VECTOR, VOICE, EAR, BRUSH, FILM, DARK];
/// The members of the endpoint `line`, in order.
pub(super) const LINE: [Provider; 4] = [ALPHA, HAZY, BETA, GAMMA];
/// The targets of conversations that are named by exact model id.
pub(super) const TALKING: [Provider; 10] =
    [ALPHA, BETA, HAZY, AZURE, GAMMA, DELTA, GEMINI, VERTEX, BEDROCK, DARK];

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    Chat,
    Messages,
    Responses,
    Embeddings,
    Speech,
    Transcription,
    Images,
    Videos,
}

impl Operation {
    /// True for operations on sound, pictures or video, whose tokens the gateway estimates.
    pub(super) fn is_media(self) -> bool {
        matches!(self, Self::Speech | Self::Transcription | Self::Images | Self::Videos)
    }
}

/// The upstream's behaviour in an attempt.
#[derive(Clone)]
pub(super) enum Fate {
    /// A whole response that reports this usage.
    Served(Used),
    /// The response of [`Fate::Served`], but the client disconnects after the end of the content and before the usage.
    LeftEarly(Used, Gate),
    /// An error status.
    Status(u16),
    /// An error that reports this usage.
    Lost(Used),
    /// An error event before any content; streams only.
    ErrorEvent,
    /// The upstream breaks off after some content; streams only.
    Cut,
    /// The upstream falls silent after some content, and the client disconnects; streams only.
    Silent,
    /// No response, or only part of one, until the client disconnects.
    Unanswered { is_begun: bool },
}

impl Fate {
    /// True if the request continues with another attempt.
    pub(super) fn moves_on(&self) -> bool {
        matches!(self, Self::Status(_) | Self::Lost(_) | Self::ErrorEvent)
    }
}

/// One request and the fates of its attempts at each target.
#[derive(Clone)]
pub(super) struct Exchange {
    pub(super) operation: Operation,
    pub(super) stream: bool,
    /// The targets in order: a single one is named exactly, several are the endpoint.
    pub(super) targets: Vec<Provider>,
    pub(super) fates: Vec<Vec<Fate>>,
}

impl Exchange {
    pub(super) fn random(random: &mut Random) -> Self {
        let operation = random.pick(&[
            Operation::Chat,
            Operation::Chat,
            Operation::Chat,
            Operation::Messages,
            Operation::Messages,
            Operation::Responses,
            Operation::Responses,
            Operation::Embeddings,
            Operation::Speech,
            Operation::Transcription,
            Operation::Images,
            Operation::Videos,
        ]);
        let targets = match operation {
            Operation::Embeddings => vec![VECTOR],
            Operation::Speech => vec![VOICE],
            Operation::Transcription => vec![EAR],
            Operation::Images => vec![BRUSH],
            Operation::Videos => vec![FILM],
            Operation::Chat | Operation::Messages | Operation::Responses if random.chance(40) => LINE.into(),
            // A target of Responses serves no client of Messages.
            Operation::Messages => {
                vec![random.pick(&TALKING.map(|one| if one == DELTA { GAMMA } else { one }))]
            }
            Operation::Chat | Operation::Responses => vec![random.pick(&TALKING)],
        };
        let streams = matches!(operation, Operation::Chat | Operation::Messages | Operation::Responses);
        let stream = streams && random.chance(50);
        let mut exchange = Self { operation, stream, targets, fates: Vec::new() };
        exchange.add_fates(random);
        exchange
    }

    fn add_fates(&mut self, random: &mut Random) {
        for provider in self.targets.clone() {
            let mut fates = Vec::new();
            while fates.len() < provider.attempts {
                let fate = self.fate(provider, random);
                let ends = !fate.moves_on();
                fates.push(fate);
                if ends {
                    break;
                }
            }
            let ends = fates.last().is_some_and(|fate| !fate.moves_on());
            self.fates.push(fates);
            if ends {
                break;
            }
        }
    }

    fn fate(&self, provider: Provider, random: &mut Random) -> Fate {
        let (speaks, stream) = (provider.speaks, self.stream);
        let may_be_lost = match speaks {
            Speaks::Chat => true,
            Speaks::Messages | Speaks::Responses | Speaks::Gemini => stream,
            _ => false,
        };
        match random.below(100) {
            0..=54 => {
                let used = usage(speaks, random);
                let leaves = self.operation == Operation::Chat && speaks == Speaks::Chat && stream;
                if leaves && random.chance(20) {
                    Fate::LeftEarly(used, Gate::new())
                } else {
                    Fate::Served(used)
                }
            }
            55..=66 if may_be_lost => Fate::Lost(usage(speaks, random)),
            // A rate limit at a line is followed by the next target, and perhaps later by the same one again.
            55..=74 if self.is_line() => Fate::Status(random.pick(&[500, 503, 502])),
            55..=74 => Fate::Status(random.pick(&[500, 503, 429])),
            75..=79 => Fate::Unanswered { is_begun: random.chance(50) },
            _ if !stream => Fate::Served(usage(speaks, random)),
            80..=86 if speaks != Speaks::Bedrock => Fate::ErrorEvent,
            80..=93 => Fate::Cut,
            _ => Fate::Silent,
        }
    }

    /// True if an upstream responds with this status.
    pub(super) fn ends_in(&self, status: u16) -> bool {
        let mut fates = self.fates.iter().flatten();
        fates.any(|fate| matches!(fate, Fate::Status(planned) if *planned == status))
    }

    /// Returns the fate that ends it, unless it is rejected.
    pub(super) fn last(&self) -> Option<&Fate> {
        self.fates.last()?.last()
    }

    /// True if it names the endpoint.
    pub(super) fn is_line(&self) -> bool {
        self.targets.len() > 1
    }

    /// Returns the selector of the request.
    pub(super) fn selector(&self) -> String {
        match self.targets.as_slice() {
            [only] => format!("{}/m", only.id),
            _ => "line".to_owned(),
        }
    }
}

/// Returns random usage in the classes that the protocol has.
fn usage(speaks: Speaks, random: &mut Random) -> Used {
    let counts = counts(speaks, random);
    let named = matches!(speaks, Speaks::Chat | Speaks::Messages | Speaks::Responses);
    let tier = if named && random.chance(25) { Some(random.pick(&["flex", "priority"])) } else { None };
    let has_cost = speaks == Speaks::Chat && random.chance(15);
    Used { counts, tier, vendor_cost: has_cost.then(|| 1_000 * (1 + random.below(100_000))) }
}

fn counts(speaks: Speaks, random: &mut Random) -> Counts {
    let size = random.pick(&[10, 1_000, 100_000]);
    let input = match speaks {
        // The characters, the pictures and the length of a video are those of the request.
        Speaks::Speech | Speaks::Images | Speaks::Videos => return Counts::new(),
        Speaks::Transcription => {
            return Counts::from([("audio_ms".to_owned(), 1_000 * (1 + random.below(900)))]);
        }
        _ => 1 + random.below(size),
    };
    let mut counts = Counts::from([("input".to_owned(), input)]);
    let classes: &[(&str, u64)] = match speaks {
        Speaks::Embeddings | Speaks::Speech | Speaks::Transcription | Speaks::Images | Speaks::Videos => &[],
        Speaks::Chat | Speaks::Responses => &[("output", 100), ("cache_read", 30), ("reasoning", 30)],
        Speaks::Messages => &[
            ("output", 100),
            ("cache_read", 30),
            ("cache_write", 30),
            ("cache_write_1h", 20),
            ("searches", 10),
        ],
        Speaks::Gemini => &[("output", 100), ("cache_read", 30), ("reasoning", 30), ("audio_input", 20)],
        Speaks::Bedrock => {
            &[("output", 100), ("cache_read", 30), ("cache_write", 30), ("cache_write_1h", 20)]
        }
    };
    for (name, percent) in classes {
        if random.chance(*percent) {
            counts.insert((*name).to_owned(), 1 + random.below(size));
        }
    }
    counts
}
