//! Amounts of money in the form that the API shows.

use std::fmt;

use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// An amount in nano-dollars, shown as micro-dollars with three decimals. Exact for every amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MicroUsd(pub(crate) u64);

impl fmt::Display for MicroUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

impl Serialize for MicroUsd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.to_string()).map_err(S::Error::custom)?.serialize(serializer)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for MicroUsd {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MicroUsd".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let doc = "An amount in millionths of a dollar, with three decimals.";
        schemars::json_schema!({"description": doc, "type": "number"})
    }
}

/// A signed amount in nano-dollars, shown like [`MicroUsd`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignedMicroUsd(pub(crate) i128);

impl Serialize for SignedMicroUsd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (sign, nano) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let text = format!("{sign}{}.{:03}", nano / 1_000, nano % 1_000);
        RawValue::from_string(text).map_err(S::Error::custom)?.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_numbers_with_three_decimals() {
        for (nano, want) in
            [(0, "0.000"), (7, "0.007"), (1_500, "1.500"), (u64::MAX, "18446744073709551.615")]
        {
            assert_eq!(serde_json::to_string(&MicroUsd(nano)).unwrap(), want);
        }
        for (nano, want) in [(0, "0.000"), (-7, "-0.007"), (1_500, "1.500"), (-1_000_001, "-1000.001")] {
            assert_eq!(serde_json::to_string(&SignedMicroUsd(nano)).unwrap(), want);
        }
    }
}
