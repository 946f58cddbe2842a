//! `GET /v1/key`: information about the caller's own key. The data plane has authenticated the caller and passes on
//! the result; nothing else in the request determines the response.

use std::collections::HashMap;

use http::Response;
use http::request::Parts;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Serialize;
use shared::access::{Access, Role};
use shared::clock::unix_ms;
use shared::id::{EndpointName, ProviderId};
use shared::port::{Body, KeyHolder};
use shared::quota::{Metric, Period, Quota, Scope, Subject};
use shared::routing::Target;
use shared::snapshot::Snapshot;

use super::query::Query;
use super::{ApiError, App, json};
use crate::common::money::MicroUsd;
use crate::db::HOUR_MS;
use crate::db::engine::{Db, DbResult};
use crate::db::names::{Labels, NamedKind};
use crate::db::quotas::Enforcement;
use crate::usage::key_days::days_of_key;
use crate::usage::sums::UsageSums;

pub(super) async fn show(app: &App, holder: &KeyHolder, parts: &Parts) -> Result<Response<Body>, ApiError> {
    Query::parse(parts.uri.query().unwrap_or_default())?.take_all::<()>()?;
    let access = &*holder.0;
    let snapshot = app.snapshot.load();
    let key = access.key.as_str().to_owned();
    let now_ms = unix_ms();
    let (name, usage) = app.readers.ask(move |db| KeyUsage::read(db, &key, now_ms)).await?;
    let usable = UsableTargets::of(&snapshot, access);
    let limits = access.quotas.iter().filter(|quota| access.role == Role::Project && usable.may_count(quota));
    json(&OwnKey {
        id: access.key.as_str(),
        name,
        role: match access.role {
            Role::Administrator => "administrator",
            Role::Project => "project",
            Role::Local => "local",
        },
        project: access.project.as_ref().map(|project| project.as_str()),
        expires_at_ms: access.expires_at_ms,
        limits: limits.map(|quota| Limit::of(quota, now_ms)).collect(),
        usage,
    })
}

#[derive(Serialize)]
struct OwnKey<'a> {
    id: &'a str,
    name: Option<String>,
    role: &'static str,
    project: Option<&'a str>,
    expires_at_ms: Option<u64>,
    /// Empty for administrators and the local mode.
    limits: Vec<Limit>,
    usage: KeyUsage,
}

/// The targets that the holder of a key may use. Limits on other targets are not shown.
struct UsableTargets<'a> {
    access: &'a Access,
    snapshot: &'a Snapshot,
    /// The targets by provider, each with the endpoint by which it may be used, if not by its own name.
    targets: HashMap<&'a str, Vec<(Option<&'a EndpointName>, &'a Target)>>,
}

impl<'a> UsableTargets<'a> {
    fn of(snapshot: &'a Snapshot, access: &'a Access) -> Self {
        let mut targets: HashMap<_, Vec<_>> = HashMap::new();
        for route in snapshot.routes.values() {
            let endpoint = route.endpoint();
            let may_use =
                |target: &&Target| access.refusal(endpoint.map(EndpointName::as_str), target).is_none();
            for target in route.targets().iter().filter(may_use) {
                targets.entry(target.provider.id.as_str()).or_default().push((endpoint, target));
            }
        }
        Self { access, snapshot, targets }
    }

    /// True if the limit can count a request of the holder.
    fn may_count(&self, quota: &Quota) -> bool {
        let Scope { endpoint, provider, model } = &quota.scope;
        let covers =
            |(endpoint, target): &(Option<&EndpointName>, &Target)| quota.scope.covers(*endpoint, target);
        let of = |provider: &ProviderId| self.targets.get(provider.as_str()).into_iter().flatten();
        match (provider, model, endpoint) {
            (None, _, None) => true,
            (None, _, Some(_)) => self.targets.values().flatten().any(covers),
            // Of a provider that lists no models yet, only its owner is known.
            (Some(provider), None, None) if self.access.is_unlisted() => {
                let found = self.snapshot.providers.iter().find(|known| known.id == *provider);
                found.is_some_and(|found| self.access.may_use(found))
            }
            (Some(provider), ..) => of(provider).any(covers),
        }
    }
}

/// A limit that applies to the key. The usage of a limit shared with other keys is not shown, because it would reveal
/// their usage.
#[derive(Serialize)]
struct Limit {
    subject: Subject,
    /// The provider instance, for a limit on a provider.
    provider: Option<String>,
    /// `provider/model`, if the limit counts requests to one model only.
    model: Option<String>,
    /// Set if the limit counts only requests that name one endpoint.
    endpoint: Option<String>,
    metric: Metric,
    window: Option<Period>,
    limit: u64,
    enforcement: Enforcement,
    used: Option<u64>,
    reserved: Option<u64>,
    remaining: Option<u64>,
    resets_at_ms: Option<u64>,
}

impl Limit {
    fn of(quota: &Quota, now_ms: u64) -> Self {
        let reading = quota.counter.read(now_ms);
        let units = quota.metric.units();
        let (used, reserved) = (reading.used.div_ceil(units), reading.reserved.div_ceil(units));
        let own = |amount| Some(amount).filter(|_| quota.subject == Subject::Key);
        let Scope { endpoint, provider, model } = &quota.scope;
        let of_model = provider.as_ref().zip(model.as_ref());
        Self {
            subject: quota.subject,
            provider: provider
                .as_ref()
                .filter(|_| quota.subject == Subject::Provider)
                .map(ToString::to_string),
            model: of_model.map(|(provider, model)| format!("{provider}/{model}")),
            endpoint: endpoint.as_ref().map(ToString::to_string),
            metric: quota.metric,
            window: quota.period,
            limit: quota.limit,
            enforcement: if quota.is_hard { Enforcement::Hard } else { Enforcement::Warn },
            used: own(used),
            reserved: own(reserved),
            remaining: own(quota.limit.saturating_sub(used).saturating_sub(reserved)),
            resets_at_ms: reading.resets_at_ms,
        }
    }
}

/// The usage of the key since midnight and since the first of the month, in UTC.
#[derive(Serialize)]
struct KeyUsage {
    today: KeyConsumption,
    month: KeyConsumption,
}

#[derive(Serialize)]
struct KeyConsumption {
    from_ms: u64,
    requests: u64,
    /// Requests whose cost is unknown and not included in the sum.
    requests_unpriced: u64,
    tokens: u64,
    cost_micro_usd: MicroUsd,
}

impl KeyUsage {
    /// Returns the name of a key and its usage.
    fn read(db: &Db, key: &str, now_ms: u64) -> DbResult<(Option<String>, Self)> {
        let now = i64::try_from(now_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let now = now.unwrap_or_default().to_zoned(TimeZone::UTC);
        let millis = |from: Option<Zoned>| {
            from.and_then(|from| u64::try_from(from.timestamp().as_millisecond()).ok()).unwrap_or(0)
        };
        let today_ms = millis(now.start_of_day().ok());
        let month_ms = millis(now.first_of_month().ok().and_then(|first| first.start_of_day().ok()));
        let (mut today, mut month) = (UsageSums::default(), UsageSums::default());
        for (hour, sums) in days_of_key(db, key, month_ms / HOUR_MS)? {
            month.add(&sums);
            if hour >= today_ms / HOUR_MS {
                today.add(&sums);
            }
        }
        let usage =
            Self { today: KeyConsumption::of(today_ms, &today), month: KeyConsumption::of(month_ms, &month) };
        Ok((Labels::default().find(db, NamedKind::Key, key)?.name, usage))
    }
}

impl KeyConsumption {
    fn of(from_ms: u64, sums: &UsageSums) -> Self {
        Self {
            from_ms,
            requests: sums.requests,
            requests_unpriced: sums.unpriced,
            tokens: sums.tokens.total(),
            cost_micro_usd: MicroUsd(sums.cost_nano_usd),
        }
    }
}
