//! `device-sign-ins/{code}`: a person compares the code of a client with that of the page, and approves or denies its sign-in.

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use shared::clock::unix_ms;
use shared::error_kind::ErrorKind;
use shared::port::Body;

use super::codes::{read_user_code, shown_user_code};
use crate::admin::permission::{Object, Permission};
use crate::admin::reference::{NoContent, NoMembers};
use crate::admin::{ApiError, Call, Route, json, route_of};
use crate::common::actor::Who;
use crate::db::device_sign_ins::{self, Approval, DeviceSignIn, DeviceState};
use crate::writer::command::device_sign_ins::DecideDeviceSignIn;

pub(in crate::admin) static ROUTES: &[Route] = &[
    route_of(Method::GET, "device-sign-ins/{}", |call| Box::pin(show(call)))
        .answers::<ShownDeviceSignIn>("Shows the sign-in of a client by the code that the client shows.")
        .permits(Permission::OwnSession),
    route_of(Method::POST, "device-sign-ins/{}/approve", |call| Box::pin(approve(call)))
        .answers::<NoContent>(
            "Approves a sign-in: the client gets a new key of the project that acts as the caller.",
        )
        .takes::<ApproveDeviceSignIn>()
        .acts_each_time()
        .permits(Permission::OwnSession),
    route_of(Method::POST, "device-sign-ins/{}/deny", |call| Box::pin(deny(call)))
        .answers::<NoContent>("Denies a sign-in.")
        .takes::<NoMembers>()
        .acts_each_time()
        .permits(Permission::OwnSession),
];

/// The sign-in of a client that waits for a person.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "DeviceSignIn"))]
struct ShownDeviceSignIn {
    /// The code that the client shows.
    user_code: String,
    state: DeviceState,
    /// The address from which the client began the sign-in; null if it is unknown. Behind a proxy it is the proxy's.
    address: Option<String>,
    /// In milliseconds since the Unix epoch.
    created_at_ms: u64,
    /// The time until which it must be approved and completed, in milliseconds since the Unix epoch.
    ends_at_ms: u64,
    /// The number of days until the key that the client gets expires.
    key_days: u64,
}

/// The approval of a sign-in.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ApproveDeviceSignIn {
    /// The ID of the project of the key, in which the caller may mint keys.
    project: String,
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let DeviceSignIn { user_code, state, address, created_at_ms, ends_at_ms, .. } = found(&call).await?;
    let key_days = days(&call)?;
    let user_code = shown_user_code(&user_code);
    json(&ShownDeviceSignIn { user_code, state, address, created_at_ms, ends_at_ms, key_days })
}

async fn approve(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let ApproveDeviceSignIn { project } = call.json()?;
    let user_code = found(&call).await?.user_code;
    // An administrator's key is no human.
    let acts_as = match &call.actor.who {
        Who::Human(principal) | Who::GroupAdministrator(principal) => Some(principal.to_string()),
        Who::Administrator(_) | Who::Arriving | Who::Unknown | Who::Gateway => None,
    };
    let object = Object::One { project: Some(project.clone()), owner: acts_as.clone() };
    call.permit(Permission::MintKeys, &object)?;
    let approval = Some(Approval { actor: call.actor.clone(), project, acts_as });
    call.execute_each_time(StatusCode::NO_CONTENT, DecideDeviceSignIn { user_code, approval }).await
}

async fn deny(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    call.no_fields()?;
    let user_code = found(&call).await?.user_code;
    call.execute_each_time(StatusCode::NO_CONTENT, DecideDeviceSignIn { user_code, approval: None }).await
}

/// Returns the sign-in that the path names. Wrong codes are counted with wrong keys of the same address, which bounds a
/// search for the codes of others; a right code is never delayed.
async fn found(call: &Call<'_>) -> Result<DeviceSignIn, ApiError> {
    days(call)?;
    let code = read_user_code(call.argument());
    let found = match code {
        Some(code) => {
            call.app.readers.ask(move |db| device_sign_ins::of_person(db, &code, unix_ms())).await?
        }
        None => None,
    };
    if let Some(found) = found {
        return Ok(found);
    }
    if let Some(wait) = call.actor.address.and_then(|address| call.app.gate.note_wrong_key(address).err()) {
        let message = "Too many wrong codes. Wait, and compare the code with the one that the client shows.";
        return Err(ApiError::new(ErrorKind::TooManySignIns, message).retry_after(wait.as_secs() + 1));
    }
    let message = "There is no sign-in with this code. It may have ended: begin again in the client.";
    Err(ApiError::new(ErrorKind::NotFound, message))
}

/// Returns the days until a key expires. Fails if the sign-in is off.
fn days(call: &Call<'_>) -> Result<u64, ApiError> {
    let off = "Clients cannot sign in: claude_code.sign_in of the configuration file is not true.";
    let settings = call.app.config.claude_code.as_ref();
    settings.map(|settings| settings.key_days).ok_or_else(|| ApiError::new(ErrorKind::NotFound, off))
}
