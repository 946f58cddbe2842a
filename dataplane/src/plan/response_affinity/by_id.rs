//! Stored responses that a request names in its path: the provider instance, with the key, that has one. A response that
//! was deleted stays in the table without an account, because the database may still know it.

use std::sync::Arc;

use shared::access::Access;
use shared::routing::ProviderInstance;
use shared::usage::StoredState;

use super::{AccountHash, NO_ACCOUNT, ResponseAffinity, address, kept};

impl ResponseAffinity {
    /// Returns the account that has the caller's response with this ID. `None` if the tables know no such response, or know
    /// that it was deleted.
    pub(crate) fn account_of(&self, id: &str, caller: &Access) -> Option<AccountHash> {
        let account = kept(self.stored.get(self.response(id, caller))?);
        (account != NO_ACCOUNT).then_some(account)
    }

    /// Returns the instance of `provider` with the key that has the account. State that the provider made while it had one
    /// key is taken to be of the key that is listed first.
    pub(crate) fn instance_with<'p>(
        &self,
        provider: &'p Arc<ProviderInstance>,
        account: AccountHash,
    ) -> Option<&'p Arc<ProviderInstance>> {
        let own = provider.lanes.is_empty().then_some(provider);
        let mut instances = own.into_iter().chain(&provider.lanes);
        let first = instances.clone().next();
        let of_key = instances.find(|instance| self.is_of_key(instance, account));
        of_key.or_else(|| first.filter(|_| self.account_at(&provider.id, address(provider)) == account))
    }

    /// Forgets the caller's response with this ID, which `provider` has deleted. Returns what the record of the exchange
    /// says about it.
    pub(crate) fn forget(&self, id: &str, caller: &Access, provider: &ProviderInstance) -> Box<StoredState> {
        let AccountHash(nothing) = NO_ACCOUNT;
        self.changed();
        self.stored.put(self.response(id, caller), nothing.into());
        Box::new(StoredState {
            response: self.states.response(id),
            conversation: None,
            address: self.place_of(provider).into(),
            is_deleted: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use shared::access::Role;
    use shared::id::CredentialNumber;
    use shared::operation::Dialect;
    use shared::routing::{EchoOptions, Lane};
    use shared::secret::Secret;
    use wire::request::{Head, HeadScan};

    use super::*;
    use crate::fixture::{NoOrigins, echo, target};
    use crate::plan::response_affinity::{AffinityParams, StateReference};

    fn tables() -> ResponseAffinity {
        let key = || Secret::new([1; 32]);
        ResponseAffinity::new(AffinityParams {
            table_key: key(),
            state_key: key(),
            origins: Arc::new(NoOrigins),
        })
    }

    fn head(members: &str) -> Head {
        let mut scan = HeadScan::new(Dialect::Responses);
        scan.push(format!(r#"{{"model":"m","input":"hi"{members}}}"#).as_bytes()).unwrap();
        scan.finish().unwrap()
    }

    #[test]
    fn a_response_has_the_key_that_made_it_and_is_gone_after_its_deletion() {
        let lane = |mark: u8| {
            let number = CredentialNumber(u32::from(mark));
            let lane = Some(Lane { number, hint: None, of_instance: Arc::default() });
            Arc::new(ProviderInstance { lane, identity: [mark; 32], ..echo("p", EchoOptions::default()) })
        };
        let one = Arc::new(ProviderInstance { identity: [2; 32], ..echo("p", EchoOptions::default()) });
        let lanes = vec![lane(1), lane(2)];
        let several = Arc::new(ProviderInstance { lanes, ..echo("p", EchoOptions::default()) });
        let other = Arc::new(echo("q", EchoOptions::default()));
        let (tables, caller) = (tables(), Access::new("key_1", Role::Project));
        let made = |instance: &Arc<ProviderInstance>| {
            let account = tables.account(&target(instance));
            tables.note_response("resp_1", &head(""), &caller, account);
            tables.account_of("resp_1", &caller).unwrap()
        };
        let number =
            |provider, account| tables.instance_with(provider, account).map(|found| found.identity[0]);
        let by_second = made(&several.lanes[1]);
        assert_eq!(number(&several, by_second), Some(2));
        assert_eq!(number(&one, by_second), Some(2), "the only key now");
        assert_eq!(number(&other, by_second), None);
        let without = vec![lane(1), lane(3)];
        let without = Arc::new(ProviderInstance { lanes: without, ..echo("p", EchoOptions::default()) });
        assert_eq!(number(&without, by_second), None, "the key is gone");
        let by_one = made(&one);
        assert_eq!((number(&one, by_one), number(&several, by_one)), (Some(2), Some(1)), "the first key");

        assert_eq!(tables.account_of("resp_1", &Access::new("key_2", Role::Project)), None);
        assert!(tables.forget("resp_1", &caller, &one).is_deleted);
        assert_eq!(tables.account_of("resp_1", &caller), None);
        let next = head(r#","previous_response_id":"resp_1""#);
        assert_eq!(tables.wanted(&next, &[], &caller), StateReference::Unknown);
        assert!(tables.missing(&next, &caller).is_none(), "the database is not asked");
    }
}
