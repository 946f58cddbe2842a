//! The instruments: names, units, labels and buckets of everything that is measured of exchanges. Names and buckets follow
//! OpenTelemetry's conventions for generative AI where those have an instrument.

use shared::usage::Gaps;

/// A figure of which the distribution is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// From the request to the end of the answer.
    Duration,
    /// From the request to the first content of a stream.
    FirstContent,
    /// After the first content of a stream, for each further token of output.
    PerOutputToken,
    /// Between two pieces of a stream.
    Gap,
    /// The gateway's own time.
    Overhead,
    /// Tokens of an exchange.
    Tokens,
    /// Known cost of an attempt.
    Cost,
}

/// Something that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Tokens by class, those of failed attempts included.
    Tokens,
    /// Targets that were considered, by result.
    Targets,
    /// Exchanges that failed over to this target.
    Failovers,
    /// Attempts of unknown cost.
    Unpriced,
}

/// The description of a figure or count for exporters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instrument {
    /// The name in OpenTelemetry.
    pub(crate) name: &'static str,
    /// The unit, as in UCUM: `s`, `{token}`, `USD`, `1`.
    pub(crate) unit: &'static str,
    /// The number of a value's own units in one `unit`: values of times are microseconds.
    pub(crate) per_unit: u64,
    /// The label that only this instrument has, in OpenTelemetry; empty if there is none. The exported value is left out
    /// if it is empty.
    pub(crate) label: &'static str,
    /// The meaning.
    pub(crate) help: &'static str,
}

impl Instrument {
    /// Returns the name in Prometheus, without the suffix of counters.
    pub(crate) fn prometheus(&self) -> String {
        let unit = match self.unit {
            "s" => "_seconds",
            "USD" => "_usd",
            _ => "",
        };
        self.name.replace('.', "_") + unit
    }

    /// Returns a value in the instrument's unit.
    #[expect(clippy::cast_precision_loss, reason = "a rounded sum is exact enough")]
    pub(crate) fn in_units(&self, value: u64) -> f64 {
        value as f64 / self.per_unit as f64
    }
}

impl Figure {
    /// Every figure.
    pub(crate) const ALL: [Self; 7] = [
        Self::Duration,
        Self::FirstContent,
        Self::PerOutputToken,
        Self::Gap,
        Self::Overhead,
        Self::Tokens,
        Self::Cost,
    ];

    /// Returns the upper bounds of the buckets, in the unit of the values.
    pub(crate) fn bounds(self) -> &'static [u64] {
        match self {
            Self::Duration => &DURATION_US,
            Self::FirstContent => &FIRST_TOKEN_US,
            Self::PerOutputToken => &PER_TOKEN_US,
            Self::Gap => &Gaps::BOUNDS_US,
            Self::Overhead => &OVERHEAD_US,
            Self::Tokens => &TOKENS,
            Self::Cost => &COST_NANO_USD,
        }
    }

    /// Returns the description.
    pub(crate) fn instrument(self) -> Instrument {
        match self {
            Self::Duration => Instrument {
                name: "gen_ai.server.request.duration",
                label: "error.type",
                help: "Time from the request to the end of the answer; error_type is absent for complete answers.",
                ..TIME
            },
            Self::FirstContent => Instrument {
                name: "gen_ai.server.time_to_first_token",
                help: "Time from the request to the first content of a stream.",
                ..TIME
            },
            Self::PerOutputToken => Instrument {
                name: "gen_ai.server.time_per_output_token",
                help: "Time of a complete stream after its first content, divided by the further tokens of output.",
                ..TIME
            },
            Self::Gap => Instrument {
                name: "gen_ai.client.operation.time_per_output_chunk",
                help: "Gap between two pieces of a stream after its first content, exact to a few milliseconds.",
                ..TIME
            },
            Self::Overhead => Instrument {
                name: "llmgw.gateway.duration",
                help: "Time that the gateway itself took until the first content, or until the end without content.",
                ..TIME
            },
            Self::Tokens => Instrument {
                name: "gen_ai.client.token.usage",
                unit: "{token}",
                per_unit: 1,
                label: "gen_ai.token.type",
                help: "Tokens of a request: input with cached ones, output with reasoning.",
            },
            Self::Cost => Instrument {
                name: "llmgw.attempt.cost",
                unit: "USD",
                per_unit: 1_000_000_000,
                label: "",
                help: "Known cost of an attempt, failed ones included.",
            },
        }
    }
}

impl Count {
    /// Every count.
    pub(crate) const ALL: [Self; 4] = [Self::Tokens, Self::Targets, Self::Failovers, Self::Unpriced];

    /// Returns the description.
    pub(crate) fn instrument(self) -> Instrument {
        match self {
            Self::Tokens => Instrument {
                name: "llmgw.tokens",
                unit: "{token}",
                label: "class",
                help: "Tokens by class, each token in one class, those of failed attempts included.",
                ..NUMBER
            },
            Self::Targets => Instrument {
                name: "llmgw.target.results",
                label: "result",
                help: "Targets that requests considered, by the result of the attempt or the reason for skipping them.",
                ..NUMBER
            },
            Self::Failovers => Instrument {
                name: "llmgw.failovers",
                help: "Requests that came to this target after another one was tried, or skipped for a fault.",
                ..NUMBER
            },
            Self::Unpriced => Instrument {
                name: "llmgw.unpriced.attempts",
                help: "Attempts whose cost is unknown.",
                ..NUMBER
            },
        }
    }
}

/// Bounds that were reached. Unlike the others it is not measured of exchanges: [`Bounds`](crate::common::bounds::Bounds)
/// has the counts.
pub(crate) const BOUNDS_REACHED: Instrument = Instrument {
    name: "llmgw.bound.reached",
    label: "bound",
    help: "Times that a bound of the gateway was reached and something gave way.",
    ..NUMBER
};
const TIME: Instrument = Instrument { name: "", unit: "s", per_unit: 1_000_000, label: "", help: "" };
const NUMBER: Instrument = Instrument { unit: "1", per_unit: 1, ..TIME };

/// The buckets of OpenTelemetry, and three for long answers.
const DURATION_US: [u64; 17] = [
    10_000,
    20_000,
    40_000,
    80_000,
    160_000,
    320_000,
    640_000,
    1_280_000,
    2_560_000,
    5_120_000,
    10_240_000,
    20_480_000,
    40_960_000,
    81_920_000,
    163_840_000,
    327_680_000,
    655_360_000,
];
/// The buckets of OpenTelemetry, and three for long prompts.
const FIRST_TOKEN_US: [u64; 19] = [
    1_000, 5_000, 10_000, 20_000, 40_000, 60_000, 80_000, 100_000, 250_000, 500_000, 750_000, 1_000_000,
    2_500_000, 5_000_000, 7_500_000, 10_000_000, 20_000_000, 40_000_000, 80_000_000,
];
/// The buckets of OpenTelemetry, and one for fast models.
const PER_TOKEN_US: [u64; 14] = [
    5_000, 10_000, 25_000, 50_000, 75_000, 100_000, 150_000, 200_000, 300_000, 400_000, 500_000, 750_000,
    1_000_000, 2_500_000,
];
const OVERHEAD_US: [u64; 14] =
    [25, 50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 1_000_000];
/// The buckets of OpenTelemetry.
const TOKENS: [u64; 14] =
    [1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864];
/// From a hundred-thousandth of a dollar to a hundred dollars.
const COST_NANO_USD: [u64; 14] = [
    10_000,
    50_000,
    100_000,
    500_000,
    1_000_000,
    5_000_000,
    10_000_000,
    50_000_000,
    100_000_000,
    500_000_000,
    1_000_000_000,
    5_000_000_000,
    10_000_000_000,
    100_000_000_000,
];
