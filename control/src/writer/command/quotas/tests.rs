//! Limits and their subjects: a key's limits apply to its family, and every deleted limit is audited.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use shared::error_kind::ErrorKind;

use super::*;
use crate::common::change::AllowlistEdit;
use crate::db::members::MemberRole;
use crate::db::quotas::{QuotaFilter, Rules};
use crate::writer::command::keys::{DeleteKey, EditKey, IssueKey as CreateKey, Rotate};
use crate::writer::command::tests::{Office, id};
use crate::writer::command::{principals, projects};

struct Desk {
    office: Office,
    project: String,
}

impl Desk {
    fn open() -> Self {
        let office = Office::open();
        let project = office.project("blue");
        Self { office, project }
    }

    fn key(&self) -> String {
        let create = CreateKey {
            name: "k".into(),
            project: self.project.clone(),
            acts_as: None,
            expires_at_ms: None,
            allowlist: AllowlistEdit::default(),
            tags: BTreeMap::new(),
            recoverable: false,
            limits: Vec::new(),
        };
        id(&self.office.run(create).unwrap())
    }

    fn rotate(&self, key: &str) -> String {
        let rotate = Rotate { id: key.into(), if_version: None, overlap_ms: 60_000, expires_at_ms: None };
        id(&self.office.run(rotate).unwrap())
    }

    fn revoke(&self, key: &str) {
        self.office.run(EditKey::revoke(key.into())).unwrap();
    }

    fn delete(&self, key: &str) {
        self.revoke(key);
        self.office.run(DeleteKey { id: key.into(), if_version: None }).unwrap();
    }

    fn limit(&self, kind: Subject, id: &str) -> Value {
        self.office.run(limit(kind, id, Period::Month)).unwrap()
    }

    /// Returns the ids of the limits listed for a key.
    fn listed(&self, key: &str) -> Vec<String> {
        let of_key = QuotaFilter { kind: Some(Subject::Key), ids: Some(vec![key.into()]), scope: None };
        let mut ids = Vec::new();
        let take = |row: QuotaRow| {
            ids.push(row.id);
            Ok(())
        };
        quotas::each(&self.office.db, &of_key, ("", 100), take).unwrap();
        ids
    }

    /// Returns the ids of the limits that apply to a key's requests.
    fn binding(&self, key: &str) -> Vec<String> {
        let rules = Rules::load(&self.office.db).unwrap();
        rules.of([(Subject::Key, key)]).map(|row| row.id.clone()).collect()
    }

    /// Returns the `before` field of the last audit record.
    fn before(&self) -> Value {
        let sql = "SELECT detail FROM audit ORDER BY id DESC LIMIT 1";
        let detail: String = self.office.db.row(sql, (), |row| row.get(0)).unwrap();
        serde_json::from_str::<Value>(&detail).unwrap()["before"].take()
    }

    /// Stores the hourly and the daily sums of an exchange of `key`.
    fn used(&self, key: &str) {
        let hour = self.office.now_ms.get() / 3_600_000;
        for (table, hour) in [("usage_hour", hour), ("usage_day", hour - hour % 24)] {
            let sql = format!(
                "INSERT INTO {table} (hour, node, project, key, principal, provider, model, endpoint, operation, outcome, \
                 requests, unpriced, cost_nano_usd, input_tokens, cache_read_tokens, cache_write_tokens, \
                 output_tokens, reasoning_tokens, duration_us, first_content_us, first_contents) VALUES \
                 (:hour, 0, :project, :key, '', 'p', 'm', '', 'o', 'completed', 1, 0, 0, 1, 0, 0, 1, 0, 1, 1, 1)"
            );
            self.office.db.execute(&sql, (hour, &self.project, key)).unwrap();
        }
    }
}

fn ids(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(id).collect()
}

fn limit(kind: Subject, id: &str, period: Period) -> CreateQuota {
    let (metric, enforcement) = (Metric::Requests, Enforcement::Hard);
    let counted = Counted { subject: Of { kind, id: id.into() }, model: None, endpoint: None };
    CreateQuota { counted, metric, period: Some(period), limit: 3, enforcement, wait_ms: 0 }
}

#[test]
fn a_key_limit_binds_the_family_after_others_are_revoked_or_deleted() {
    let desk = Desk::open();
    let first = desk.key();
    let quota = [id(&desk.limit(Subject::Key, &first))];
    let second = desk.rotate(&first);
    assert_eq!((desk.binding(&first), desk.binding(&second)), (quota.to_vec(), quota.to_vec()));
    desk.revoke(&second);
    let third = desk.rotate(&first);
    assert_eq!(desk.listed(&third), quota, "rotated, revoked, rotated again");
    let fourth = desk.rotate(&third);
    desk.delete(&second);
    assert_eq!(desk.binding(&first), quota, "the successor is deleted");
    desk.delete(&third);
    assert_eq!(
        (desk.binding(&fourth), desk.listed(&fourth)),
        (quota.to_vec(), quota.to_vec()),
        "the middle one"
    );
    desk.delete(&first);
    assert_eq!(
        (desk.binding(&fourth), desk.listed(&fourth)),
        (quota.to_vec(), quota.to_vec()),
        "the first one"
    );
    assert_eq!(desk.before()["quotas"], json!([]));
    let twin = desk.office.run(limit(Subject::Key, &fourth, Period::Month)).unwrap_err();
    assert_eq!(twin.0, ErrorKind::Conflict, "the family has this limit");
    assert!(desk.binding(&desk.key()).is_empty(), "another family has not");
}

#[test]
fn deleting_the_last_key_of_a_family_deletes_and_audits_its_limits() {
    let desk = Desk::open();
    let first = desk.key();
    let second = desk.rotate(&first);
    let quota = desk.limit(Subject::Key, &second);
    assert_eq!(quota["subject"]["id"], first, "a family is named by its first key");
    desk.delete(&first);
    desk.delete(&second);
    assert_eq!(ids(&desk.before()["quotas"]), [id(&quota)]);
    assert_eq!(desk.before()["key"]["id"], second);
    assert!(desk.listed(&second).is_empty());
    let former: i64 = desk.office.db.row("SELECT count(*) FROM former_keys", (), |row| row.get(0)).unwrap();
    assert_eq!(former, 0, "nothing is left of the family");
}

#[test]
fn limits_deleted_with_a_project_or_a_human_are_audited() {
    let desk = Desk::open();
    let office = &desk.office;
    let ada = office.principal("Ada");
    office.member(&desk.project, &ada, MemberRole::Viewer).unwrap();
    let of_ada = desk.limit(Subject::Principal, &ada);
    office.run(principals::DeletePrincipal { id: ada.clone(), if_version: None }).unwrap();
    let before = desk.before();
    assert_eq!(ids(&before["quotas"]), [id(&of_ada)]);
    assert_eq!(before["memberships"][0]["project"], desk.project);

    let bob = office.principal("Bob");
    office.member(&desk.project, &bob, MemberRole::Viewer).unwrap();
    let key = desk.key();
    let wanted =
        [desk.limit(Subject::Project, &desk.project), desk.limit(Subject::Key, &key)].map(|quota| id(&quota));
    desk.revoke(&key);
    office.run(projects::DeleteProject { id: desk.project.clone(), if_version: None }).unwrap();
    let before = desk.before();
    assert_eq!(ids(&before["quotas"]), wanted);
    assert_eq!(before["keys"], json!([key]));
    assert_eq!(
        (&before["memberships"][0]["principal"], &before["project"]["id"]),
        (&json!(bob), &json!(desk.project))
    );
    let left = |row: QuotaRow| panic!("{row:?} is left");
    quotas::each(&office.db, &QuotaFilter::default(), ("", 10), left).unwrap();
}

#[test]
fn a_new_limit_of_a_key_begins_with_the_usage_of_its_whole_family() {
    let desk = Desk::open();
    let first = desk.key();
    let second = desk.rotate(&first);
    let third = desk.rotate(&second);
    let stranger = desk.key();
    for key in [&first, &second, &third, &stranger] {
        desk.used(key);
    }
    desk.delete(&second);
    for period in [Period::Hour, Period::Day, Period::Month, Period::Total] {
        let quota = id(&desk.office.run(limit(Subject::Key, &third, period)).unwrap());
        let (start_ms, _) = period.window(desk.office.now_ms.get()).unwrap();
        assert_eq!(quotas::used(&desk.office.db, &quota, start_ms).unwrap(), 3, "{period:?}");
    }
}
