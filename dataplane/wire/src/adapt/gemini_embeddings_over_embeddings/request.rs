//! Translates the request: each content becomes one text of `input`.

use super::answer::EmbeddingAnswers;
use super::losses::{CONFIG, LOSSES, PART, refuse};
use crate::adapt::loss::unknown;
use crate::adapt::path::MemberPath;
use crate::adapt::read::{self, Object, as_text, as_whole, member};
use crate::adapt::{Asking, Prepared, Rejection};
use crate::json::{self, JsonWriter, Tree};

/// The settings of one element of the request.
struct Wanted {
    text: String,
    dimensions: Option<u64>,
}

/// Translates a request for one or several embeddings.
pub(super) fn prepare(asking: &Asking<'_>) -> Result<Prepared, Rejection> {
    let mut body = asking.body.to_vec();
    let tape = json::parse(&mut body).map_err(read::refuse_fault)?;
    let request = read::object(tape.as_value(), String::new)?;
    let requests = member(&request, "requests");
    let wanted = match requests {
        Some(requests) => several(requests)?,
        None => vec![one(&request, None)?],
    };
    let mut json = JsonWriter::default();
    json.object().name("model").text(asking.target.model).name("input").list();
    for wanted in &wanted {
        json.text(&wanted.text);
    }
    json.end_list();
    if let Some(dimensions) = wanted.first().and_then(|wanted| wanted.dimensions) {
        json.name("dimensions").number(dimensions);
    }
    json.end_object();
    let names = read::members(&request).map(|(name, _)| camel(name));
    let answers = EmbeddingAnswers { is_batch: requests.is_some(), count: wanted.len() };
    Ok(Prepared {
        body: json.finish().into(),
        answers: Box::new(answers),
        dropped: unknown(names, LOSSES),
        changed: Vec::new(),
    })
}

fn several(requests: Tree<'_, '_>) -> Result<Vec<Wanted>, Rejection> {
    let top = MemberPath::top("requests");
    let mut all: Vec<Wanted> = Vec::new();
    for (position, request) in read::array(requests, || top.to_string())?.iter().enumerate() {
        let path = top.at(position);
        let wanted = one(&read::object(request, || path.to_string())?, Some(&path))?;
        if all.first().is_some_and(|first| first.dimensions != wanted.dimensions) {
            let path = path.member(DIMENSIONS[0]);
            return Err(path.refuse("differs from that of the first element; this target takes one for all."));
        }
        all.push(wanted);
    }
    if all.is_empty() { Err(top.reject("must have an element.")) } else { Ok(all) }
}

/// Reads the request for one embedding, which stands at `path`, or is the whole request.
fn one(request: &Object<'_, '_>, path: Option<&MemberPath<'_>>) -> Result<Wanted, Rejection> {
    if either(request, [CONFIG, "embed_content_config"], path)?.is_some() {
        return Err(refuse(CONFIG, below(path, CONFIG).to_string()));
    }
    let dimensions = match either(request, DIMENSIONS, path)? {
        None => None,
        Some(value) => {
            let written = || as_text(value)?.parse().ok();
            let dimensions = as_whole(value).or_else(written);
            let path = below(path, DIMENSIONS[0]);
            Some(dimensions.ok_or_else(|| path.reject("must be a whole number."))?)
        }
    };
    let place = below(path, "content");
    let content = member(request, "content").ok_or_else(|| place.reject("is missing."))?;
    let content = read::object(content, || place.to_string())?;
    Ok(Wanted { text: text(&content, &place)?, dimensions })
}

/// Returns the texts of a content's parts, joined by line feeds.
fn text(content: &Object<'_, '_>, place: &MemberPath<'_>) -> Result<String, Rejection> {
    let place = place.member("parts");
    let parts = member(content, "parts").ok_or_else(|| place.reject("is missing."))?;
    // Google also takes one part in place of a list.
    let parts: Vec<Tree<'_, '_>> =
        parts.as_array().map_or_else(|| vec![parts], |parts| parts.iter().collect());
    let mut texts = Vec::with_capacity(parts.len());
    for (position, part) in parts.into_iter().enumerate() {
        let place = place.at(position);
        let part = read::object(part, || place.to_string())?;
        match member(&part, "text") {
            Some(text) => texts.push(read::text(text, || place.member("text").to_string())?),
            None => return Err(refuse(PART, place.to_string())),
        }
    }
    Ok(texts.join("\n"))
}

/// Returns a member that Google reads in two spellings. Rejects both of them together.
fn either<'t, 'i>(
    object: &Object<'t, 'i>,
    names: [&str; 2],
    path: Option<&MemberPath<'_>>,
) -> Result<Option<Tree<'t, 'i>>, Rejection> {
    let [camel, snake] = names.map(|name| member(object, name));
    if camel.is_some() && snake.is_some() {
        let path = below(path, names[0]);
        return Err(path.reject("occurs twice; a member may have only one of its two spellings."));
    }
    Ok(camel.or(snake))
}

fn below<'p>(path: Option<&'p MemberPath<'p>>, name: &'p str) -> MemberPath<'p> {
    path.map_or_else(|| MemberPath::top(name), |path| path.member(name))
}

/// Returns the name in camelCase of a known member.
fn camel(name: &str) -> &str {
    match name {
        "output_dimensionality" => DIMENSIONS[0],
        "task_type" => "taskType",
        "auto_truncate" => "autoTruncate",
        other => other,
    }
}

const DIMENSIONS: [&str; 2] = ["outputDimensionality", "output_dimensionality"];
