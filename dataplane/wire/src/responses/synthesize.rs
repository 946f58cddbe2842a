//! Converts a unary answer into a stream: some upstreams answer a stream request with a whole response, which an SDK
//! that waits for events would ignore.

use serde_json::{Map, Value, json};

type ResponseMembers = Map<String, Value>;

/// Returns the stream equivalent to the response `whole`: its creation, each item with its parts, and its end. `None`
/// if `whole` is not a response, or one that failed.
pub fn synthesize_stream(whole: &[u8]) -> Option<Vec<u8>> {
    let response: ResponseMembers = serde_json::from_slice(whole).ok()?;
    let items = response.get("output")?.as_array()?;
    let last = match response.get("status").and_then(Value::as_str) {
        Some("completed") | None => "response.completed",
        Some("incomplete") => "response.incomplete",
        Some(_) => return None,
    };
    let mut out = ResponsesEventList::default();
    let mut begun = response.clone();
    let none_yet = [
        ("status", "in_progress".into()),
        ("output", json!([])),
        ("usage", Value::Null),
        ("incomplete_details", Value::Null),
    ];
    begun.extend(members(none_yet));
    for name in ["response.created", "response.in_progress"] {
        out.push(name, members([("response", begun.clone().into())]));
    }
    for (index, item) in items.iter().enumerate() {
        out.item(index, item.as_object()?);
    }
    out.push(last, members([("response", response.into())]));
    Some(out.bytes)
}

fn members<const N: usize>(named: [(&str, Value); N]) -> ResponseMembers {
    named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[derive(Default)]
struct ResponsesEventList {
    bytes: Vec<u8>,
    number: u64,
}

/// The position of an item or part in the output.
struct OutputSpot<'a> {
    item_id: &'a Value,
    output_index: usize,
    /// `content_index` or `summary_index`, with the index.
    part: Option<(&'static str, usize)>,
}

impl OutputSpot<'_> {
    fn with<const N: usize>(&self, named: [(&str, Value); N]) -> ResponseMembers {
        let mut spot =
            members([("item_id", self.item_id.clone()), ("output_index", self.output_index.into())]);
        spot.extend(self.part.map(|(name, index)| (name.to_owned(), index.into())));
        spot.extend(members(named));
        spot
    }
}

impl ResponsesEventList {
    fn push(&mut self, name: &str, mut data: ResponseMembers) {
        data.extend(members([("type", name.into()), ("sequence_number", self.number.into())]));
        self.number = self.number.saturating_add(1);
        self.bytes.extend_from_slice(format!("event: {name}\ndata: {}\n\n", Value::from(data)).as_bytes());
    }

    fn item(&mut self, output_index: usize, item: &ResponseMembers) {
        let kind = item.get("type").and_then(Value::as_str).unwrap_or_default();
        let spot = OutputSpot { item_id: item.get("id").unwrap_or(&Value::Null), output_index, part: None };
        let of_item =
            |item: ResponseMembers| members([("output_index", output_index.into()), ("item", item.into())]);
        self.push("response.output_item.added", of_item(begun(kind, item)));
        let parts = |name: &str| item.get(name).and_then(Value::as_array).into_iter().flatten().enumerate();
        for (index, part) in parts("summary") {
            self.part(&OutputSpot { part: Some(("summary_index", index)), ..spot }, part);
        }
        for (index, part) in parts("content") {
            self.part(&OutputSpot { part: Some(("content_index", index)), ..spot }, part);
        }
        match kind {
            "function_call" => self.text(&spot, "function_call_arguments", "arguments", item),
            "custom_tool_call" => self.text(&spot, "custom_tool_call_input", "input", item),
            _ => {}
        }
        self.push("response.output_item.done", of_item(item.clone()));
    }

    fn part(&mut self, spot: &OutputSpot<'_>, part: &Value) {
        let Some(part) = part.as_object() else { return };
        let (event, name, frame) = match part.get("type").and_then(Value::as_str) {
            Some("output_text") => ("output_text", "text", "content_part"),
            Some("refusal") => ("refusal", "refusal", "content_part"),
            Some("reasoning_text") => ("reasoning_text", "text", "content_part"),
            Some("summary_text") => ("reasoning_summary_text", "text", "reasoning_summary_part"),
            _ => return,
        };
        let annotations = part.get("annotations").and_then(Value::as_array);
        let mut begun = part.clone();
        begun.insert(name.to_owned(), "".into());
        begun.extend(annotations.map(|_| ("annotations".to_owned(), json!([]))));
        self.push(&format!("response.{frame}.added"), spot.with([("part", begun.into())]));
        self.text(spot, event, name, part);
        for (index, annotation) in annotations.into_iter().flatten().enumerate() {
            let annotation = [("annotation_index", index.into()), ("annotation", annotation.clone())];
            self.push("response.output_text.annotation.added", spot.with(annotation));
        }
        self.push(&format!("response.{frame}.done"), spot.with([("part", part.clone().into())]));
    }

    /// Writes the text of a part or call: all of it in one delta, and again in the event that ends it.
    fn text(&mut self, spot: &OutputSpot<'_>, event: &str, name: &str, holder: &ResponseMembers) {
        let text = holder.get(name).cloned().unwrap_or_else(|| "".into());
        let beside = beside(event, holder);
        if text.as_str().is_some_and(|text| !text.is_empty()) {
            let mut delta = spot.with([("delta", text.clone())]);
            delta.extend(beside.clone());
            self.push(&format!("response.{event}.delta"), delta);
        }
        let mut done = spot.with([(name, text)]);
        done.extend(beside);
        self.push(&format!("response.{event}.done"), done);
    }
}

/// Returns an item as it is before its output.
fn begun(kind: &str, item: &ResponseMembers) -> ResponseMembers {
    let mut begun = item.clone();
    let empty =
        [("content", json!([])), ("summary", json!([])), ("arguments", "".into()), ("input", "".into())];
    for (name, empty) in empty {
        if begun.contains_key(name) && (name != "input" || kind == "custom_tool_call") {
            begun.insert(name.to_owned(), empty);
        }
    }
    begun.remove("encrypted_content");
    begun.insert("status".to_owned(), "in_progress".into());
    begun
}

/// Returns the member that the SDKs require beside a text.
fn beside(event: &str, holder: &ResponseMembers) -> Option<(String, Value)> {
    match event {
        "output_text" => {
            let logprobs = holder.get("logprobs").filter(|logprobs| logprobs.is_array());
            Some(("logprobs".to_owned(), logprobs.cloned().unwrap_or_else(|| json!([]))))
        }
        // Required by one major version of OpenAI's SDK.
        "function_call_arguments" => {
            Some(("name".to_owned(), holder.get("name").cloned().unwrap_or_default()))
        }
        _ => None,
    }
}
