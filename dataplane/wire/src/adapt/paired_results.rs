//! Pairs the results of tools with their calls, as every vendor requires it: a call is followed by its results and nothing
//! else. Agents send other orders: a note of the user between a call and its result, a call that was interrupted, and the
//! result of a tool that another conversation called.
//!
//! A conversation that is in order stays as it is.

use std::collections::VecDeque;

use crate::chat::request::{ChatContent, ChatMessage, ChatRole};

/// The result of a call that has none. Codex words it so.
const ABORTED: &str = "aborted";

/// For each message after the pairing, the position of the message from which it was made.
#[derive(Debug, Default)]
pub(super) struct Positions(Option<Vec<usize>>);

impl Positions {
    /// Returns the parameter of a rejection with the position that its message had before.
    pub(super) fn before(&self, param: &str) -> Option<String> {
        let rest = param.strip_prefix("messages.")?;
        let (position, rest) =
            rest.split_once('.').map_or((rest, None), |(position, rest)| (position, Some(rest)));
        let before = self.0.as_ref()?.get(position.parse::<usize>().ok()?)?;
        Some(rest.map_or_else(|| format!("messages.{before}"), |rest| format!("messages.{before}.{rest}")))
    }
}

/// Moves each result behind its call, adds those that are missing, and makes a user's message of a result without a call.
pub(super) fn pair(messages: &mut Vec<ChatMessage<'_, '_>>) -> Positions {
    if are_paired(messages) {
        return Positions::default();
    }
    let mut waiting: VecDeque<(usize, ChatMessage<'_, '_>)> =
        std::mem::take(messages).into_iter().enumerate().collect();
    let mut positions = Vec::with_capacity(waiting.len());
    while let Some((position, mut message)) = waiting.pop_front() {
        if matches!(message.role, ChatRole::Tool(_)) {
            message.role = ChatRole::User;
        }
        let ids: Vec<_> = message.calls.iter().filter_map(|call| call.id.clone()).collect();
        messages.push(message);
        positions.push(position);
        for id in ids {
            let is_result = |message: &ChatMessage<'_, '_>| message.role == ChatRole::Tool(id.clone());
            let found = waiting.iter().position(|(_, message)| is_result(message));
            match found.and_then(|at| waiting.remove(at)) {
                Some((position, result)) => {
                    messages.push(result);
                    positions.push(position);
                }
                // The conversation ends with the call.
                None if waiting.is_empty() => {}
                None => {
                    let content = Some(ChatContent::text(ABORTED));
                    messages.push(ChatMessage {
                        role: ChatRole::Tool(id),
                        content,
                        ..ChatMessage::default()
                    });
                    positions.push(position);
                }
            }
        }
    }
    Positions(Some(positions))
}

/// True if each call has its results, in any order, before another message, and each result has a call.
fn are_paired(messages: &[ChatMessage<'_, '_>]) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        if let ChatRole::Tool(id) = &message.role {
            let Some(at) = open.iter().position(|known| *known == id) else { return false };
            open.swap_remove(at);
        } else if !open.is_empty() {
            return false;
        } else {
            open.extend(message.calls.iter().filter_map(|call| call.id.as_deref()));
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::request::{CallInput, RequestCall, ToolKind};

    /// Returns the messages that `words` stand for: `u` a user's, `a:1,2` calls, `t:1` the result of call 1.
    fn messages(words: &str) -> Vec<ChatMessage<'static, 'static>> {
        let call = |id: &str| RequestCall {
            id: Some(id.to_owned().into()),
            kind: ToolKind::Function,
            name: "f".into(),
            input: CallInput::Absent,
            signature: None,
            reasoning: None,
            cache: None,
        };
        let read = |word: &str| {
            let (kind, ids) = word.split_once(':').unwrap_or((word, ""));
            let role = match kind {
                "a" => ChatRole::Assistant,
                "t" => ChatRole::Tool(ids.to_owned().into()),
                _ => ChatRole::User,
            };
            let calls = if kind == "a" {
                ids.split(',').filter(|id| !id.is_empty()).map(call).collect()
            } else {
                Vec::new()
            };
            ChatMessage { role, calls, ..ChatMessage::default() }
        };
        words.split(' ').map(read).collect()
    }

    fn words(messages: &[ChatMessage<'_, '_>]) -> String {
        let word = |message: &ChatMessage<'_, '_>| {
            if let ChatRole::Tool(id) = &message.role {
                let kind = if message.content.is_some() { "aborted" } else { "t" };
                return format!("{kind}:{id}");
            }
            let ids: Vec<_> = message.calls.iter().filter_map(|call| call.id.as_deref()).collect();
            if message.role == ChatRole::Assistant { format!("a:{}", ids.join(",")) } else { "u".to_owned() }
        };
        messages.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn calls_are_followed_by_their_results() {
        for (given, want, positions) in [
            ("u a:1,2 t:2 t:1 u", "u a:1,2 t:2 t:1 u", None),
            ("u a:1", "u a:1", None),
            ("u a:1,2 t:1", "u a:1,2 t:1", None),
            ("u a:1 u t:1 u", "u a:1 t:1 u u", Some(vec![0, 1, 3, 2, 4])),
            ("u a:1,2 t:2 u t:1", "u a:1,2 t:1 t:2 u", Some(vec![0, 1, 4, 2, 3])),
            ("u a:1 u", "u a:1 aborted:1 u", Some(vec![0, 1, 1, 2])),
            ("u a:1 a:2 t:2", "u a:1 aborted:1 a:2 t:2", Some(vec![0, 1, 1, 2, 3])),
            ("u t:9 u", "u u u", Some(vec![0, 1, 2])),
            // An ID that occurs again belongs to the call before it.
            ("a:1 t:1 a:1 u t:1", "a:1 t:1 a:1 t:1 u", Some(vec![0, 1, 2, 4, 3])),
        ] {
            let mut messages = messages(given);
            let moved = pair(&mut messages);
            assert_eq!((words(&messages).as_str(), moved.0), (want, positions), "{given}");
        }
    }

    #[test]
    fn a_rejection_names_the_position_that_its_message_had() {
        let mut messages = messages("u a:1 u t:1");
        let positions = pair(&mut messages);
        for (param, want) in [
            ("messages.2.content", Some("messages.3.content")),
            ("messages.3", Some("messages.2")),
            ("messages.9", None),
            ("tools.0", None),
        ] {
            assert_eq!(positions.before(param).as_deref(), want, "{param}");
        }
        assert_eq!(Positions::default().before("messages.1"), None);
    }
}
