//! The fields of an endpoint's order that would have no effect. The file and the API reject the same ones.

use shared::usage::TargetOrder;

/// A field without effect.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UselessField {
    /// The place of the member that has the field; `None` for a field of the endpoint itself.
    pub(crate) member: Option<usize>,
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
}

/// The order of an endpoint as written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenOrder {
    pub(crate) order: TargetOrder,
    pub(crate) sticky: Option<bool>,
}

impl WrittenOrder {
    /// Returns the fields without effect; `members` are the weight and the tier of each.
    pub(crate) fn useless(
        self,
        members: impl ExactSizeIterator<Item = (Option<u16>, Option<u8>)>,
    ) -> Vec<UselessField> {
        let mut useless = Vec::new();
        if members.len() == 1 {
            let own = |name| UselessField { member: None, name, reason: ONE_TARGET };
            useless.extend((self.order != TargetOrder::Listed).then(|| own("order")));
            useless.extend((self.sticky == Some(true)).then(|| own("sticky")));
        }
        for (place, (weight, tier)) in members.enumerate() {
            let of_member = |name, reason| UselessField { member: Some(place), name, reason };
            match (self.order, weight) {
                (TargetOrder::Listed, Some(_)) => useless.push(of_member("weight", LISTED)),
                (TargetOrder::Cheapest, Some(1..)) => useless.push(of_member("weight", CHEAPEST)),
                _ => {}
            }
            if self.order == TargetOrder::Listed && tier.is_some() {
                useless.push(of_member("tier", LISTED));
            }
        }
        useless
    }

    /// Returns whether sessions stay with their target, for an endpoint that is no plain list.
    pub(crate) fn balanced(self) -> Option<(TargetOrder, bool)> {
        let sticky = self.sticky.unwrap_or(self.order != TargetOrder::Listed);
        (self.order != TargetOrder::Listed || sticky).then_some((self.order, sticky))
    }
}

const ONE_TARGET: &str = "has no effect with one target; remove it, or add a target";
const LISTED: &str = "has no effect with order: listed; set another order, or remove it";
const CHEAPEST: &str = "has no effect with order: cheapest, except 0; remove it";

/// The weights and tiers that are possible.
pub(crate) const WEIGHT_MAX: u16 = 1_000;
pub(crate) const TIER_MAX: u8 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_without_effect_are_named() {
        const PLAIN: (Option<u16>, Option<u8>) = (None, None);
        for (order, sticky, members, want) in [
            (TargetOrder::Listed, None, vec![PLAIN], vec![]),
            (TargetOrder::Listed, Some(false), vec![PLAIN], vec![]),
            (TargetOrder::Listed, Some(true), vec![PLAIN, PLAIN], vec![]),
            (TargetOrder::Listed, Some(true), vec![PLAIN], vec![(None, "sticky")]),
            (TargetOrder::Fastest, None, vec![PLAIN], vec![(None, "order")]),
            (
                TargetOrder::Listed,
                None,
                vec![PLAIN, (Some(0), Some(1))],
                vec![(Some(1), "weight"), (Some(1), "tier")],
            ),
            (
                TargetOrder::Cheapest,
                None,
                vec![(Some(0), Some(2)), (Some(1), None)],
                vec![(Some(1), "weight")],
            ),
            (TargetOrder::Weighted, Some(false), vec![(Some(0), Some(9)), (Some(1_000), Some(1))], vec![]),
        ] {
            let found = WrittenOrder { order, sticky }.useless(members.into_iter());
            let found: Vec<_> = found.into_iter().map(|field| (field.member, field.name)).collect();
            assert_eq!(found, want, "{order:?} {sticky:?}");
        }
    }

    #[test]
    fn sessions_stay_unless_the_order_is_listed() {
        for (order, sticky, want) in [
            (TargetOrder::Listed, None, None),
            (TargetOrder::Listed, Some(false), None),
            (TargetOrder::Listed, Some(true), Some((TargetOrder::Listed, true))),
            (TargetOrder::Weighted, None, Some((TargetOrder::Weighted, true))),
            (TargetOrder::Weighted, Some(false), Some((TargetOrder::Weighted, false))),
        ] {
            assert_eq!(WrittenOrder { order, sticky }.balanced(), want);
        }
    }
}
