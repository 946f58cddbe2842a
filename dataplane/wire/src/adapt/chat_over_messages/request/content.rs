//! What one message holds, while it grows: a string as long as one will do, else blocks.

use crate::adapt::read;
use crate::adapt::write::{self, ObjectWriter};
use crate::json::Tree;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct MessagesContent<'i> {
    /// The only text so far, if it needs to be no block.
    lone: Option<&'i str>,
    /// The blocks, joined with commas.
    blocks: Vec<u8>,
}

impl<'i> MessagesContent<'i> {
    /// Adds text, unless it is empty or blank: the target refuses both.
    pub(super) fn text(&mut self, text: &'i str, cache: Option<Tree<'_, '_>>) {
        if text.trim().is_empty() {
            return;
        }
        if cache.is_none() && self.is_empty() {
            self.lone = Some(text);
            return;
        }
        text_block(self.block(), text, cache);
    }

    /// Begins a block, which is to be written to what this returns.
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

    /// Writes all of it, with `results` before it.
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

fn text_block(out: &mut Vec<u8>, text: &str, cache: Option<Tree<'_, '_>>) {
    let mut block = ObjectWriter::open(out);
    block.text("type", "text");
    block.text("text", text);
    cache_control(&mut block, cache);
    block.close();
}

/// Writes a mark for the target's cache, as LiteLLM's and OpenRouter's clients send it.
pub(super) fn cache_control(block: &mut ObjectWriter<'_>, cache: Option<Tree<'_, '_>>) {
    if let Some(cache) = cache {
        block.tree("cache_control", cache);
    }
}

/// The mark on an element or object.
pub(super) fn cache_of<'t, 'i>(object: &simd_json::tape::Object<'t, 'i>) -> Option<Tree<'t, 'i>> {
    read::member(object, "cache_control").filter(Tree::is_object)
}
