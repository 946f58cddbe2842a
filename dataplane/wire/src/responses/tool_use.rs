//! Determines how an item of the output is billed: as a call of one of the vendor's tools, or not as a call.

use shared::usage::Units;

/// Reads an item: pass it every name, and each text after its name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResponseToolUse {
    kind: ToolUseKind,
    /// True if the action opens or searches a page that a search found, which is free.
    is_free: bool,
    /// True if the last name of the item itself is `action`.
    in_action: bool,
    key: ToolUseKey,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ToolUseKind {
    #[default]
    Other,
    Search,
    Tool,
    Picture,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ToolUseKey {
    #[default]
    Other,
    Type,
    ActionType,
}

impl ResponseToolUse {
    /// Creates an item of the type `kind`, with an action of the type `action`.
    pub(crate) fn of(kind: &[u8], action: &[u8]) -> Self {
        Self { kind: ToolUseKind::named(kind), is_free: is_free(action), ..Self::default() }
    }

    /// Processes the name of a member: of the item at level 0, of an object in it at level 1.
    pub(super) fn name(&mut self, level: u32, name: &[u8]) {
        if level == 0 {
            self.in_action = name == b"action";
        }
        self.key = match (level, name) {
            (0, b"type") => ToolUseKey::Type,
            (1, b"type") if self.in_action => ToolUseKey::ActionType,
            _ => ToolUseKey::Other,
        };
    }

    /// Processes the value of the last name: a string.
    pub(super) fn text(&mut self, text: &[u8]) {
        match self.key {
            ToolUseKey::Type => self.kind = ToolUseKind::named(text),
            ToolUseKey::ActionType => self.is_free = is_free(text),
            ToolUseKey::Other => {}
        }
    }

    /// Adds the item to `units`, if it is billed.
    pub(crate) fn add_to(self, units: &mut Units) {
        let count = match self.kind {
            ToolUseKind::Search if !self.is_free => &mut units.searches,
            ToolUseKind::Tool => &mut units.tool_calls,
            ToolUseKind::Picture => &mut units.images,
            ToolUseKind::Search | ToolUseKind::Other => return,
        };
        *count = count.saturating_add(1);
    }
}

/// Returns true for actions on a page that a search found.
fn is_free(action: &[u8]) -> bool {
    matches!(action, b"open_page" | b"find_in_page" | b"find")
}

impl ToolUseKind {
    fn named(name: &[u8]) -> Self {
        match name {
            b"web_search_call" => Self::Search,
            b"file_search_call" | b"code_interpreter_call" => Self::Tool,
            b"image_generation_call" => Self::Picture,
            _ => Self::Other,
        }
    }
}
