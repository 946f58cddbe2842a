//! Exchanges as CSV (RFC 4180). A text that a spreadsheet would take for a formula gets an apostrophe in front:
//! request ids and selectors are whatever a client sent.

use std::fmt::Display;
use std::io::Write as _;

use jiff::Timestamp;

use crate::money::MicroUsd;
use crate::store::names::OwnerNames;
use crate::store::record::{Name, Record};

/// The line of names.
pub(super) fn head(out: &mut Vec<u8>) {
    out.extend_from_slice(COLUMNS.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// One exchange; what is absent or not known is empty.
pub(super) fn line(out: &mut Vec<u8>, record: &Record<'_>, owners: &OwnerNames) {
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
    let tokens = record.tokens;
    for count in [tokens.input, tokens.cache_read, tokens.cache_write, tokens.output, tokens.reasoning] {
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
    out.extend_from_slice(b"\r\n");
}

fn value(out: &mut Vec<u8>, value: Option<impl Display>) {
    // Writing into memory cannot fail.
    let _ = match value {
        Some(value) => write!(out, ",{value}"),
        None => write!(out, ","),
    };
}

fn text(out: &mut Vec<u8>, text: &str) {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if !is_formula && !text.contains([',', '"', '\r', '\n']) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    out.push(b'"');
    if is_formula {
        out.push(b'\'');
    }
    out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    out.push(b'"');
}

const TEXTS: [Name; 12] = [
    Name::Operation,
    Name::Key,
    Name::Project,
    Name::Principal,
    Name::Selector,
    Name::Endpoint,
    Name::Provider,
    Name::Model,
    Name::Outcome,
    Name::Error,
    Name::Provenance,
    Name::Price,
];

const COLUMNS: &str = "request_id,started_at,started_at_ms,duration_us,operation,key,project,principal,selector,\
     endpoint,provider,model,outcome,error,provenance,price,stream,status,input_tokens,cache_read_tokens,\
     cache_write_tokens,output_tokens,reasoning_tokens,cost_micro_usd,head_us,first_content_us,\
     key_name,project_name,principal_name,principal_email";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_where_they_must_be_and_never_formulas() {
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
            ("\t=1", "\"'\t=1\""),
            ("a=1", "a=1"),
        ];
        for (given, want) in cases {
            let mut out = Vec::new();
            text(&mut out, given);
            assert_eq!(String::from_utf8(out).unwrap(), want, "{given:?}");
        }
    }
}
