//! Sampling members and the output limit of a chat request, as the rules of the target allow them.

use crate::adapt::adjusted::Adjusted;
use crate::adapt::chat_rules::{OUTPUT_LIMITS, SAMPLING, refused_sampling};
use crate::adapt::{Traits, read};
use crate::chat::request::ChatRequest;
use crate::json::Tree;

/// Returns the sampling members that are sent. A target that is certain to think accepts none.
pub(in crate::adapt) fn sampling<'t, 'i>(
    request: &ChatRequest<'t, 'i>,
    target: &Traits<'_>,
    thinks: bool,
    adjusted: &mut Adjusted,
) -> Vec<(&'static str, Tree<'t, 'i>)> {
    let both = request.option("temperature").is_some() && request.option("top_p").is_some();
    let refused: &[&str] = if thinks { &SAMPLING } else { refused_sampling(target.rules, thinks, both) };
    let mut sent = Vec::new();
    for name in SAMPLING {
        let Some(value) = request.tree(name) else { continue };
        if !refused.contains(&name) {
            sent.push((name, value));
        } else if !target.rules.is_unknown() {
            adjusted.drop(name);
        }
    }
    sent
}

/// Returns the output limit of the request, at most the largest output of the model.
pub(in crate::adapt) fn output_limit(
    request: &ChatRequest<'_, '_>,
    target: &Traits<'_>,
    adjusted: &mut Adjusted,
) -> Option<u64> {
    let asked = OUTPUT_LIMITS.iter().find_map(|name| read::as_whole(request.tree(name)?))?;
    let lowered = target.lower_limit(asked);
    if let Some(most) = lowered {
        adjusted.set("max_tokens", most);
    }
    Some(lowered.unwrap_or(asked))
}
