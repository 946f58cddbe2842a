//! Reads a vendor's usage or cost export: the JSON of its API, or a CSV file. Values are looked up by column name; a
//! row without a day or a model is skipped with a reason.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::columns::Columns;
use super::csv;

/// The figures of one model on one day. A figure is `None` if the export does not contain it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Theirs {
    pub(super) requests: Option<u64>,
    /// All input tokens, including cached ones.
    pub(super) input: Option<u64>,
    /// The input tokens that were read from a cache.
    pub(super) cached: Option<u64>,
    pub(super) output: Option<u64>,
    pub(super) cost_nano_usd: Option<i128>,
}

impl Theirs {
    pub(super) fn add(&mut self, other: &Self) {
        let count = |one: &mut Option<u64>, more: Option<u64>| {
            *one = more.map(|more| one.unwrap_or(0).saturating_add(more)).or(*one);
        };
        count(&mut self.requests, other.requests);
        count(&mut self.input, other.input);
        count(&mut self.cached, other.cached);
        count(&mut self.output, other.output);
        let cost = other.cost_nano_usd;
        self.cost_nano_usd =
            cost.map(|more| self.cost_nano_usd.unwrap_or(0).saturating_add(more)).or(self.cost_nano_usd);
    }
}

/// The combined content of all files.
#[derive(Debug, Default)]
pub(super) struct Export {
    /// The figures by day and the vendor's model name.
    pub(super) figures: BTreeMap<(Date, String), Theirs>,
    /// Rows read, including skipped ones.
    pub(super) rows: u64,
    pub(super) rows_skipped: u64,
    /// The numbers of the first skipped rows, counted from 1, with the reasons.
    pub(super) skipped: Vec<(u64, &'static str)>,
}

impl Export {
    /// Adds a file. Fails if the file as a whole is invalid.
    pub(super) fn read(&mut self, file: &str, columns: &Columns) -> Result<(), String> {
        let text = file.trim_start_matches('\u{feff}').trim_start();
        if text.starts_with(['{', '[']) {
            let value: Value =
                serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
            self.pages(&value, columns)
        } else {
            self.table(text, columns)
        }
    }

    /// Reads a page, a list of pages, or a list of buckets or rows.
    fn pages(&mut self, value: &Value, columns: &Columns) -> Result<(), String> {
        let list = value.as_array().or_else(|| value.get("data")?.as_array());
        let list = list.ok_or("its JSON is neither a list nor a page with `data`")?;
        for item in list {
            if let Some(buckets) = item.get("data").and_then(Value::as_array) {
                buckets.iter().for_each(|bucket| self.bucket(bucket, columns));
            } else {
                self.bucket(item, columns);
            }
        }
        Ok(())
    }

    fn bucket(&mut self, bucket: &Value, columns: &Columns) {
        let results = ["results", "result"].iter().find_map(|name| bucket.get(name)?.as_array());
        let cell = |row: &Value, name: &str| {
            let path = format!("/{}", name.replace('.', "/"));
            let found = row.pointer(&path).or_else(|| bucket.pointer(&path));
            found.and_then(|value| match value {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                _ => None,
            })
        };
        match results {
            Some(results) => results.iter().for_each(|row| self.row(columns, &|name| cell(row, name))),
            None => self.row(columns, &|name| cell(bucket, name)),
        }
    }

    fn table(&mut self, text: &str, columns: &Columns) -> Result<(), String> {
        let mut lines = csv::lines(text);
        let header = lines.next().ok_or("it is empty")?;
        columns.check(&header)?;
        for cells in lines {
            let cell = |name: &str| {
                let place = header.iter().position(|known| known.trim() == name)?;
                cells.get(place).filter(|cell| !cell.trim().is_empty()).cloned()
            };
            self.row(columns, &cell);
        }
        Ok(())
    }

    fn row(&mut self, columns: &Columns, cell: &dyn Fn(&str) -> Option<String>) {
        self.rows = self.rows.saturating_add(1);
        match line(columns, cell) {
            Ok((day, model, figures)) => self.figures.entry((day, model)).or_default().add(&figures),
            Err(why) => {
                self.rows_skipped = self.rows_skipped.saturating_add(1);
                if self.skipped.len() < SKIPPED_MAX {
                    self.skipped.push((self.rows, why));
                }
            }
        }
    }
}

type VendorLine = (Date, String, Theirs);

fn line(columns: &Columns, cell: &dyn Fn(&str) -> Option<String>) -> Result<VendorLine, &'static str> {
    let first = |names: &[String]| names.iter().find_map(|name| cell(name));
    let day = first(&columns.day).ok_or("it has no day")?;
    let day = day_of(day.trim()).ok_or("its day is not a date, a time or seconds since 1970")?;
    let model = first(&columns.model).ok_or("it has no model; export usage grouped by model")?;
    // Line items of OpenAI's costs have the form "gpt-4o-2024-08-06, input".
    let model = model.split_once(", ").map_or(model.as_str(), |(model, _)| model).trim().to_owned();
    let sum = |names: &[String]| -> Result<Option<u64>, &'static str> {
        let mut sum = None;
        for text in names.iter().filter_map(|name| cell(name)) {
            let count = count(&text).ok_or("a count is not a whole number")?;
            sum = Some(sum.unwrap_or(0_u64).saturating_add(count));
        }
        Ok(sum)
    };
    let dollars = first(&columns.cost).map(|text| (text, NANO_IN_DOLLAR));
    let cost = dollars.or_else(|| first(&columns.cost_cents).map(|text| (text, NANO_IN_CENT)));
    let cost = cost.map(|(text, scale)| nano(&text, scale).ok_or("its cost is not an amount")).transpose()?;
    let figures = Theirs {
        requests: sum(&columns.requests)?,
        input: sum(&columns.input)?,
        cached: sum(&columns.cached_input)?,
        output: sum(&columns.output)?,
        cost_nano_usd: cost,
    };
    Ok((day, model, figures))
}

/// Returns the day in UTC.
fn day_of(text: &str) -> Option<Date> {
    if let Ok(seconds) = text.parse::<i64>() {
        return Some(TimeZone::UTC.to_datetime(Timestamp::from_second(seconds).ok()?).date());
    }
    if let Ok(moment) = Timestamp::from_str(text) {
        return Some(TimeZone::UTC.to_datetime(moment).date());
    }
    text.get(..10)?.parse().ok()
}

fn count(text: &str) -> Option<u64> {
    let digits: String = text.trim().chars().filter(|char| *char != ',').collect();
    let whole = digits.split_once('.').map_or(digits.as_str(), |(whole, rest)| {
        if rest.bytes().all(|byte| byte == b'0') { whole } else { "" }
    });
    whole.parse().ok()
}

/// Parses an amount and rounds it to nano-dollars.
fn nano(text: &str, scale: f64) -> Option<i128> {
    let digits: String = text.trim().chars().filter(|char| !matches!(char, ',' | '$')).collect();
    let amount = f64::from_str(&digits).ok().filter(|amount| amount.abs() < AMOUNT_MAX)?;
    format!("{:.0}", amount * scale).parse().ok()
}

const NANO_IN_DOLLAR: f64 = 1e9;
const NANO_IN_CENT: f64 = 1e7;
/// The upper bound of an amount in one row, in dollars or cents.
const AMOUNT_MAX: f64 = 1e12;
/// The maximum number of skipped rows in the response.
const SKIPPED_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_counts_and_amounts_are_read_as_vendors_write_them() {
        for (text, want) in [
            ("1730419200", Some("2024-11-01")),
            ("2026-11-02", Some("2026-11-02")),
            ("2026-11-02T23:59:59Z", Some("2026-11-02")),
            ("2026-11-02T23:59:59-05:00", Some("2026-11-03")),
            ("2026-11-02 00:00:00", Some("2026-11-02")),
            ("02.11.2026", None),
            ("", None),
        ] {
            assert_eq!(day_of(text).map(|day| day.to_string()).as_deref(), want, "{text}");
        }
        for (text, want) in
            [("1,024", Some(1_024)), (" 7 ", Some(7)), ("7.0", Some(7)), ("7.5", None), ("-1", None)]
        {
            assert_eq!(count(text), want, "{text}");
        }
        for (text, want) in [
            ("0.13080438340307526", Some(130_804_383)),
            ("$1,234.5", Some(1_234_500_000_000)),
            ("-2", Some(-2_000_000_000)),
            ("1.2e-05", Some(12_000)),
            ("NaN", None),
            ("free", None),
        ] {
            assert_eq!(nano(text, NANO_IN_DOLLAR), want, "{text}");
        }
    }
}
