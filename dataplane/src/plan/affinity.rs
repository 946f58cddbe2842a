//! Rendezvous hashing: a key always starts at the same target, and removing a target moves only the keys that started
//! at it (FAIL-2).

use shared::routing::Target;

use super::siphash::SipHash;

/// Rotates `candidates` so that the one with the highest score for `key` comes first; the others follow in list order,
/// wrapping around.
pub(super) fn rotate(candidates: &mut [&Target], key: &str) {
    let best = candidates
        .iter()
        .enumerate()
        .max_by_key(|(_, target)| score(key, target.provider.id.as_str(), target.model.id.as_str()))
        .map_or(0, |(index, _)| index);
    candidates.rotate_left(best);
}

/// Returns the score of a target for `key`. It is the same in every release and at every node.
fn score(key: &str, provider: &str, model: &str) -> u64 {
    SipHash::new().text(key).text(provider).text(model).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_those_of_earlier_releases() {
        assert_eq!(score("conversation-7", "gpu-1", "qwen3"), 0xd089_6319_48a4_4d65);
    }

    #[test]
    fn removing_a_target_moves_only_its_own_affinity_keys() {
        let members = ["a", "b", "c", "d"];
        let first = |members: &[&str], key: &str| {
            members.iter().copied().max_by_key(|member| score(key, member, "m")).map(str::to_owned)
        };
        let mut firsts = std::collections::HashSet::new();
        for key in 0..1_000 {
            let key = format!("conversation-{key}");
            let before = first(&members, &key);
            let after = first(&["a", "b", "d"], &key);
            assert!(before == after || before.as_deref() == Some("c"), "{key} moved without need");
            firsts.extend(before);
        }
        assert_eq!(firsts.len(), members.len(), "every member gets some keys");
    }
}
