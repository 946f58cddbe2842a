//! Thoughts signed by the provider that made them, as chat clients send them back.

use super::read::{self, Object};

/// The member of a message in which LiteLLM's clients keep signed thoughts.
pub(super) const LIST: &str = "thinking_blocks";

/// A signed or redacted thought.
pub(super) enum SignedThought<'i> {
    Thinking { thinking: String, signature: &'i str },
    Redacted { data: &'i str },
}

/// Calls `each` with every signed thought in the `lists` of a message and returns true if there is any. A client that
/// kept the pieces of a stream unchanged has the signature in a separate piece, after those of the text.
pub(super) fn blocks<'i>(
    message: &Object<'_, 'i>,
    lists: &[&str],
    mut each: impl FnMut(SignedThought<'i>),
) -> bool {
    let (mut thinking, mut any) = (String::new(), false);
    let lists = lists.iter().filter_map(|name| read::member(message, name)?.as_array());
    for block in lists.flat_map(|list| list.iter().collect::<Vec<_>>()) {
        let Some(block) = block.as_object() else { continue };
        let text = |name: &str| read::member_text(&block, name).unwrap_or_default();
        match text("type") {
            "thinking" => {
                thinking.push_str(text("thinking"));
                let signature = text("signature");
                if !signature.is_empty() {
                    each(SignedThought::Thinking { thinking: std::mem::take(&mut thinking), signature });
                    any = true;
                }
            }
            "redacted_thinking" if !text("data").is_empty() => {
                each(SignedThought::Redacted { data: text("data") });
                any = true;
            }
            _ => {}
        }
    }
    any
}
