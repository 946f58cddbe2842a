//! Reports answered requests to the control service while a page of the console waits for them.

use http::Response;
use http::request::Parts;
use shared::activity::WatchedRequest;
use shared::clock;
use shared::key_format::shown_part_of_presented;
use shared::operation::Operation;

use crate::admit::authenticate::presented_by;
use crate::caller::Exchange;
use crate::operation::error_response::ReportedError;
use crate::relay::ResponseBody;
use crate::route;

/// Reports a request with a watched key, or one that was rejected. Costs one load while no key is watched.
pub(crate) fn report(exchange: &Exchange, parts: &Parts, answer: &Response<ResponseBody>, is_rejected: bool) {
    let process = &exchange.worker().process;
    let watch = &process.activity.watch;
    if !watch.is_on() || exchange.caller.insider.is_some() || is_own(parts.uri.path()) {
        return;
    }
    let snapshot = process.snapshots.load();
    let presented = presented_by(parts).ok().flatten();
    let presented = presented.as_deref();
    let access = presented.and_then(|key| snapshot.access.keys.get(&snapshot.key_hasher.hash(key)));
    let key = access.map(|access| access.key.clone());
    let (status, error) = (answer.status().as_u16(), answer.extensions().get::<ReportedError>());
    // The control service answers unknown paths.
    let is_unknown = status == 404 && error.is_none();
    if !is_rejected && !is_unknown && !key.as_ref().is_some_and(|key| watch.is_watched(key)) {
        return;
    }
    watch.report(WatchedRequest {
        at_ms: clock::unix_ms(),
        address: exchange.caller.peer.ip(),
        client: exchange.caller.last_client.labels(&parts.headers).client,
        method: parts.method.as_str().into(),
        path: shortened(parts.uri.path(), WatchedRequest::PATH_CHARS_MAX),
        status,
        code: error.map(|error| error.kind.row().code).or_else(|| is_unknown.then_some("not_found")),
        param: error
            .and_then(|error| error.param.as_deref())
            .map(|param| shortened(param, WatchedRequest::PARAM_CHARS_MAX)),
        key,
        key_prefix: presented.and_then(shown_part_of_presented).map(Into::into),
        model: exchange.selector.get().cloned(),
        request_id: exchange.id().into(),
    });
}

fn shortened(text: &str, chars_max: usize) -> Box<str> {
    text.chars().take(chars_max).collect::<String>().into()
}

/// Returns true for the paths of the gateway's own pages and checks.
pub(super) fn is_own(path: &str) -> bool {
    let is_below = |prefix: &&str| {
        path.strip_prefix(*prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    ["/admin", "/console", "/oauth"].iter().any(is_below)
        || matches!(route::operation(path), Some(Operation::Health | Operation::Ready | Operation::Metrics))
}
