//! The built-in speech provider (AUD-2): parses a speech request, synthesizes it on a separate thread, and streams the
//! audio while it is generated. Dropping the body stops the synthesis.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use shared::routing::ProviderInstance;
use speech::{Container, Script, Sound, Synthesizer, VOICES, Voice};
use tokio::sync::mpsc;

use super::echo::EchoBody;
use super::request::UpstreamRequest;
use super::{Broken, KeptHeaders, UpstreamBody, UpstreamResponse};

/// The synthesis threads, started by the first request.
#[derive(Debug)]
pub(crate) struct Voices {
    /// Folder for the engine's files; `None` if the process may not write any.
    folder: Option<PathBuf>,
    studio: OnceLock<Option<Synthesizer>>,
}

/// Number of synthesis threads: each generates half a minute of speech in a quarter of a second.
const THREADS: usize = 2;
/// Maximum pieces of audio generated ahead of a slow reader.
const PIECES_AHEAD: usize = 8;
/// Maximum characters of one request, as in OpenAI's API.
const INPUT_CHARS_MAX: usize = 4_096;
const SPEED_MIN: f64 = 0.25;
const SPEED_MAX: f64 = 4.0;

impl Voices {
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, studio: OnceLock::new() }
    }

    /// Returns the studio; the first call opens it, which writes some megabytes.
    fn studio(&self) -> Option<&Synthesizer> {
        let open = || {
            let folder = self.folder.as_deref()?;
            Synthesizer::open(folder, THREADS)
                .inspect_err(|error| {
                    tracing::error!(folder = %folder.display(), %error, "cannot load the built-in \
                         voice")
                })
                .ok()
        };
        self.studio.get_or_init(open).as_ref()
    }
}

#[derive(Deserialize)]
struct SpeechRequestBody {
    input: String,
    #[serde(default)]
    voice: Option<Named>,
    #[serde(default)]
    response_format: Option<String>,
    #[serde(default)]
    speed: Option<f64>,
    #[serde(default)]
    stream_format: Option<String>,
}

/// A voice, named by a string or in an object.
#[derive(Deserialize)]
#[serde(untagged)]
enum Named {
    Name(String),
    Object { id: String },
}

/// Reason to reject a request: the invalid member, and the message.
type SpeechRefusal = (&'static str, String);

/// A valid speech request.
struct SpeechOrder {
    script: Script,
    events: bool,
    characters: usize,
}

/// Answers one request.
pub(super) async fn answer(
    voices: &Arc<Voices>,
    provider: &ProviderInstance,
    request: &UpstreamRequest<'_>,
) -> UpstreamResponse {
    let order = match SpeechOrder::read(&request.segments, provider.default_voice.as_deref()) {
        Ok(order) => order,
        Err((param, message)) => return refusal(400, "invalid_request_error", &message, Some(param)),
    };
    let voices = Arc::clone(voices);
    let (sender, mut sounds) = mpsc::channel(PIECES_AHEAD);
    let script = order.script.clone();
    let synthesized = tokio::task::spawn_blocking(move || {
        let listener = Box::new(move |sound| sender.blocking_send(sound).is_ok());
        voices.studio().map(|studio| studio.synthesize(script, listener))
    });
    match synthesized.await {
        Ok(Some(Ok(()))) => {}
        Ok(Some(Err(speech::Busy))) => {
            let refusal = refusal(503, "server_error", "The built-in voice is busy. Try again.", None);
            let head = refusal.head.asking_to_wait(1);
            return UpstreamResponse { head, ..refusal };
        }
        Ok(None) | Err(_) => return refusal(500, "server_error", "The built-in voice cannot be used.", None),
    }
    let first = sounds.recv().await;
    if let Some(Sound::Failed(why)) = &first {
        tracing::error!(provider.id = %provider.id, why, "the built-in voice failed");
        return refusal(500, "server_error", "The built-in voice failed.", None);
    }
    let content_type = if order.events { "text/event-stream" } else { order.script.container.content_type() };
    let body = VoiceBody { first, sounds, events: order.events, characters: order.characters, ended: false };
    UpstreamResponse {
        status: 200,
        head: KeptHeaders::of_type(content_type),
        body: UpstreamBody::Voice(Box::new(body)),
    }
}

impl SpeechOrder {
    fn read(segments: &[Bytes], default_voice: Option<&str>) -> Result<Self, SpeechRefusal> {
        let body: SpeechRequestBody = serde_json::from_slice(&segments.concat())
            .map_err(|error| ("input", format!("The body is not a speech request: {error}.")))?;
        let characters = body.input.chars().count();
        if characters > INPUT_CHARS_MAX {
            let message = format!(
                "'input' has {characters} characters; at most {INPUT_CHARS_MAX} are spoken per \
                         request."
            );
            return Err(("input", message));
        }
        let container = match &body.response_format {
            None => Container::Mp3,
            Some(name) => Container::named(name).ok_or_else(|| unknown_format(name))?,
        };
        let events = match body.stream_format.as_deref() {
            None | Some("audio") => false,
            Some("sse") => true,
            Some(other) => {
                return Err((
                    "stream_format",
                    format!("'stream_format' is '{other}'; it must be audio or sse."),
                ));
            }
        };
        let speed_percent = percent(body.speed.unwrap_or(1.0))?;
        let voice = voice(body.voice, default_voice)?;
        Ok(Self { script: Script { voice, speed_percent, text: body.input, container }, events, characters })
    }
}

fn voice(named: Option<Named>, default_voice: Option<&str>) -> Result<&'static Voice, SpeechRefusal> {
    let name = match named {
        Some(Named::Name(name) | Named::Object { id: name }) => name,
        None => match default_voice {
            Some(name) => name.to_owned(),
            None => return Ok(&VOICES[0]),
        },
    };
    speech::named(&name).ok_or_else(|| {
        let known: Vec<String> = VOICES
            .iter()
            .map(|voice| match voice.aliases {
                [] => voice.id.to_owned(),
                aliases => format!("{} ({})", voice.id, aliases.join(", ")),
            })
            .collect();
        ("voice", format!("'voice' is '{name}', which does not exist; the voices are {}.", known.join("; ")))
    })
}

fn unknown_format(name: &str) -> SpeechRefusal {
    let known = Container::ALL.map(Container::name).join(", ");
    ("response_format", format!("'response_format' is '{name}'; it must be one of {known}."))
}

fn percent(speed: f64) -> Result<u32, SpeechRefusal> {
    if !(SPEED_MIN..=SPEED_MAX).contains(&speed) {
        return Err(("speed", format!("'speed' is {speed}; it must be {SPEED_MIN} to {SPEED_MAX}.")));
    }
    // Converted through text, which is exact and cannot wrap.
    Ok(format!("{:.0}", speed * 100.0).parse().unwrap_or(100))
}

fn refusal(status: u16, kind: &str, message: &str, param: Option<&str>) -> UpstreamResponse {
    let body = json!({"error": {"message": message, "type": kind, "param": param, "code": null}});
    UpstreamResponse { status, head: KeptHeaders::of_type("application/json"), body: EchoBody::whole(&body) }
}

/// Body that streams the audio while it is generated.
#[derive(Debug)]
pub(crate) struct VoiceBody {
    /// The output that was awaited before the head was sent.
    first: Option<Sound>,
    sounds: mpsc::Receiver<Sound>,
    /// True to send events instead of raw bytes.
    events: bool,
    characters: usize,
    ended: bool,
}

impl VoiceBody {
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let sound = match self.first.take() {
            Some(sound) => Some(sound),
            None => std::task::ready!(self.sounds.poll_recv(cx)),
        };
        Poll::Ready(match sound {
            Some(Sound::Piece(bytes)) if self.events => Some(Ok(delta(&bytes))),
            Some(Sound::Piece(bytes)) => Some(Ok(bytes.into())),
            Some(Sound::End) => {
                self.ended = true;
                self.events.then(|| Ok(done(self.characters)))
            }
            Some(Sound::Failed(_)) | None => {
                self.ended = true;
                Some(Err(Broken))
            }
        })
    }
}

fn delta(bytes: &[u8]) -> Bytes {
    event(&json!({"type": "speech.audio.delta", "audio": STANDARD.encode(bytes)}))
}

/// Returns the final event. Nothing is billed, so it only reports the input: one token per four characters.
fn done(characters: usize) -> Bytes {
    let input = characters.div_ceil(4);
    let usage = json!({"input_tokens": input, "output_tokens": 0, "total_tokens": input});
    event(&json!({"type": "speech.audio.done", "usage": usage}))
}

fn event(value: &Value) -> Bytes {
    format!("data: {value}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &Value) -> Result<SpeechOrder, SpeechRefusal> {
        SpeechOrder::read(&[Bytes::from(body.to_string())], Some("fable"))
    }

    #[test]
    fn a_request_is_read_as_openai_documents_it() {
        let order = read(&json!({"model": "m", "input": "hi"})).unwrap();
        assert_eq!((order.script.voice.id, order.script.container.name()), ("en-GB", "mp3"));
        assert_eq!((order.script.speed_percent, order.events), (100, false));
        let body = json!({"input": "hi", "voice": {"id": "de-DE"}, "speed": 1.25, "response_format": "wav",
            "stream_format": "sse", "instructions": "Whisper."});
        let order = read(&body).unwrap();
        assert_eq!((order.script.voice.id, order.script.speed_percent), ("de-DE", 125));
        assert!(order.events && order.script.container == Container::Wav);
    }

    #[test]
    fn an_invalid_speech_request_is_rejected_by_field() {
        for (body, param, part) in [
            (json!({"voice": "alloy"}), "input", "speech request"),
            (json!({"input": "x".repeat(4_097)}), "input", "4096"),
            (json!({"input": "x", "voice": "nobody"}), "voice", "alloy"),
            (json!({"input": "x", "response_format": "aac"}), "response_format", "mp3"),
            (json!({"input": "x", "speed": 0.1}), "speed", "0.25"),
            (json!({"input": "x", "stream_format": "raw"}), "stream_format", "sse"),
        ] {
            let Err((named, message)) = read(&body) else { panic!("{body}") };
            assert!(named == param && message.contains(part), "{body}: {named} {message}");
        }
    }
}
