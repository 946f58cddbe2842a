//! `POST /admin/api/usage/reconcile`: compares a vendor's usage or cost export with the recorded usage, by day (UTC)
//! and model. Stores nothing.

mod columns;
mod csv;
mod file;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use http::Response;
use jiff::ToSpan as _;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use shared::port::Body;

use self::columns::{Columns, Mapping};
use self::file::{Export, Theirs};
use super::READING_TIME;
use crate::admin::{ApiError, Call, json};
use crate::common::money::SignedMicroUsd;
use crate::usage::dimension::{Dimension, Marks};
use crate::usage::report::calendar::{BucketLength, Calendar};
use crate::usage::report::{ReportPart, ReportQuestion, SORTED_MAX, page};
use crate::usage::requests::Column;
use crate::usage::scope::UsageScope;
use crate::usage::sums::UsageSums;
use crate::writer::FLUSH_TIME_MAX;

/// A vendor's export to compare with.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ReconcileRequest {
    format: VendorFormat,
    /// The export, as one file or as several pages or files.
    file: VendorFiles,
    /// The columns of a `csv` file.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, serde_json::Value>>"))]
    mapping: Option<Mapping>,
    /// If set, only exchanges of this provider are compared.
    #[serde(default)]
    provider: Option<String>,
    /// Maps the vendor's model names to ours.
    #[serde(default)]
    models: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum VendorFormat {
    Openai,
    Anthropic,
    Csv,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
enum VendorFiles {
    One(String),
    Several(Vec<String>),
}

pub(super) async fn reconcile(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let body: ReconcileRequest = call.json()?;
    let (columns, provider, models) = (columns(body.format, body.mapping)?, body.provider, body.models);
    let read = tokio::task::spawn_blocking(move || export(body.file, &columns)).await;
    let export = read.map_err(|_| ApiError::parameter("file", "file could not be read."))??;
    let (from, to) = days(&export)?;
    call.app.writer.flush(FLUSH_TIME_MAX).await;
    let question = ReportQuestion {
        from_ms: start_ms(from)?,
        to_ms: start_ms(to.saturating_add(1.day()))?,
        calendar: Calendar { bucket: Some(BucketLength::Day), zone: TimeZone::UTC },
        group_by: vec![Dimension::Column(Column::Model)],
        marks: Marks::default(),
        scope: UsageScope::default(),
        filters: provider.iter().map(|provider| (Column::Provider, provider.clone())).collect(),
    };
    let until = Instant::now() + READING_TIME;
    let part = ReportPart { order: None, cursor: None, limit: SORTED_MAX, page_until: until, until };
    let found = call.app.readers.ask(move |db| page(db, &question, &part)).await?;
    let found = found.ok().filter(|page| page.next.is_none()).ok_or_else(|| {
        ApiError::parameter("file", "file has too many days and models for one response; send fewer days.")
    })?;
    let ours = found.groups.into_iter().filter_map(|group| {
        let day = day_of(group.bucket_ms)?;
        let model = group.names.into_iter().next().flatten()?;
        Some(((day, model), Ours::of(&group.sums)))
    });
    json(&ReconcileAnswer::of(&ours.collect(), export, &models, provider))
}

fn columns(format: VendorFormat, mapping: Option<Mapping>) -> Result<Columns, ApiError> {
    match (format, mapping) {
        (VendorFormat::Csv, Some(mapping)) => Ok(mapping.into()),
        (VendorFormat::Csv, None) => Err(ApiError::parameter(
            "mapping",
            "mapping must name the columns of a csv: day and model, and any of requests, input, cached_input, \
             output, cost, cost_cents.",
        )),
        (VendorFormat::Openai, None) => Ok(Columns::openai()),
        (VendorFormat::Anthropic, None) => Ok(Columns::anthropic()),
        (VendorFormat::Openai | VendorFormat::Anthropic, Some(_)) => {
            Err(ApiError::parameter("mapping", "mapping is only valid with the format csv."))
        }
    }
}

fn export(files: VendorFiles, columns: &Columns) -> Result<Export, ApiError> {
    let files = match files {
        VendorFiles::One(file) => vec![file],
        VendorFiles::Several(files) => files,
    };
    let mut export = Export::default();
    for file in &files {
        let fault = |why| ApiError::parameter("file", format!("file is invalid: {why}."));
        export.read(file, columns).map_err(fault)?;
    }
    Ok(export)
}

/// Returns the first and the last day of the export.
fn days(export: &Export) -> Result<(Date, Date), ApiError> {
    let mut days = export.figures.keys().map(|(day, _)| *day);
    let fault = || {
        let why = export.skipped.first().map_or("it has no rows", |(_, why)| why);
        ApiError::parameter("file", format!("file has no row with a day and a model: {why}."))
    };
    let first = days.next().ok_or_else(fault)?;
    Ok((first, days.next_back().unwrap_or(first)))
}

fn start_ms(day: Date) -> Result<u64, ApiError> {
    let start = day.to_zoned(TimeZone::UTC).ok().map(|start| start.timestamp().as_millisecond());
    start.and_then(|start| u64::try_from(start).ok()).ok_or_else(|| {
        ApiError::parameter("file", format!("file has a row with the day {day}, which is out of range."))
    })
}

fn day_of(at_ms: u64) -> Option<Date> {
    let moment = jiff::Timestamp::from_millisecond(i64::try_from(at_ms).ok()?).ok()?;
    Some(TimeZone::UTC.to_datetime(moment).date())
}

/// The recorded figures.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "OurFigures"))]
struct Ours {
    requests: u64,
    /// Attempts whose cost is unknown and not in the sum.
    requests_unpriced: u64,
    input_tokens: u64,
    cached_input_tokens: u64,
    output_tokens: u64,
    #[cfg_attr(test, schemars(with = "crate::common::money::MicroUsd"))]
    cost_micro_usd: SignedMicroUsd,
}

impl Ours {
    fn of(sums: &UsageSums) -> Self {
        Self {
            requests: sums.requests,
            requests_unpriced: sums.unpriced,
            input_tokens: sums.tokens.input_total(),
            cached_input_tokens: sums.tokens.cache_read,
            output_tokens: sums.tokens.output_total(),
            cost_micro_usd: SignedMicroUsd(sums.cost_nano_usd.into()),
        }
    }

    fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.requests_unpriced = self.requests_unpriced.saturating_add(other.requests_unpriced);
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.cached_input_tokens = self.cached_input_tokens.saturating_add(other.cached_input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost_micro_usd.0 = self.cost_micro_usd.0.saturating_add(other.cost_micro_usd.0);
    }
}

/// Figures that an export may lack.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "VendorFigures"))]
struct ReconciledFigures<N> {
    requests: Option<N>,
    input_tokens: Option<N>,
    cached_input_tokens: Option<N>,
    output_tokens: Option<N>,
    #[cfg_attr(test, schemars(with = "Option<crate::common::money::MicroUsd>"))]
    cost_micro_usd: Option<SignedMicroUsd>,
}

impl ReconciledFigures<u64> {
    fn of(theirs: &Theirs) -> Self {
        Self {
            requests: theirs.requests,
            input_tokens: theirs.input,
            cached_input_tokens: theirs.cached,
            output_tokens: theirs.output,
            cost_micro_usd: theirs.cost_nano_usd.map(SignedMicroUsd),
        }
    }
}

impl ReconciledFigures<i128> {
    /// Returns our figures minus theirs, for each figure that they have.
    fn difference(ours: &Ours, theirs: &Theirs) -> Self {
        let less = |ours: u64, theirs: Option<u64>| Some(i128::from(ours) - i128::from(theirs?));
        Self {
            requests: less(ours.requests, theirs.requests),
            input_tokens: less(ours.input_tokens, theirs.input),
            cached_input_tokens: less(ours.cached_input_tokens, theirs.cached),
            output_tokens: less(ours.output_tokens, theirs.output),
            cost_micro_usd: theirs
                .cost_nano_usd
                .map(|cost| SignedMicroUsd(ours.cost_micro_usd.0.saturating_sub(cost))),
        }
    }
}

/// The gateway's figures and those of the vendor.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Compared {
    ours: Ours,
    /// The figures of the vendor's export.
    theirs: ReconciledFigures<u64>,
    /// Ours minus theirs.
    #[cfg_attr(test, schemars(with = "ReconciledFigures<u64>"))]
    difference: ReconciledFigures<i128>,
}

impl Compared {
    fn of(ours: Ours, theirs: &Theirs) -> Self {
        Self {
            ours,
            theirs: ReconciledFigures::of(theirs),
            difference: ReconciledFigures::difference(&ours, theirs),
        }
    }
}

/// A model on a day.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ReconciledLine {
    /// In UTC, as 2026-11-22.
    day: String,
    model: String,
    #[serde(flatten)]
    compared: Compared,
}

/// The comparison with a vendor's export.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Reconciled"))]
pub(super) struct ReconcileAnswer {
    /// Null for all.
    provider: Option<String>,
    /// Rows of the export.
    rows: u64,
    rows_skipped: u64,
    /// The first skipped rows, with the reasons.
    skipped: Vec<SkippedRow>,
    /// The vendor's model names that are recorded under another name, mapped to ours.
    matched: BTreeMap<String, String>,
    /// Models in the export without any record.
    unknown_models: BTreeSet<String>,
    /// Models with records on these days that are not in the export.
    models_not_in_file: BTreeSet<String>,
    totals: Compared,
    data: Vec<ReconciledLine>,
}

/// A row of the export that could not be used.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SkippedRow {
    /// Counted from 1.
    row: u64,
    reason: &'static str,
}

type ByDay<T> = BTreeMap<(Date, String), T>;

impl ReconcileAnswer {
    fn of(
        ours: &ByDay<Ours>,
        export: Export,
        given: &BTreeMap<String, String>,
        provider: Option<String>,
    ) -> Self {
        let known: BTreeSet<&str> = ours.keys().map(|(_, model)| model.as_str()).collect();
        let (mut theirs, mut matched) = (ByDay::<Theirs>::new(), BTreeMap::new());
        for ((day, model), figures) in export.figures {
            let name = name_of(&model, &known, given);
            theirs.entry((day, name.clone())).or_default().add(&figures);
            if name != model {
                matched.insert(model, name);
            }
        }
        let named: BTreeSet<&str> = theirs.keys().map(|(_, model)| model.as_str()).collect();
        let only = |these: &BTreeSet<&str>, those: &BTreeSet<&str>| {
            these.difference(those).map(|model| (*model).to_owned()).collect()
        };
        let (unknown_models, models_not_in_file) = (only(&named, &known), only(&known, &named));
        let keys: BTreeSet<&(Date, String)> = ours.keys().chain(theirs.keys()).collect();
        let line = |key: &&(Date, String)| {
            let of_theirs = theirs.get(*key).copied().unwrap_or_default();
            let compared = Compared::of(ours.get(*key).copied().unwrap_or_default(), &of_theirs);
            ReconciledLine { day: key.0.to_string(), model: key.1.clone(), compared }
        };
        let (mut our_total, mut their_total) = (Ours::default(), Theirs::default());
        ours.values().for_each(|figures| our_total.add(figures));
        theirs.values().for_each(|figures| their_total.add(figures));
        Self {
            provider,
            rows: export.rows,
            rows_skipped: export.rows_skipped,
            skipped: export.skipped.into_iter().map(|(row, reason)| SkippedRow { row, reason }).collect(),
            matched,
            unknown_models,
            models_not_in_file,
            totals: Compared::of(our_total, &their_total),
            data: keys.iter().map(line).collect(),
        }
    }
}

/// Returns our name of the vendor's `model`. Vendors report the dated version of a model that was requested without a
/// date.
fn name_of(model: &str, known: &BTreeSet<&str>, given: &BTreeMap<String, String>) -> String {
    if let Some(name) = given.get(model) {
        return name.clone();
    }
    if known.contains(model) {
        return model.to_owned();
    }
    undated(model).filter(|name| known.contains(name)).unwrap_or(model).to_owned()
}

/// Returns the name before a suffix such as `-2026-03-05` or `-20260305`.
fn undated(model: &str) -> Option<&str> {
    let is_date = |text: &str| text.parse::<Date>().is_ok();
    ["-0000-00-00", "-00000000"].iter().find_map(|shape| {
        let (name, date) = model.split_at_checked(model.len().checked_sub(shape.len())?)?;
        let date = date.strip_prefix('-').filter(|date| is_date(date))?;
        (date.len() + 1 == shape.len() && !name.is_empty()).then_some(name)
    })
}
