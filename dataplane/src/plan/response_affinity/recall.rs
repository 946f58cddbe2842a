//! State that the tables do not know: its origin is looked up once, in the database of control. The request waits for that,
//! for a bounded time; a request that refers to no stored state never gets here.

use std::time::Duration;

use shared::access::Access;
use shared::error_kind::ErrorKind;
use shared::id::ProjectId;
use shared::port::{LookupRefusal, StateOrigin, WantedState};
use shared::usage::owner_of_state;
use wire::request::Head;

use super::{AccountHash, NO_ACCOUNT, ResponseAffinity, ResponseHash};
use crate::error::Fault;

/// A look-up that has to be made before the request can be planned.
#[derive(Debug)]
pub(crate) struct Recall {
    wanted: WantedState,
    /// The place of the state in the tables: of its owner's, and of anyone's if that is known too.
    own: u64,
    anyones: Option<u64>,
}

impl ResponseAffinity {
    /// Returns the look-up that the request needs; `None` if it refers to no stored state, or to state that the tables
    /// know.
    pub(crate) fn missing(&self, head: &Head, caller: &Access) -> Option<Recall> {
        let recall = match (&head.state.previous_response_id, &head.state.conversation) {
            (Some(id), _) => self.recall_of(id, caller),
            (None, Some(id)) => {
                let own = self.conversation(id, Some(caller));
                let hash = self.states.conversation(id);
                let wanted = WantedState { owner: owner(caller), hash, tells_foreign: true };
                Recall { wanted, own, anyones: Some(self.conversation(id, None)) }
            }
            (None, None) => return None,
        };
        self.unless_known(recall)
    }

    /// Returns the look-up of a response; `None` if the tables know it.
    pub(crate) fn missing_response(&self, id: &str, caller: &Access) -> Option<Recall> {
        self.unless_known(self.recall_of(id, caller))
    }

    /// Returns the look-up of a response, which the tables may know.
    pub(crate) fn recall_of(&self, id: &str, caller: &Access) -> Recall {
        let hash = self.states.response(id);
        let wanted = WantedState { owner: owner(caller), hash, tells_foreign: false };
        Recall { wanted, own: self.response(id, caller), anyones: None }
    }

    fn unless_known(&self, recall: Recall) -> Option<Recall> {
        self.stored.get(recall.own).is_none().then_some(recall)
    }

    fn put_stored(&self, own: u64, anyones: Option<u64>, AccountHash(account): AccountHash) {
        self.changed();
        self.stored.put(own, account.into());
        anyones.into_iter().for_each(|anyones| self.stored.put(anyones, account.into()));
    }
}

impl Recall {
    /// Looks the origin up and puts it into `tables`. An error means that it cannot be known now.
    pub(crate) async fn run(self, tables: &ResponseAffinity) -> Result<(), Fault> {
        let (own, anyones) = (self.own, self.anyones);
        match self.origin(tables).await? {
            StateOrigin::Own { provider, address, tokens } => {
                tables.put_stored(own, anyones, tables.account_at(&provider, &address));
                tokens.into_iter().for_each(|tokens| tables.note_tokens(ResponseHash(own), tokens));
            }
            StateOrigin::Foreign => {
                anyones.into_iter().for_each(|anyones| tables.put_stored(anyones, None, NO_ACCOUNT));
            }
            StateOrigin::Unknown => {}
        }
        Ok(())
    }

    /// Looks the origin up. An error means that it cannot be known now.
    pub(crate) async fn origin(self, tables: &ResponseAffinity) -> Result<StateOrigin, Fault> {
        let found = tokio::time::timeout(TIME_MAX, tables.origins.find(self.wanted)).await;
        found.unwrap_or(Err(LookupRefusal::Busy)).map_err(fault)
    }
}

fn owner(caller: &Access) -> String {
    owner_of_state(caller.project.as_ref().map(ProjectId::as_str), caller.key.as_str())
}

fn fault(refusal: LookupRefusal) -> Fault {
    let why = match refusal {
        LookupRefusal::Busy => "too many are being looked up",
        LookupRefusal::Behind => "records of the gateway's last run are still being stored",
        LookupRefusal::Failed => "the database does not answer",
    };
    let message = format!(
        "The target of the stored response or conversation that the request names cannot be looked up at the moment: \
         {why}. Try again."
    );
    Fault::new(ErrorKind::Overloaded, message).retry_after(RETRY_AFTER)
}

/// The longest time that a request waits for a look-up.
const TIME_MAX: Duration = Duration::from_secs(1);
const RETRY_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use shared::access::Role;
    use shared::id::ProviderId;
    use shared::operation::Dialect;
    use shared::port::{BoxFuture, StateOrigins};
    use shared::secret::Secret;
    use wire::request::HeadScan;

    use super::*;
    use crate::plan::response_affinity::{AffinityParams, StateReference};

    type Answer = Result<StateOrigin, LookupRefusal>;

    /// Gives the answers in their order, then none, and notes what is asked.
    #[derive(Debug, Default)]
    struct Script {
        answers: Mutex<VecDeque<Answer>>,
        asked: Mutex<Vec<WantedState>>,
    }

    impl StateOrigins for Script {
        fn find(&self, wanted: WantedState) -> BoxFuture<Answer> {
            self.asked.lock().unwrap().push(wanted);
            match self.answers.lock().unwrap().pop_front() {
                Some(answer) => Box::pin(std::future::ready(answer)),
                None => Box::pin(std::future::pending()),
            }
        }
    }

    fn tables(answers: &[Answer]) -> (ResponseAffinity, Arc<Script>) {
        let script =
            Arc::new(Script { answers: Mutex::new(answers.iter().cloned().collect()), ..Script::default() });
        let key = || Secret::new([1; 32]);
        let origins = Arc::<Script>::clone(&script);
        (ResponseAffinity::new(AffinityParams { table_key: key(), state_key: key(), origins }), script)
    }

    fn head(members: &str) -> Box<Head> {
        let mut scan = HeadScan::new(Dialect::Responses);
        scan.push(format!(r#"{{"model":"m","input":"go on"{members}}}"#).as_bytes()).unwrap();
        Box::new(scan.finish().unwrap())
    }

    fn of(key: &str, project: Option<&str>) -> Access {
        Access { project: project.map(ProjectId::new), ..Access::new(key, Role::Administrator) }
    }

    fn own(tokens: Option<u64>) -> Answer {
        Ok(StateOrigin::Own { provider: ProviderId::new("p"), address: "a.example".to_owned(), tokens })
    }

    /// Makes the look-up that a request needs, and returns its fault.
    async fn recalled(tables: &ResponseAffinity, head: &Head, caller: &Access) -> Option<Fault> {
        tables.missing(head, caller).expect("a look-up is needed").run(tables).await.err()
    }

    const RESPONSE: &str = r#","previous_response_id":"resp_1""#;
    const CONVERSATION: &str = r#","conversation":"conv_1""#;

    #[tokio::test]
    async fn a_response_is_looked_up_once_and_its_tokens_are_known() {
        let (tables, script) = tables(&[Ok(StateOrigin::Unknown), own(Some(70))]);
        let (caller, head) = (of("key_1", Some("prj_1")), head(RESPONSE));
        assert!(recalled(&tables, &head, &caller).await.is_none());
        assert_eq!(tables.wanted(&head, &[], &caller), StateReference::Unknown);
        assert!(recalled(&tables, &head, &caller).await.is_none());
        let account = tables.account_at(&ProviderId::new("p"), "a.example");
        assert_eq!(tables.wanted(&head, &[], &caller), StateReference::At(account));
        assert_eq!(tables.tokens(&head, &caller), Some(70));
        assert!(tables.missing(&head, &caller).is_none(), "the tables know it now");
        assert!(tables.missing(&head, &of("key_1", None)).is_some(), "for this owner only");
        let hash = tables.states.response("resp_1");
        let wanted = WantedState { owner: "project:prj_1".to_owned(), hash, tells_foreign: false };
        assert_eq!(*script.asked.lock().unwrap(), [wanted.clone(), wanted]);
    }

    #[tokio::test]
    async fn a_conversation_of_another_owner_stays_unknown_and_a_new_one_is_nothing() {
        let (tables, _) = tables(&[Ok(StateOrigin::Unknown), Ok(StateOrigin::Foreign), own(None)]);
        let (caller, head) = (of("key_1", None), head(CONVERSATION));
        for want in [StateReference::Nothing, StateReference::Unknown] {
            assert!(recalled(&tables, &head, &caller).await.is_none());
            assert_eq!(tables.wanted(&head, &[], &caller), want);
        }
        let owner = of("key_2", None);
        assert!(recalled(&tables, &head, &owner).await.is_none());
        let account = tables.account_at(&ProviderId::new("p"), "a.example");
        assert_eq!(tables.wanted(&head, &[], &owner), StateReference::At(account));
        assert_eq!(tables.wanted(&head, &[], &caller), StateReference::Unknown);
    }

    #[tokio::test]
    async fn a_look_up_that_fails_or_lasts_is_a_503_and_decides_nothing() {
        let refusals = [LookupRefusal::Busy, LookupRefusal::Behind, LookupRefusal::Failed];
        let (tables, _) = tables(&refusals.map(Err));
        let (caller, head) = (of("key_1", None), head(RESPONSE));
        // The last one is not answered at all.
        for _ in 0..=refusals.len() {
            let fault = recalled(&tables, &head, &caller).await.unwrap();
            assert_eq!((fault.status(), fault.retry_after), (503, Some(RETRY_AFTER)), "{}", fault.text());
        }
        assert!(tables.missing(&head, &caller).is_some());
    }

    #[test]
    fn a_request_that_continues_nothing_needs_no_look_up() {
        let (tables, _) = tables(&[]);
        for members in ["", r#","previous_response_id":null"#, r#","store":true"#] {
            assert!(tables.missing(&head(members), &of("key_1", None)).is_none(), "{members}");
        }
    }
}
