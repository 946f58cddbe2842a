//! A chain of two adaptations through an intermediate dialect: the request passes through both, and so does the answer
//! in reverse. An intermediate document is dropped as soon as it has been read.
//!
//! The second step's rejections name members of a request that the client did not write. The first step maps them back
//! ([`Adaptation::origin`]), so that the client gets a path of its request.

use bytes::Bytes;
use shared::operation::Dialect;

use super::{
    Adaptation, Answers, Asking, BadAnswer, Prepared, Rejection, Traits, TranslatedAnswer, chat_over_bedrock,
};
use crate::stream::{AnswerStream, StreamState, Trouble};

/// Returns the row of a pair that `prepare` serves through chat.
pub(super) const fn by_way_of_chat(
    client: Dialect,
    target: Dialect,
    prepare: fn(&Asking<'_>) -> Result<Prepared, Rejection>,
) -> Adaptation {
    Adaptation { client, target, via: Some(Dialect::Chat), losses: &[], prepare, origin: None }
}

/// Translates the request into the intermediate dialect, and the result into the target's dialect.
pub(super) fn prepare(
    first: &Adaptation,
    second: &Adaptation,
    asking: &Asking<'_>,
) -> Result<Prepared, Rejection> {
    // The intermediate dialect can express more than some targets; the second step checks the target's limits.
    let between = Traits {
        output_limit_field: "max_completion_tokens",
        developer_role: false,
        files: true,
        leading_system: false,
        stops_max: None,
        word_tool_names: false,
        refusals: true,
        extended_chat: true,
        top_k: asking.target.top_k || takes_top_k(second, asking.target),
        ..*asking.target
    };
    let target = Traits { files: true, stops_max: asking.target.stops_max, ..between };
    let asking = Asking { target: &between, ..*asking };
    let told = (first.prepare)(&asking)?;
    let said = (second.prepare)(&Asking { body: &told.body, target: &target, ..asking });
    let said = said.map_err(|rejection| traced(first, &asking, rejection))?;
    let answers = Box::new(Chained { near: said.answers, far: told.answers });
    Ok(Prepared { body: said.body, answers, dropped: told.dropped })
}

/// Returns true for a model that accepts `top_k` although other models of its provider do not: Claude on Bedrock.
fn takes_top_k(second: &Adaptation, target: &Traits<'_>) -> bool {
    second.target == Dialect::Bedrock && chat_over_bedrock::is_claude(target)
}

/// Returns the rejection with its path in the client's request, if the first step can map it.
fn traced(first: &Adaptation, asking: &Asking<'_>, rejection: Rejection) -> Rejection {
    let origin = first.origin.and_then(|origin| origin(asking, &rejection.param));
    match (origin, rejection.message.strip_prefix(&format!("'{}' ", rejection.param))) {
        (Some(origin), Some(why)) => Rejection { flaw: rejection.flaw, ..Rejection::new(origin, why) },
        (Some(origin), None) => Rejection { param: origin, ..rejection },
        // The message still names the member.
        (None, _) => Rejection { param: String::new(), ..rejection },
    }
}

/// Translates an answer with `near`, the target's side, and then with `far`, the client's side.
#[derive(Debug)]
struct Chained {
    near: Box<dyn Answers>,
    far: Box<dyn Answers>,
}

impl Answers for Chained {
    fn whole(&self, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer> {
        let between = self.near.whole(body)?;
        let answer = self.far.whole(&between.body)?;
        let mut extras = answer.extras;
        extras.replace_by(between.extras);
        Ok(TranslatedAnswer { usage: between.usage.or(answer.usage), extras, ..answer })
    }

    fn stream(&self, secrets: Vec<String>) -> Box<dyn AnswerStream> {
        Box::new(ChainedStream {
            near: self.near.stream(secrets.clone()),
            far: self.far.stream(secrets),
            between: Vec::new(),
            state: StreamState::default(),
        })
    }
}

/// A stream that passes through both translators event by event.
#[derive(Debug)]
struct ChainedStream {
    near: Box<dyn AnswerStream>,
    far: Box<dyn AnswerStream>,
    between: Vec<Bytes>,
    state: StreamState,
}

impl AnswerStream for ChainedStream {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) {
        self.near.push(chunk, &mut self.between);
        self.pass(out);
    }

    fn end(&mut self, out: &mut Vec<Bytes>) {
        self.near.end(&mut self.between);
        self.pass(out);
        self.far.end(out);
        self.note();
    }

    fn state(&self) -> &StreamState {
        &self.state
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        self.far.trouble(trouble)
    }
}

impl ChainedStream {
    fn pass(&mut self, out: &mut Vec<Bytes>) {
        for event in self.between.drain(..) {
            self.far.push(event, out);
        }
        self.note();
    }

    /// Merges both states: output and completion are the client side's, usage and extras mainly the upstream side's.
    fn note(&mut self) {
        let (near, far) = (self.near.state(), self.far.state());
        let error = near.error.as_ref().or(far.error.as_ref());
        if self.state.error.is_none() && error.is_some() {
            self.state.error = error.cloned();
        }
        if self.state.extras != near.extras {
            self.state.extras.clone_from(&near.extras);
        }
        self.state = StreamState {
            content: far.content,
            finished: near.finished || far.finished,
            done: far.done,
            error: self.state.error.take(),
            usage: near.usage.or(far.usage),
            extras: std::mem::take(&mut self.state.extras),
            input: near.input,
            content_events: far.content_events,
            output_bytes: far.output_bytes,
            ids_seen: far.ids_seen,
            event_open: far.event_open,
        };
    }
}
