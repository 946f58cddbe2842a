//! Polls an operation. Only the target that runs it is asked, even if its circuit is open; nothing is reserved or
//! recorded.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{HeaderValue, Response};
use shared::error_kind::ErrorKind;
use shared::provider::path::UpstreamCall;
use shared::routing::Target;
use wire::adapt::BadAnswer;
use wire::envelope::UpstreamAnswer;
use wire::media::videos::{Vendor, Video, VideoState, media_type, poll_body};
use wire::request::Head;

use super::super::answer::name_target;
use super::super::inference::AuthorizedRequest;
use super::address::{VideoAddress, place};
use super::find::{KnownOperation, holder, unknown};
use super::{POLL_AFTER, about, json};
use crate::adapt;
use crate::attempt::{ERROR_BYTES_MAX, of_send_error, secrets, wait_hint};
use crate::error::Fault;
use crate::memory_budget::MemoryReservation;
use crate::relay::{Base64Video, ResponseBody, UpstreamVideo, VideoSource};
use crate::server::body::HeldBody;
use crate::upstream::request::{ANYTHING, JSON, RequestKind, UpstreamRequest};
use crate::upstream::{self, UpstreamBody, UpstreamResponse};

/// Handles one request.
pub(super) async fn serve(
    authorized: &AuthorizedRequest<'_>,
    head: &Head,
    body: HeldBody,
) -> Result<Response<ResponseBody>, Fault> {
    let (known, route) = holder(authorized, head, &body)?;
    drop(body);
    let target = &known.target_of(route.targets().first().ok_or_else(unknown)?).ok_or_else(unknown)?;
    if let Some(why) = target.provider.unready {
        let message = format!("'{}' cannot be used: {why}.", target.provider.id);
        return Err(Fault::new(ErrorKind::NoEligibleTarget, message));
    }
    let vendor = adapt::vendor(target).ok_or_else(unknown)?;
    let poll = VideoPoll { authorized, known: &known, target, vendor };
    let mut response = poll.answer().await?;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    name_target(headers, target);
    Ok(response)
}

struct VideoPoll<'a> {
    authorized: &'a AuthorizedRequest<'a>,
    known: &'a KnownOperation,
    target: &'a Target,
    vendor: Vendor,
}

impl VideoPoll<'_> {
    async fn answer(&self) -> Result<Response<ResponseBody>, Fault> {
        let about = about(&self.known.operation, &self.known.started);
        let (state, memory) = self.state().await?;
        match state {
            VideoState::Running(progress) => {
                let mut response = json(about.running(progress));
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(POLL_AFTER.as_secs()));
                Ok(response)
            }
            VideoState::Failed(error) => {
                Ok(json(about.failed(&error.sanitized(&secrets(&self.target.provider)))))
            }
            VideoState::Done(Video::Inline { base64, media_type }) => {
                let source = VideoSource::InMemory { base64, _memory: memory };
                Ok(Response::new(ResponseBody::base64_video(Base64Video::new(
                    about.around(&media_type),
                    source,
                ))))
            }
            VideoState::Done(Video::At { address, media_type }) => self.at(&address, &media_type).await,
            VideoState::Done(Video::Kept) => {
                let path = self.path(UpstreamCall::Content, &self.known.started.name).ok_or_else(unknown)?;
                self.fetch(path, "video/mp4").await
            }
        }
    }

    /// Polls the target. The returned reservation accounts for the memory of its answer.
    async fn state(&self) -> Result<(VideoState, MemoryReservation), Fault> {
        let (name, model) = (&self.known.started.name, self.target.model.id.as_str());
        let request = match (self.path(UpstreamCall::Poll, name), self.path(UpstreamCall::PollByPost, model))
        {
            (Some(path), _) => self.request(RequestKind::Get, path, Vec::new()),
            (None, Some(path)) => self.request(RequestKind::PostSafe, path, vec![poll_body(name)]),
            (None, None) => return Err(unknown()),
        };
        let mut answer = self.send(&request).await?;
        if answer.status != 200 {
            return Err(self.refused(answer).await);
        }
        let (body, memory) = self.whole(&mut answer.body).await?;
        answer.body.recycle(&self.authorized.worker().upstreams, &self.target.provider);
        let vendor = self.vendor;
        let read = move || vendor.state(&body);
        let state = if memory.bytes() <= READ_HERE_BYTES_MAX {
            read()
        } else {
            let reading = tokio::task::spawn_blocking(read).await;
            reading.map_err(|_| Fault::new(ErrorKind::Internal, "The video could not be read."))?
        };
        let state = state.map_err(|bad| match bad {
            BadAnswer::Error(error) => {
                self.invalid(&error.sanitized(&secrets(&self.target.provider)).message)
            }
            BadAnswer::Invalid(why) => self.invalid(why),
            BadAnswer::Nothing(_) => self.invalid("it contains no video"),
        })?;
        Ok((state, memory))
    }

    /// Returns the video at an address that the target has sent.
    async fn at(&self, address: &str, media_type: &str) -> Result<Response<ResponseBody>, Fault> {
        match place(&self.target.provider, address) {
            Some(VideoAddress::Own(path)) => self.fetch(path, media_type).await,
            Some(VideoAddress::Elsewhere(address)) => {
                Ok(json(about(&self.known.operation, &self.known.started).at(&address, media_type)))
            }
            None => Err(self.invalid(NO_PLACE)),
        }
    }

    /// Fetches a path on the target's own origin. Redirects are followed only within this origin, so no other host
    /// receives the credential; the client gets any other address to fetch itself.
    async fn fetch(&self, path: PathAndQuery, usual_type: &str) -> Result<Response<ResponseBody>, Fault> {
        let mut path = path;
        for _ in 0..=REDIRECTS_MAX {
            let answer = self.send(&self.request(RequestKind::Get, path, Vec::new())).await?;
            let location = answer.head.rare.as_ref().and_then(|rare| rare.location.clone());
            match (answer.status, location) {
                (200, _) => return self.inline(answer, usual_type).await,
                (301 | 302 | 303 | 307 | 308, Some(location)) => {
                    let location = location.to_str().unwrap_or_default();
                    match place(&self.target.provider, location) {
                        Some(VideoAddress::Own(next)) => path = next,
                        Some(VideoAddress::Elsewhere(address)) => {
                            let about = about(&self.known.operation, &self.known.started);
                            return Ok(json(about.at(&address, usual_type)));
                        }
                        None => return Err(self.invalid(NO_PLACE)),
                    }
                }
                _ => return Err(self.refused(answer).await),
            }
        }
        Err(self.invalid("it redirects too often"))
    }

    /// Relays an answer whose body is the video. It waits for the first bytes, so that an empty body is still an error
    /// response.
    async fn inline(
        &self,
        mut answer: UpstreamResponse,
        usual_type: &str,
    ) -> Result<Response<ResponseBody>, Fault> {
        let content_type = answer.head.content_type.as_ref().and_then(|value| value.to_str().ok());
        if content_type.is_some_and(|given| given.starts_with("text/") || given.contains("json")) {
            return Err(self.invalid("it is text instead of a video"));
        }
        let given = content_type.and_then(|given| given.split(';').next()).map(str::trim);
        let media_type = match given {
            Some(given) if given.starts_with("video/") => media_type(Some(given)),
            _ => media_type(Some(usual_type)),
        };
        let first = self.next(&mut answer.body).await?.ok_or_else(|| self.invalid("the video is empty"))?;
        let upstreams = &self.authorized.worker().upstreams;
        let coming = UpstreamVideo::new(upstreams, &self.target.provider, &first, answer.body);
        let around = about(&self.known.operation, &self.known.started).around(&media_type);
        Ok(Response::new(ResponseBody::base64_video(Base64Video::new(
            around,
            VideoSource::Upstream(Box::new(coming)),
        ))))
    }

    fn path(&self, call: UpstreamCall, name: &str) -> Option<PathAndQuery> {
        self.target.provider.path(self.vendor.dialect(), call, name)
    }

    fn request(&self, kind: RequestKind, path: PathAndQuery, segments: Vec<Bytes>) -> UpstreamRequest<'_> {
        UpstreamRequest {
            provider: Arc::clone(&self.target.provider),
            kind,
            path,
            forwarded: &[],
            request_id: &self.authorized.exchange.request_id,
            of_model: self.target.model.headers.to_vec(),
            trace: None,
            tap: self.authorized.exchange.tap(),
            content_type: &JSON,
            accept: &ANYTHING,
            segments,
            arriving: None,
        }
    }

    async fn send(&self, request: &UpstreamRequest<'_>) -> Result<UpstreamResponse, Fault> {
        let provider = &self.target.provider;
        let sending = Box::pin(upstream::send(&self.authorized.worker().upstreams, request));
        let sent = tokio::time::timeout(provider.timeout, sending).await.map_err(|_| self.late())?;
        let answer = sent.map_err(|error| {
            let failure = of_send_error(&error, provider);
            Fault::new(failure.kind, failure.message)
        })?;
        if answer.head.encoded {
            return Err(self.invalid("it is compressed, which llmgw did not request"));
        }
        Ok(answer)
    }

    async fn next(&self, body: &mut UpstreamBody) -> Result<Option<Bytes>, Fault> {
        let piece = tokio::time::timeout(self.target.provider.stream_idle_timeout, body.data()).await;
        piece.map_err(|_| self.late())?.transpose().map_err(|_| self.invalid("its connection broke"))
    }

    /// Reads a body completely, for parsing.
    async fn whole(&self, body: &mut UpstreamBody) -> Result<(Bytes, MemoryReservation), Fault> {
        let mut memory = MemoryReservation::new(&self.authorized.worker().process.memory);
        let mut whole = BytesMut::new();
        while let Some(piece) = self.next(body).await? {
            if whole.len() + piece.len() > ANSWER_BYTES_MAX {
                return Err(self.invalid("it exceeds the limit for buffered responses"));
            }
            if !memory.take(piece.len() as u64) {
                return Err(Fault::new(ErrorKind::Overloaded, FULL).retry_after(POLL_AFTER));
            }
            whole.extend_from_slice(&piece);
        }
        Ok((whole.freeze(), memory))
    }

    /// Returns the client's error for an error answer of the target.
    async fn refused(&self, mut answer: UpstreamResponse) -> Fault {
        if matches!(answer.status, 404 | 410) {
            return unknown();
        }
        if answer.status < 400 {
            return self.invalid("its status is unexpected");
        }
        let mut body = BytesMut::new();
        while let Ok(Some(piece)) = self.next(&mut answer.body).await {
            body.extend_from_slice(piece.split_at(piece.len().min(ERROR_BYTES_MAX - body.len())).0);
            if body.len() >= ERROR_BYTES_MAX {
                break;
            }
        }
        let secrets = secrets(&self.target.provider);
        let content_type = answer.head.content_type.as_ref().and_then(|value| value.to_str().ok());
        let upstream = UpstreamAnswer { status: answer.status, content_type, body: &body, secrets: &secrets };
        Fault {
            status: Some(answer.status),
            error: Some(Box::new(upstream.diagnosis())),
            retry_after: wait_hint(&answer.head).map(|wait| wait.min(WAIT_MAX)),
            ..Fault::new(ErrorKind::UpstreamStatus, "The upstream rejected the request.")
        }
    }

    fn invalid(&self, why: &str) -> Fault {
        let message = format!("The provider '{}' sent an invalid response: {why}.", self.target.provider.id);
        Fault::new(ErrorKind::UpstreamInvalid, message)
    }

    fn late(&self) -> Fault {
        Fault::new(
            ErrorKind::UpstreamTimeout,
            "The upstream did not answer in time. The operation continues: ask again.",
        )
    }
}

/// Maximum bytes of an answer that is read completely. Vertex AI without a bucket sends the video inside the answer:
/// the largest videos take about 60 MB, or 80 MB in base64.
const ANSWER_BYTES_MAX: usize = 128 << 20;
/// Answers larger than this, in bytes, are parsed on a blocking thread.
const READ_HERE_BYTES_MAX: u64 = 256 << 10;
/// Maximum number of consecutive redirects.
const REDIRECTS_MAX: u32 = 3;
/// Maximum `Retry-After` passed on to a client.
const WAIT_MAX: Duration = Duration::from_secs(120);
const FULL: &str = "The gateway's memory for bodies is full. The video is still available: ask again.";
const NO_PLACE: &str = "the address of the video is invalid";
