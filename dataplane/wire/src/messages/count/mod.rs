//! Estimates the number of tokens of a Messages request (MSG-3, MSG-5).
//!
//! Values are visited in document order, with JSON escapes decoded. Unknown content is counted as text; content that
//! the model does not read again, such as old thoughts, is not counted. The sum is rounded up once.

use bytes::Bytes;
use simd_json::prelude::{TypedScalarValue as _, ValueIntoString as _};

use crate::json::{self, JsonFault, Tree};
use crate::tokens::{
    ModelFamily, PAGE_BYTES, PAGE_TOKENS, PAGES_UNKNOWN, decoded, family_of, milli_tokens, size_of,
};

/// The number of base64 characters of an image that are decoded to find its size.
const IMAGE_CHARS: usize = 64 * 1024;

/// Returns the estimated tokens of `body` for `model`, which is the name that its provider uses.
pub fn count(body: &[u8], model: &str) -> Result<u64, JsonFault> {
    let mut document = body.to_vec();
    let tape = json::parse(&mut document)?;
    let body = tape.as_value();
    let mut sum = TokenSum { family: family_of(model), milli: 0, tokens: 0 };
    sum.tokens = sum.family.frame.base;
    if let Some(system) = member(body, "system") {
        sum.content(system, false);
    }
    let messages = elements(body, "messages");
    let loop_begins = messages.iter().rposition(|message| asks(*message));
    for (position, message) in messages.iter().enumerate() {
        sum.add(sum.family.frame.message);
        let thoughts = sum.family.frame.thoughts && loop_begins.is_some_and(|begin| position > begin);
        if let Some(content) = member(*message, "content") {
            sum.content(content, thoughts);
        }
    }
    sum.tools(body);
    let text = sum.milli.saturating_mul(sum.family.scale).div_ceil(100);
    Ok(text.div_ceil(1_000).saturating_add(sum.tokens))
}

/// Returns true if `body` is a token counting answer.
pub fn is_count(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct CountAnswer {
        #[serde(rename = "input_tokens")]
        _input_tokens: u64,
    }
    serde_json::from_slice::<CountAnswer>(body).is_ok()
}

/// Returns the answer of the token counting route.
pub fn count_answer(tokens: u64) -> Bytes {
    format!("{{\"input_tokens\":{tokens}}}").into()
}

/// Returns true for a user message that contains more than tool results; thoughts before it are not read again.
fn asks(message: Tree<'_, '_>) -> bool {
    if text(message, "role") != Some("user") {
        return false;
    }
    let blocks = elements(message, "content");
    blocks.is_empty() || blocks.iter().any(|block| text(*block, "type") != Some("tool_result"))
}

fn member<'t, 'i>(value: Tree<'t, 'i>, name: &str) -> Option<Tree<'t, 'i>> {
    value.as_object()?.get(name).filter(|member| !member.is_null())
}

fn text<'i>(value: Tree<'_, 'i>, name: &str) -> Option<&'i str> {
    member(value, name)?.into_string()
}

fn elements<'t, 'i>(value: Tree<'t, 'i>, name: &str) -> Vec<Tree<'t, 'i>> {
    member(value, name)
        .and_then(|value| value.as_array())
        .into_iter()
        .flat_map(|array| array.iter().collect::<Vec<_>>())
        .collect()
}

struct TokenSum {
    family: ModelFamily,
    /// Thousandths of text tokens, before scaling.
    milli: u64,
    tokens: u64,
}

impl TokenSum {
    fn add(&mut self, tokens: u64) {
        self.tokens = self.tokens.saturating_add(tokens);
    }

    fn text(&mut self, text: &str) {
        self.milli = self.milli.saturating_add(milli_tokens(text));
    }

    fn member(&mut self, value: Tree<'_, '_>, name: &str) {
        self.text(text(value, name).unwrap_or_default());
    }

    fn json(&mut self, value: Tree<'_, '_>) {
        let mut text = Vec::new();
        json::write(value, &mut text);
        self.text(&String::from_utf8_lossy(&text));
    }

    /// Adds a string, or blocks.
    fn content(&mut self, content: Tree<'_, '_>, thoughts: bool) {
        match content.into_string() {
            Some(value) => self.text(value),
            None => {
                for block in
                    content.as_array().into_iter().flat_map(|blocks| blocks.iter().collect::<Vec<_>>())
                {
                    self.block(block, thoughts);
                }
            }
        }
    }

    fn block(&mut self, block: Tree<'_, '_>, thoughts: bool) {
        match text(block, "type").unwrap_or_default() {
            "text" => self.member(block, "text"),
            "image" => self.image(block),
            "document" => self.document(block),
            "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                self.add(self.family.frame.call);
                self.member(block, "name");
                if let Some(input) = member(block, "input") {
                    self.json(input);
                }
            }
            "tool_result" => {
                self.add(self.family.frame.result);
                if let Some(content) = member(block, "content") {
                    self.content(content, thoughts);
                }
            }
            "thinking" if thoughts => self.member(block, "thinking"),
            "thinking" | "redacted_thinking" => {}
            _ => self.json(block),
        }
    }

    fn image(&mut self, block: Tree<'_, '_>) {
        let data = member(block, "source").and_then(|source| text(source, "data"));
        let size =
            data.and_then(|data| size_of(&decoded(data.get(..IMAGE_CHARS).unwrap_or(data).as_bytes())));
        self.add(self.family.image_tokens(size.map(|stated| stated.size)));
    }

    fn document(&mut self, block: Tree<'_, '_>) {
        self.member(block, "title");
        self.member(block, "context");
        let Some(source) = member(block, "source") else { return };
        match (text(source, "type").unwrap_or_default(), text(source, "data")) {
            ("text", Some(data)) => self.text(data),
            ("base64", Some(data)) => self.add(PAGE_TOKENS.saturating_mul(pages(&decoded(data.as_bytes())))),
            ("content", _) => {
                if let Some(content) = member(source, "content") {
                    self.content(content, false);
                }
            }
            _ => self.add(PAGE_TOKENS.saturating_mul(PAGES_UNKNOWN)),
        }
    }

    fn tools(&mut self, body: Tree<'_, '_>) {
        let tools = elements(body, "tools");
        let choice = member(body, "tool_choice").and_then(|choice| text(choice, "type"));
        let frame = self.family.frame;
        match choice {
            _ if tools.is_empty() => {}
            Some("any" | "tool") => self.add(frame.tools_forced),
            Some(_) | None => self.add(frame.tools),
        }
        for tool in tools {
            self.add(frame.tool);
            let Some(schema) = member(tool, "input_schema") else {
                self.json(tool);
                continue;
            };
            // The tool is counted as `{"name":..,"description":..,"input_schema":..}`.
            self.text("{\"name\":\"\",\"description\":\"\",\"input_schema\":}");
            self.member(tool, "name");
            self.member(tool, "description");
            self.json(schema);
        }
    }
}

/// Returns the number of pages of a PDF: its page objects, or an estimate by size if there are none.
fn pages(document: &[u8]) -> u64 {
    let named = memchr::memmem::find_iter(document, b"/Type").filter(|at| {
        let after = document.get(at.saturating_add(5)..).unwrap_or_default().trim_ascii_start();
        after.starts_with(b"/Page") && !after.get(5).is_some_and(u8::is_ascii_alphanumeric)
    });
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    match named.count() {
        0 => number(document.len()).div_ceil(PAGE_BYTES).max(1),
        count => number(count),
    }
}

#[cfg(test)]
mod tests;
