//! What a sequence does: exchanges with every protocol, each with what its upstreams make of it.

use super::dice::Dice;
use super::exact::Counts;
use crate::support::Gate;

/// A provider instance of the test's gateway: its id, the protocol that it speaks, and whether it has prices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Provider {
    pub(super) id: &'static str,
    pub(super) speaks: Speaks,
    pub(super) is_priced: bool,
}

/// The protocol of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    Chat,
    Messages,
    Responses,
    Embeddings,
    Speech,
    Transcription,
    Images,
}

pub(super) const ALPHA: Provider = Provider { id: "alpha", speaks: Speaks::Chat, is_priced: true };
pub(super) const BETA: Provider = Provider { id: "beta", speaks: Speaks::Chat, is_priced: true };
pub(super) const GAMMA: Provider = Provider { id: "gamma", speaks: Speaks::Messages, is_priced: true };
pub(super) const DELTA: Provider = Provider { id: "delta", speaks: Speaks::Responses, is_priced: true };
pub(super) const VECTOR: Provider = Provider { id: "vector", speaks: Speaks::Embeddings, is_priced: true };
pub(super) const VOICE: Provider = Provider { id: "voice", speaks: Speaks::Speech, is_priced: true };
pub(super) const EAR: Provider = Provider { id: "ear", speaks: Speaks::Transcription, is_priced: true };
pub(super) const BRUSH: Provider = Provider { id: "brush", speaks: Speaks::Images, is_priced: true };
pub(super) const DARK: Provider = Provider { id: "dark", speaks: Speaks::Chat, is_priced: false };
pub(super) const PROVIDERS: [Provider; 9] = [ALPHA, BETA, GAMMA, DELTA, VECTOR, VOICE, EAR, BRUSH, DARK];
/// The members of the endpoint `line`, in order.
pub(super) const LINE: [Provider; 3] = [ALPHA, BETA, GAMMA];

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Chat,
    Messages,
    Responses,
    Embeddings,
    Speech,
    Transcription,
    Images,
}

/// What an upstream makes of a request.
#[derive(Clone)]
pub(super) enum Fate {
    /// A whole answer that reports this.
    Served(Counts),
    /// The answer of [`Fate::Served`], whose client leaves when it has ended and before its usage has come.
    LeftEarly(Counts, Gate),
    /// An error status.
    Status(u16),
    /// An error that reports this usage.
    Lost(Counts),
    /// An error event before any content; of streams only.
    ErrorEvent,
    /// It breaks off after some content; of streams only.
    Cut,
    /// It falls silent after some content, and the client leaves; of streams only.
    Silent,
}

impl Fate {
    /// True if the request moves on to the next target.
    pub(super) fn moves_on(&self) -> bool {
        matches!(self, Self::Status(_) | Self::Lost(_) | Self::ErrorEvent)
    }
}

/// One request and its fate at each target.
#[derive(Clone)]
pub(super) struct Exchange {
    pub(super) operation: Operation,
    pub(super) stream: bool,
    /// The targets in order; one of them is named exactly, several are the endpoint.
    pub(super) targets: Vec<Provider>,
    pub(super) fates: Vec<Fate>,
}

impl Exchange {
    pub(super) fn random(dice: &mut Dice) -> Self {
        let operation = dice.pick(&[
            Operation::Chat,
            Operation::Chat,
            Operation::Messages,
            Operation::Responses,
            Operation::Embeddings,
            Operation::Speech,
            Operation::Transcription,
            Operation::Images,
        ]);
        let targets = match operation {
            Operation::Embeddings => vec![VECTOR],
            Operation::Speech => vec![VOICE],
            Operation::Transcription => vec![EAR],
            Operation::Images => vec![BRUSH],
            Operation::Responses if dice.chance(60) => vec![DELTA],
            _ if dice.chance(40) => LINE.into(),
            Operation::Chat | Operation::Responses => vec![dice.pick(&[ALPHA, BETA, GAMMA, DARK])],
            Operation::Messages => vec![dice.pick(&[ALPHA, BETA, GAMMA, GAMMA, DARK])],
        };
        let streams = matches!(operation, Operation::Chat | Operation::Messages | Operation::Responses);
        let stream = streams && dice.chance(50);
        let mut fates = Vec::new();
        for provider in &targets {
            let mut fate = fate(*provider, stream, dice);
            let leaves = operation == Operation::Chat && provider.speaks == Speaks::Chat && dice.chance(20);
            if let Fate::Served(counts) = &fate
                && stream
                && leaves
            {
                fate = Fate::LeftEarly(counts.clone(), Gate::new());
            }
            let ends = !fate.moves_on();
            fates.push(fate);
            if ends {
                break;
            }
        }
        Self { operation, stream, targets, fates }
    }

    /// True if it is about sound or pictures, whose tokens the gateway estimates.
    pub(super) fn is_media(&self) -> bool {
        matches!(self.operation, Operation::Speech | Operation::Transcription | Operation::Images)
    }

    /// True if an upstream answers with this status.
    pub(super) fn ends_in(&self, status: u16) -> bool {
        self.fates.iter().any(|fate| matches!(fate, Fate::Status(planned) if *planned == status))
    }

    /// The model that the request names.
    pub(super) fn selector(&self) -> String {
        match self.targets.as_slice() {
            [only] => format!("{}/m", only.id),
            _ => "line".to_owned(),
        }
    }
}

fn fate(provider: Provider, stream: bool, dice: &mut Dice) -> Fate {
    match dice.below(100) {
        0..=64 => Fate::Served(usage(provider, dice)),
        65..=71 if provider.speaks == Speaks::Chat => Fate::Lost(usage(provider, dice)),
        65..=71 if provider.speaks == Speaks::Messages && stream => Fate::Lost(usage(provider, dice)),
        65..=79 => Fate::Status(dice.pick(&[500, 503, 429])),
        _ if !stream => Fate::Served(usage(provider, dice)),
        80..=86 => Fate::ErrorEvent,
        87..=93 => Fate::Cut,
        _ => Fate::Silent,
    }
}

/// What `provider` reports, in classes that its protocol has.
fn usage(provider: Provider, dice: &mut Dice) -> Counts {
    let size = dice.pick(&[10, 1_000, 100_000]);
    let input = match provider.speaks {
        // The characters and the pictures are those of the request.
        Speaks::Speech | Speaks::Images => return Counts::new(),
        Speaks::Transcription => {
            return Counts::from([("audio_ms".to_owned(), 1_000 * (1 + dice.below(900)))]);
        }
        Speaks::Chat | Speaks::Messages | Speaks::Responses | Speaks::Embeddings => 1 + dice.below(size),
    };
    let mut counts = Counts::from([("input".to_owned(), input)]);
    let mut some = |name: &str, percent: u64| {
        if dice.chance(percent) {
            counts.insert(name.to_owned(), 1 + dice.below(size));
        }
    };
    match provider.speaks {
        Speaks::Embeddings | Speaks::Speech | Speaks::Transcription | Speaks::Images => {}
        Speaks::Chat | Speaks::Responses => {
            some("output", 100);
            some("cache_read", 30);
            some("reasoning", 30);
        }
        Speaks::Messages => {
            some("output", 100);
            some("cache_read", 30);
            some("cache_write", 30);
            some("cache_write_1h", 20);
            some("searches", 10);
        }
    }
    counts
}
