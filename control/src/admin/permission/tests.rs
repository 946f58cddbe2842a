//! The matrix, and the decisions about objects.

use std::collections::{BTreeMap, BTreeSet};

use super::matrix::MATRIX;
use super::{Denial, Extent, Object, Permission, Standing, may};
use crate::db::members::MemberRole;

const ME: &str = "prn_me";
const HOME: &str = "prj_home";

fn human(role: Option<MemberRole>) -> Standing {
    let roles = role.map(|role| (HOME.to_owned(), role)).into_iter().collect::<BTreeMap<_, _>>();
    Standing::Human { principal: ME.to_owned(), roles }
}

fn one(project: &str, owner: Option<&str>) -> Object {
    Object::One { project: Some(project.to_owned()), owner: owner.map(str::to_owned) }
}

#[test]
fn each_permission_has_one_row_and_its_own_name() {
    let names: BTreeSet<&str> = Permission::all().map(Permission::name).collect();
    assert_eq!(names.len(), MATRIX.len());
    for permission in Permission::all() {
        let shown = serde_json::to_value(permission).unwrap();
        assert_eq!(shown, permission.name());
        assert_eq!(MATRIX.iter().filter(|grant| grant.permission == permission).count(), 1);
    }
}

#[test]
fn administrators_have_every_permission_on_every_object() {
    for permission in Permission::all() {
        for object in [Object::Many, Object::Missing, one("prj_other", Some("prn_other"))] {
            assert_eq!(may(&Standing::Administrator, permission, &object), Ok(()), "{permission:?}");
        }
    }
}

/// AUTH-8.
#[test]
fn a_role_permits_what_its_column_states_and_nothing_in_other_projects() {
    use MemberRole::{Admin, Member, Owner, Viewer};
    use Permission::{
        ChangeKeys, ChangeMembers, ChangeOwners, MintKeys, RevealKeys, RunRequests, SeeKeys, SeeQuotas,
    };
    let (yes, no) = (Ok(()), Err(Denial::Forbidden));
    let (own, free) = (Err(Denial::Foreign(Extent::Own)), Err(Denial::Foreign(Extent::Free)));
    let (mine, other) = (Some(ME), Some("prn_other"));
    // The key of the caller, of another human, and of no human.
    let cases = [
        (SeeKeys, Viewer, [yes, yes, yes]),
        (MintKeys, Owner, [yes, free, yes]),
        (MintKeys, Admin, [yes, free, yes]),
        (MintKeys, Member, [yes, own, own]),
        (MintKeys, Viewer, [no, no, no]),
        (ChangeKeys, Admin, [yes, yes, yes]),
        (ChangeKeys, Member, [yes, own, own]),
        (ChangeKeys, Viewer, [no, no, no]),
        (RevealKeys, Owner, [yes, own, own]),
        (RevealKeys, Viewer, [yes, own, own]),
        (RunRequests, Owner, [yes, free, yes]),
        (RunRequests, Member, [yes, own, own]),
        (RunRequests, Viewer, [yes, own, own]),
        (SeeQuotas, Viewer, [yes, yes, yes]),
        (ChangeMembers, Owner, [yes, yes, yes]),
        (ChangeMembers, Admin, [yes, yes, yes]),
        (ChangeMembers, Member, [no, no, no]),
        (ChangeOwners, Owner, [yes, yes, yes]),
        (ChangeOwners, Admin, [no, no, no]),
    ];
    for (permission, role, want) in cases {
        let found = [mine, other, None].map(|owner| may(&human(Some(role)), permission, &one(HOME, owner)));
        assert_eq!(found, want, "{permission:?} {role:?}");
    }
    for permission in Permission::all() {
        for (_, role) in MemberRole::NAMES {
            let found = may(&human(Some(role)), permission, &one("prj_other", other));
            let is_open = permission == Permission::OwnSession;
            assert_eq!(found.is_ok(), is_open, "{permission:?} {role:?}");
        }
    }
}

#[test]
fn objects_of_others_are_hidden_and_what_no_human_may_do_is_forbidden() {
    let standing = human(Some(MemberRole::Owner));
    for object in [Object::Missing, one("prj_other", Some("prn_other")), one("prj_other", None)] {
        assert_eq!(may(&standing, Permission::SeeKeys, &object), Err(Denial::Hidden), "{object:?}");
        assert_eq!(may(&standing, Permission::Administer, &object), Err(Denial::Forbidden), "{object:?}");
    }
}

#[test]
fn a_human_without_projects_may_read_empty_lists_and_mint_nothing() {
    for (permission, is_permitted) in [
        (Permission::SeeProjects, true),
        (Permission::SeeKeys, true),
        (Permission::SeeUsage, true),
        (Permission::SeeQuotas, true),
        (Permission::Search, true),
        (Permission::RunRequests, false),
        (Permission::MintKeys, false),
        (Permission::ChangeMembers, false),
        (Permission::Administer, false),
    ] {
        assert_eq!(may(&human(None), permission, &Object::Many).is_ok(), is_permitted, "{permission:?}");
    }
}
