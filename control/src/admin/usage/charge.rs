//! Charges for a cost in a report: with a mark-up, and in another currency. The arithmetic is exact: amounts are
//! decimal fractions backed by integers, so that the amounts of a report's groups add up to its total.

use serde::{Deserialize, Serialize};

use crate::admin::ApiError;

/// A mark-up and an exchange rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Charge {
    /// The charge as a share of the cost, in ten-thousandths of a percent: 1,000,000 charges the cost itself.
    factor: u64,
    currency: String,
    /// The value of one dollar, in [`RATE_UNIT`]s of the currency.
    rate: u64,
}

/// The parameters of a charge.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ChargeQuery {
    /// Percent that are added to the costs, as a decimal fraction.
    markup_percent: Option<String>,
    /// The ISO 4217 code of the currency of `rate`.
    currency: Option<String>,
    /// The price of a dollar in `currency`, as a decimal fraction.
    rate: Option<String>,
}

/// A charge as the response shows it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Charge"))]
pub(super) struct ShownCharge {
    /// Added to the cost, in percent.
    markup_percent: String,
    /// The ISO 4217 code.
    currency: String,
    /// The price of a dollar in that currency.
    rate: String,
}

impl Charge {
    /// Returns the charge of a query; `None` if it has none.
    pub(super) fn of(query: ChargeQuery) -> Result<Option<Self>, ApiError> {
        let ChargeQuery { markup_percent: markup, currency, rate } = query;
        if markup.is_none() && currency.is_none() && rate.is_none() {
            return Ok(None);
        }
        let factor = markup.map_or(Ok(100 * PERCENT_UNIT), |text| factor(&text))?;
        let (currency, rate) = match (currency, rate) {
            (None, None) => ("USD".to_owned(), RATE_UNIT),
            (Some(currency), Some(text)) => (code(currency)?, self::rate(&text)?),
            (Some(_), None) => {
                let message = "rate requires currency: it is the price of a dollar in that currency.";
                return Err(ApiError::parameter("rate", message));
            }
            (None, Some(_)) => {
                let message = "currency requires rate: it is the code of the rate's currency, such as EUR.";
                return Err(ApiError::parameter("currency", message));
            }
        };
        Ok(Some(Self { factor, currency, rate }))
    }

    /// Returns the charge for a cost, in the currency, as a decimal fraction without an exponent; `None` on overflow.
    pub(super) fn amount(&self, cost_nano_usd: u64) -> Option<String> {
        let amount = u128::from(cost_nano_usd).checked_mul(u128::from(self.factor))?;
        Some(decimal(amount.checked_mul(u128::from(self.rate))?, AMOUNT_DECIMALS))
    }

    /// Returns the currency of the amounts.
    pub(super) fn currency(&self) -> &str {
        &self.currency
    }

    pub(super) fn shown(&self) -> ShownCharge {
        let (factor, free) = (u128::from(self.factor), u128::from(100 * PERCENT_UNIT));
        let markup = decimal(factor.abs_diff(free), PERCENT_DECIMALS);
        ShownCharge {
            markup_percent: if factor < free { format!("-{markup}") } else { markup },
            currency: self.currency.clone(),
            rate: decimal(u128::from(self.rate), RATE_DECIMALS),
        }
    }
}

fn factor(text: &str) -> Result<u64, ApiError> {
    let (digits, is_discount) = text.strip_prefix('-').map_or((text, false), |digits| (digits, true));
    let markup = fixed(digits, PERCENT_DECIMALS);
    let factor = markup.and_then(|markup| {
        let whole = 100 * PERCENT_UNIT;
        if is_discount { whole.checked_sub(markup) } else { whole.checked_add(markup) }
    });
    factor.filter(|factor| *factor <= 1_100 * PERCENT_UNIT).ok_or_else(|| {
        let message =
            "markup_percent must be a number from -100 to 1000 with up to 4 decimals, such as 17.5.";
        ApiError::parameter("markup_percent", message)
    })
}

fn code(currency: String) -> Result<String, ApiError> {
    if currency.len() == 3 && currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Ok(currency);
    }
    Err(ApiError::parameter(
        "currency",
        "currency must be a code of three capital letters (ISO 4217), such as EUR.",
    ))
}

fn rate(text: &str) -> Result<u64, ApiError> {
    let rate = fixed(text, RATE_DECIMALS).filter(|rate| (1..=RATE_MAX * RATE_UNIT).contains(rate));
    rate.ok_or_else(|| {
        let message = format!(
            "rate is the price of a dollar in the currency: it must be a number above 0 and up to \
             {RATE_MAX}, with up to {RATE_DECIMALS} decimals, such as 0.92."
        );
        ApiError::parameter("rate", message)
    })
}

/// Parses `12.34` as an integer in units of 10^-`decimals`.
fn fixed(text: &str, decimals: u32) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let missing = decimals.checked_sub(u32::try_from(fraction.len()).ok()?)?;
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let unit = 10_u64.pow(decimals);
    let fraction = fraction.parse::<u64>().ok()?.checked_mul(10_u64.pow(missing))?;
    whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(fraction)
}

/// Formats an integer in units of 10^-`decimals`.
fn decimal(units: u128, decimals: u32) -> String {
    let unit = 10_u128.pow(decimals);
    let width = usize::try_from(decimals).unwrap_or_default();
    let text = format!("{}.{:0width$}", units / unit, units % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

const PERCENT_DECIMALS: u32 = 4;
/// One percent.
const PERCENT_UNIT: u64 = 10_000;
const RATE_DECIMALS: u32 = 9;
const RATE_UNIT: u64 = 1_000_000_000;
const RATE_MAX: u64 = 10_000_000;
/// The unit is a nano-dollar times a ten-thousandth of a percent times a billionth of the rate.
const AMOUNT_DECIMALS: u32 = 9 + 2 + PERCENT_DECIMALS + RATE_DECIMALS;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::query::Query;

    fn charge(query: &str) -> Result<Option<Charge>, ApiError> {
        Charge::of(Query::parse(query).unwrap().take_all()?)
    }

    #[test]
    fn amounts_are_exact() {
        for (query, nano, want) in [
            ("markup_percent=0", 450_000, "0.00045"),
            ("markup_percent=20", 450_000, "0.00054"),
            ("markup_percent=-100", 450_000, "0"),
            ("markup_percent=-12.5", 1_000_000_000, "0.875"),
            ("currency=EUR&rate=0.92", 450_000, "0.000414"),
            ("markup_percent=17.5&currency=JPY&rate=151.250000001", 7, "0.000001244031250008225"),
            ("currency=EUR&rate=1", u64::MAX, "18446744073.709551615"),
        ] {
            let charge = charge(query).unwrap().unwrap();
            assert_eq!(charge.amount(nano).unwrap(), want, "{query}");
        }
        let dearest = charge("markup_percent=1000&currency=IRR&rate=10000000").unwrap().unwrap();
        assert_eq!(dearest.amount(1_000_000_000_000_000).unwrap(), "110000000000000");
        assert_eq!(dearest.amount(u64::MAX), None);
    }

    #[test]
    fn a_charge_is_shown_normalized_and_invalid_parameters_are_named() {
        let shown = charge("markup_percent=-2.50&currency=EUR&rate=0.920").unwrap().unwrap().shown();
        assert_eq!(
            serde_json::to_string(&shown).unwrap(),
            r#"{"markup_percent":"-2.5","currency":"EUR","rate":"0.92"}"#
        );
        assert_eq!(charge("").unwrap(), None);
        for (query, param) in [
            ("markup_percent=1e2", "markup_percent"),
            ("markup_percent=-100.01", "markup_percent"),
            ("markup_percent=1000.1", "markup_percent"),
            ("markup_percent=1.00001", "markup_percent"),
            ("markup_percent=.5", "markup_percent"),
            ("markup_percent=--5", "markup_percent"),
            ("markup_percent=99999999999999999999", "markup_percent"),
            ("currency=EUR", "rate"),
            ("rate=1", "currency"),
            ("currency=eur&rate=1", "currency"),
            ("currency=EURO&rate=1", "currency"),
            ("currency=EUR&rate=0", "rate"),
            ("currency=EUR&rate=-1", "rate"),
            ("currency=EUR&rate=0.0000000001", "rate"),
            ("currency=EUR&rate=10000000.1", "rate"),
        ] {
            let fault = format!("{:?}", charge(query).unwrap_err());
            assert!(fault.contains(&format!("param: Some(\"{param}\")")), "{query} {fault}");
        }
    }
}
