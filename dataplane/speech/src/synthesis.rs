//! Synthesis threads. A script waits in a bounded queue until a thread is free; its audio is delivered while it is
//! generated, and the synthesis stops when its listener does.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::container::Container;
use crate::engine::Speaker;
use crate::text;
use crate::voice::{self, Voice};

/// Maximum scripts that wait while all threads are busy.
const WAITING_MAX: usize = 64;

/// A text to speak, and how.
#[derive(Clone, Debug)]
pub struct Script {
    /// The voice.
    pub voice: &'static Voice,
    /// Speed in percent of the normal speed.
    pub speed_percent: u32,
    /// Any text; it is cleaned with [`crate::clean`].
    pub text: String,
    /// The output format.
    pub container: Container,
}

/// Output of a synthesis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sound {
    /// The next bytes.
    Piece(Vec<u8>),
    /// The audio is complete.
    End,
    /// The engine failed; contains the reason for the log.
    Failed(String),
}

/// Receives the output; returns false to stop the synthesis. It may block: the thread waits.
type Listener = Box<dyn FnMut(Sound) -> bool + Send>;

/// Error: too many scripts are waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// Handle to the synthesis threads. They end when the last handle is dropped and the queue is empty.
#[derive(Clone)]
pub struct Synthesizer {
    scripts: Sender<(Script, Listener)>,
}

impl std::fmt::Debug for Synthesizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Synthesizer").field("waiting", &self.scripts.len()).finish()
    }
}

impl Synthesizer {
    /// Installs the voices in `folder`, where the engine reads them, and starts `threads` threads.
    pub fn open(folder: &Path, threads: usize) -> io::Result<Self> {
        voice::install(folder)?;
        let (scripts, queue) = bounded(WAITING_MAX);
        let folder: Arc<Path> = folder.into();
        for number in 0..threads.max(1) {
            let (queue, folder) = (queue.clone(), Arc::clone(&folder));
            #[expect(clippy::disallowed_methods, reason = "the thread survives panics of what it does")]
            std::thread::Builder::new().name(format!("voice-{number}")).spawn(move || {
                SynthesisThread { folder: folder.to_path_buf(), speaker: None }.work(&queue)
            })?;
        }
        Ok(Self { scripts })
    }

    /// Queues `script`; its audio goes to `listener`.
    pub fn synthesize(&self, script: Script, listener: Listener) -> Result<(), Busy> {
        self.scripts.try_send((script, listener)).map_err(|error| match error {
            TrySendError::Full(_) | TrySendError::Disconnected(_) => Busy,
        })
    }
}

/// State of one thread.
struct SynthesisThread {
    folder: PathBuf,
    /// The most recently used voice.
    speaker: Option<Speaker>,
}

impl SynthesisThread {
    fn work(mut self, queue: &Receiver<(Script, Listener)>) {
        while let Ok((script, listener)) = queue.recv() {
            // A panic ends one script, not the thread. The script's listener is dropped, which signals the failure.
            if catch_unwind(AssertUnwindSafe(|| self.serve(&script, listener))).is_err() {
                self.speaker = None;
            }
        }
    }

    fn serve(&mut self, script: &Script, mut listener: Listener) {
        let end = match self.perform(script, &mut listener) {
            Ok(true) => Sound::End,
            Ok(false) => return,
            Err(why) => {
                // The engine's state is unknown after a failure, so it is not reused.
                self.speaker = None;
                Sound::Failed(why)
            }
        };
        listener(end);
    }

    /// Synthesizes the whole text; returns false if the listener has stopped.
    fn perform(&mut self, script: &Script, listener: &mut Listener) -> Result<bool, String> {
        let mut encoder = script.container.encoder().ok_or("the encoder could not be made")?;
        let speaker = self.speaker(script.voice)?;
        for piece in text::pieces(&text::clean(&script.text)) {
            let mut failed = false;
            let mut receive = |samples: &[i16]| {
                let mut bytes = Vec::new();
                failed = encoder.encode(samples, &mut bytes).is_none();
                !failed && (bytes.is_empty() || listener(Sound::Piece(bytes)))
            };
            let wanted = speaker
                .synthesize(piece, script.speed_percent, &mut receive)
                .map_err(|error| error.to_string())?;
            if failed {
                return Err("the encoder failed".to_owned());
            }
            if !wanted {
                return Ok(false);
            }
        }
        let mut bytes = Vec::new();
        encoder.finish(&mut bytes).ok_or("the encoder failed at the end")?;
        Ok(bytes.is_empty() || listener(Sound::Piece(bytes)))
    }

    fn speaker(&mut self, voice: &'static Voice) -> Result<&mut Speaker, String> {
        let speaker = match self.speaker.take() {
            Some(speaker) if std::ptr::eq(speaker.voice, voice) => speaker,
            _ => Speaker::new(&self.folder, voice).map_err(|error| error.to_string())?,
        };
        Ok(self.speaker.insert(speaker))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::VOICES;

    fn script(voice: &'static Voice, text: &str) -> Script {
        Script { voice, speed_percent: 100, text: text.to_owned(), container: Container::Wav }
    }

    fn receive(studio: &Synthesizer, script: Script) -> Vec<u8> {
        let (sender, sounds) = mpsc::channel();
        studio.synthesize(script, Box::new(move |sound| sender.send(sound).is_ok())).unwrap();
        let mut bytes = Vec::new();
        loop {
            match sounds.recv_timeout(Duration::from_secs(60)).unwrap() {
                Sound::Piece(piece) => bytes.extend(piece),
                Sound::End => return bytes,
                Sound::Failed(why) => panic!("{why}"),
            }
        }
    }

    #[test]
    fn every_voice_produces_sound_of_a_stable_length() {
        let folder = tempfile::tempdir().unwrap();
        let studio = Synthesizer::open(folder.path(), 2).unwrap();
        for voice in &VOICES {
            let first = receive(&studio, script(voice, "One, two, three."));
            let seconds = first.len() as f32 / 32_000.0;
            assert!((0.5..5.0).contains(&seconds), "{}: {seconds} s", voice.id);
            let again = receive(&studio, script(voice, "One, two, three."));
            assert!(again.len().abs_diff(first.len()) * 10 < first.len(), "{}", voice.id);
        }
    }

    #[test]
    fn a_panic_of_a_listener_ends_only_its_script() {
        let folder = tempfile::tempdir().unwrap();
        let studio = Synthesizer::open(folder.path(), 1).unwrap();
        studio.synthesize(script(&VOICES[0], "Hello."), Box::new(|_| panic!("on purpose"))).unwrap();
        assert!(!receive(&studio, script(&VOICES[0], "Hello.")).is_empty());
    }

    #[test]
    fn a_higher_speed_gives_shorter_sound() {
        let folder = tempfile::tempdir().unwrap();
        let studio = Synthesizer::open(folder.path(), 1).unwrap();
        let text = "The quick brown fox jumps over the lazy dog.";
        let at =
            |percent| receive(&studio, Script { speed_percent: percent, ..script(&VOICES[0], text) }).len();
        let (slow, usual, fast) = (at(50), at(100), at(200));
        assert!(slow > usual * 3 / 2 && usual > fast * 3 / 2, "{slow} {usual} {fast}");
    }

    #[test]
    fn hostile_text_terminates_and_the_next_script_is_spoken() {
        let folder = tempfile::tempdir().unwrap();
        let studio = Synthesizer::open(folder.path(), 1).unwrap();
        let before = receive(&studio, script(&VOICES[0], "Hello.")).len();
        for text in [
            "",
            "<genfile file=\"/tmp/x\">",
            "\0\u{1}\u{7f}",
            "\u{1f680}\u{fe0f}\u{200d}",
            "a\u{301}\u{301}",
            "&&&;;;\"\"\"",
            "𝔘𝔫𝔦",
        ] {
            receive(&studio, script(&VOICES[0], text));
        }
        let after = receive(&studio, script(&VOICES[0], "Hello.")).len();
        assert!(after.abs_diff(before) * 10 < before, "{after} bytes, {before} before");
    }

    #[test]
    fn synthesis_stops_when_the_listener_returns_false() {
        let folder = tempfile::tempdir().unwrap();
        let studio = Synthesizer::open(folder.path(), 1).unwrap();
        let (sender, sounds) = mpsc::channel();
        let listener = move |sound| {
            sender.send(sound).unwrap();
            false
        };
        studio.synthesize(script(&VOICES[0], &"A long story. ".repeat(2_000)), Box::new(listener)).unwrap();
        assert!(matches!(sounds.recv().unwrap(), Sound::Piece(_)));
        assert!(sounds.recv().is_err(), "the listener is dropped after its first no");
        assert!(!receive(&studio, script(&VOICES[0], "Next.")).is_empty());
    }
}
