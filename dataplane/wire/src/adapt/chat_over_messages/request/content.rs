//! The content of one message while it is built: a string if one is enough, else blocks.

use crate::chat::request::CacheMark;
use crate::json::JsonWriter;

/// Collects the content of one message.
#[derive(Debug, Default)]
pub(super) struct MessagesContent<'a> {
    /// The only text so far, if it does not need to be a block.
    lone: Option<&'a str>,
    /// Blocks, without the brackets of a list.
    blocks: JsonWriter,
}

impl<'a> MessagesContent<'a> {
    /// Adds text. The target rejects empty and blank text, which is skipped.
    pub(super) fn text(&mut self, text: &'a str, cache: Option<CacheMark<'_, '_>>) {
        if text.trim().is_empty() {
            return;
        }
        if cache.is_none() && self.is_empty() {
            self.lone = Some(text);
            return;
        }
        text_block(self.block(), text, cache);
    }

    /// Returns the writer to which the caller writes the next block.
    pub(super) fn block(&mut self) -> &mut JsonWriter {
        if let Some(text) = self.lone.take() {
            text_block(&mut self.blocks, text, None);
        }
        &mut self.blocks
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lone.is_none() && self.blocks.is_empty()
    }

    /// Writes the content, preceded by `results`.
    pub(super) fn write(mut self, results: JsonWriter, json: &mut JsonWriter) {
        if results.is_empty()
            && let Some(text) = self.lone
        {
            json.text(text);
            return;
        }
        self.block();
        json.list();
        for blocks in [results, self.blocks] {
            if !blocks.is_empty() {
                json.raw(&blocks.finish());
            }
        }
        json.end_list();
    }
}

fn text_block(json: &mut JsonWriter, text: &str, cache: Option<CacheMark<'_, '_>>) {
    json.object().name("type").text("text").name("text").text(text);
    end_block(json, cache);
}

/// Ends a block, with a cache mark if there is one, in the form that clients of LiteLLM and OpenRouter send.
pub(super) fn end_block(json: &mut JsonWriter, cache: Option<CacheMark<'_, '_>>) {
    if let Some(cache) = cache {
        json.name("cache_control").tree(cache.tree);
    }
    json.end_object();
}
