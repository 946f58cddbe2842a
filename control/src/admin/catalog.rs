//! `catalog`: the models of all connections, what is known about them and from which source, and refreshing the model
//! lists of the upstreams.

use std::collections::HashMap;
use std::sync::Arc;

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use shared::error_kind::ErrorKind;
use shared::model_rules::ModelRules;
use shared::operation::{Dialect, Operation};
use shared::port::Body;
use shared::prices::{Prices, femto_a_token};
use shared::routing::{ProviderInstance, Target};
use shared::snapshot::Snapshot;
use shared::usage::Class;

use super::list::{ListPage, PageOf, SortValue, SortedPaging};
use super::query::{Choice, CommaList, Count, Named};
use super::reference::NoMembers;
use super::{ApiError, App, Call, Route, json, route_of};
use crate::db::audit::AuditEntry;
use crate::routing::catalog::cache::models_url;
use crate::routing::catalog::entry::CatalogEntry;
use crate::routing::catalog::evidence::ModelEvidence;
use crate::routing::catalog::facts::{FactSource, KnownModel, PricesFrom};
use crate::routing::catalog::sync::{SyncOutcome, Syncer, with_list};
use crate::routing::publish::Touched;
use crate::writer::command::Done;
use crate::writer::command::audit_only::AuditOnly;

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "catalog", |call| Box::pin(async move { list(&call) }))
        .answers::<ListPage<CatalogRow>>(
            "Lists the models of all providers, in order of `name`, `context`, `input_price`, `output_price` or \
             `proven` if wanted.",
        )
        .query::<(SortedPaging<CatalogColumn>, CatalogQuery)>(),
    route_of(Method::POST, "catalog/sync", |call| Box::pin(sync_all(call)))
        .answers::<AllModels>("Reads the model lists of all providers.")
        .takes::<NoMembers>(),
    route_of(Method::POST, "providers/{}/sync", |call| Box::pin(sync_one(call)))
        .answers::<SyncOutcome>("Reads the model list of a provider.")
        .takes::<NoMembers>(),
];

fn list(call: &Call<'_>) -> Result<Response<Body>, ApiError> {
    let (paging, query): (SortedPaging<CatalogColumn>, CatalogQuery) = call.query()?;
    let (page, filter) = (PageOf::of(paging)?, CatalogFilter::of(query));
    let after = match page.after.as_str() {
        "" => ("", ""),
        cursor => cursor.split_once('/').ok_or_else(|| {
            ApiError::parameter("cursor", "cursor must be the next_cursor of the previous page.")
        })?,
    };
    let known = call.app.catalog.known();
    let mut instances = KnownInstances::new(call.app);
    let rows = known
        .iter()
        .filter(|known| (known.provider.as_str(), known.model.id.as_str()) > after && filter.passes(known))
        .map(|known| CatalogRow::of(known, instances.of(known)))
        .filter(|row| filter.passes_row(row))
        .take(page.rows_max());
    json(&ListPage::sorted(rows, &page, |row| &row.id, CatalogRow::value))
}

/// A column by which the list can be sorted.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum CatalogColumn {
    Name,
    Context,
    InputPrice,
    OutputPrice,
    Proven,
}

/// The instances of the models of a list, with the evidence that each has served a test.
struct KnownInstances<'a> {
    app: &'a App,
    snapshot: Arc<Snapshot>,
    entries: HashMap<String, Option<Arc<CatalogEntry>>>,
}

/// The properties of a model that its provider instance determines.
struct Served {
    /// The operations that the model serves.
    operations: Vec<Operation>,
    /// The dialects that it speaks natively.
    spoken: Vec<Dialect>,
    /// The evidence about the model; `None` if it was never tested.
    tested: Option<ModelEvidence>,
    /// The time of the model's last answer; `None` if none is known.
    last_answered_at_ms: Option<u64>,
}

impl<'a> KnownInstances<'a> {
    fn new(app: &'a App) -> Self {
        Self { app, snapshot: app.snapshot.load(), entries: HashMap::new() }
    }

    fn of(&mut self, known: &KnownModel) -> Served {
        let answers = &self.app.answers;
        let last_answered_at_ms = answers.of_model(known.provider.as_str(), known.model.id.as_str());
        let providers = &self.snapshot.providers;
        let place = providers.binary_search_by(|instance| instance.id.cmp(&known.provider)).ok();
        let Some(instance) = place.and_then(|place| providers.get(place)) else {
            return Served { operations: Vec::new(), spoken: Vec::new(), tested: None, last_answered_at_ms };
        };
        let target = Target { provider: Arc::clone(instance), model: Arc::clone(&known.model) };
        let serves =
            |operation: &Operation| operation.dialect().is_some_and(|dialect| target.serves(dialect));
        let entry = self
            .entries
            .entry(known.provider.to_string())
            .or_insert_with(|| self.app.catalog.proven(instance, &self.snapshot.key_hasher));
        Served {
            operations: Operation::GRANTABLE.into_iter().filter(serves).collect(),
            spoken: instance.dialects.iter().copied().filter(|dialect| target.speaks(*dialect)).collect(),
            tested: entry.as_ref().and_then(|entry| entry.tested(known.model.id.as_str())),
            last_answered_at_ms,
        }
    }
}

struct CatalogFilter {
    provider: Option<String>,
    /// In lower case.
    text: Option<String>,
    /// The model must have all of them.
    capabilities: Vec<Capability>,
    priced: Option<bool>,
    operation: Option<Operation>,
    context_min: Option<u64>,
    /// The maximum price of a token, in femto-dollars.
    price_max: Option<u64>,
    proven: Option<bool>,
}

/// The filters of a list.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CatalogQuery {
    /// Only those of this provider, by ID.
    provider: Option<String>,
    /// A part of the name, in any case.
    q: Option<String>,
    /// Only models with all of these capabilities.
    capability: Option<CommaList<Capability>>,
    /// Only models with a price, or only those without one.
    priced: Option<bool>,
    /// Only models that serve this operation.
    operation: Option<Choice<Operation>>,
    /// Only models with a context window of at least so many tokens.
    context_min: Option<Count>,
    /// Only models with prices of at most so many dollars a million tokens.
    price_max: Option<PriceMax>,
    /// Only models that have answered a request, or only those that have not.
    proven: Option<bool>,
}

/// A price in dollars a million tokens.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(!try_from))]
struct PriceMax(#[cfg_attr(test, schemars(range(min = 0)))] f64);

impl TryFrom<String> for PriceMax {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let price = text.parse().ok().filter(|price| (0.0..=PRICE_MAX).contains(price));
        price.map(Self).ok_or_else(|| format!("must be a number from 0 to {PRICE_MAX}."))
    }
}

impl Named for Operation {
    fn named() -> Vec<(&'static str, Self)> {
        Self::GRANTABLE.map(|operation| (operation.name(), operation)).to_vec()
    }
}

impl CatalogFilter {
    fn of(query: CatalogQuery) -> Self {
        Self {
            provider: query.provider,
            text: query.q.map(|text| text.to_lowercase()),
            capabilities: query.capability.map_or_else(Vec::new, |capabilities| capabilities.0),
            priced: query.priced,
            operation: query.operation.map(|operation| operation.0),
            context_min: query.context_min.map(|min| min.0),
            price_max: query.price_max.and_then(|price| femto_a_token(price.0)),
            proven: query.proven,
        }
    }

    /// True if a row passes the filters that need the instance of its model.
    fn passes_row(&self, row: &CatalogRow) -> bool {
        self.operation.is_none_or(|operation| row.operations.contains(&operation.name()))
            && self.proven.is_none_or(|proven| proven == row.completed_at_ms().is_some())
    }
}

/// True if the known prices of input and output are at most `femto_max`; false if neither is known.
fn costs_at_most(prices: &Prices, femto_max: u64) -> bool {
    let rates = [Class::Input, Class::Output].map(|class| prices.base.rates.get(class));
    rates.iter().any(Option::is_some) && rates.into_iter().flatten().all(|rate| rate <= femto_max)
}

/// A capability that a list can filter by.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum Capability {
    Vision,
    Tools,
    Reasoning,
    Audio,
}

impl CatalogFilter {
    fn passes(&self, known: &KnownModel) -> bool {
        let model = &known.model;
        let has = |text: &str| self.text.as_ref().is_none_or(|wanted| text.to_lowercase().contains(wanted));
        let can = |capability| match capability {
            Capability::Vision => model.vision,
            Capability::Tools => model.tools,
            Capability::Reasoning => model.reasoning,
            Capability::Audio => known.audio,
        };
        self.provider.as_ref().is_none_or(|provider| provider == known.provider.as_str())
            && self.capabilities.iter().all(|capability| can(*capability) == Some(true))
            && self.context_min.is_none_or(|min| model.context_window.is_some_and(|window| window >= min))
            && self
                .price_max
                .is_none_or(|max| model.prices.as_ref().is_some_and(|prices| costs_at_most(prices, max)))
            && self.priced.is_none_or(|priced| priced == model.prices.is_some())
            && (has(model.id.as_str()) || model.display_name.as_deref().is_some_and(has))
    }
}

/// A model as the API shows it; null means unknown.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Model"))]
struct CatalogRow {
    /// The exact model ID that requests use.
    id: String,
    /// The ID of the provider.
    provider: String,
    /// The provider's name of the model.
    model: String,
    display_name: Option<String>,
    /// True if it accepts images.
    vision: Option<bool>,
    /// True if it can call tools.
    tools: Option<bool>,
    /// True if it reasons before it answers.
    reasoning: Option<bool>,
    /// True if it accepts audio.
    audio: Option<bool>,
    /// The protocols that it speaks, if they are fewer than those of the provider, else null.
    #[cfg_attr(test, schemars(with = "Option<Vec<crate::common::shared_shapes::Protocol>>"))]
    protocols: Option<Vec<Dialect>>,
    /// Features of the Responses API that the model lacks.
    lacks: Vec<String>,
    /// In tokens.
    context_window: Option<u64>,
    /// In tokens.
    max_output_tokens: Option<u64>,
    /// The rules that it imposes on requests.
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::ModelRules"))]
    rules: ModelRules,
    /// In dollars per million tokens.
    #[cfg_attr(test, schemars(with = "Option<crate::common::shared_shapes::Prices>"))]
    prices: Option<Prices>,
    prices_from: Option<PricesFrom>,
    /// The members of `prices` without which requests in its protocols may have no cost; empty without `prices`.
    unpriced: Vec<String>,
    /// The time of its creation as the upstream states it, in seconds since the Unix epoch.
    created: Option<u64>,
    owned_by: Option<String>,
    /// The sources of these facts.
    sources: Vec<FactSource>,
    /// The operations that the model serves, natively or by adaptation.
    operations: Vec<&'static str>,
    /// The time of the test that the model answered last, in milliseconds since the Unix epoch; null if it answered none.
    proven_at_ms: Option<u64>,
    /// The time of its last answer to any request, in milliseconds since the Unix epoch, whatever the provider's credential was
    /// then; null if none is known. Answers before a restart are known to the minute.
    last_answered_at_ms: Option<u64>,
    /// The evidence of its tests; null if it was never tested with the provider's current credential.
    tested: Option<ModelEvidence>,
}

impl CatalogRow {
    fn of(known: &KnownModel, served: Served) -> Self {
        let model = &known.model;
        let gaps = |prices: &Prices| prices.gaps(&served.spoken, known.audio == Some(true)).members(None);
        Self {
            id: format!("{}/{}", known.provider, model.id),
            provider: known.provider.to_string(),
            model: model.id.to_string(),
            display_name: model.display_name.clone(),
            vision: model.vision,
            tools: model.tools,
            reasoning: model.reasoning,
            audio: known.audio,
            protocols: model.dialects.clone(),
            lacks: model.lacks.clone(),
            context_window: model.context_window,
            max_output_tokens: model.output_tokens_max,
            rules: model.rules.clone(),
            prices: model.prices.clone(),
            prices_from: known.prices_from.clone(),
            unpriced: model.prices.as_ref().map(gaps).unwrap_or_default(),
            created: known.created,
            owned_by: known.owned_by.clone(),
            sources: known.sources.clone(),
            operations: served.operations.into_iter().map(Operation::name).collect(),
            proven_at_ms: served.tested.as_ref().and_then(|tested| tested.proven_at_ms),
            last_answered_at_ms: served.last_answered_at_ms,
            tested: served.tested,
        }
    }
}

impl CatalogRow {
    /// Returns the time of the latest evidence that the model completes requests: a test or another answer.
    fn completed_at_ms(&self) -> Option<u64> {
        self.proven_at_ms.max(self.last_answered_at_ms)
    }

    fn value(&self, column: CatalogColumn) -> Option<SortValue> {
        let price = |class| self.prices.as_ref()?.base.rates.get(class).map(SortValue::from);
        match column {
            CatalogColumn::Name => Some(self.id.as_str().into()),
            CatalogColumn::Context => self.context_window.map(SortValue::from),
            CatalogColumn::InputPrice => price(Class::Input),
            CatalogColumn::OutputPrice => price(Class::Output),
            CatalogColumn::Proven => self.completed_at_ms().map(SortValue::from),
        }
    }
}

/// The empty body of routes that take all their parameters from the path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoSyncBody {}

async fn sync_one(mut call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    if let Some(answer) = call.replayed().await? {
        return Ok(answer);
    }
    let NoSyncBody {} = call.json()?;
    let instance = instance(call.app, call.argument())?;
    if models_url(&instance).is_empty() {
        let message =
            "This provider runs inside the gateway and has no model list: its models are the declared ones.";
        return Err(ApiError::new(ErrorKind::Conflict, message));
    }
    let (outcomes, _) = syncer(call.app).sync(vec![instance]).await;
    let Some(outcome) = outcomes.into_iter().next() else {
        return Err(ApiError::new(ErrorKind::Internal, "The list of models could not be read."));
    };
    let audit = AuditEntry::done("provider.sync", "provider", &outcome.provider).after(json!(outcome));
    let done = Done::new(&outcome, audit, touched(&outcome))?;
    call.execute(StatusCode::OK, AuditOnly(done)).await
}

/// The result of reading all model lists.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SyncedCatalog"))]
struct AllModels {
    data: Vec<SyncOutcome>,
    /// Providers that were not synced for lack of time; the next sync starts with them.
    not_reached: Vec<String>,
    /// The date of the price list in use.
    prices_as_of: String,
}

async fn sync_all(mut call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    if let Some(answer) = call.replayed().await? {
        return Ok(answer);
    }
    let NoSyncBody {} = call.json()?;
    let app = call.app;
    if let Err(why) = app.catalog.take_price_file().await {
        tracing::warn!("the price list in use stays: {why}");
    }
    let snapshot = app.snapshot.load();
    let (data, not_reached) = syncer(app).sync(with_list(&snapshot)).await;
    let read: Vec<&str> =
        data.iter().filter(|outcome| outcome.ok).map(|outcome| &*outcome.provider).collect();
    let detail = json!({"read": read, "tried": data.len(), "not_reached": not_reached});
    let prices_as_of = app.catalog.list().as_of.clone();
    let audit = AuditEntry::done("catalog.sync", "catalog", "catalog").after(detail);
    // The price list may have changed as well.
    let done = Done::new(&AllModels { data, not_reached, prices_as_of }, audit, Touched::ROUTING)?;
    call.execute(StatusCode::OK, AuditOnly(done)).await
}

fn syncer(app: &App) -> Syncer<'_> {
    Syncer { catalog: &app.catalog, http: &app.http, hasher: app.snapshot.load().key_hasher.clone() }
}

fn touched(outcome: &SyncOutcome) -> Touched {
    if outcome.ok { Touched::ROUTING } else { Touched::NOTHING }
}

/// In dollars per million tokens.
const PRICE_MAX: f64 = 1_000_000.0;

/// Returns the provider instance that requests would use now. Fails if it is missing, disabled or not ready.
pub(super) fn instance(app: &App, id: &str) -> Result<Arc<ProviderInstance>, ApiError> {
    let snapshot = app.snapshot.load();
    let found = snapshot.providers.iter().find(|instance| instance.id.as_str() == id).cloned();
    let found = found.ok_or_else(|| {
        let message = "The provider does not exist or is disabled.";
        ApiError::new(ErrorKind::NotFound, message)
    })?;
    match found.unready {
        None => Ok(found),
        Some(why) => Err(ApiError::new(ErrorKind::Conflict, format!("The provider cannot be used: {why}."))),
    }
}
