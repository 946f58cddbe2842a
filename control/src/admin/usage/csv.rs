//! Exchanges as CSV (RFC 4180). Request ids and selectors are client-supplied, so each text passes [`cell`].

use std::fmt::Display;
use std::io::Write as _;

use jiff::Timestamp;
use records::{Record, RecordName, Trace, rare_fields};
use shared::usage::{Class, TargetChoice, TokenCounts, Unpriced, counted};

use super::export::ChargedExchange;
use crate::admin::csv::cell;
use crate::common::money::MicroUsd;
use crate::db::names::OwnerNames;
use crate::usage::requests::attempts::{AttemptSummary, queue_us};
use crate::usage::requests::{cancelled_by, protocol};

/// Writes the header line.
pub(super) fn head(out: &mut Vec<u8>, is_charged: bool) {
    out.extend_from_slice(COLUMNS.as_bytes());
    if is_charged {
        out.extend_from_slice(CHARGED.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes one exchange; absent and unknown values are empty.
pub(super) fn line(
    out: &mut Vec<u8>,
    (record, trace): (&Record<'_>, Trace<'_>),
    owners: &OwnerNames,
    charged: Option<&ChargedExchange<'_>>,
) {
    text(out, record.request_id);
    let started = i64::try_from(record.started_at_ms).ok();
    let started = started.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    value(out, started.map(|started| format!("{started:.3}")));
    value(out, Some(record.started_at_ms));
    value(out, Some(record.duration_us));
    for name in TEXTS {
        out.push(b',');
        text(out, record.name(name));
    }
    value(out, Some(record.stream));
    value(out, Some(record.status));
    let TokenCounts { input, cache_read, cache_write, output, reasoning, .. } = record.tokens;
    for count in [input, cache_read, cache_write, output, reasoning] {
        value(out, Some(count));
    }
    value(out, record.cost_nano_usd.map(MicroUsd));
    value(out, record.head_us);
    value(out, record.first_content_us);
    let OwnerNames { key_name, project_name, principal_name, principal_email } = owners;
    for name in [key_name, project_name, principal_name, principal_email] {
        out.push(b',');
        text(out, name.as_deref().unwrap_or_default());
    }
    // Columns added by later releases come last, so that earlier columns keep their positions.
    for (class, count) in counted(&record.tokens, &record.units) {
        if LATER.contains(&class) {
            value(out, Some(count));
        }
    }
    for name in LATER_TEXTS {
        out.push(b',');
        text(out, record.name(name));
    }
    let lost = rare_fields::lost(&record.lost).filter_map(|(_, lost)| lost.cost_nano_usd).sum();
    value(out, Some(MicroUsd(lost)));
    value(out, record.vendor_cost_nano_usd.map(MicroUsd));
    out.push(b',');
    text(out, record.upstream_id);
    details(out, record, trace);
    if let Some(ChargedExchange { amount, currency }) = charged {
        value(out, amount.as_ref());
        value(out, Some(currency));
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the columns about the client and the attempts.
fn details(out: &mut Vec<u8>, record: &Record<'_>, trace: Trace<'_>) {
    let summary = AttemptSummary::of_exchange(record, trace);
    value(out, protocol(record));
    value(out, summary.as_ref().map(|summary| summary.attempts));
    value(out, summary.as_ref().map(|summary| summary.passed_over));
    value(out, summary.as_ref().map(|summary| summary.failed_over));
    for name in DETAIL_TEXTS {
        out.push(b',');
        text(out, record.name(name));
    }
    value(out, cancelled_by(record));
    for number in [record.bytes_in, record.bytes_out, record.gateway_us, record.silence_us_max] {
        value(out, number);
    }
    out.push(b',');
    let unpriced = Unpriced::of_bits(record.unpriced).members(record.name_if_any(RecordName::Tier));
    text(out, &unpriced.join(", "));
    out.push(b',');
    text(out, record.message);
    let choice = record.choice.and_then(TargetChoice::of_code);
    value(out, choice.map(|choice| choice.order.name()));
    value(out, choice.map(|choice| choice.chosen_by.name()));
    value(out, queue_us(trace));
}

fn value(out: &mut Vec<u8>, value: Option<impl Display>) {
    // Writing into memory cannot fail.
    let _ = match value {
        Some(value) => write!(out, ",{value}"),
        None => write!(out, ","),
    };
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(cell(text).as_bytes());
}

const TEXTS: [RecordName; 12] = [
    RecordName::Operation,
    RecordName::Key,
    RecordName::Project,
    RecordName::Principal,
    RecordName::Selector,
    RecordName::Endpoint,
    RecordName::Provider,
    RecordName::Model,
    RecordName::Outcome,
    RecordName::Error,
    RecordName::Provenance,
    RecordName::Price,
];

const COLUMNS: &str = "request_id,started_at,started_at_ms,duration_us,operation,key,project,principal,selector,\
     endpoint,provider,model,outcome,error,provenance,price,stream,status,input_tokens,cache_read_tokens,\
     cache_write_tokens,output_tokens,reasoning_tokens,cost_micro_usd,head_us,first_content_us,\
     key_name,project_name,principal_name,principal_email,\
     cache_write_1h_tokens,audio_input_tokens,audio_output_tokens,image_input_tokens,image_output_tokens,characters,\
     audio_ms,video_ms,images,searches,tool_calls,tier,picture,tags,end_user,lost_micro_usd,vendor_cost_micro_usd,\
     upstream_id,protocol,attempts,passed_over,failed_over,client,session,adapted,dropped,refused_by,finish,cancelled_by,\
     bytes_in,bytes_out,gateway_us,silence_us_max,unpriced,message,order,chosen_by,queue_us";

const CHARGED: &str = ",amount,currency";

/// The classes whose counts are in the later columns, in column order.
const LATER: [Class; 11] = [
    Class::CacheWrite1h,
    Class::AudioInput,
    Class::AudioOutput,
    Class::ImageInput,
    Class::ImageOutput,
    Class::Characters,
    Class::AudioMs,
    Class::VideoMs,
    Class::Images,
    Class::Searches,
    Class::ToolCalls,
];
const LATER_TEXTS: [RecordName; 4] =
    [RecordName::Tier, RecordName::Picture, RecordName::Tags, RecordName::EndUser];

const DETAIL_TEXTS: [RecordName; 6] = [
    RecordName::Client,
    RecordName::Session,
    RecordName::Adapted,
    RecordName::Dropped,
    RecordName::RefusedBy,
    RecordName::Finish,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_texts_are_quoted_where_needed_and_never_formulas() {
        let cases = [
            ("plain text", "plain text"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("two\r\nlines", "\"two\r\nlines\""),
            ("=1+1", "\"'=1+1\""),
            ("+1", "\"'+1\""),
            ("-1", "\"'-1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("\t=1", "\"'\t'=1\""),
            ("a=1", "a=1"),
        ];
        for (given, want) in cases {
            let mut out = Vec::new();
            text(&mut out, given);
            assert_eq!(String::from_utf8(out).unwrap(), want, "{given:?}");
        }
    }
}
