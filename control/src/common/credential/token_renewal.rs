//! Requests and renews access tokens in a background task, so that no client request waits for one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use serde_json::Value;
use shared::clock::unix_ms;
use shared::port::{HttpClient, HttpLimits};
use shared::sanitize::diagnostic;

use super::grant::{Grant, GrantedToken, given};
use super::tokens::AccessTokens;
use crate::common::background::{Job, JobTasks, NamedTasks, Panicked};

/// Requests publication of the changed tokens. Returns false if that is not possible now.
type PublishTokens = Box<dyn Fn() -> bool + Send>;

/// The background task that requests and renews access tokens.
pub(crate) struct TokenRenewer {
    tokens: AccessTokens,
    http: Arc<dyn HttpClient>,
    publish: PublishTokens,
    /// Reports the renewals.
    tasks: JobTasks,
    /// True if a new token has not been published yet.
    is_owing: bool,
}

impl fmt::Debug for TokenRenewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenRenewer").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl TokenRenewer {
    pub(crate) fn new(
        tokens: AccessTokens,
        http: Arc<dyn HttpClient>,
        publish: PublishTokens,
        job: Job,
    ) -> Self {
        Self { tokens, http, publish, tasks: JobTasks::of(job), is_owing: false }
    }

    /// Requests and renews tokens for as long as the future is polled.
    pub(crate) async fn run(mut self) {
        let mut renewals = NamedTasks::new();
        loop {
            for grant in self.tokens.take_due(unix_ms()) {
                self.tasks.begins();
                let (http, asked) = (Arc::clone(&self.http), grant.clone());
                renewals.spawn(grant, async move { ask(&http, &asked).await });
            }
            let now_ms = unix_ms();
            let pause_ms = self.tokens.pause_ms(now_ms);
            self.tasks.waits_until(pause_ms.map(|pause_ms| now_ms.saturating_add(pause_ms)));
            let pause = pause_ms.map_or(PAUSE_MAX, Duration::from_millis);
            let pause = if self.is_owing { PAUSE_OWING } else { pause.min(PAUSE_MAX) };
            tokio::select! {
                Some((grant, given)) = renewals.next() => {
                    let given = given.unwrap_or_else(|Panicked| Err(Panicked::TEXT.to_owned()));
                    self.tasks.ends(given.as_ref().map(drop).map_err(String::clone), renewals.len());
                    self.learn(&grant, given);
                }
                () = self.tokens.wanted() => {}
                () = tokio::time::sleep(pause) => {}
            }
            if self.is_owing {
                self.is_owing = !(self.publish)();
            }
        }
    }

    fn learn(&mut self, grant: &Grant, given: Result<GrantedToken, String>) {
        if let Err(why) = &given {
            tracing::warn!("cannot get an access token: {why}");
        }
        self.is_owing |= self.tokens.learn(grant, given, unix_ms());
    }
}

/// Sends one token request.
async fn ask(http: &Arc<dyn HttpClient>, grant: &Grant) -> Result<GrantedToken, String> {
    let request = grant.request(unix_ms() / 1_000)?;
    let host = request.uri().host().unwrap_or_default().to_owned();
    let secrets = grant.secrets();
    let described = |text: &str| diagnostic(&format!("{host}: {text}"), &secrets).into_owned();
    let answer = http.send(request, LIMITS).await.map_err(|error| described(&error.to_string()))?;
    if !answer.status().is_success() {
        return Err(described(&error_text(&answer)));
    }
    given(answer.body(), unix_ms() / 1_000).ok_or_else(|| described("the response contains no access token"))
}

/// Extracts the error text from a failed token response (RFC 6749).
fn error_text(answer: &Response<Bytes>) -> String {
    let body: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
    let words: Vec<String> = ["error", "error_description"].into_iter().filter_map(text).collect();
    if words.is_empty() { format!("it returned status {}", answer.status()) } else { words.join(": ") }
}

/// Limits of one token request.
const LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_secs(15), body_bytes_max: 64 << 10 };
/// The longest sleep; bounds how late a step of the clock is noticed.
const PAUSE_MAX: Duration = Duration::from_secs(60);
const PAUSE_OWING: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use shared::port::{BoxError, BoxFuture};

    use super::super::Metadata;
    use super::*;
    use crate::common::background::Jobs;

    /// Returns scripted responses, last one first.
    #[derive(Debug)]
    struct Script(Mutex<Vec<(u16, &'static str)>>);

    impl HttpClient for Script {
        fn send(
            &self,
            request: http::Request<Bytes>,
            limits: HttpLimits,
        ) -> BoxFuture<Result<Response<Bytes>, BoxError>> {
            assert!(request.uri().path().ends_with("/token") && limits.body_bytes_max <= 64 << 10);
            let next = self.0.lock().unwrap().pop();
            Box::pin(async move {
                let (status, body) = next.ok_or("nobody there")?;
                Ok(Response::builder().status(status).body(Bytes::from(body))?)
            })
        }
    }

    #[tokio::test]
    async fn a_renewed_token_is_published_and_a_failed_renewal_is_reported() {
        let tokens = AccessTokens::default();
        let good = Grant::machine(&Metadata(Some("127.0.0.1:1".into())));
        let (publish, mut published) = tokio::sync::mpsc::unbounded_channel();
        let script = Script(Mutex::new(vec![(200, r#"{"access_token":"fresh-token","expires_in":3600}"#)]));
        let publish = Box::new(move || publish.send(()).is_ok());
        let jobs = Jobs::default();
        let job = jobs.register("token_renewal", "as tokens expire");
        let keeper = TokenRenewer::new(tokens.clone(), Arc::new(script), publish, job.clone());
        let keeping = tokio::spawn(keeper.run());
        tokens.want(vec![good.clone()]);
        published.recv().await.unwrap();
        assert_eq!(tokens.current(&good, unix_ms()).unwrap().expose(), "fresh-token");
        let bad = Grant::machine(&Metadata(Some("127.0.0.1:2".into())));
        tokens.want(vec![good.clone(), bad.clone()]);
        published.recv().await.unwrap();
        assert!(tokens.current(&bad, unix_ms()).unwrap_err().contains("metadata server"));
        assert_eq!(tokens.standing(&bad).unwrap().error.as_deref(), Some("127.0.0.1: nobody there"));
        assert_eq!(job.failure().unwrap().1, "127.0.0.1: nobody there");
        keeping.abort();
    }

    #[test]
    fn a_token_refusal_quotes_the_error_of_the_token_server() {
        for (body, want) in [
            (r#"{"error":"invalid_grant","error_description":"Invalid JWT"}"#, "invalid_grant: Invalid JWT"),
            (r#"{"error":{"code":1}}"#, "it returned status 400 Bad Request"),
            ("<html>", "it returned status 400 Bad Request"),
        ] {
            assert_eq!(error_text(&Response::builder().status(400).body(Bytes::from(body)).unwrap()), want);
        }
    }
}
