//! The normal form of a request. Google reads each name in camelCase and in snake_case, bytes in two alphabets of base64,
//! and whole numbers as strings; SDKs use all of them. The normal form has one of each: camelCase, the standard alphabet,
//! media types in lower case, JSON schemas in place of Google's schemas, and no null. Positions do not change, so the
//! path of a value is the same in both.

use std::borrow::Cow;
use std::collections::HashSet;

use super::losses::is_known;
use super::schema;
use super::signature::{self, Carried};
use crate::adapt::Rejection;
use crate::adapt::path::MemberPath;
use crate::adapt::read::{self, as_text};
use crate::json::{self, JsonWriter, Tree};

/// Returns the normal form of a request.
pub(super) fn document(body: &[u8]) -> Result<Vec<u8>, Rejection> {
    let mut bytes = body.to_vec();
    let tape = json::parse(&mut bytes).map_err(read::refuse_fault)?;
    let mut json = JsonWriter::with_capacity(body.len());
    message(tape.as_value(), None, &mut json)?;
    Ok(json.finish())
}

/// Writes a message of Google's protocol, a list of them, or a scalar.
fn message(
    value: Tree<'_, '_>,
    path: Option<&MemberPath<'_>>,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    if let Some(list) = value.as_array() {
        json.list();
        for (position, element) in list.iter().enumerate() {
            let at = path.map(|path| path.at(position));
            message(element, at.as_ref(), json)?;
        }
        json.end_list();
        return Ok(());
    }
    let Some(object) = value.as_object() else {
        json.tree(value);
        return Ok(());
    };
    json.object();
    let mut known = HashSet::new();
    for (name, value) in object.iter() {
        let respelled = camel(name);
        // Unknown members of the request are reported in the client's spelling.
        let name = if path.is_some() || is_known(&respelled) { respelled } else { name.into() };
        let at = path.map_or_else(|| MemberPath::top(&name), |path| path.member(&name));
        if !known.insert(name.clone()) {
            return Err(at.reject("occurs twice; a member may have only one of its two spellings."));
        }
        if !read::is_null(value) {
            member(&name, value, &at, json)?;
        }
    }
    json.end_object();
    Ok(())
}

/// Writes the member `name` of a message.
fn member(
    name: &str,
    value: Tree<'_, '_>,
    at: &MemberPath<'_>,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    match name {
        _ if FREE.contains(&name) => drop(json.quoted_name(name).tree(value)),
        "parameters" | "responseSchema" => schema::of_message(value, json.quoted_name(name)),
        "parametersJsonSchema" | "responseJsonSchema" | "schema" => {
            schema::of_json_schema(value, json.quoted_name(name));
        }
        "data" => {
            let base64 = as_text(value).and_then(|text| standard(text).map(Cow::into_owned));
            let base64 = base64.ok_or_else(|| at.reject("must be bytes in base64."))?;
            json.quoted_name(name).text(&base64);
        }
        "maxOutputTokens" | "candidateCount" | "topK" | "seed" | "thinkingBudget" => {
            schema::number(value, json.quoted_name(name));
        }
        "mimeType" => {
            let text = as_text(value).unwrap_or_default();
            let plain = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            json.quoted_name(name).text(&plain);
        }
        "thoughtSignature" => match as_text(value).map(signature::read) {
            Some(Carried::Own(signature)) => drop(json.quoted_name(name).text(&signature)),
            Some(Carried::Claude(signature)) => drop(json.name(signature::CLAUDE).text(&signature)),
            Some(Carried::Redacted(data)) => drop(json.name(signature::REDACTED).text(&data)),
            Some(Carried::Encrypted(reasoning)) => drop(json.name(signature::ENCRYPTED).text(&reasoning)),
            Some(Carried::Nothing) | None => {}
        },
        // Google also takes one element in place of a list.
        "contents" | "parts" if value.is_object() => {
            json.quoted_name(name).list();
            message(value, Some(&at.at(0)), json)?;
            json.end_list();
        }
        _ => message(value, Some(at), json.quoted_name(name))?,
    }
    Ok(())
}

/// The members whose names are the client's own.
const FREE: [&str; 7] = ["args", "response", "labels", "partMetadata", "metadata", "default", "example"];

/// Returns a name in camelCase.
fn camel(name: &str) -> Cow<'_, str> {
    if !name.contains('_') {
        return name.into();
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name.chars().peekable();
    while let Some(c) = rest.next() {
        match rest.peek() {
            Some(next) if c == '_' && (next.is_ascii_lowercase() || next.is_ascii_digit()) => {
                out.extend(rest.next().map(|next| next.to_ascii_uppercase()));
            }
            Some(_) | None => out.push(c),
        }
    }
    out.into()
}

/// Returns base64 in the standard alphabet with padding. `None` if it is invalid.
pub(super) fn standard(text: &str) -> Option<Cow<'_, str>> {
    let plain = text.trim_end_matches('=');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
    let padding = match plain.len() % 4 {
        0 => "",
        2 => "==",
        3 => "=",
        _ => return None,
    };
    if !plain.bytes().all(fits) {
        return None;
    }
    let is_standard = !plain.bytes().any(|byte| matches!(byte, b'-' | b'_'));
    Some(match is_standard && text.len() == plain.len() + padding.len() {
        true => text.into(),
        false => (plain.replace('-', "+").replace('_', "/") + padding).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_normal_form() {
        for (body, want) in [
            (
                r#"{"system_instruction":{"parts":{"text":"a"}},"contents":{"parts":[{"inline_data":{"mime_type":"Image/PNG; x=1","data":"-_8"}}]}}"#,
                r#"{"systemInstruction":{"parts":[{"text":"a"}]},"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"+/8="}}]}]}"#,
            ),
            (
                r#"{"contents":[{"parts":[{"function_call":{"name":"f","args":{"snake_key":null}}}]}],"top_k":null}"#,
                r#"{"contents":[{"parts":[{"functionCall":{"name":"f","args":{"snake_key":null}}}]}]}"#,
            ),
            (
                r#"{"contents":[{"parts":[{"thought_signature":"skip_thought_signature_validator","text":"x"}]}]}"#,
                r#"{"contents":[{"parts":[{"text":"x"}]}]}"#,
            ),
        ] {
            let normal = document(body.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(normal.clone()).unwrap(), want);
            assert_eq!(document(&normal).unwrap(), normal, "it is its own normal form");
        }
        for (body, param) in [
            (r#"{"generationConfig":{"topP":1,"top_p":1}}"#, "generationConfig.topP"),
            (
                r#"{"contents":[{"parts":[{"inlineData":{"data":"a"}}]}]}"#,
                "contents.0.parts.0.inlineData.data",
            ),
        ] {
            assert_eq!(document(body.as_bytes()).unwrap_err().param, param);
        }
    }
}
