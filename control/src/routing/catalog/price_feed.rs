//! Fetches the price list from `LLMGW_PRICES_URL` at start-up and once a day. A list is accepted only if it parses and
//! is newer than the one in use; any other response is logged and changes nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::ACCEPT;
use shared::clock::unix_ms;
use shared::port::{HttpClient, HttpLimits};
use shared::sanitize::diagnostic;

use super::cache::CatalogCache;
use super::publication::Publication;
use crate::common::background::Job;

/// The periodic job.
pub(crate) struct PriceFeed {
    pub(crate) url: String,
    pub(crate) catalog: Arc<CatalogCache>,
    pub(crate) http: Arc<dyn HttpClient>,
    pub(crate) publication: Publication,
    pub(crate) job: Job,
}

impl PriceFeed {
    /// Fetches the list periodically, for as long as the future is polled.
    pub(crate) async fn run(self) {
        loop {
            self.job.begins();
            let fetched = self.fetch().await;
            self.job.ends(fetched.as_ref().map(drop).map_err(String::clone));
            let pause = match fetched {
                Ok(None) => DAY,
                Ok(Some(as_of)) => {
                    tracing::info!("the price list of {as_of} is in use");
                    self.publication.request().await;
                    DAY
                }
                Err(why) => {
                    tracing::warn!(
                        "cannot fetch a price list from LLMGW_PRICES_URL; the current list stays in use: \
                         {why}"
                    );
                    RETRY
                }
            };
            self.job
                .waits_until(unix_ms().saturating_add(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)));
            tokio::time::sleep(pause).await;
        }
    }

    /// Fetches the list and accepts it if it is newer; returns its date in that case. Errors omit the URL, because it
    /// may contain a token.
    async fn fetch(&self) -> Result<Option<String>, String> {
        let request = Request::get(&self.url).header(ACCEPT, "application/json").body(Bytes::new());
        let request = request.map_err(|error| error.to_string())?;
        let answer = self.http.send(request, LIMITS).await;
        let answer = answer.map_err(|error| diagnostic(&error.to_string(), &[]).into_owned())?;
        if !answer.status().is_success() {
            return Err(format!("it returned status {}", answer.status()));
        }
        self.catalog.take_prices(answer.into_body()).await
    }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(60 * 60);
/// The built-in list is smaller than half a megabyte.
const LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_secs(60), body_bytes_max: 16 << 20 };
