//! The content of one message while it is built: a string if one is enough, else blocks.

use crate::adapt::write::{self, ObjectWriter};
use crate::chat::request::CacheMark;

/// Collects the content of one message.
#[derive(Debug, Default)]
pub(super) struct MessagesContent<'a> {
    /// The only text so far, if it does not need to be a block.
    lone: Option<&'a str>,
    /// Blocks, joined with commas.
    blocks: Vec<u8>,
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

    /// Starts a block and returns the buffer to which the caller writes it.
    pub(super) fn block(&mut self) -> &mut Vec<u8> {
        if let Some(text) = self.lone.take() {
            text_block(&mut self.blocks, text, None);
        }
        if !self.blocks.is_empty() {
            self.blocks.push(b',');
        }
        &mut self.blocks
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lone.is_none() && self.blocks.is_empty()
    }

    /// Writes the content, preceded by `results`, and clears it.
    pub(super) fn write(&mut self, results: &[u8], out: &mut Vec<u8>) {
        if results.is_empty()
            && let Some(text) = self.lone.take()
        {
            write::string(out, text);
            return;
        }
        if let Some(text) = self.lone.take() {
            text_block(&mut self.blocks, text, None);
        }
        out.push(b'[');
        out.extend_from_slice(results);
        if !results.is_empty() && !self.blocks.is_empty() {
            out.push(b',');
        }
        out.append(&mut self.blocks);
        out.push(b']');
    }
}

fn text_block(out: &mut Vec<u8>, text: &str, cache: Option<CacheMark<'_, '_>>) {
    let mut block = ObjectWriter::open(out);
    block.text("type", "text");
    block.text("text", text);
    cache_control(&mut block, cache);
    block.close();
}

/// Writes a cache mark, in the form that clients of LiteLLM and OpenRouter send.
pub(super) fn cache_control(block: &mut ObjectWriter<'_>, cache: Option<CacheMark<'_, '_>>) {
    if let Some(cache) = cache {
        block.tree("cache_control", cache.tree);
    }
}
